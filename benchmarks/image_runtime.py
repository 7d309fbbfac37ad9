"""Measure frozen image networks by torch and by OpenVINO, side by side in one run, on the same number of threads.

    python -m benchmarks.image_runtime                    # CPU time a frame, largest difference, and the time to start
    python -m benchmarks.image_runtime GolfDB [CLIPS]     # event errors on held-out players by each runtime as well

Times are of the processor, which other work on the machine affects less than those of a clock. Batches of 16 frames.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.timing import interleave_cpu, lay_out, machine
from inphase.data import golfdb
from inphase.data.frame_source import open_frame_source
from inphase.evaluation.embedded_videos import embed_videos
from inphase.evaluation.tasks.matching_errors import event_error
from inphase.models import backbone_runtime
from inphase.models.backbone import build_backbone
from inphase.models.encoder import RUNTIME_VARIABLE, compute_maps
from inphase.models.motion_encoder import PooledFeatures

RUNTIMES = {"torch": "torch", "OpenVINO": "auto", "OpenVINO, bf16": "bf16"}
NETWORKS = (("efficientnet_lite0", 112), ("efficientnet_lite0", 224), ("resnet50v2", 224))


@contextmanager
def chosen_runtime(name: str) -> Iterator[None]:
    before = os.environ.get(RUNTIME_VARIABLE)
    os.environ[RUNTIME_VARIABLE] = RUNTIMES[name]
    try:
        yield
    finally:
        os.environ.pop(RUNTIME_VARIABLE)
        if before is not None:
            os.environ[RUNTIME_VARIABLE] = before


def measure_network(name: str, size: int) -> list[str]:
    """Time one network by every runtime; return a row of the table."""
    published = "published" if name == "efficientnet_lite0" else None
    images = torch.rand(16, size, size, 3, generator=torch.Generator().manual_seed(0)) * 2 - 1
    # A network each, since a thread keeps one compiled form of each.
    torch.manual_seed(0)
    first = build_backbone(name, weights=published)[0].requires_grad_(False).eval()
    networks: dict[str, nn.Module] = {"torch": first}
    for runtime in [*RUNTIMES][1:]:
        networks[runtime] = build_backbone(name, weights=None)[0].requires_grad_(False).eval()
        networks[runtime].load_state_dict(first.state_dict())

    def run(runtime: str) -> torch.Tensor:
        with chosen_runtime(runtime):
            return compute_maps(networks[runtime], images)

    starts = []
    for _ in range(2):
        backbone_runtime._networks.by_backbone.clear()
        begin = time.process_time()
        run("OpenVINO")
        starts.append(time.process_time() - begin)
    expected = run("torch")
    errors = {each: float((run(each) - expected).abs().max() / expected.abs().max()) for each in RUNTIMES}
    spent = interleave_cpu({each: lambda each=each: run(each) for each in RUNTIMES}, rounds=7)  # type: ignore[misc]
    milliseconds = {each: seconds / len(images) * 1000 for each, seconds in spent.items()}
    return [
        f"{name}, {size} px",
        *(f"{milliseconds[each]:.2f}" for each in RUNTIMES),
        f"{milliseconds['torch'] / milliseconds['OpenVINO']:.1f}×",
        f"{errors['OpenVINO']:.0e}",
        f"{errors['OpenVINO, bf16']:.0e}",
        f"{starts[0]:.2f} / {starts[1]:.2f}",
    ]


def measure_events(root: Path, clips: int) -> Iterator[list[str]]:
    """Embed held-out players' clips by each runtime; yield rows of event errors."""
    videos = [video for video in golfdb.load(root, split="all", held_out=0.2) if video.split == "val"]
    chosen = [videos[i] for i in np.linspace(0, len(videos) - 1, min(clips, len(videos))).astype(int)]
    for runtime in RUNTIMES:
        with chosen_runtime(runtime):
            encoder = PooledFeatures().eval()
            source = open_frame_source(encoder, chosen)
            begin = time.process_time()
            embedded = embed_videos(encoder, source.videos, read=source.read, frame_count=source.frame_count)
            seconds = time.process_time() - begin
        scores = event_error([], embedded, events=golfdb.EVENTS[1:-1], beta=encoder.beta)
        errors = {score.label: score.value for score in scores if score.metric == "mean" and not score.is_detail}
        frames = sum(map(len, embedded))
        yield [
            runtime,
            *(f"{value:.2f}" for value in errors.values()),
            f"{seconds / frames * 1000:.1f}",
            f"{len(embedded)} clips, {frames} frames; {', '.join(errors)}",
        ]


def main() -> None:
    torch.set_num_threads(1)
    print(machine("cpu"))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        head = ["network", *(f"{name}, ms" for name in RUNTIMES), "OpenVINO", "error", "error, bf16", "start, s"]
        print(lay_out(head, [measure_network(*each) for each in NETWORKS]), flush=True)
        if len(sys.argv) > 1:
            for row in measure_events(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 24):
                print(" | ".join(row), flush=True)


if __name__ == "__main__":
    main()
