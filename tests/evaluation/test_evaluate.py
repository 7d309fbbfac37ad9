import json
import re
import sys
from pathlib import Path

import pytest
import torch

from inphase.evaluation import Score, select, value_of
from inphase.evaluation.evaluate import Evaluation, evaluate, measure_fit
from inphase.models import PoseEncoder, save_encoder
from inphase.pose.pose import JOINTS13
from tests.commands import type_command

RECIPE = """
[data]
name = "stage"
videos = 2
actions = ["squat", "kick"]
level = "plain"
"""


def run(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    return type_command(monkeypatch, "evaluate", *words)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make a run of a network that has learnt nothing."""
    torch.manual_seed(5)
    folder = tmp_path / "it's a [run]"
    folder.mkdir()
    save_encoder(folder / "encoder.safetensors", PoseEncoder(joints=JOINTS13, hidden=(16,), dimension=8))
    (folder / "recipe.toml").write_text(RECIPE)
    return folder


def test_a_run_is_measured_beside_its_controls_and_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = ("kendall_tau", "event_error", "alignment_error", "phase_progression", "health")
    assert run(monkeypatch, str(folder), "--tasks", *tasks) == 0
    out = capsys.readouterr().out
    rows = [
        [cell.strip() for cell in re.split("[│┃]", line)[1:-1]]
        for line in out.splitlines()
        if "│" in line or "┃" in line
    ]
    assert ["", "this run", "untrained", "time only", "clamped only"] in rows
    (tau,) = (row for row in rows if row[0] == "tau")
    assert float(tau[3]) > 0.95  # position alone
    assert any(row[0] == "mean, linear" for row in rows)
    assert not any(row[0] == "tau, squat" for row in rows)
    content = json.loads((folder / "evaluation" / "report.json").read_text(encoding="utf-8"))
    scores = [Score.from_dict(row) for row in content["scores"]]
    assert list(dict.fromkeys(score.task for score in scores)) == list(tasks)
    assert list(dict.fromkeys(score.control for score in scores)) == [None, "untrained", "time only", "clamped only"]
    assert len(select(scores, metric="tau", action="squat")) == 4
    assert len(select(scores, metric="mean", setting="linear", event="bottom", control=None)) == 1
    assert float(tau[1]) == pytest.approx(value_of(scores, "tau"), abs=1e-4)
    assert content["recipe"] == RECIPE
    assert content["notes"][0].startswith("4 test videos, 4 train videos, ")
    page = (folder / "evaluation" / "report.html").read_text(encoding="utf-8")
    assert page.count("<table>") == 9  # four tasks have scores by action or event
    kept = sorted((folder / "embeddings").rglob("*.safetensors"))
    assert len(kept) == 16  # two networks, two splits of four videos
    before = [file.stat().st_mtime_ns for file in kept]
    assert run(monkeypatch, str(folder), "--tasks", "kendall_tau", "--details", "--no-controls") == 0
    assert [file.stat().st_mtime_ns for file in sorted((folder / "embeddings").rglob("*.safetensors"))] == before
    out = capsys.readouterr().out
    assert "tau, squat" in out
    assert "untrained" not in out


def test_nothing_is_written_beside_a_file(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(folder.iterdir())
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, str(folder / "encoder.safetensors"), "--tasks", "health", "--no-controls") == 0
    assert sorted(folder.iterdir()) == before  # it may be a model that ships, in a folder of the package
    assert (tmp_path / "evaluation" / "report.json").is_file()


def test_stride_and_distance_go_before_the_setting(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def tau(*words: str) -> float:
        assert run(monkeypatch, str(folder), "--tasks", "kendall_tau", "--no-controls", *words) == 0
        capsys.readouterr()
        rows = json.loads((folder / "evaluation" / "report.json").read_text(encoding="utf-8"))["scores"]
        return value_of(map(Score.from_dict, rows), "tau")

    assert tau("--stride", "2", "--distance", "cosine") == pytest.approx(tau("--setting", "carl"))
    assert tau("--stride", "2") != tau()


def test_tasks_that_the_labels_do_not_allow_are_left_out_unless_they_are_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--data", "unlabelled", "--root", str(tmp_path), "--no-controls")
    monkeypatch.setattr("inphase.data.frame_source.DATASETS", {"unlabelled": unlabelled})
    assert run(monkeypatch, str(folder), *words, "--out", str(tmp_path / "out")) == 0
    out = capsys.readouterr().out
    assert "frame_retrieval left out: none of 2 test videos has phases" in out
    assert "phase_classification left out: none of 2 training videos has phases" in out
    assert "kendall_tau" in out
    assert (tmp_path / "out" / "report.md").is_file()
    assert run(monkeypatch, str(folder), *words, "--tasks", "frame_retrieval") == 1
    assert "none of 2 test videos has phases" in capsys.readouterr().err


def test_without_scikit_learn_the_other_tasks_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.svm", None)
    assert run(monkeypatch, str(folder), "--no-controls") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "phase_classification left out: Phase classification needs scikit-learn" in out
    assert "r2" in out
    assert run(monkeypatch, str(folder), "--tasks", "few_shot") == 1
    message = "Phase classification needs scikit-learn: pip install 'inphase[eval]'"
    assert capsys.readouterr().err.splitlines()[-1] == message


def unlabelled(root: Path, *, split: str) -> list[object]:
    """Forget all but the poses of the stage."""
    from dataclasses import replace

    from inphase.data import stage_videos

    videos = stage_videos.load(split=split, videos=2, actions=["squat"], level="plain")
    return [replace(video, phases=None, events={}, progress=None) for video in videos]


@pytest.mark.parametrize(
    ("recipe", "words", "message"),
    [
        ("", (), "no recipe that names its data: name a data set"),
        ("data = [", (), "recipe.toml is not valid TOML"),
        (
            '[data]\nname = "stage"\ncolor = 1',
            (),
            "[data] does not take 'color': it takes actions, videos, level, size, seed",
        ),
        (RECIPE, ("--tasks", "juggling"), "no task juggling: choose some of kendall_tau"),
        (RECIPE, ("--split", "tset"), "split 'tset' does not exist"),
        (RECIPE, ("--tasks", "event_error", "--events", "lunch"), "no video has an event lunch"),
        (RECIPE, ("--tasks", "kendall_tau", "--setting", "best"), "no setting 'best'"),
        (RECIPE, ("--data", "golfdb"), "golfdb is read from a folder"),
    ],
)
def test_a_foreseen_error_is_one_line(
    recipe: str,
    words: tuple[str, ...],
    message: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (folder / "recipe.toml").write_text(recipe)
    assert run(monkeypatch, str(folder), *words) == 1
    err = capsys.readouterr().err
    assert message in err.replace("\n", " ")
    assert "Traceback" not in err


def test_a_split_without_videos_is_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("inphase.data.frame_source.DATASETS", {"mine": lambda root, *, split: []})
    assert run(monkeypatch, str(folder), "--data", "mine", "--root", str(tmp_path)) == 1
    assert "mine has no video in the split 'test': choose another, as --split train" in capsys.readouterr().err


def test_a_folder_without_an_encoder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, str(tmp_path)) == 1
    assert "holds no encoder.safetensors" in capsys.readouterr().err


def test_the_function_returns_what_the_command_writes(folder: Path, tmp_path: Path) -> None:
    calls: list[tuple[str, int, int]] = []
    found = evaluate(
        folder,
        tasks=["health", "few_shot"],
        options={"few_shot": {"shots": [1, "all"], "episodes": 2}},
        compare=["untrained"],
        progress=lambda *call: calls.append(call),
    )
    assert found.title == "it's a [run] on stage, test"
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    again = Evaluation.from_dict(content)
    assert again.to_dict() == content
    assert (again.sizes, again.recipe) == (found.sizes, RECIPE)
    files = found.write(tmp_path / "out")
    assert [file.name for file in files] == ["figure_1.png", "report.md", "report.json", "report.html"]
    written = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert written["scores"] == content["scores"]
    assert calls[0] == ("embedding test", 1, 4)
    stages = dict.fromkeys(stage for stage, _, _ in calls)
    assert list(stages) == ["embedding test", "embedding train", "health", "few_shot"]
    assert all(0 <= done <= total for _, done, total in calls)
    assert calls[-1] == ("few_shot", 1, 1)


def test_the_command_prints_rows_as_json(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--tasks", "health", "--no-controls", "--json", "--out", str(tmp_path / "out"))
    assert run(monkeypatch, str(folder), *words) == 0
    rows = [Score.from_dict(row) for row in json.loads(capsys.readouterr().out)["scores"]]
    assert [score.metric for score in rows] == ["mean_cosine", "variance", "effective_rank", "within_videos"]
    assert (tmp_path / "out" / "report.html").is_file()


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("event_error", "On {} held-out clips, moments are now matched to within {} frames"),
        ("cycle_error", "On {} held-out clips, frames matched there and back now return to within {} frames"),
    ],
)
def test_a_fit_is_measured_beside_the_shipped_model(folder: Path, task: str, words: str) -> None:
    found = measure_fit(folder, modality="pose", tasks=(task, "health"), split="test")
    metric, setting = ("mean", "contrastive") if task == "event_error" else ("frames", None)
    assert found.frames == value_of(found.scores, metric, setting=setting, task=task)
    assert found.shipped_frames == value_of(found.scores, metric, setting=setting, task=task, control="shipped")
    assert found.frames != found.shipped_frames
    assert found.sentence.startswith(words.format(found.sizes["test videos"], f"{found.frames:.1f}"))
    assert f"(before, with the shipped model: {found.shipped_frames:.1f})" in found.sentence
    if task == "event_error":
        votes = [
            value_of(found.scores, "mean", setting="consensus", task=task, control=who) for who in (None, "shipped")
        ]
        assert f"where the other clips vote, to within {votes[0]:.1f} frames (before: {votes[1]:.1f})" in found.sentence
        median = value_of(found.scores, "median", setting="contrastive", task=task)
        assert f" The median of single pairs is {median:.1f} frames (before: " in found.sentence
    *tables, last = found.summary().then
    assert last.lines == [found.sentence]
    assert all(each.is_detail for each in tables)
    assert tables[0].columns[1:3] == (">this run", ">shipped")
    assert "shipped" in (folder / "evaluation" / "report.md").read_text(encoding="utf-8")
