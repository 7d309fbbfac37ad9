from collections.abc import Iterator

import pytest
import torch

from inphase.data import stage_videos
from inphase.data.frame_source import open_frame_source
from inphase.data.stream import GroupStream
from inphase.losses import GTA
from inphase.models import PoseEncoder
from inphase.training.recipe import OptimizerSettings
from inphase.training.step import EncoderWithLoss, trainable_parameters
from tests.conftest import CUDA


@pytest.fixture
def waiting_is_an_error() -> Iterator[None]:
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("device", [CUDA])
@pytest.mark.parametrize("variant", ["paper", "released"])
def test_a_step_never_waits_for_the_gpu(device: str, variant: str, waiting_is_an_error: None) -> None:
    encoder = PoseEncoder()
    frame_source = open_frame_source(encoder, stage_videos.load(split="train", actions=["squat"], videos=4))
    batch = GroupStream(frame_source.videos, read=frame_source.read, frames=20, context=encoder.context)[0]
    method = EncoderWithLoss(encoder, GTA(variant=variant)).to(device)  # type: ignore[arg-type]
    optimizer = OptimizerSettings().build(trainable_parameters(method))
    given = batch.to(torch.device(device))

    def step() -> torch.Tensor:
        loss: torch.Tensor = method(given)["loss"] + encoder.regularizer()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    step()  # compiles
    torch.cuda.set_sync_debug_mode("error")
    loss = step()
    torch.cuda.set_sync_debug_mode("default")
    assert loss.isfinite()
