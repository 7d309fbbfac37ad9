"""What makes pictures align: the same head on what a frozen network sees, given to it in different ways.

    python -m benchmarks.pixels GolfDB --out pixels        a minute of a core for each line, after ten of looking

GTA on GolfDB's training players, measured on those held out: events carried in frames, and τ. Nothing here sees a test
video. `--split test` trains on all of splits 2 and 3 and measures on split 4, for the last word.
"""

import argparse
import json
import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from inphase.data import golfdb
from inphase.data.frame_source import FrameSource, open_frame_source
from inphase.evaluation.embedded import Embedded
from inphase.evaluation.event_error import event_error
from inphase.evaluation.kendall_tau import kendall_tau
from inphase.media.sampling import context_frames
from inphase.models import ENCODERS, Embedding, Encoder, MotionEncoder
from inphase.models.motion_encoder import PooledFeatures
from inphase.models.weights import fingerprint
from inphase.training import Recipe, read_recipe, train
from inphase.training.features import CachedFeatures, feature_file_name

INNER = golfdb.EVENTS[1:-1]


class Frames(MotionEncoder):
    """See the context frames side by side."""

    def motion(self, features: Tensor) -> Tensor:
        return features


class CentredFrames(Frames):
    """See the context frames side by side, each video's own mean taken off."""


class CentredBoth(MotionEncoder):
    """See the differences and the middle frame, each video's own mean taken off."""

    def motion(self, features: Tensor) -> Tensor:
        middle = features.shape[1] // 2
        return torch.cat([features[:, middle : middle + 1], super().motion(features)], 1)


WAYS: dict[str, type[MotionEncoder]] = {
    "frames": Frames,
    "frames, mean off": CentredFrames,
    "differences and frame, mean off": CentredBoth,
    "differences": MotionEncoder,
}
UNTRAINED = "nothing trained, mean off"


def keep(way: str, sight: FrameSource, folder: Path) -> None:
    """Keep what was seen as what this way of seeing sees, less the mean over the video where it says so."""
    networks = [fingerprint(kind(), head=False) for kind in (MotionEncoder, WAYS[way])]
    for video in sight.videos:
        source, target = (folder / feature_file_name(network, video, sight.frame_count(video)) for network in networks)
        if not target.exists():
            seen = np.load(source).astype(np.float32)
            np.save(target, (seen - seen.mean(0) if "mean off" in way else seen).astype(np.float16))
            np.save(target.with_suffix(".times.npy"), np.load(source.with_suffix(".times.npy")))


def measure(
    encoder: Encoder, read: Callable[..., tuple[np.ndarray, np.ndarray]], sight: FrameSource
) -> dict[str, float]:
    """Embed what was kept of videos, carry events between them and correlate orders."""
    seen = []
    for video in sight.videos:
        length = sight.frame_count(video)
        features, times = read(video, np.arange(length))
        wanted = context_frames(np.arange(length), length=length, context=encoder.context)
        with torch.inference_mode():
            values = encoder.combine(torch.from_numpy(features).float()[torch.from_numpy(wanted)]).numpy()
        embedding = Embedding(values, times)
        if isinstance(encoder, PooledFeatures):
            embedding = encoder.center(embedding)
        seen.append(Embedded(video, embedding, length, context=encoder.context))
    errors, tau = event_error([], seen, events=INNER, pairs=4000), kendall_tau([], seen)
    return {name: errors[name] for name in errors if name.endswith(("/mean", "/median"))} | {
        "tau": tau["tau"],
        "tau/nc": tau["tau/nc"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("golfdb", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--recipe", default="golf_image_gta")
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=[UNTRAINED, *WAYS])
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1])
    parser.add_argument("--split", choices=["val", "test"], default="val")
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    held_out = 0.2 if given.split == "val" else 0.0
    base = read_recipe(given.recipe, changes=[f"data.root={given.golfdb}", *given.set])
    base = replace(base, data={**base.data, "held_out": held_out})
    videos = golfdb.load(given.golfdb, split="all", held_out=held_out)
    plain = MotionEncoder()
    sight = open_frame_source(plain, videos)
    folder = given.out / "features"
    CachedFeatures(plain, sight, folder=folder).compute_all()
    if UNTRAINED in given.ways:
        chosen = replace(sight, videos=[video for video in sight.videos if video.split == given.split])
        found = measure(PooledFeatures(), CachedFeatures(plain, chosen, folder=folder), chosen)
        print(json.dumps({"way": UNTRAINED, **found}), flush=True)
    for way in [way for way in given.ways if way in WAYS]:
        for seed in given.seeds:
            print(json.dumps({"way": way, "seed": seed, **trial(base, way, seed, sight, given, folder)}), flush=True)


def trial(
    base: Recipe, way: str, seed: int, sight: FrameSource, given: argparse.Namespace, folder: Path
) -> dict[str, float]:
    """Train one way of seeing and measure it."""
    ENCODERS[way] = WAYS[way]
    keep(way, sight, folder)
    recipe = replace(base, encoder={**base.encoder, "name": way}, run={**base.run, "seed": seed})
    run = train(recipe, given.out / f"{recipe.loss['name']} {way} {given.split} {seed}", features=folder).run
    encoder = run.encoder()
    chosen = replace(sight, videos=[video for video in sight.videos if video.split == given.split])
    return measure(encoder, CachedFeatures(encoder, chosen, folder=folder), chosen)


if __name__ == "__main__":
    main()
