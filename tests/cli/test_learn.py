"""`inphase fit` and `inphase demo` from end to end, on a few small videos."""

import re
import shlex
from pathlib import Path

import pytest

from inphase.data import stage_videos
from inphase.media.frame_store import FillSummary
from inphase.models import load_encoder
from inphase.storage.errors import MissingExtraError
from inphase.training import read_recipe
from tests.commands import type_command as run

pytestmark = pytest.mark.slow

SMALL = {
    "pose": ["run.steps=30"],
    "image": ["run.steps=3", "data.size=32", "encoder.size=[32, 32]"],
}


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Film ten people at one action, a file each."""
    root = tmp_path_factory.mktemp("films")
    stage_videos.write(root / "stage", split="train", actions=["kick"], videos=10, level="plain", size=64)
    folder = root / "kicks"
    folder.mkdir()
    for number, film in enumerate(sorted((root / "stage").rglob("*.mp4"))):
        film.rename(folder / f"{number}.mp4")
    return folder


def test_a_folder_without_people_is_learned_by_image(
    videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nobody(store: Path, wanted: dict[str, object], **_: object) -> FillSummary:
        return FillSummary(broken=dict.fromkeys(wanted, "shows nobody"))

    monkeypatch.setattr("inphase.training.fitting.fill_poses", nobody)
    out = tmp_path / "my [own] run"
    changes = ("encoder.size=[32, 32]", "encoder.hidden=[8]", "batch.actions=1", "batch.frames=6")
    small = [word for change in changes for word in ("--set", change)]
    assert run(monkeypatch, "fit", videos, "--out", out, "--steps", 3, "--workers", 0, *small) == 0
    printed, err = capsys.readouterr()
    assert "Using images (a person was found in only 0 of 10 videos)." in err
    assert "On 4 held-out clips, frames matched there and back now return to within" in printed
    assert "frames (before, with the shipped model: " in printed
    assert "untrained" not in printed
    words = shlex.split(printed.splitlines()[-1])
    assert words[words.index("--model") + 1] == str(out)
    encoder = load_encoder(out)
    assert (encoder.modality, encoder.shape) == ("image", (32, 32, 3))  # what was decoded is as large as what is seen
    assert (out / "evaluation" / "report.html").exists()
    assert run(monkeypatch, "fit", videos, "--out", out, "--steps", 3, "--workers", 0, *small, "--details") == 0
    printed, err = capsys.readouterr()
    assert "This run is finished" in err
    for column in ("this run", "shipped", "untrained", "time only"):
        assert column in printed
    assert printed.index("time only") < printed.index("held-out clips, frames")


def test_what_cannot_be_fitted_is_refused(
    videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lonely = tmp_path / "lonely"
    lonely.mkdir()
    (lonely / "only.mp4").symlink_to(videos / "0.mp4")
    assert run(monkeypatch, "fit", lonely, "--out", tmp_path / "run") == 1
    assert "needs at least two videos of each action" in capsys.readouterr().err
    assert run(monkeypatch, "fit", tmp_path / "nowhere", "--out", tmp_path / "run") == 1
    assert "nowhere" in capsys.readouterr().err
    assert run(monkeypatch, "fit", videos, "--out", tmp_path / "run", "--steps", "-5") == 1
    assert "--steps must be at least 1 and --workers 0, got -5 and 2" in capsys.readouterr().err

    def absent(*_: object, **__: object) -> FillSummary:
        raise MissingExtraError("poses need openvino")

    monkeypatch.setattr("inphase.training.fitting.fill_poses", absent)
    assert run(monkeypatch, "fit", videos, "--out", tmp_path / "run", "--modality", "pose") == 1
    assert "poses need openvino" in capsys.readouterr().err


def test_the_demo_learns_measures_and_aligns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipes = tmp_path / "recipes"
    recipes.mkdir()
    for way, small in SMALL.items():
        recipe = read_recipe(f"demo_{way}", changes=["data.videos=2", *small])
        (recipes / f"demo_{way}.toml").write_text(recipe.to_toml())
    monkeypatch.setattr("inphase.training.recipe.SHIPPED", recipes)
    monkeypatch.setattr("inphase.reproduction.demo.TEST_VIDEOS", 2)
    monkeypatch.setattr("inphase.reproduction.demo.PAIR_SIZE", 64)
    assert run(monkeypatch, "demo", "--out", tmp_path / "demo") == 0
    printed = capsys.readouterr().out
    for row in (
        "linear stretch",
        "time alone",
        "untrained, by pose",
        "trained, by pose",
        "trained, by image",
    ):
        assert row in printed
    assert "inphase view" in printed
    assert (tmp_path / "demo" / "aligned" / "aligned.mp4").stat().st_size > 1000
    assert (tmp_path / "demo" / "aligned" / "playback.json").exists()
    page = (tmp_path / "demo" / "tour.html").read_text(encoding="utf-8")
    assert "trained, by image" in page
    assert "start → top" in page
    links = set(re.findall(r'(?:src|href)="([^"]+)"', page))
    assert {"aligned/aligned.mp4", "compare/positions.png", "cut/clips/01.mp4", "viewer.html"} <= links
    assert not [link for link in links if not (tmp_path / "demo" / link).is_file()]
    assert load_encoder(tmp_path / "demo" / "pose").modality == "pose"
    assert run(monkeypatch, "demo", "--out", tmp_path / "demo", "--modalities", "smell") == 1
    assert "trains pose or image, not smell" in capsys.readouterr().err
