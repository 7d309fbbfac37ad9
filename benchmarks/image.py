"""Compare inputs for the image head: features of a frozen network as frames or differences, with or without their mean.

    python -m benchmarks.image GolfDB --out image        # ten minutes to extract features, then one per line, on a core

GTA on GolfDB's training players, measured on held-out players: errors of transferred events in frames, and τ. No test
video is used, except with `--split test`, which trains on all of splits 2 and 3 and measures on split 4.
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
from inphase.evaluation import EmbeddedVideo
from inphase.evaluation.tasks.matching_errors import event_error
from inphase.evaluation.tasks.unlabeled import kendall_tau
from inphase.media.sampling import context_frames
from inphase.models import ENCODERS, Embedding, Encoder, MotionEncoder
from inphase.models.motion_encoder import PooledFeatures
from inphase.models.weights import fingerprint
from inphase.runs import CachedFeatures, feature_file_name
from inphase.training import Recipe, read_recipe, train

INNER = golfdb.EVENTS[1:-1]


class Frames(MotionEncoder):
    """Concatenate the context frames."""

    def motion(self, features: Tensor) -> Tensor:
        return features


class CenteredFrames(Frames):
    """Concatenate the context frames, minus the mean over the video."""


class CenteredBoth(MotionEncoder):
    """Concatenate the differences and the middle frame, minus the mean over the video."""

    def motion(self, features: Tensor) -> Tensor:
        middle = features.shape[1] // 2
        return torch.cat([features[:, middle : middle + 1], super().motion(features)], 1)


INPUTS: dict[str, type[MotionEncoder]] = {
    "frames": Frames,
    "frames, mean off": CenteredFrames,
    "differences and frame, mean off": CenteredBoth,
    "differences": MotionEncoder,
}
UNTRAINED = "nothing trained, mean off"


def derive_features(name: str, source: FrameSource, folder: Path) -> None:
    """Write the cached features of an input, from those of the plain encoder."""
    networks = [fingerprint(kind(), head=False) for kind in (MotionEncoder, INPUTS[name])]
    for video in source.videos:
        original, target = (
            folder / feature_file_name(network, video, source.frame_count(video)) for network in networks
        )
        if not target.exists():
            features = np.load(original).astype(np.float32)
            np.save(target, (features - features.mean(0) if "mean off" in name else features).astype(np.float16))
            np.save(target.with_suffix(".times.npy"), np.load(original.with_suffix(".times.npy")))


def measure(
    encoder: Encoder, read: Callable[..., tuple[np.ndarray, np.ndarray]], source: FrameSource
) -> dict[str, float]:
    """Embed videos from cached features; return event errors and τ."""
    embedded = []
    for video in source.videos:
        length = source.frame_count(video)
        features, times = read(video, np.arange(length))
        wanted = context_frames(np.arange(length), length=length, context=encoder.context)
        with torch.inference_mode():
            values = encoder.combine(torch.from_numpy(features).float()[torch.from_numpy(wanted)]).numpy()
        embedding = encoder.center(Embedding(values, times))
        embedded.append(EmbeddedVideo(video, embedding, length, context=encoder.context))
    scores = [*event_error([], embedded, events=INNER, pairs=4000), *kendall_tau([], embedded)]
    metrics = ("mean", "median", "tau", "tau_unclamped")
    return {score.label: score.value for score in scores if score.metric in metrics and not score.is_detail}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("golfdb", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--recipe", default="golf_image_gta")
    parser.add_argument("--inputs", nargs="*", default=list(INPUTS), choices=[UNTRAINED, *INPUTS])
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
    source = open_frame_source(plain, videos)
    folder = given.out / "features"
    CachedFeatures(plain, source, folder=folder).compute_all()
    if UNTRAINED in given.inputs:
        chosen = replace(source, videos=[video for video in source.videos if video.split == given.split])
        found = measure(PooledFeatures(), CachedFeatures(plain, chosen, folder=folder), chosen)
        print(json.dumps({"input": UNTRAINED, **found}), flush=True)
    for name in [name for name in given.inputs if name in INPUTS]:
        for seed in given.seeds:
            print(
                json.dumps({"input": name, "seed": seed, **trial(base, name, seed, source, given, folder)}), flush=True
            )


def trial(
    base: Recipe, name: str, seed: int, source: FrameSource, given: argparse.Namespace, folder: Path
) -> dict[str, float]:
    """Train on one input and measure the encoder."""
    ENCODERS[name] = INPUTS[name]
    derive_features(name, source, folder)
    recipe = replace(base, encoder={**base.encoder, "name": name}, run={**base.run, "seed": seed})
    run = train(recipe, given.out / f"{recipe.loss['name']} {name} {given.split} {seed}", features=folder).run
    encoder = run.encoder()
    chosen = replace(source, videos=[video for video in source.videos if video.split == given.split])
    return measure(encoder, CachedFeatures(encoder, chosen, folder=folder), chosen)


if __name__ == "__main__":
    main()
