"""A compiled step, replayed as a CUDA graph, trains as an eager one does."""

import pytest
import torch

from inphase.data.stream import Batch, Group
from inphase.losses import GTA
from inphase.models import ImageEncoder
from inphase.training.recipe import OptimizerSettings
from inphase.training.step import EAGER_STEPS, EncoderWithLoss, TrainStep


def make_batch(seed: int, *, frames: int = 6, device: str) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(0, 256, (3, frames, 2, 32, 32, 3), dtype=torch.uint8, generator=generator)
    numbers = torch.arange(frames).repeat(3, 1)
    lengths, totals = torch.full((3,), frames), torch.full((3,), 60)
    group = Group("serve", ("a", "b", "c"), values, numbers, numbers.double(), lengths, totals)
    return Batch(0, (group,)).to(device)


def make_step(*, compiled: bool, device: str) -> TrainStep:
    from lightning.fabric import Fabric

    torch.manual_seed(0)
    encoder = ImageEncoder(
        backbone="resnet50v2", mode="scratch", weights=None, size=(32, 32), convolutions=(8,), hidden=(8,), dropout=0.0
    )
    network = EncoderWithLoss(encoder, GTA())
    return TrainStep(
        network, settings=OptimizerSettings(clip=10.0), fabric=Fabric(accelerator=device, devices=1), compiled=compiled
    )


def losses(step: TrainStep, *, device: str, steps: int = EAGER_STEPS + 4) -> list[float]:
    return [float(step(make_batch(k, device=device), lr=1e-5 * (k + 1))["loss"]) for k in range(steps)]


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # of torch's compiler
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
def test_a_graph_replays_the_eager_steps() -> None:
    eager, graphed = make_step(compiled=False, device="cuda"), make_step(compiled=True, device="cuda")
    assert graphed.graphs
    assert not eager.graphs
    graphed.network._compiled.clear()  # compiled kernels round differently: this tests the graph alone
    expected = losses(eager, device="cuda")
    assert losses(graphed, device="cuda") == pytest.approx(expected, rel=1e-2)
    assert graphed._graph is not None
    # A batch of other shapes takes an eager step; the graph stays.
    graph = graphed._graph
    graphed(make_batch(9, frames=5, device="cuda"), lr=1e-4)
    assert graphed._graph is graph


def test_steps_on_a_cpu_need_no_graph() -> None:
    step = make_step(compiled=False, device="cpu")
    found = losses(step, device="cpu", steps=2)
    assert not step.graphs
    assert all(0 < value < 1000 for value in found)
    assert step.optimizer.param_groups[0]["lr"] == pytest.approx(2e-5)
