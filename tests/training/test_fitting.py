"""`fit` as a function of the library: what it decides, what it refuses, what it returns."""

import json
from pathlib import Path
from typing import Any

import pytest

from inphase.data import stage_videos
from inphase.data.frame_source import load_videos
from inphase.evaluation.evaluate import evaluate
from inphase.media.frame_store import FillSummary
from inphase.models import load_encoder
from inphase.runs import Run
from inphase.storage.errors import MissingExtraError
from inphase.storage.processes import DEFAULT_LIMITS
from inphase.training import Status, fit, read_recipe
from inphase.training.fitting import _Extraction

SMALL = ("run.steps=2", "encoder.size=[32, 32]", "encoder.hidden=[8]", "batch.actions=1", "batch.frames=6")


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Film three people at one action, a file each."""
    root = tmp_path_factory.mktemp("films")
    stage_videos.write(root / "stage", split="train", actions=["kick"], videos=3, level="plain", size=64)
    folder = root / "kicks"
    folder.mkdir()
    for number, film in enumerate(sorted((root / "stage").rglob("*.mp4"))):
        film.rename(folder / f"{number}.mp4")
    return folder


def finds(monkeypatch: pytest.MonkeyPatch, *, people: int) -> None:
    """Let poses be found in so many videos, the first ones."""

    def fill(store: Path, wanted: dict[str, object], **_: object) -> FillSummary:
        return FillSummary(written=people, broken=dict.fromkeys(list(wanted)[people:], "no person was found"))

    monkeypatch.setattr("inphase.training.fitting.fill_poses", fill)


def choose(videos: Path, tmp_path: Path, modality: str) -> tuple[Any, ...]:
    listed = read_all(videos)
    given: Any = {"workers": 0, "limits": DEFAULT_LIMITS, "cache": tmp_path, "on_status": None}
    extraction = _Extraction(Run(tmp_path), listed, progress=lambda *_: None, **given)
    return (*extraction.choose(modality, read_recipe("fit_image", changes=SMALL)), extraction.messages)


def read_all(videos: Path) -> list[Any]:
    from inphase.data import folder

    return folder.load(videos, split="all", val=0.0, test=0.0)


def test_images_are_used_where_few_videos_show_a_person(
    videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finds(monkeypatch, people=1)
    seen: list[Status] = []
    stages: list[str] = []
    out = tmp_path / "run"
    fitted = fit(
        videos,
        out,
        changes=SMALL,
        workers=0,
        cache=tmp_path / "cache",
        on_status=seen.append,
        progress=lambda stage, done, total: stages.append(f"{stage} {done}/{total}"),
    )
    assert fitted.messages == (
        "Using images (a person was found in only 1 of 3 videos).",
        "Fewer than 10 videos of an action: none is held out, so the evaluation is on training videos.",
    )
    assert fitted.tasks == ("kendall_tau", "cycle_error", "health")
    assert tuple(message for status in seen[:2] for message in status.messages) == fitted.messages
    assert (fitted.run, fitted.modality, fitted.split, fitted.labeled) == (Run(out), "image", "train", False)
    assert {"decoding videos 3/3", "computing features 3/3", "training 2/2"} <= set(stages)
    assert load_encoder(out).shape == (32, 32, 3)
    assert json.loads(fitted.write(out).read_text()) == fitted.to_dict()
    assert fitted.to_dict() == {
        "run": str(out),
        "modality": "image",
        "left_out": {},
        "split": "train",
        "labeled": False,
        "messages": list(fitted.messages),
        "measured": None,
    }


def test_poses_are_used_where_people_are_found(videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finds(monkeypatch, people=3)
    assert choose(videos, tmp_path, "auto") == (
        "both", {}, ["Using body pose and images (a person was found in every video)."],
    )  # fmt: skip
    assert choose(videos, tmp_path, "pose") == (
        "pose", {}, ["Using body pose (a person was found in every video)."],
    )  # fmt: skip
    finds(monkeypatch, people=2)
    modality, left_out, messages = choose(videos, tmp_path, "pose")
    assert (modality, len(left_out)) == ("pose", 1)
    assert messages[0].startswith("Left out 1 of 3 videos: ")
    assert messages[0].endswith("(no person was found).")
    assert messages[1] == "Using body pose (a person was found in 2 of 3 videos)."
    # A video without a person stays, for its images.
    assert choose(videos, tmp_path, "both") == (
        "both", {}, ["Using body pose and images (a person was found in 2 of 3 videos)."],
    )  # fmt: skip


def test_the_table_of_events_is_used_where_it_lies_in_the_folder(videos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "kicks"
    folder.mkdir()
    rows = [f"{file.name},person {k % 2},0.3" for k, file in enumerate(sorted(videos.glob("*.mp4")))]
    for file in videos.glob("*.mp4"):
        (folder / file.name).symlink_to(file)
    (folder / "events.csv").write_text("\n".join(["file,person,contact", *rows]) + "\n")
    fitted = fit(folder, tmp_path / "run", modality="image", changes=SMALL, workers=0, cache=tmp_path / "cache")
    assert fitted.labeled
    assert "event_error" in fitted.tasks
    assert fitted.run.recipe["data"]["name"] == "events"
    scores = evaluate(fitted.run.folder, split="train", tasks=("event_error",)).scores
    assert any(each.task == "event_error" and each.metric == "mean" for each in scores)


def test_people_in_the_table_of_events_are_held_out_of_training(videos: Path, tmp_path: Path) -> None:
    folder, files = tmp_path / "kicks", sorted(videos.glob("*.mp4"))
    folder.mkdir()
    names = [f"{k}.mp4" for k in range(12)]
    for k, name in enumerate(names):
        (folder / name).symlink_to(files[k % len(files)])
    rows = [f"{name},person {k % 4},0.3" for k, name in enumerate(names)]
    (folder / "events.csv").write_text("\n".join(["file,person,contact", *rows]) + "\n")
    fitted = fit(folder, tmp_path / "run", modality="image", changes=SMALL, workers=0, cache=tmp_path / "cache")
    assert fitted.split == "test"
    people = {
        split: {video.notes["person"] for video in load_videos(fitted.run.recipe["data"], split=split)}
        for split in ("train", "test")
    }
    assert len(people["test"]) == 1
    assert len(people["train"]) == 3
    assert not people["train"] & people["test"]
    found = evaluate(fitted.run.folder, tasks=("event_error",))
    assert found.sizes["test videos"] == 3
    whole = evaluate(
        fitted.run.encoder_file, data="folder", root=folder, split="all", tasks=("event_error",), compare=()
    )
    assert whole.sizes["test videos"] == 12
    assert any(each.metric == "mean" for each in whole.scores)


def test_images_are_used_where_poses_cannot_be_estimated(
    videos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*_: object, **__: object) -> FillSummary:
        raise MissingExtraError("poses need openvino")

    monkeypatch.setattr("inphase.training.fitting.fill_poses", absent)
    assert choose(videos, tmp_path, "auto") == ("image", {}, ["Using images: poses need openvino"])
    with pytest.raises(MissingExtraError, match="poses need openvino"):
        choose(videos, tmp_path, "pose")


def test_a_modality_that_is_none_is_refused(videos: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="modality must be auto, pose, image or both, got 'smell'"):
        fit(videos, tmp_path, modality="smell")  # type: ignore[arg-type]
