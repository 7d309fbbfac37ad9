"""A compiled step, replayed as a CUDA graph, trains as an eager one does."""

import threading
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from inphase.data.stream import Batch, Group
from inphase.losses import GTA
from inphase.models import ImageEncoder
from inphase.runs import load_checkpoint, restore_checkpoint, save_checkpoint
from inphase.training.recipe import OptimizerSettings
from inphase.training.step import EAGER_STEPS, CopyToDevice, EncoderWithLoss, LateRead, TrainStep


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


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # of torch's compiler
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
def test_a_graph_is_recorded_while_a_loader_pins_memory() -> None:
    step, done = make_step(compiled=True, device="cuda"), threading.Event()
    step.network._compiled.clear()

    def pin() -> None:
        size = 2**20
        while not done.is_set():
            torch.empty(size, dtype=torch.uint8).pin_memory()
            size += 2**20  # new memory each time, not that of a cache

    loader = threading.Thread(target=pin)
    loader.start()
    try:
        found = losses(step, device="cuda")
    finally:
        done.set()
        loader.join()
    assert step._graph is not None
    assert all(0 < value < 1000 for value in found)


DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")],
    ),
]


@pytest.mark.parametrize("device", DEVICES)
def test_batches_are_copied_and_numbers_read_while_other_work_is_queued(device: str) -> None:
    copy = CopyToDevice(torch.device(device))
    waiting = []
    for step in range(5):
        batch = make_batch(step, device="cpu")
        values = copy(batch).groups[0].values
        assert values.device.type == device
        waiting.append((LateRead(values.double().sum(), values.double().max()), batch.groups[0].values.double()))
        values.fill_(0)  # queued after the copies of the numbers
    for found, expected in waiting:
        assert found.read() == [float(expected.sum()), float(expected.max())]


def test_steps_on_a_cpu_need_no_graph() -> None:
    step = make_step(compiled=False, device="cpu")
    found = losses(step, device="cpu", steps=2)
    assert not step.graphs
    assert all(0 < value < 1000 for value in found)
    assert step.optimizer.param_groups[0]["lr"] == pytest.approx(2e-5)


def test_a_checkpoint_of_a_graphed_optimizer_is_restored_with_and_without_graphs(tmp_path: Path) -> None:
    network = nn.Linear(2, 1)

    def build(lr: float | Tensor) -> torch.optim.AdamW:
        return torch.optim.AdamW(network.parameters(), lr=lr, fused=True)

    graphed, file = build(torch.tensor(1e-3)), tmp_path / "state.safetensors"
    network(torch.ones(1, 2)).sum().backward()
    graphed.step()
    save_checkpoint(file, step=1, network=network, optimizer=graphed, rng_states=torch.zeros(1, 4, dtype=torch.uint8))
    checkpoint = load_checkpoint(file)
    assert checkpoint is not None
    for own in (torch.tensor(1.0), 1.0):
        optimizer = build(own)
        restore_checkpoint(file, checkpoint, network=network, optimizer=optimizer)
        rate = optimizer.param_groups[0]["lr"]
        assert isinstance(rate, Tensor) == isinstance(own, Tensor)
        assert float(rate) == pytest.approx(1e-3)
        assert optimizer.state_dict()["state"][0]["step"] == 1
