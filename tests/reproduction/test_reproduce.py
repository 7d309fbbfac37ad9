"""Studies run: small ones on the stage, a miniature FineGym, and what happens when runs stop or fail."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from inphase.align.recursion import cycle_consistency
from inphase.evaluation import TASKS, select, value_of
from inphase.evaluation.report import to_json
from inphase.models import load_encoder
from inphase.reproduction import STUDIES, STUDY_DATA, Reproduction, Setup, StudyData, reproduce
from inphase.reproduction import study_runs as runs_module
from inphase.reproduction.figures import alignment_tables
from inphase.reproduction.reproduce import WorkerEvent, list_gpus, run_jobs
from inphase.reproduction.results import Results
from inphase.reproduction.study_runs import make_recipe, read_measured, recipe_hash
from inphase.training import Recipe, Trained, TrainingError, read_recipe, train
from tests.commands import type_command as run
from tests.data.test_finegym import CATEGORIES, TRAIN, annotate
from tests.media.recordings import write_video

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from collections.abc import Callable

TINY = ('data.actions=["kick", "squat"]', "data.videos=3", "data.level=plain", "run.steps=3", "encoder.hidden=[16]",
        "encoder.dimension=8", "batch.actions=2", "batch.videos=2", "batch.frames=8",
        "run.accelerator=cpu")  # fmt: skip


def setup(*methods: str, seeds: int = 1) -> Setup:
    return Setup(methods=methods, seeds=seeds, changes=TINY)


def reproduce_tiny(name: str, out: Path, *methods: str, seeds: int = 1) -> Reproduction:
    """Reproduce a study at a tiny size, and write its report."""
    result = reproduce(name, out, seeds=seeds, methods=methods, changes=TINY, workers=1)
    result.write(out / name)
    return result


def rows_of(report: Any) -> dict[str, dict[str, Any]]:
    """Give the cells of a report's table by row and head."""
    table = report["tables"][0]
    return {row[0]: dict(zip(table["head"], row, strict=True)) for row in table["rows"]}


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note the runs that are trained."""
    found: list[str] = []

    def counted(recipe: Recipe, out: Path, **given: Any) -> Trained:
        found.append(out.name)
        return train(recipe, out, **given)

    monkeypatch.setattr(runs_module, "train", counted)
    return found


def test_the_command_trains_measures_and_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["reproduce", "synchronization", "--data", "stage", "--seeds", "1", "--out", str(tmp_path),
             "--workers", "1", "--methods", "gta", "soft_dtw"]  # fmt: skip
    assert run(monkeypatch, *words, *(word for change in TINY for word in ("--set", change))) == 0
    out = capsys.readouterr().out
    assert "3 runs and controls" in out
    assert "linear stretch" in out
    report = json.loads((tmp_path / "synchronization" / "report.json").read_text())
    rows = rows_of(report)
    assert list(rows) == ["soft-DTW", "GTA", "untrained", "time only", "clamped only", "linear stretch"]
    assert rows["GTA"]["paper: PennAction τ"] == "74.84"
    assert rows["time only"]["τ, %"]["mean"] > 95
    assert rows["clamped only"]["τ nc, %"]["mean"] is None
    # Position alone is linear stretch, up to rounding to whole frames.
    linear, timed = (rows[name]["alignment error, nearest, %"]["mean"] for name in ("linear stretch", "time only"))
    assert timed == pytest.approx(linear, rel=0.05)
    assert 0 < rows["GTA"]["phases, SVM, %"]["mean"] <= 100
    by_action = report["tables"][1]
    assert (by_action["title"], by_action["head"]) == ("τ by action, %", ["", "soft-DTW", "GTA"])
    assert [row[0] for row in by_action["rows"]] == ["kick", "squat"]
    mean_of_both = sum(row[2]["mean"] for row in by_action["rows"]) / 2
    assert mean_of_both == pytest.approx(rows["GTA"]["τ, %"]["mean"])
    assert "--methods gta soft_dtw" in report["about"]["command"]
    assert "this one pose" in report["about"]["not comparable"]
    assert any("times as much" in note for note in report["notes"])
    page = (tmp_path / "synchronization" / "report.html").read_text()
    assert page.count("<img") == 3
    assert 'src="http' not in page


def test_nothing_is_trained_twice_and_studies_share_runs(tmp_path: Path, trained: list[str]) -> None:
    first = reproduce_tiny("synchronization", tmp_path, "gta", seeds=2)
    assert len(trained) == len(set(trained)) == 2
    again = reproduce_tiny("synchronization", tmp_path, "gta", seeds=2)
    assert to_json(again.report) == to_json(first.report)
    assert (first.runs, first.kept, again.kept) == (3, 0, 3)
    reproduce_tiny("few-shot", tmp_path, "gta", seeds=1)
    assert len(trained) == 2
    reproduce_tiny("recognition", tmp_path, "gta", seeds=3)
    assert len(trained) == 3


def test_the_ablation_shares_the_run_of_the_whole_gta(tmp_path: Path) -> None:
    ablation, others = (
        {job.folder for job in Results(STUDIES[name], setup(*methods), tmp_path).jobs()}
        for name, methods in (("ablation", ()), ("synchronization", ("gta",)))
    )
    assert others <= ablation
    assert len(ablation) == 7


def test_a_study_that_was_stopped_goes_on(tmp_path: Path, trained: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    counted: Callable[..., Path] = vars(runs_module)["train"]

    def stopped(recipe: Recipe, out: Path, **given: Any) -> Path:
        if len(trained) == 1:
            raise KeyboardInterrupt
        return counted(recipe, out, **given)

    monkeypatch.setattr(runs_module, "train", stopped)
    with pytest.raises(KeyboardInterrupt):
        reproduce_tiny("ablation", tmp_path)
    monkeypatch.setattr(runs_module, "train", counted)
    stages: list[tuple[str, int, int]] = []
    result = reproduce("ablation", tmp_path, seeds=1, changes=TINY, workers=1, progress=lambda *now: stages.append(now))
    assert (result.kept, result.runs) == (2, 7)  # the controls and one run were done
    assert [now[1:] for now in stages if now[0] == "ablation: runs"] == [(done, 7) for done in range(2, 8)]
    assert {stage.split(": ")[1] for stage, _, _ in stages} >= {"training", "phase_classification"}
    # Every stage of a run is reported as finished, so that its bar goes.
    assert all(done == total for done, total in {stage: (done, total) for stage, done, total in stages}.values())
    assert len(trained) == len(set(trained)) == 6
    assert len(result.report.details[0].rows) == 6
    found = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    names = [row["name"] for row in found["rows"]]
    assert names[:6] == [row.label for row in STUDIES["ablation"].rows(setup())]
    assert found["rows"][0]["scores"]["paper: FineGym101"] == "28.20"
    assert found["rows"][0]["scores"]["phases, SVM, %"]["seeds"] == 1
    assert found["rows"][5]["name"] == "the same with the printed cycle term"
    losses = [read_recipe(file).loss for file in sorted(tmp_path.glob("runs/*/recipe.toml"))]
    assert sorted(loss["variant"] for loss in losses) == ["paper", *["released"] * 5]


def test_a_run_that_fails_is_reported_and_the_rest_goes_on(
    tmp_path: Path, trained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: Callable[..., Path] = vars(runs_module)["train"]

    def failing(recipe: Recipe, out: Path, **given: Any) -> Path:
        if recipe.loss["name"] == "tcc":
            raise TrainingError("the loss of step 7 is nan")
        return counted(recipe, out, **given)

    monkeypatch.setattr(runs_module, "train", failing)
    result = reproduce_tiny("recognition", tmp_path, "tcc", "gta")
    assert list(result.failed.values()) == ["TrainingError: the loss of step 7 is nan"]
    report = json.loads((tmp_path / "recognition" / "report.json").read_text())
    rows = rows_of(report)
    assert rows["TCC"]["phases, SVM, %"] == "failed"
    assert rows["TCC"]["paper: FineGym101"] == "45.62"
    assert rows["GTA"]["phases, SVM, %"]["mean"] > 0
    assert any("the loss of step 7 is nan" in note for note in report["notes"])
    states = {row[0]: row[4] for row in report["tables"][1]["rows"]}
    assert states["TCC"].startswith("failed: TrainingError: the loss of step 7")
    monkeypatch.setattr(runs_module, "train", counted)
    reproduce_tiny("recognition", tmp_path, "tcc", "gta")
    assert rows_of(json.loads((tmp_path / "recognition" / "report.json").read_text()))["TCC"]["phases, SVM, %"]["mean"]
    assert len(trained) == 2


def test_one_failed_seed_of_several_is_not_averaged_away(tmp_path: Path) -> None:
    results = Results(STUDIES["recognition"], setup("gta", seeds=2), tmp_path)
    jobs = results.jobs()
    failed = run_jobs(jobs[:2], tmp_path, workers=1, on_event=lambda _: None)
    assert not failed
    assert results.cell(results.rows[0], results.columns[0]) == "1 of 2 failed"


def test_runs_side_by_side_fail_alone(tmp_path: Path) -> None:
    jobs = Results(STUDIES["recognition"], setup("gta"), tmp_path).jobs()[1:]
    wrong = Results(
        STUDIES["recognition"], Setup(methods=("gta",), seeds=1, changes=(*TINY, "loss.gamma=-1")), tmp_path
    ).jobs()[1:]
    events: list[WorkerEvent] = []
    failed = run_jobs([*wrong, *jobs], tmp_path, workers=2, on_event=events.append)
    assert list(failed) == [wrong[0].folder]
    assert "gamma" in failed[wrong[0].folder]
    assert (tmp_path / jobs[0].folder / jobs[0].measurements[0].file).is_file()
    assert {event.stage for event in events if event.key == jobs[0].folder} >= {"training", "phase_classification"}
    assert [event.key for event in events if event.ended and not event.failed] == [jobs[0].folder]


def test_workers_take_turns_at_the_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Results(STUDIES["ablation"], setup(), tmp_path).jobs()[1:5]
    # The names reach the processes, though this machine may have no such GPU.
    assert run_jobs(jobs, tmp_path, workers=4, on_event=lambda _: None, gpus=["5", "7", "9"]) == {}
    used = [json.loads((tmp_path / job.folder / "trained.json").read_text())["gpu"] for job in jobs]
    assert used == ["5", "7", "9", "5"]
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, GPU-1a")
    assert list_gpus() == ["4", "GPU-1a"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert list_gpus() == ["0", "1"]


def test_a_run_is_named_by_what_it_learns() -> None:
    recipe = Recipe({"name": "stage"}, {"name": "pose"}, {"name": "gta"}, run={"steps": 5, "seed": 1})
    elsewhere = Recipe({"name": "stage"}, {"name": "pose"}, {"name": "gta"}, run={"steps": 5, "accelerator": "cuda"})
    longer = Recipe({"name": "stage"}, {"name": "pose"}, {"name": "gta"}, run={"steps": 6})
    assert recipe_hash(recipe) == recipe_hash(elsewhere) != recipe_hash(longer)


def test_a_network_for_each_action_is_measured_on_that_action(tmp_path: Path, trained: list[str]) -> None:
    reproduce_tiny("per-class", tmp_path, "gta")
    assert len(trained) == 2
    report = json.loads((tmp_path / "per-class" / "report.json").read_text())
    by_action, runs = report["tables"][1:]
    assert [row[0] for row in runs["rows"]] == ["GTA, kick", "GTA, squat"]
    measured = [read_measured(file).scores for file in sorted(tmp_path.glob("runs/*/measured/*.json"))]
    rows = [score for scores in measured for score in select(scores, metric="tau_unclamped")]
    assert sorted(score.action for score in rows if score.action) == ["kick", "squat"]
    mean = sum(value_of(scores, "tau") for scores in measured) / 2
    found = {name: cell["mean"] for name, cell in by_action["rows"]}
    assert found == {
        score.action: pytest.approx(100 * score.value)
        for scores in measured
        for score in select(scores, metric="tau")
        if score.action
    }
    assert rows_of(report)["GTA"]["τ, %"]["mean"] == pytest.approx(100 * mean)


@pytest.fixture
def gym(tmp_path: Path) -> Path:
    """Write a FineGym of two vaults and two floor exercises for training, and as many for testing.

    Gym288 has one clip more in each floor exercise.
    """
    root = tmp_path / "gym"
    (root / "videos").mkdir(parents=True)
    lists: dict[str, str] = {"train": "", "val": ""}
    more: dict[str, str] = {"train": "", "val": ""}
    for number, split in enumerate(("train", "train", "val", "val")):
        name = f"{'abcd'[number] * 11}_E_000000_000009"
        lists[split] += "".join(f"{name}_A_000{2 * part}_000{2 * part + 2} {label}\n" for part, label in
                                enumerate((6, 7, 8)))  # fmt: skip
        lists[split] += f"{'efgh'[number] * 11}_E_000000_000009_A_0001_0006 0\n"
        more[split] += f"{name}_A_0006_0008 6\n"
        for letter in ("abcd"[number], "efgh"[number]):
            write_video(root / "videos" / f"{letter * 11}.mp4", count=27, rate=3, height=32, width=32)
    for base in (99, 288):
        (root / f"gym{base}_categories.txt").write_text(CATEGORIES)
        listed = {split: lists[split] + (more[split] if base == 288 else "") for split in lists}
        (root / f"gym{base}_train_element_v1.0.txt").write_text(listed["train"])
        (root / f"gym{base}_val_element.txt").write_text(listed["val"])
    (root / "finegym_annotation_info_v1.0.json").write_text(json.dumps(annotate(*listed.values())))
    return root


def test_a_miniature_finegym_runs_at_all_its_labels(gym: Path, tmp_path: Path, trained: list[str]) -> None:
    small = ("encoder.size=[32, 32]", "encoder.convolutions=[4]", "encoder.hidden=[8]", "encoder.dimension=8",
             "run.steps=2", "batch.actions=2", "batch.videos=2", "batch.frames=6",
             "run.accelerator=cpu")  # fmt: skip
    chosen: dict[str, Any] = {"data": "finegym", "root": gym, "seeds": 1, "methods": ["gta"], "changes": small}
    reproduce("recognition", tmp_path, **chosen).write(tmp_path / "recognition")
    assert len(trained) == 2  # one for 101 and 99, one for 290 and 288
    cells = rows_of(json.loads((tmp_path / "recognition" / "report.json").read_text()))["GTA"]
    for name, paper in {"101": 49.51, "99 clips": 27.81, "290": 46.54, "288 clips": 24.16}.items():
        assert 0 <= cells[f"{name}, SVM, %"]["mean"] <= 100
        assert cells[f"paper: FineGym{name.removesuffix(' clips')}"] == f"{paper:.2f}"
    assert len(list(tmp_path.glob("features/*/*.times.npy"))) == 52  # clips of 101, 290, 99 and 288
    reproduce("events", tmp_path, **chosen).write(tmp_path / "events")
    cells = rows_of(json.loads((tmp_path / "events" / "report.json").read_text()))["GTA"]
    assert cells["paper: FineGym101 vault"] == "70.69"
    assert {cells["vault, %"]["mean"], cells["floor exercise, %"]["mean"]} > set()


@pytest.mark.parametrize("budget", ["small", "medium", "full"])
def test_the_documented_command_runs_with_a_store_at_every_budget(
    gym: Path, tmp_path: Path, budget: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One store, filled once, serves all four label sets: docs/reproduce.md, with smaller networks."""
    monkeypatch.setattr("inphase.models.backbone.load_keras", lambda network, path: None)
    monkeypatch.setattr("inphase.models.resnet.STAGES", ((2, 8, 1, 1), (3, 8, 1, 1), (4, 256, 1, None)))
    store = ("data", "cache", "finegym", str(gym), str(tmp_path / "frames"), "--size", "32", "32")
    assert run(monkeypatch, *store, "--labels", "101", "290") == 0
    small = ["encoder.size=[32, 32]", "encoder.convolutions=[4]", "encoder.hidden=[8]", "encoder.dimension=8",
             "run.steps=2", "batch.actions=2", "batch.videos=2", "batch.frames=6", "run.accelerator=cpu",
             "run.precision=32-true", "run.compile=false"]  # fmt: skip
    small += ["encoder.context=[0]"] if budget != "small" else []
    small += ["encoder.weights=notop.h5"] if budget == "full" else []
    words = ["reproduce", "recognition", "--data", "finegym", "--root", str(gym), "--store", str(tmp_path / "frames"),
             "--budget", budget, "--seeds", "1", "--methods", "gta", "--out", str(tmp_path / "out"),
             "--workers", "1"]  # fmt: skip
    assert run(monkeypatch, *words, *(word for change in small for word in ("--set", change))) == 0
    rows = rows_of(json.loads((tmp_path / "out" / "recognition" / "report.json").read_text()))
    modes = ["GTA"] if budget == "small" else ["GTA, scratch", "GTA, train_all", "GTA, only_bn"]
    assert [name for name in rows if name.startswith("GTA")] == modes
    for mode in modes:
        cells = {head: cell for head, cell in rows[mode].items() if head.endswith("SVM, %")}
        assert list(cells) == [f"{name}, SVM, %" for name in ("101", "99 clips", "290", "288 clips")]
        assert all(0 <= cell["mean"] <= 100 for cell in cells.values()), cells


