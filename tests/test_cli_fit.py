"""`inphase fit` and `inphase demo` from end to end, on a few small videos."""

from pathlib import Path

import pytest

from inphase import cli
from inphase.data import stage
from inphase.media.cache import Filled
from inphase.media.errors import MissingExtraError
from inphase.models import load_encoder
from tests.commands import type_command as run


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Film ten people at one action, a file each."""
    root = tmp_path_factory.mktemp("films")
    stage.write(root / "stage", split="train", actions=["kick"], videos=10, level="plain", size=64)
    folder = root / "kicks"
    folder.mkdir()
    for number, film in enumerate(sorted((root / "stage").rglob("*.mp4"))):
        film.rename(folder / f"{number}.mp4")
    return folder


def test_a_folder_without_people_is_learnt_by_pixels(
    videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nobody(store: Path, wanted: dict[str, object], **_: object) -> Filled:
        return Filled(broken=dict.fromkeys(wanted, "shows nobody"))

    monkeypatch.setattr("inphase.cli.fit.fill_poses", nobody)
    out = tmp_path / "run"
    small = ["--set", "encoder.hidden=[8]", "--set", "groups.groups=1", "--set", "groups.count=6"]
    assert run(monkeypatch, "fit", videos, "--out", out, "--steps", 3, "--workers", 0, *small) == 0
    said = capsys.readouterr().out
    assert "looking at pictures: people are found in 0% of the videos only" in said
    assert "untrained" in said
    assert "time only" in said
    assert load_encoder(out).sees == "pictures"
    assert (out / "evaluation" / "report.html").exists()
    assert run(monkeypatch, "fit", videos, "--out", out, "--steps", 3, "--workers", 0, *small) == 0
    assert "this run is finished" in capsys.readouterr().out


def test_what_cannot_be_fitted_is_refused(
    videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lonely = tmp_path / "lonely"
    lonely.mkdir()
    (lonely / "only.mp4").symlink_to(videos / "0.mp4")
    assert run(monkeypatch, "fit", lonely, "--out", tmp_path / "run") == 1
    assert "needs two videos of an action" in capsys.readouterr().err
    assert run(monkeypatch, "fit", tmp_path / "nowhere", "--out", tmp_path / "run") == 1
    assert "nowhere" in capsys.readouterr().err

    def absent(*_: object, **__: object) -> Filled:
        raise MissingExtraError("poses need mediapipe")

    monkeypatch.setattr("inphase.cli.fit.fill_poses", absent)
    assert run(monkeypatch, "fit", videos, "--out", tmp_path / "run", "--see", "pose") == 1
    assert "poses need mediapipe" in capsys.readouterr().err


def test_the_demo_learns_measures_and_aligns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipes = tmp_path / "recipes"
    recipes.mkdir()
    for way in ("pose", "pixels"):
        text = (cli.demo.recipe_of(way)).read_text(encoding="utf-8")
        text = text.replace("videos = 16", "videos = 2").replace("steps = 1000", "steps = 30").replace("500", "3")
        (recipes / f"demo_{way}.toml").write_text(text.replace("= 96", "= 32").replace("[96, 96]", "[32, 32]"))
    monkeypatch.setattr("inphase.training.recipe.SHIPPED", recipes)
    monkeypatch.setattr("inphase.cli.demo.TESTED", 2)
    monkeypatch.setattr("inphase.cli.demo.PAIR_SIZE", 64)
    assert run(monkeypatch, "demo", "--out", tmp_path / "demo") == 0
    said = capsys.readouterr().out
    for row in (
        "linear stretch",
        "time alone",
        "untrained, by keypoints",
        "trained, by keypoints",
        "trained, by pixels",
    ):
        assert row in said
    assert "inphase view" in said
    assert (tmp_path / "demo" / "aligned" / "aligned.mp4").stat().st_size > 1000
    assert (tmp_path / "demo" / "aligned" / "playback.json").exists()
    assert load_encoder(tmp_path / "demo" / "pose").sees == "poses"
    assert run(monkeypatch, "demo", "--out", tmp_path / "demo", "--ways", "smell") == 1
    assert "seen by pose or pixels" in capsys.readouterr().err
