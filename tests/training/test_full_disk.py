"""A full disk and a limit of file sizes end training in one line; with room again the same command ends it as ever."""

import errno
import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from inphase.models import load_encoder
from inphase.models.weights import fingerprint
from inphase.storage.files import is_draft
from inphase.training import train
from tests.commands import type_command
from tests.corpus.test_full_disk import disk, leave_room  # noqa: F401 - a fixture
from tests.training.conftest import make_recipe

pytestmark = pytest.mark.slow

RECIPE = make_recipe(
    data={"actions": ["kick"], "videos": 2},
    batch={"actions": 1},
    encoder={"hidden": [32]},
    run={"steps": 4, "save_every": 2},
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Train without any trouble; return the fingerprint of the encoder."""
    out = tmp_path_factory.mktemp("whole") / "run"
    train(RECIPE, out)
    return fingerprint(load_encoder(out))


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    file = tmp_path / "recipe.toml"
    file.write_text(RECIPE.to_toml(), encoding="utf-8")
    return file


def red_line(capsys: pytest.CaptureFixture[str]) -> str:
    """Return what a command printed on standard error, in one line."""
    text = capsys.readouterr().err
    assert "Traceback" not in text
    return " ".join(text.split())


def test_training_goes_on_when_the_disk_has_room(
    disk: Path,  # noqa: F811
    recipe: Path,
    whole: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    failures = 0
    for room in (0, 2**12, 2**14, 2**15, 2**16, 100_000, 2**17, 180_000, 220_000, 2**18, 2**19, 2**20):
        leave_room(disk, room)
        if type_command(monkeypatch, "train", recipe, "--out", disk / "run") == 0:
            break
        failures += 1
        text = red_line(capsys)
        assert "disk is full" in text or "No space left" in text, text
        if (disk / "run" / "state.safetensors").exists():
            load_encoder(disk / "run")
    assert failures > 2
    assert fingerprint(load_encoder(disk / "run")) == whole
    assert not [path for path in (disk / "run").iterdir() if is_draft(path)]


@pytest.fixture
def file_limit() -> Iterator[None]:
    """Restore the limit of file sizes, as `ulimit -f` sets it."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # as Python does
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("file_limit")
def test_a_limit_of_file_sizes_ends_training_in_one_line(
    tmp_path: Path, recipe: Path, whole: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for size in (100, 1000, 20_000, 60_000):
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        code = type_command(monkeypatch, "train", recipe, "--out", tmp_path / "run")
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        text = red_line(capsys)
        assert (code, "disk is full" in text or "File too large" in text) == (1, True), text
    assert type_command(monkeypatch, "train", recipe, "--out", tmp_path / "run") == 0
    assert fingerprint(load_encoder(tmp_path / "run")) == whole


def test_metrics_that_cannot_be_written_end_training_in_one_line(
    tmp_path: Path, recipe: Path, whole: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from inphase.training import metrics

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(metrics.Metrics, "write", refuse)
    assert type_command(monkeypatch, "train", recipe, "--out", tmp_path / "run") == 1
    assert "the disk is full; make room, then run this again" in red_line(capsys)
    monkeypatch.undo()
    assert type_command(monkeypatch, "train", recipe, "--out", tmp_path / "run") == 0
    assert fingerprint(load_encoder(tmp_path / "run")) == whole
