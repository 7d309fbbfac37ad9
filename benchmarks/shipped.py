"""Measure a pose encoder on data sets it was not trained on: the encoder that ships, or candidates to replace it.

python -m benchmarks.shipped [ENCODER …] --data DATA [--golf-poses STORE] [--sign-poses STORE]

DATA holds golfdb, lsa64_signs, ski_jump_poses and utd_mhad; absent ones are left out. STORE is a folder that `inphase
data pose` filled. Events are carried between 2,000 pairs of clips of different people; the error is in frames, mean
and median. UTD-MHAD, projected by synthetic cameras, has no events: its error is the mean distance in frames from the
alignment of the true bodies. Without ENCODER the shipped one is measured.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from benchmarks.pose3d import by_truth
from inphase.align.matching import match_many
from inphase.data import golfdb
from inphase.data.frame_source import load_videos, open_frame_source
from inphase.data.video import Video
from inphase.models import Embedding, Encoder, embed, load_encoder, load_shipped

MAX_PAIRS, MOCAP_PAIRS = 2000, 12  # of a data set, and of each action of UTD-MHAD


def embed_all(encoder: Encoder, videos: Sequence[Video], store: Path | None) -> dict[str, tuple[Video, Embedding]]:
    source = open_frame_source(encoder, videos, store=store)
    found = {}
    for video in source.videos:
        frames = source.read(video, np.arange(source.frame_count(video)))
        found[video.id] = video, embed(encoder, frames, context=encoder.context_at(video.rate), batch=4096)
    return found


def draw_pairs(videos: Sequence[Video], person: str, count: int) -> list[tuple[str, str]]:
    """Draw pairs of videos of one action by different people."""
    pairs = [
        (a.id, b.id) for a in videos for b in videos if a.action == b.action and a.notes[person] != b.notes[person]
    ]
    chosen = np.random.default_rng(0).choice(len(pairs), min(count, len(pairs)), replace=False)
    return [pairs[number] for number in chosen]


def carry_events(
    encoder: Encoder, videos: Sequence[Video], *, person: str, store: Path | None, events: Sequence[str] = ()
) -> str:
    """Carry events between pairs; return mean and median error."""
    known = embed_all(encoder, videos, store)
    pairs = draw_pairs([video for video, _ in known.values()], person, MAX_PAIRS)
    errors = []
    for (a, b), found in zip(pairs, match_many([(known[a][1], known[b][1]) for a, b in pairs]), strict=True):
        x, y = known[a][0].events, known[b][0].events
        names = [name for name in events or x if name in x and name in y]
        errors.append(np.abs(found.frame_map()[[x[name] for name in names]] - [y[name] for name in names]))
    every = np.concatenate(errors)
    return f"{every.mean():.2f} / {np.median(every):.1f} ({len(known)} clips)"


def follow_bodies(encoder: Encoder, root: Path) -> str:
    """Measure the distance from the alignment of the true bodies, on UTD-MHAD's test people."""
    known = embed_all(encoder, load_videos({"name": "utd_mhad", "root": str(root), "seed": 3}, split="test"), None)
    videos = [video for video, _ in known.values()]
    errors = []
    for action in sorted({video.action for video in videos}):
        pairs = draw_pairs([video for video in videos if video.action == action], "subject", MOCAP_PAIRS)
        for (a, b), found in zip(pairs, match_many([(known[a][1], known[b][1]) for a, b in pairs]), strict=True):
            x, y = known[a][0], known[b][0]
            errors.append(np.abs(found.frame_map() - by_truth(x, y) * (y.rate or 1.0)).mean())
    return f"{np.mean(errors):.2f} / {np.median(errors):.1f} ({len(videos)} clips)"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("encoders", type=Path, nargs="*")
    arguments.add_argument("--data", type=Path, required=True)
    arguments.add_argument("--golf-poses", type=Path)
    arguments.add_argument("--sign-poses", type=Path)
    given = arguments.parse_args()
    torch.set_num_threads(1)
    for file in given.encoders or [None]:
        encoder = load_shipped("pose") if file is None else load_encoder(file)
        print(file or "shipped")
        if given.golf_poses is not None:
            for split in ("val", "test"):
                swings = golfdb.load(given.data / "golfdb", split=split)
                inner = {"person": "player", "store": given.golf_poses, "events": golfdb.EVENTS[1:-1]}
                print(f"  golfdb, {split}: {carry_events(encoder, swings, **inner)}", flush=True)
        for name, split, store in (("lsa64_signs", "all", given.sign_poses), ("ski_jump_poses", "test", None)):
            root = given.data / name
            if root.is_dir() and (store is not None or name == "ski_jump_poses"):
                videos = load_videos({"name": name, "root": str(root)}, split=split)
                print(f"  {name}: {carry_events(encoder, videos, person='person', store=store)}", flush=True)
        if (given.data / "utd_mhad").is_dir():
            print(f"  utd_mhad: {follow_bodies(encoder, given.data / 'utd_mhad')}", flush=True)


if __name__ == "__main__":
    main()