def test_a_task_that_fails_does_not_lose_the_numbers_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> list[Any]:
        raise RuntimeError("no memory left")

    working = TASKS["health"]
    monkeypatch.setitem(TASKS, "health", broken)
    result = reproduce_tiny("recognition", tmp_path, "gta")
    assert all("health failed (RuntimeError: no memory left)" in reason for reason in result.failed.values())
    rows = rows_of(json.loads((tmp_path / "recognition" / "report.json").read_text()))
    assert rows["GTA"]["mean cosine"] == "failed"
    assert rows["GTA"]["phases, SVM, %"]["mean"] > 0
    assert rows["untrained"]["τ, %"]["mean"] > 0
    monkeypatch.setitem(TASKS, "health", working)
    again = reproduce_tiny("recognition", tmp_path, "gta")
    assert (again.failed, again.kept) == ({}, 0)
    assert not list(tmp_path.glob("*/*/measured/*.partial.json"))


def test_features_of_a_frozen_network_are_computed_once_for_all_runs_and_measurements(
    tmp_path: Path, computed: list[str]
) -> None:
    small = ("encoder.size=[32, 32]", "encoder.convolutions=[4]", "encoder.hidden=[8]", "encoder.dimension=8",
             'data.actions=["kick", "squat"]', "data.videos=2", "data.level=plain", "run.steps=2",
             "run.accelerator=cpu", "batch.actions=2", "batch.videos=2", "batch.frames=6")  # fmt: skip
    for methods, seeds in (("gta",), 1), (("gta", "tcn"), 2):
        for name in ("synchronization", "few-shot"):
            reproduce(name, tmp_path, modality="image", seeds=seeds, methods=methods, changes=small)
    plain = (*small, "encoder.normalize=false")  # another head on the same features
    reproduce("synchronization", tmp_path, modality="image", seeds=1, methods=("gta",), changes=plain)
    assert len(computed) == len(set(computed)) > 4


