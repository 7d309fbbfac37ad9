"""What studies declare: that it can be built, and that the paper's numbers are the paper's."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from inphase.cli.learn import NAMES
from inphase.data.folder import split_people
from inphase.evaluation import TASKS
from inphase.reproduction import STUDIES, Setup, Study
from inphase.reproduction.reproduce import FIGURES
from inphase.reproduction.results import Results, command
from inphase.reproduction.study import BUDGETS, LABELS, MODALITIES, STUDY_DATA, task_options
from inphase.reproduction.study_runs import make_recipe, recipe_families
from inphase.training import read_recipe
from inphase.training.build import build_loss

pytestmark = pytest.mark.slow

# The rows of the paper's tables as its source has them: method & figures.
TABLE_1 = {"cosine cost": 28.20, "cosine cost + cycle": 28.20, "contrastive cost": 47.32}
TABLE_1 |= {"contrastive cost + cycle (GTA)": 49.51, "the same with min^γ": 48.07}
RECOGNITION = """
scratch: SpeedNet & 30.40 & 29.87 / TCN & 36.52 & 37.40 / SaL & 40.25 & 37.98 / D³TW* & 32.10 & 32.15
scratch: TCC & 41.78 & 40.57 / GTA & 45.79 & 43.49
train_all: SpeedNet & 28.27 & 30.95 / TCN & 30.97 & 35.68 / SaL & 36.76 & 39.76 / D³TW* & 35.75 & 33.63
train_all: TCC & 44.29 & 40.31 / GTA & 47.78 & 44.77
only_bn: SpeedNet & 34.38 & 35.92 & 16.86 & 15.57 / TCN & 41.75 & 39.93 & 20.02 & 17.11
only_bn: SaL & 42.68 & 41.58 & 21.45 & 19.58 / D³TW* & 38.21 & 34.04 & 15.28 & 14.07
only_bn: TCC & 45.62 & 43.40 & 25.18 & 20.82 / GTA & 49.51 & 46.54 & 27.81 & 24.16
"""
EVENTS = """
SpeedNet & 61.63 & 12.10 & 24.25 & 24.42 / TCN & 68.82 & 13.49 & 29.57 & 27.14 / SaL & 70.53 & 15.16 & 37.73 & 33.06
D³TW* & 65.79 & 13.57 & 31.96 & 26.61 / TCC & 69.21 & 20.01 & 40.95 & 37.08 / GTA & 70.69 & 20.06 & 43.81 & 40.12
"""
JOINT = "TCN & 65.29 & 69.3 / SaL & 53.87 & 69.4 / TCC & 71.0 & 77.51 / GTA & 74.84 & 78.90"
PER_CLASS = "TCN & 73.28 / SaL & 63.36 / TCC & 73.53 / GTA & 78.29"

FULL = Setup("finegym", Path("gym"), modality="image", budget="full")
PENN = Setup("penn_action", Path("penn"))


def read(text: str) -> dict[str, list[float]]:
    """Read rows of a table: method → figures."""
    rows = [row.split("&") for line in text.strip().splitlines() for row in line.split("/")]
    return {name.strip(): [float(figure) for figure in figures] for name, *figures in rows}


def published(study: Study, setup: Setup) -> dict[str, list[float]]:
    return {row.label: list(row.published.values()) for row in study.rows(setup) if row.published}


def test_the_command_names_every_study() -> None:
    assert (*STUDIES, *FIGURES) == NAMES  # written out there, so that help waits for nothing


def test_the_ablation_has_the_papers_numbers() -> None:
    assert published(STUDIES["ablation"], FULL) == {label: [figure] for label, figure in TABLE_1.items()}


def test_recognition_has_the_papers_numbers_in_three_settings() -> None:
    expected: dict[str, list[float]] = {}
    for line in RECOGNITION.strip().splitlines():
        mode, rows = line.split(": ")
        expected |= {f"{name}, {mode}": figures for name, figures in read(rows).items()}
    assert published(STUDIES["recognition"], FULL) == expected
    names = [column.paper for column in STUDIES["recognition"].columns(FULL) if column.paper]
    assert names == ["FineGym101", "FineGym99", "FineGym290", "FineGym288"]


def test_events_and_synchronization_have_the_papers_numbers() -> None:
    assert published(STUDIES["events"], FULL) == read(EVENTS)
    names = [column.paper for column in STUDIES["events"].columns(FULL) if column.paper]
    assert names == [f"FineGym101 {name}" for name in ("vault", "floor exercise", "balance beam", "uneven bars")]
    assert published(STUDIES["synchronization"], PENN) == read(JOINT)
    assert published(STUDIES["per-class"], PENN) == read(PER_CLASS)
    assert published(STUDIES["few-shot"], FULL)["GTA"] == [49.51]


@pytest.mark.parametrize("study", [study for study in STUDIES.values() if study.name != "events"], ids=lambda s: s.name)
@pytest.mark.parametrize("data", STUDY_DATA)
def test_every_row_can_be_built_and_every_column_is_of_a_task(study: Study, data: str) -> None:
    for see in MODALITIES:
        for budget in BUDGETS:
            setup = Setup(data, Path("here"), modality=see, budget=budget)
            rows = [row for row in study.rows(setup) if row.method != "supervised"]  # its size is that of the labels
            columns = study.columns(setup)
            assert {column.task for column in columns} <= set(TASKS)
            assert len({column.head for column in columns}) == len(columns)
            shown = {name for row in rows for name in row.published}
            assert {column.paper for column in columns if column.paper} <= shown
            for row in rows:
                recipe = make_recipe(setup, row.method, row.changes)
                build_loss(recipe, dimension=recipe.encoder.get("dimension", 128))
                assert recipe.data["name"] == data
                assert (recipe.encoder["name"] == "pose") == (see == "pose")
                assert recipe.validation == {"fraction": 0.0}


def test_a_full_budget_for_images_is_the_papers_network_and_steps() -> None:
    recipe = make_recipe(FULL, "tcc")
    assert (recipe.encoder["backbone"], recipe.encoder["mode"]) == ("resnet50v2", "only_bn")
    assert (recipe.run["steps"], recipe.loss["name"], recipe.loss["tau"]) == (150_000, "tcc", 0.1)
    small = make_recipe(replace(FULL, budget="small"), "tcc")
    assert (small.encoder["backbone"], small.encoder["mode"], small.run["steps"]) == (
        "efficientnet_lite0",
        "frozen",
        500,
    )


def test_a_full_budget_has_the_published_settings_of_every_baseline() -> None:
    made = {method: make_recipe(FULL, method) for method in LABELS if method != "supervised"}
    raw = {method for method, recipe in made.items() if recipe.encoder.get("normalize") is False}
    assert raw == {"tcc", "tcn", "sal", "speednet"}
    losses = {method: recipe.loss for method, recipe in made.items()}
    assert (losses["tcc"]["kind"], losses["tcc"]["variance_weight"]) == ("variance", 0.001)
    assert (losses["tcn"]["window"], losses["tcn"]["regularizer"]) == (5, 0.002)
    assert (losses["sal"]["triplets"], losses["sal"]["fraction"], losses["sal"]["hidden"]) == (8, 0.75, [128, 64])
    assert (losses["d3tw"]["cost"], losses["d3tw_contrastive"]["cost"]) == ("cosine", "contrastive")
    assert made["speednet"].batch["frames"] == 16
    shared = {method: (recipe.optimizer, recipe.run) for method, recipe in made.items()}
    assert all(found == shared["gta"] for found in shared.values())


def test_the_row_of_d3tw_with_the_cost_of_gta_is_named_so() -> None:
    for setup in (FULL, PENN, Setup("golfdb", Path("golf")), Setup(modality="image")):
        labels = {row.method: row.label for row in STUDIES["synchronization"].rows(setup) if "d3tw" in row.method}
        assert labels == {"d3tw": "D³TW*", "d3tw_contrastive": "D³TW* with GTA's cost"}
        costs = [build_loss(make_recipe(setup, method), dimension=128).cost for method in labels]
        assert costs == ["cosine", "contrastive"]


def test_a_method_has_its_own_recipe_where_one_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    general = '[data]\nname = "stage"\n[encoder]\nname = "pose"\n[loss]\nname = "{}"\n[run]\nsteps = {}\n'
    for name, method, count in (
        ("penn_pose_gta", "gta", 80),
        ("penn_pose_tcc", "tcc", 800),
        ("golf_pose_tcc", "tcc", 8),
    ):
        (tmp_path / f"{name}.toml").write_text(general.format(method, count))
    monkeypatch.setattr("inphase.training.recipe.SHIPPED", tmp_path)
    golf = Setup("golfdb", Path("golf"), budget="full")
    assert recipe_families(golf) == ["golf_pose", "penn_pose"]
    steps = {(s.data, method): make_recipe(s, method).run["steps"] for s in (golf, replace(PENN, budget="full"))
             for method in ("gta", "tcc", "tcn")}  # fmt: skip
    assert steps == {
        ("golfdb", "gta"): 80, ("golfdb", "tcc"): 8, ("golfdb", "tcn"): 80,
        ("penn_action", "gta"): 80, ("penn_action", "tcc"): 800, ("penn_action", "tcn"): 80,
    }  # fmt: skip
    assert make_recipe(golf, "tcn").loss == {"name": "tcn"}
    assert make_recipe(replace(golf, budget="small"), "gta").run["steps"] == 10


def test_changes_of_the_user_come_before_those_of_a_row() -> None:
    setup = Setup(changes=("loss.cost=cosine", "loss.gamma=0.5", "data.videos=4"))
    recipe = make_recipe(setup, "gta", {"loss": {"cost": "contrastive"}})
    assert (recipe.loss["cost"], recipe.loss["gamma"], recipe.data["videos"]) == ("contrastive", 0.5, 4)


def test_a_supervised_network_has_as_many_classes_as_phases() -> None:
    recipe = make_recipe(Setup(changes=('data.actions=["kick", "squat"]', "data.videos=2")), "supervised")
    from inphase.data import stage_videos

    kick, squat = (stage_videos.load(split="train", actions=[name], videos=1)[0] for name in ("kick", "squat"))
    assert recipe.loss["outputs"] == len(kick.phase_names) + len(squat.phase_names)


def test_golf_swings_are_measured_at_their_inner_events() -> None:
    inner = ["toe_up", "mid_backswing", "top", "mid_downswing", "impact", "mid_follow_through"]
    assert task_options(Setup("golfdb", Path("golf")))["event_error"]["events"] == inner


def test_few_shots_of_finegym_are_counted_by_class_as_in_the_paper() -> None:
    assert task_options(FULL)["few_shot"] == {"episodes": 50, "per": "class"}
    assert task_options(PENN)["few_shot"] == {"episodes": 5, "per": "action"}


def test_wrong_setups_are_refused() -> None:
    with pytest.raises(ValueError, match="no method gtaa: choose some of"):
        Setup(methods=("gtaa",))
    with pytest.raises(ValueError, match="golfdb is read from a folder: name it with --root"):
        Setup("golfdb")
    with pytest.raises(ValueError, match="budget must be one of small, medium, full, got 'huge'"):
        Setup(budget="huge")
    with pytest.raises(ValueError, match="ablation has no row of tcc"):
        Results(STUDIES["ablation"], Setup(methods=("tcc",)), Path()).jobs()
    assert set(LABELS) >= {"gta", "tcc", "tcn", "sal", "d3tw", "speednet", "lav", "soft_dtw", "supervised"}


def test_a_trained_backbone_is_the_small_network_and_uses_a_gpu() -> None:
    """Recipes of GolfDB have a motion encoder for a CPU; the modes of a backbone need another one."""
    golf = Setup("golfdb", Path("golf"), modality="image", budget="medium", methods=("tcn",))
    # Whether vectors are normalized belongs to the method.
    general = {**read_recipe("image_gta").encoder, "normalize": read_recipe("golf_image_tcn").encoder["normalize"]}
    found = {}
    for row in STUDIES["recognition"].chosen_rows(golf):
        recipe = make_recipe(golf, row.method, row.changes)
        assert "accelerator" not in recipe.run
        assert recipe.loss["name"] == "tcn"
        found[recipe.encoder["mode"]] = {**recipe.encoder, "mode": "frozen", "weights": "published"}
    assert found == dict.fromkeys(("scratch", "train_all", "only_bn"), general)
    frozen = make_recipe(replace(golf, budget="small"), "tcn")
    assert frozen.encoder["name"] == "motion"
    assert frozen.run["accelerator"] == "cpu"


def test_errors_in_frames_stand_beside_tau_wherever_videos_have_events() -> None:
    for data in ("golfdb", "lsa64_signs"):
        for name in ("ablation", "recognition", "synchronization"):
            heads = {column.head for column in STUDIES[name].columns(Setup(data, Path("here"), modality="image"))}
            assert {"τ, %", "event error, DTW", "event error, contrastive DTW"} <= heads


def test_half_of_the_signers_are_tested_and_tuning_holds_out_others() -> None:
    people = [person for person in "abcdefghij" for _ in range(7)]
    options = STUDY_DATA["lsa64_signs"].options
    whole = split_people(people, val=options["val"], test=options["test"])
    tuned = split_people(people, val=0.2, test=options["test"])
    assert Counter(whole.values()) == {"train": 5, "test": 5}
    assert Counter(tuned.values()) == {"train": 3, "val": 2, "test": 5}
    assert {name for name in whole if whole[name] == "test"} == {name for name in tuned if tuned[name] == "test"}


def test_tasks_choose_columns() -> None:
    golf = Setup("golfdb", Path("golf"), tasks=("kendall_tau", "event_error"))
    columns = STUDIES["synchronization"].chosen_columns(golf)
    assert {column.task for column in columns} == set(golf.tasks)
    assert columns == [each for each in STUDIES["synchronization"].columns(golf) if each.task in golf.tasks]
    alone = Results(STUDIES["synchronization"], replace(golf, methods=("gta",), seeds=1), Path("out"))
    (job,) = [job for job in alone.jobs() if job.seed == 0]
    assert set(job.measurements[0].tasks) == set(golf.tasks)
    assert "--tasks kendall_tau event_error" in command(STUDIES["synchronization"], golf)
    with pytest.raises(
        ValueError, match="ablation has no column of few_shot: choose some of phase_classification, ken"
    ):
        STUDIES["ablation"].chosen_columns(replace(golf, tasks=("few_shot",)))
