"""What tests share: the devices there are, and how hard hypothesis looks."""

import gc
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import settings

from tests.processes import share_server, start_server

# The same examples every time: a test that fails by chance is noise. Compiling a kernel is no reason to time out.
settings.register_profile("inphase", max_examples=30, deadline=None, derandomize=True, database=None)
settings.load_profile("inphase")

# As in `empty_cache`: processes that are forked from the server have its environment.
SERVER_VARIABLES = {"INPHASE_IMAGE_RUNTIME": "torch"}

CUDA = pytest.param(
    "cuda",
    marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")],
)


@pytest.fixture(params=["cpu", CUDA])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Run a test on every device there is."""
    return torch.device(request.param)


def pytest_configure(config: pytest.Config) -> None:
    """Let all processes share matplotlib's list of fonts, which takes seconds to make, outside the user's folder."""
    gc.disable()  # until all tests are collected
    if hasattr(config, "cache") and config.cache is not None:
        os.environ.setdefault("MPLCONFIGDIR", str(config.cache.mkdir("matplotlib")))
    if "fork_server" in (given := getattr(config, "workerinput", {})):
        share_server(given["fork_server"])


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Let the worker processes of pytest-xdist share a fork server, which takes seconds to start."""
    if "XDG_CACHE_HOME" not in SERVER_VARIABLES:
        folder = TemporaryDirectory()
        node.config.add_cleanup(folder.cleanup)
        SERVER_VARIABLES["XDG_CACHE_HOME"] = folder.name
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SERVER_VARIABLES.items():
            patch.setenv(name, value)
        node.workerinput["fork_server"] = start_server()


def pytest_collection_finish() -> None:
    """Leave modules and tests out of garbage collection: it would go through half a million objects every time."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def unsynced() -> Iterator[None]:
    """Do not wait for the disk: only a power cut would show a difference. Processes that are killed do wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Number the cache folders of tests; a test that caches nothing makes none."""
    folder = tmp_path_factory.mktemp("caches")
    return (folder / str(number) for number in count())


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, caches: Iterator[Path]) -> None:
    """Give every test a cache folder of its own: none reads or writes the user's.

    Frozen networks run in torch: conversion takes a second per network and folder. Its own tests choose OpenVINO.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(next(caches)))
    monkeypatch.setenv("INPHASE_IMAGE_RUNTIME", "torch")


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a cache folder to tests on the same videos: estimating a pose takes seconds. Worker processes share it."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared_cache"


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """List the videos whose features are computed by a frozen network, each time they are."""
    from inphase.data.video import Video
    from inphase.runs import CachedFeatures

    found: list[str] = []
    compute = CachedFeatures._compute

    def noted(self: CachedFeatures, video: Video, *, length: int) -> Any:
        found.append(video.id)
        return compute(self, video, length=length)

    monkeypatch.setattr(CachedFeatures, "_compute", noted)
    return found