def test_figure_3_needs_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert run(monkeypatch, "reproduce", "minima", "--out", str(tmp_path)) == 0
    rows = rows_of(json.loads((tmp_path / "minima" / "report.json").read_text()))
    for case in ("r3 = r2", "r3 → ∞"):
        assert rows[case]["largest d of smoothMin"]["mean"] == pytest.approx(
            rows[case]["supplement's bound"]["mean"], abs=1e-6
        )
    assert rows["r3 = r2"]["least d of min^γ"]["mean"] == pytest.approx(-1.0986, abs=1e-4)  # −log 3
    assert (tmp_path / "minima" / "figure_2.png").stat().st_size > 10_000


def test_figures_1_and_2_align_two_drawn_people(tmp_path: Path) -> None:
    found = reproduce("alignment", tmp_path)
    rows = {row["name"]: row["scores"]["error, % of the action"]["mean"] for row in found.to_dict()["rows"]}
    assert rows["aligned"] < rows["linear stretch"]
    assert [figure.title for figure in found.report.figures] == [
        "Frames of one video, and the matched ones of the other", "The two tables and the cycle"
    ]  # fmt: skip
    x, y = (torch.nn.functional.normalize(torch.randn(size, 4, dtype=torch.float64), dim=1) for size in (5, 7))
    tables, cycle = alignment_tables(x, y)
    expected = cycle_consistency(tables[:1], tables[1:].mT)
    torch.testing.assert_close(-cycle.diagonal().log().sum()[None], expected)
    torch.testing.assert_close(cycle.sum(1), torch.ones(5, dtype=torch.float64))


