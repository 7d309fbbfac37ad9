"""What tests share: the devices there are, and how hard hypothesis looks."""

from typing import Any

import pytest
import torch
from hypothesis import settings

# The same examples every time: a test that fails by chance is noise. Compiling a kernel is no reason to time out.
settings.register_profile("inphase", max_examples=30, deadline=None, derandomize=True, database=None)
settings.load_profile("inphase")

CUDA = pytest.param(
    "cuda",
    marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")],
)


@pytest.fixture(params=["cpu", CUDA])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Run a test on every device there is."""
    return torch.device(request.param)


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give every test a cache folder of its own: none reads or writes the user's.

    Frozen networks run in torch: conversion takes a second per network and folder. Its own tests choose OpenVINO.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv("INPHASE_IMAGE_RUNTIME", "torch")


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Name the videos that frozen networks look at, each time they do."""
    from inphase.data.video import Video
    from inphase.runs import CachedFeatures

    found: list[str] = []
    compute = CachedFeatures._compute

    def noted(self: CachedFeatures, video: Video, *, length: int) -> Any:
        found.append(video.id)
        return compute(self, video, length=length)

    monkeypatch.setattr(CachedFeatures, "_compute", noted)
    return found
