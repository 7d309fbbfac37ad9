"""Time a training step of the paper's network on a GPU: the network alone, the loss alone, the whole step.

    python -m benchmarks.step

The batch is the paper's: 4 videos of one action, 20 frames of each, 2 context frames, 224 × 224 pixels.
"""

import argparse
import statistics
from collections.abc import Callable
from itertools import pairwise

import torch
from lightning.fabric import Fabric

from inphase.data.stream import Batch, Group
from inphase.losses import GTA, Sequences
from inphase.models import ImageEncoder
from inphase.training.recipe import OptimizerSettings
from inphase.training.step import EncoderWithLoss, TrainStep, put_channels_last


def make_batch(*, size: int) -> Batch:
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(0, 256, (4, 20, 2, size, size, 3), dtype=torch.uint8, generator=generator)
    frames, lengths = torch.arange(20).repeat(4, 1), torch.full((4,), 20)
    group = Group(
        action="serve",
        ids=("a", "b", "c", "d"),
        values=values,
        frames=frames,
        times=frames.double() / 20,
        lengths=lengths,
        totals=torch.full((4,), 60),
    )
    return Batch(0, (group,))


def milliseconds(work: Callable[[], object], *, rounds: int = 30) -> float:
    """Return the median milliseconds of calls on the GPU, without synchronization between them."""
    for _ in range(5):
        work()
    torch.cuda.synchronize()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(rounds + 1)]  # type: ignore[no-untyped-call]
    marks[0].record()
    for mark in marks[1:]:
        work()
        mark.record()
    torch.cuda.synchronize()
    return float(statistics.median(a.elapsed_time(b) for a, b in pairwise(marks)))


def measure(*, bf16: bool, variant: str, size: int, compiled: bool) -> dict[str, float]:
    torch.manual_seed(0)
    device = torch.device("cuda")
    encoder = ImageEncoder(backbone="resnet50v2", mode="only_bn", weights="saved", size=(size, size))
    method = EncoderWithLoss(encoder, GTA(variant=variant)).train()  # type: ignore[arg-type]
    if bf16:
        put_channels_last(method)
    fabric = Fabric(accelerator="cuda", devices=1, precision="bf16-mixed" if bf16 else "32-true")
    train_step = TrainStep(method, settings=OptimizerSettings(), fabric=fabric, compiled=compiled)
    given = make_batch(size=size).to(device)
    images = encoder.prepare(given.groups[0].values)
    group = given.groups[0]
    vectors = torch.nn.functional.normalize(torch.randn(4, 20, 128, device=device), dim=-1).requires_grad_()
    weights = torch.randn(4, 20, 128, device=device)
    found = {}

    def network() -> None:
        with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
            embedded = encoder(images)
        (embedded * weights).sum().backward()
        train_step.optimizer.zero_grad()

    def loss() -> None:
        sequences = Sequences(values=vectors, lengths=group.lengths, frames=group.frames, totals=group.totals)
        method.loss(sequences)["loss"].backward()
        vectors.grad = None

    found["step"] = milliseconds(lambda: train_step(given, lr=1e-4))
    if not compiled:
        found |= {"network": milliseconds(network), "loss": milliseconds(loss)}
    found["last loss"] = float(train_step(given, lr=1e-4)["loss"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=224)
    size = parser.parse_args().size
    torch.backends.cudnn.benchmark = True
    rounded = "TF32" if torch.backends.cudnn.allow_tf32 else "float32"
    print(f"{torch.cuda.get_device_name()}; float32 convolutions use {rounded}, torch's default")
    print("| precision | GTA | step | whole step | network alone, eager | loss alone, eager | loss after 36 steps |")
    print("|---|---|---|---|---|---|---|")
    for bf16, variant, compiled in (
        (False, "paper", False),
        (True, "paper", False),
        (True, "released", False),
        (True, "released", True),
    ):
        found = measure(bf16=bf16, variant=variant, size=size, compiled=compiled)
        kind = "bfloat16, channels last" if bf16 else "float32"
        alone = [f"{found[name]:.2f} ms" if name in found else "" for name in ("network", "loss")]
        how = "compiled, one CUDA graph" if compiled else "eager"
        print(
            f"| {kind} | {variant} | {how} | {found['step']:.1f} ms | {' | '.join(alone)} | {found['last loss']:.3f} |"
        )


if __name__ == "__main__":
    main()
