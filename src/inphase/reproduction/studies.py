"""The paper's tables and figures as studies, with the numbers it reports, in percent."""

from collections.abc import Mapping

from inphase.data.finegym import EVENTS
from inphase.evaluation.tasks.few_shot import SHOTS, shots_name
from inphase.evaluation.tasks.phases import classifier_name
from inphase.reproduction.figures import draw_bars, draw_bars_and_errors, draw_few_shot, draw_heat_map
from inphase.reproduction.study import (
    Changes,
    Column,
    Setup,
    Study,
    StudyRow,
    accuracy_columns,
    differences_from,
    error_columns,
    health_columns,
    method_rows,
    other_columns,
    tau_columns,
)
from inphase.reproduction.study_runs import list_actions

Numbers = Mapping[str, Mapping[str, float]]  # method → column → percent

# Table 1, FineGym101 by (contrastive cost, cycle consistency), and min^γ with both.
_ABLATION: Mapping[tuple[bool, bool], float] = {
    (False, False): 28.20,
    (False, True): 28.20,
    (True, False): 47.32,
    (True, True): 49.51,
}
_ABLATION_MIN_GAMMA = 48.07

# Table 2 and the supplement: by training of the backbone, FineGym101 and FineGym290.
_RECOGNITION: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "scratch": {
        "speednet": (30.40, 29.87),
        "tcn": (36.52, 37.40),
        "sal": (40.25, 37.98),
        "d3tw": (32.10, 32.15),
        "tcc": (41.78, 40.57),
        "gta": (45.79, 43.49),
    },
    "train_all": {
        "speednet": (28.27, 30.95),
        "tcn": (30.97, 35.68),
        "sal": (36.76, 39.76),
        "d3tw": (35.75, 33.63),
        "tcc": (44.29, 40.31),
        "gta": (47.78, 44.77),
    },
    "only_bn": {
        "speednet": (34.38, 35.92),
        "tcn": (41.75, 39.93),
        "sal": (42.68, 41.58),
        "d3tw": (38.21, 34.04),
        "tcc": (45.62, 43.40),
        "gta": (49.51, 46.54),
    },
}
# Supplement, the original short clips, only_bn: FineGym99 and FineGym288.
_ORIGINAL_CLIPS: Mapping[str, tuple[float, float]] = {
    "speednet": (16.86, 15.57),
    "tcn": (20.02, 17.11),
    "sal": (21.45, 19.58),
    "d3tw": (15.28, 14.07),
    "tcc": (25.18, 20.82),
    "gta": (27.81, 24.16),
}
# Supplement, FineGym101, only_bn, a classifier for each event: VT, FX, BB, UB.
_EVENTS: Mapping[str, tuple[float, float, float, float]] = {
    "speednet": (61.63, 12.10, 24.25, 24.42),
    "tcn": (68.82, 13.49, 29.57, 27.14),
    "sal": (70.53, 15.16, 37.73, 33.06),
    "d3tw": (65.79, 13.57, 31.96, 26.61),
    "tcc": (69.21, 20.01, 40.95, 37.08),
    "gta": (70.69, 20.06, 43.81, 40.12),
}
_EVENT_NUMBERS: Numbers = {
    method: {f"FineGym101 {EVENTS[code]}": value for code, value in zip(("VT", "FX", "BB", "UB"), row, strict=True)}
    for method, row in _EVENTS.items()
}
# Table 3, PennAction, one network for all actions; and of the supplement, one for each.
_SYNCHRONIZATION: Numbers = {
    "tcn": {"PennAction τ": 65.29, "PennAction phases": 69.3},
    "sal": {"PennAction τ": 53.87, "PennAction phases": 69.4},
    "tcc": {"PennAction τ": 71.0, "PennAction phases": 77.51},
    "gta": {"PennAction τ": 74.84, "PennAction phases": 78.90},
}
_PER_CLASS: Numbers = {
    "tcn": {"PennAction τ": 73.28},
    "sal": {"PennAction τ": 63.36},
    "tcc": {"PennAction τ": 73.53},
    "gta": {"PennAction τ": 78.29},
}


