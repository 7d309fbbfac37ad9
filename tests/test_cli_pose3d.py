from pathlib import Path

import numpy as np
import pytest
import torch

from inphase.apps.pose3d import read_reconstruction
from inphase.media.pose import JOINTS13
from inphase.models import AudioEncoder, PoseEncoder, save_encoder
from inphase.playback import read_playback
from tests.commands import type_command as run


@pytest.fixture
def model(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    save_encoder(tmp_path / "model.safetensors", PoseEncoder(joints=JOINTS13, hidden=(16,), dimension=16))
    return tmp_path / "model.safetensors"


def test_a_collection_becomes_a_body_in_space(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["--data", "stage", "--action", "squat", "--views", "5", "--model", str(model), "--out", str(out)]
    assert run(monkeypatch, "pose3d", *words) == 0
    said = capsys.readouterr().out
    assert "5 views: each moment used" in said
    found = read_reconstruction(out / "pose3d.npz")
    assert found.joints3d.shape == (len(found.times), 13, 3)
    assert len(found.names) == 5
    assert np.isfinite(found.joints3d).all()
    played = read_playback(out)
    assert played.tracks[0].name == found.names[0]
    assert len(played.skeletons) == 1
    assert (out / "pose3d.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name video files"),
        (["a.mp4", "--data", "stage"], "one of the two"),
        (["a.mp4", "b.mp4"], "depth needs 3 videos or more"),
        (["--data", "nothing"], "no collection 'nothing'"),
        (["--data", "utd_mhad", "--action", "squat"], "--root"),
        (["--data", "stage"], "name an --action"),
        (["--data", "stage", "--action", "squat", "--query", "nobody"], "no video 'nobody'"),
        (["--data", "stage", "--action", "squat", "--views", "2"], "at least 3 views"),
    ],
)
def test_what_is_missing_is_named(
    words: list[str],
    message: str,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, "pose3d", *words, "--model", str(model), "--out", str(tmp_path / "out")) == 1
    assert message in capsys.readouterr().err


def test_an_encoder_of_something_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_encoder(tmp_path / "sound.safetensors", AudioEncoder())
    words = ["--data", "stage", "--action", "squat", "--model", str(tmp_path / "sound.safetensors")]
    assert run(monkeypatch, "pose3d", *words) == 1
    assert "does not see poses" in capsys.readouterr().err