def test_figure_7_sorts_the_clips_of_events(gym: Path, tmp_path: Path) -> None:
    found = reproduce("order", tmp_path, root=gym).to_dict()["rows"]
    assert [(row["name"], row["scores"]["prototype order of sets"]) for row in found] == [
        ("floor exercise", "21 22 24"), ("vault", "1")
    ]  # fmt: skip
    assert [row["scores"]["reordered, %"]["mean"] for row in found] == [0, 0]
    (gym / "gym99_train_element_v1.0.txt").write_text(TRAIN)
    floor = reproduce("order", tmp_path, root=gym).to_dict()["rows"][0]["scores"]
    assert floor["prototype order of sets"] == "24 21 22"
    assert floor["reordered, %"]["mean"] == pytest.approx(100 / 3)  # the first event of three: 21 24 22
    with pytest.raises(ValueError, match="name its folder with --root"):
        reproduce("order", tmp_path)


def test_wrong_words_are_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "reproduce", "tables") == 1
    assert "no study 'tables': choose one of ablation" in capsys.readouterr().err
    assert run(monkeypatch, "reproduce", "pose3d") == 1
    assert "pose3d is an application: Figure 5 is `inphase pose3d VIDEO …`" in capsys.readouterr().err
    assert run(monkeypatch, "reproduce", "ablation", "--data", "golfdb") == 1
    assert "golfdb is read from a folder" in capsys.readouterr().err
    assert run(monkeypatch, "reproduce", "ablation", "--modality", "both", "--set", "encoder.hidden=[8]") == 1
    assert "'both' needs the recipes of pose and image" in capsys.readouterr().err