# The encoder is named: the recipes of some data sets use motion, whose backbone is always frozen.
_MODES: dict[str, Changes] = {
    "scratch": {"encoder": {"name": "image", "mode": "scratch", "weights": None}},
    "train_all": {"encoder": {"name": "image", "mode": "train_all"}},
    "only_bn": {"encoder": {"name": "image", "mode": "only_bn"}},
}


def _train_each_once(setup: Setup, published: Numbers) -> list[StudyRow]:
    """Train every method once; where a backbone is trained, its batch norms alone, as in the paper."""
    trains = setup.modality == "image" and setup.budget != "small"
    return method_rows(published, changes=_MODES["only_bn"] if trains else {})


def _ablation_rows(setup: Setup) -> list[StudyRow]:
    """Switch the contrastive cost and the cycle consistency on and off, and replace smoothMin and the cycle term."""
    labels = {
        (False, False): "cosine cost",
        (False, True): "cosine cost + cycle",
        (True, False): "contrastive cost",
        (True, True): "contrastive cost + cycle (GTA)",
    }
    # The whole GTA is the recipe as it is: other studies share its runs.
    changes = {on: _ablate(*on) if on != (True, True) else {} for on in labels}
    found = [
        StudyRow(label, "gta", changes[on], {"FineGym101": _ABLATION[on]}, whole=on == (True, True))
        for on, label in labels.items()
    ]
    soft = _ablate(True, True, minimum="soft")
    # The recipes have the cycle term of the released code; the printed one sums over frames and is far larger.
    printed = {"loss": {**_ablate(True, True)["loss"], "variant": "paper"}}
    return [
        *found,
        StudyRow("the same with min^γ", "gta", soft, {"FineGym101": _ABLATION_MIN_GAMMA}),
        StudyRow("the same with the printed cycle term", "gta", printed),
    ]


def _ablate(contrastive: bool, cycle: bool, minimum: str = "smooth") -> Changes:
    cost = "contrastive" if contrastive else "cosine"
    return {"loss": {"cost": cost, "cycle_weight": 1.0 if cycle else 0.0, "minimum": minimum}}


def _recognition_rows(setup: Setup) -> list[StudyRow]:
    """Train every method in the three modes; in one for pose, for both modalities and at a small budget."""
    if setup.modality != "image" or setup.budget == "small":
        return method_rows(_published_recognition("only_bn"))
    return [
        row
        for mode, changes in _MODES.items()
        for row in method_rows(_published_recognition(mode), changes=changes, suffix=f", {mode}")
    ]


def _published_recognition(mode: str) -> dict[str, dict[str, float]]:
    """Return the paper's numbers of each method, by the set of labels."""
    found = {}
    for method, (fine, finer) in _RECOGNITION[mode].items():
        found[method] = {"FineGym101": fine, "FineGym290": finer}
        if mode == "only_bn":
            found[method] |= dict(zip(("FineGym99", "FineGym288"), _ORIGINAL_CLIPS[method], strict=True))
    return found


def _recognition_columns(setup: Setup) -> list[Column]:
    """Measure FineGym at its four sets of labels; other data at their phases, beside the paper's FineGym101."""
    if setup.data != "finegym":
        accuracy = accuracy_columns(setup, paper="FineGym101")
        return [*accuracy, *tau_columns(), *error_columns(setup), *health_columns()]
    found = []
    for labels in (101, 290):
        trained: Changes = {"data": {"labels": labels}}
        found += accuracy_columns(setup, paper=f"FineGym{labels}", name=str(labels), train=trained)
        # The same networks; the classifier is fitted and tested on the original short clips.
        clips = {"labels": labels - 2, "unit": "element"}
        name = f"FineGym{labels - 2}"
        found += accuracy_columns(setup, paper=name, name=f"{labels - 2} clips", train=trained, test=clips)
    return [*found, *health_columns()]


