from collections.abc import Iterator

import pytest
import torch

from inphase.data import stage
from inphase.data.groups import GroupStream
from inphase.data.sight import see
from inphase.models import PoseEncoder
from inphase.objectives import GTA
from inphase.training.method import Given, Method, trained
from inphase.training.settings import Optimiser
from tests.conftest import CUDA


@pytest.fixture
def waiting_is_an_error() -> Iterator[None]:
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("device", [CUDA])
@pytest.mark.parametrize("variant", ["paper", "released"])
def test_a_step_never_waits_for_the_gpu(device: str, variant: str, waiting_is_an_error: None) -> None:
    encoder = PoseEncoder()
    sight = see(encoder, stage.load(split="train", actions=["squat"], videos=4))
    batch = GroupStream(sight.videos, read=sight.read, count=20, context=encoder.context)[0]
    method = Method(encoder, GTA(variant=variant)).to(device)  # type: ignore[arg-type]
    optimiser = Optimiser().build(trained(method))
    given = Given([batch], device=torch.device(device))

    def step() -> torch.Tensor:
        loss: torch.Tensor = method(given)["loss"] + encoder.regulariser()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        optimiser.zero_grad()
        return loss.detach()

    step()  # compiles
    torch.cuda.set_sync_debug_mode("error")
    loss = step()
    torch.cuda.set_sync_debug_mode("default")
    assert loss.isfinite()