def test_both_trains_two_heads_and_measures_them_together(tmp_path: Path) -> None:
    for part, encoder in (("pose", 'name = "pose"'), ("image", 'name = "motion"\nsize = [32, 32]')):
        own = f"[encoder]\n{encoder}\nhidden = [8]\ndimension = 8\n[loss]\nname = 'gta'\n[data]\nname = 'stage'\n"
        (tmp_path / f"{part}.toml").write_text(own)
    shared = [change for change in TINY if not change.startswith("encoder.")]
    parts = [f"encoder.{part}={tmp_path / part}.toml" for part in ("pose", "image")]
    result = reproduce(
        "synchronization", tmp_path, modality="both", seeds=1, methods=("gta",), changes=(*shared, *parts), workers=1
    )
    assert not result.failed
    rows = {row["name"]: row["scores"] for row in result.to_dict()["rows"]}
    assert 0 <= rows["GTA"]["event error, contrastive DTW"]["mean"] < 60
    assert rows["GTA"]["event error, DTW"] != rows["untrained"]["event error, DTW"]
    (run_folder,) = (tmp_path / "runs").iterdir()
    assert {"pose", "image", "encoder.safetensors"} <= {file.name for file in run_folder.iterdir()}
    assert load_encoder(run_folder).modality == "both"


def test_a_data_set_is_added_by_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = StudyData("the toy", "golf", options={"level": "plain"}, needs_root=False, events=("impact",))
    monkeypatch.setitem(STUDY_DATA, "toy", toy)
    chosen = Setup("toy", budget="full")
    recipe = make_recipe(chosen, "tcc")
    golf = make_recipe(Setup("golfdb", Path("golf"), budget="full"), "tcc")
    assert recipe.data == {"name": "toy", "level": "plain"}
    assert (recipe.loss, recipe.batch, recipe.run) == (golf.loss, golf.batch, golf.run)
    heads = [column.head for column in STUDIES["synchronization"].columns(chosen)]
    assert "event error, DTW" in heads
    assert "alignment error, DTW, %" not in heads
    assert "these of the toy" in STUDIES["ablation"].differences(chosen)