def _event_columns(setup: Setup) -> list[Column]:
    """Measure a classifier for each event of FineGym, or for each action elsewhere, and their mean."""
    known = setup.data == "finegym"
    actions = list(EVENTS.values()) if known else list_actions(setup)
    task, setting = "phase_classification", classifier_name("linear", "raw")
    found = [
        Column(
            f"{action}, %",
            task,
            "accuracy",
            100,
            f"FineGym101 {action}" if known else "",
            setting=setting,
            action=action,
        )
        for action in actions
    ]
    # A single action has no classifier of its own beside that of all.
    mean = Column("mean, %", task, "accuracy_per_action", 100, setting=setting)
    return [*found, mean] if len(actions) > 1 else accuracy_columns(setup)


def _few_shot_columns(setup: Setup) -> list[Column]:
    """Measure the accuracy from each number of labeled videos; the paper prints only the last point of its curves."""
    return [
        Column(f"{k}, %", "few_shot", "accuracy", 100, "FineGym101, all" if k == "all" else "", setting=shots_name(k))
        for k in SHOTS
    ]


_STUDIES = (
    Study(
        name="ablation",
        title="Ablation (Table 1)",
        about="The contrastive cost and the cycle consistency on and off, min^γ in place of smoothMin, and the cycle "
        "term as printed in place of the released code's.",
        rows=_ablation_rows,
        columns=lambda setup: [
            *accuracy_columns(setup, paper="FineGym101"),
            *tau_columns(),
            *error_columns(setup),
            *health_columns(),
        ],
        differences=lambda setup: differences_from(setup, data="FineGym"),
        figures=draw_bars_and_errors,
    ),
    Study(
        name="recognition",
        title="Fine-grained action recognition (Table 2)",
        about="Frames whose phase a support vector machine on frozen embeddings classifies correctly.",
        rows=_recognition_rows,
        columns=_recognition_columns,
        differences=lambda setup: differences_from(setup, data="FineGym"),
        figures=draw_bars,
    ),
    Study(
        name="events",
        title="Recognition, event by event",
        about="A support vector machine for the phases of each action by itself, on embeddings of one network for all.",
        rows=lambda setup: _train_each_once(setup, _EVENT_NUMBERS),
        columns=_event_columns,
        differences=lambda setup: differences_from(setup, data="FineGym"),
        figures=draw_heat_map,
    ),
    Study(
        name="few-shot",
        title="Few-shot recognition (Figure 4)",
        about="Frames classified correctly from k labeled videos: of each class of FineGym's labels, as in the paper, "
        "and of each action elsewhere, whose videos show all phases. The paper draws curves without numbers.",
        rows=lambda setup: _train_each_once(
            setup, {method: {"FineGym101, all": fine} for method, (fine, _) in _RECOGNITION["only_bn"].items()}
        ),
        columns=_few_shot_columns,
        differences=lambda setup: differences_from(setup, data="FineGym"),
        figures=draw_few_shot,
    ),
    Study(
        name="synchronization",
        title="Video synchronization (Table 3)",
        about="τ rewards whatever grows with time: read it beside the errors, and beside the scores of position alone.",
        rows=lambda setup: _train_each_once(setup, _SYNCHRONIZATION),
        columns=lambda setup: [
            *tau_columns(paper="PennAction τ"),
            *error_columns(setup),
            *accuracy_columns(setup, paper="PennAction phases", each=True),
            *other_columns(setup),
            *health_columns(),
        ],
        differences=lambda setup: differences_from(setup, data="PennAction"),
        figures=draw_bars_and_errors,
        by_action=True,
    ),
    Study(
        name="per-class",
        title="Synchronization, a network for each action",
        about="A network for each action, measured on that action; means over actions.",
        rows=lambda setup: _train_each_once(setup, _PER_CLASS),
        columns=lambda setup: [*tau_columns(paper="PennAction τ"), *error_columns(setup), *health_columns()],
        differences=lambda setup: differences_from(setup, data="PennAction"),
        figures=draw_bars_and_errors,
        each_action=True,
        by_action=True,
    ),
)
STUDIES: dict[str, Study] = {study.name: study for study in _STUDIES}
