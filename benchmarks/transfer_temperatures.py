"""Choose the temperature of `inphase transfer` on validation videos, outside the training and test sets.

python -m benchmarks.transfer_temperatures MODEL --golfdb ROOT --store STORE

MODEL was trained without a fifth of GolfDB's training players (`inphase train golf_pose_gta --set data.held_out=0.2`).
Labels are transferred among the swings of these players, and among the stage's validation set, as in
`benchmarks.transfer`. The temperature at which labels are placed is judged by the mean error.
"""

import argparse
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from benchmarks.transfer import embed_labeled, pairs, shared_events
from inphase.align.consensus import medians_of, posterior
from inphase.align.matching import match
from inphase.data import golfdb, stage_videos
from inphase.data.frame_source import add_poses, select_joints
from inphase.data.video import Video
from inphase.models import Encoder, load_encoder
from inphase.pose.pose_store import PoseStore

TEMPERATURES = (0.5, 1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0)


def measure(encoder: Encoder, videos: Sequence[Video], names: Sequence[str], *, alike: str, rate: float) -> None:
    """Print a row for every temperature."""
    embedded = {video.id: embed_labeled(encoder, video, rate=rate) for video in videos}
    errors: dict[float, list[float]] = defaultdict(list)
    for source, target in pairs(videos, alike=alike, rng=np.random.default_rng(0)):
        x, y = embedded[source.id], embedded[target.id]
        _, frames, truth = shared_events(source, target, names)
        found = match(x.values, y.values)
        for gamma in TEMPERATURES:
            places = medians_of(y.times, posterior(x, y, frames, alignment=found, gamma=gamma))
            errors[gamma] += np.abs(places * rate - truth).tolist()
    print("| temperature | mean error |\n|---|---|")
    for gamma in TEMPERATURES:
        print(f"| {gamma:g} | {np.mean(errors[gamma]):.2f} |")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model")
    arguments.add_argument("--golfdb", type=Path, required=True)
    arguments.add_argument("--store", type=Path, required=True)
    given = arguments.parse_args()
    torch.set_num_threads(1)
    encoder, store = load_encoder(given.model), PoseStore(given.store)
    held_out = [video for video in golfdb.load(given.golfdb, split="val", held_out=0.2) if video.id in store]
    print(f"\nGolfDB, {len(held_out)} swings of held-out players\n")
    measure(encoder, add_poses(held_out, store=store), golfdb.EVENTS[1:-1], alike="view", rate=golfdb.RATE)
    takes = [select_joints(video) for video in stage_videos.load(split="val")]
    print(f"\nstage, {len(takes)} videos of its validation set\n")
    measure(encoder, takes, (), alike="", rate=30.0)


if __name__ == "__main__":
    main()
