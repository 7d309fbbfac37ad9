"""Measure the frames per second that each network embeds on one core, after checking batch invariance.

python -m benchmarks.models [SECONDS [IMAGES_PER_BATCH]]
"""

import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from inphase.media.sampling import Context
from inphase.models import AudioEncoder, Embedding, Encoder, ImageEncoder, PoseEncoder, embed

PARTS = ("shoulder", "elbow", "wrist", "hip", "knee", "ankle")
JOINTS = ("head", *(f"{side}_{part}" for part in PARTS for side in ("left", "right")))
PAST, AROUND = Context((-15, 0)), Context((-8, -4, 0, 4, 8))


def resnet(pixels: int) -> Encoder:
    # Random weights: the time does not depend on them.
    return ImageEncoder(backbone="resnet50v2", mode="scratch", weights=None, size=(pixels, pixels))


def lite0(pixels: int) -> Encoder:
    return ImageEncoder(size=(pixels, pixels), convolutions=(128, 128), hidden=(256,))


def embed_noise(encoder: Encoder, context: Context, *, frames: int, batch: int) -> Embedding:
    rng = np.random.default_rng(0)
    values = (255 * rng.random((frames, *encoder.shape), dtype=np.float32)).astype(np.uint8)
    return embed(encoder, (values, np.arange(frames, dtype=np.float64)), context=context, batch=batch)


def extract_features(encoder: Encoder, *, frames: int) -> None:
    """Run the backbone on single frames: the part that a cache of features saves."""
    with torch.inference_mode():
        encoder.features(encoder.prepare(torch.zeros(frames, *encoder.shape, dtype=torch.uint8)))


def rate(work: Callable[[], object], *, frames: int, seconds: float) -> str:
    """Repeat the work for some seconds, three times at least, and return the frames per second of the fastest run.

    Seconds are CPU time: load from other programs does not change them.
    """
    best, begin, runs = float("inf"), time.process_time(), 0
    while runs < 3 or time.process_time() - begin < seconds:
        start = time.process_time()
        work()
        best, runs = min(best, time.process_time() - start), runs + 1
    return f"{frames / best:,.0f}"


def main(seconds: float, batch: int) -> None:
    torch.set_num_threads(1)
    rows: list[tuple[str, Encoder, Context]] = [
        ("ResNet50V2, 224 px", resnet(224), PAST),
        ("ResNet50V2, 112 px", resnet(112), PAST),
        ("EfficientNet-Lite0, 224 px", lite0(224), PAST),
        ("EfficientNet-Lite0, 112 px", lite0(112), PAST),
        ("pose, 13 joints", PoseEncoder(joints=JOINTS), AROUND),
        ("sound", AudioEncoder(), Context((0,))),
    ]
    print(f"{'':<30}{'parameters':>12}{'features/s':>12}{'frames/s':>12}")
    for name, encoder, context in rows:
        encoder.eval()
        small, large = (embed_noise(encoder, context, frames=9, batch=batch).values for batch in (2, 8))
        np.testing.assert_allclose(small, large, atol=1e-5)
        frames = 4096 if encoder.modality == "pose" else batch
        alone = ""
        if encoder.modality == "image":
            alone = rate(partial(extract_features, encoder, frames=frames), frames=frames, seconds=seconds)
        whole = partial(embed_noise, encoder, context, frames=frames, batch=frames)
        parameters = sum(weight.numel() for weight in encoder.parameters())
        print(f"{name:<30}{parameters:>12,}{alone:>12}{rate(whole, frames=frames, seconds=seconds):>12}", flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 5.0, int(sys.argv[2]) if len(sys.argv) > 2 else 16)
