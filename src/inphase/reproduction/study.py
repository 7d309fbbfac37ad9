"""Studies: tables of networks and scores, the paper's numbers beside them, and the data they can be run on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from inphase.data.golfdb import EVENTS
from inphase.evaluation.tasks.phases import classifier_name

if TYPE_CHECKING:
    from inphase.evaluation.report import Figure
    from inphase.reproduction.results import Results

MODALITIES = ("pose", "image", "both")
BUDGETS = ("small", "medium", "full")
Changes = Mapping[str, Mapping[str, Any]]  # table → key → value

# Methods by the names of their losses or recipes, and as the paper writes them.
LABELS: Mapping[str, str] = {
    "speednet": "SpeedNet",
    "tcn": "TCN",
    "sal": "SaL",
    "d3tw": "D³TW*",
    "d3tw_contrastive": "D³TW* with GTA's cost",
    "tcc": "TCC",
    "lav": "LAV",
    "scl": "SCL (CARL)",
    "vava": "VAVA",
    "lrprop": "LRProp",
    "soft_dtw": "soft-DTW",
    "gta": "GTA",
    "supervised": "supervised (upper bound)",
}

# The losses of methods that are not named like their loss.
LOSS_TABLES: Mapping[str, Mapping[str, Any]] = {"d3tw_contrastive": {"name": "d3tw", "cost": "contrastive"}}


@dataclass(frozen=True)
class StudyData:
    """A data set of `inphase.data.DATASETS` that studies can be run on.

    `label` is its name in reports, `recipes` the prefix of its recipes, as golf in golf_pose; a method without one is
    trained by the general recipe. `options` are keyword arguments of its loader. `events`, where its videos have any,
    are those whose error is measured; empty: all.
    """

    label: str
    recipes: str
    modality: Literal["pose", "image"] = "pose"
    options: Mapping[str, Any] = field(default_factory=dict)
    needs_root: bool = True
    events: tuple[str, ...] | None = None
    true_times: bool = False
    single_action: bool = False
    shots_per: Literal["action", "class"] = "action"  # what few-shot recognition labels k videos of
    caveat: str = ""


STUDY_DATA: dict[str, StudyData] = {
    "stage": StudyData("the stage", "stage", needs_root=False, events=(), true_times=True),
    "penn_action": StudyData("PennAction", "penn", caveat="the paper's phase labels are not public"),
    # The loader holds out a fifth of the players to choose settings on. Players stand still before the first event and
    # after the last, so that the times of these two are vague.
    "golfdb": StudyData("GolfDB", "golf", options={"held_out": 0.0}, events=EVENTS[1:-1], single_action=True),
    # Half of the signers are trained on; recipes were tuned with a part of these held out.
    "lsa64_signs": StudyData("LSA64's signs", "signs", "image", options={"val": 0.0, "test": 0.5}, events=()),
    "finegym": StudyData("FineGym", "finegym", "image", options={"labels": 101}, shots_per="class"),
}


@dataclass(frozen=True)
class Setup:
    """The data a study is run on, the modality of its networks, and how much is computed."""

    data: str = "stage"
    root: Path | None = None
    store: Path | None = None
    modality: str = "pose"
    budget: str = "small"
    seeds: int = 3
    methods: tuple[str, ...] = ()  # empty: all of a study
    changes: tuple[str, ...] = ()  # to every recipe, written TABLE.KEY=VALUE
    tasks: tuple[str, ...] = ()  # of the columns to measure; empty: all of a study

    def __post_init__(self) -> None:
        """Raise if a value is not one of the known ones."""
        for name, value, known in (
            ("data", self.data, STUDY_DATA),
            ("modality", self.modality, MODALITIES),
            ("budget", self.budget, BUDGETS),
        ):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
        unknown = [name for name in self.methods if name not in LABELS]
        if unknown:
            raise ValueError(f"no method {', '.join(unknown)}: choose some of {', '.join(LABELS)}")
        if self.seeds < 1:
            raise ValueError(f"need at least 1 seed, got {self.seeds}")
        if self.about.needs_root and self.root is None:
            raise ValueError(f"{self.data} is read from a folder: name it with --root ROOT")

    @property
    def about(self) -> StudyData:
        """The entry of the data set in `STUDY_DATA`."""
        return STUDY_DATA[self.data]


@dataclass(frozen=True)
class StudyRow:
    """A network: a method's recipe with changes; `published` are the paper's numbers, by the names of the columns.

    `whole` marks the complete GTA, whose recipe reports show.
    """

    label: str
    method: str = "gta"
    changes: Changes = field(default_factory=dict)
    published: Mapping[str, float] = field(default_factory=dict)
    whole: bool = False


@dataclass(frozen=True)
class Column:
    """A score of a task, times `scale`; `paper` names the published number that is shown beside it.

    `train` changes the recipes of the measured networks, `test` the data they are measured on.
    """

    head: str
    task: str
    metric: str
    scale: float = 1.0
    paper: str = ""
    setting: str | None = None
    action: str | None = None
    train: Changes = field(default_factory=dict)
    test: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """A table or figure of the paper: the networks that are trained and the scores that are measured.

    `differences` returns why the numbers are not comparable with the paper's, or an empty text. With `each_action` a
    network is trained for each action, and scores are means over actions; with `by_action` reports also show τ of each
    action.
    """

    name: str
    title: str
    about: str
    rows: Callable[[Setup], Sequence[StudyRow]]
    columns: Callable[[Setup], Sequence[Column]]
    differences: Callable[[Setup], str]
    figures: Callable[["Results"], tuple["Figure", ...]]
    each_action: bool = False
    by_action: bool = False

    def chosen_columns(self, setup: Setup) -> list[Column]:
        """Return the columns of the chosen tasks."""
        columns = [column for column in self.columns(setup) if not setup.tasks or column.task in setup.tasks]
        if not columns:
            known = dict.fromkeys(column.task for column in self.columns(setup))
            raise ValueError(
                f"{self.name} has no column of {', '.join(setup.tasks)}: choose some of {', '.join(known)}"
            )
        return columns

    def chosen_rows(self, setup: Setup) -> list[StudyRow]:
        """Return the rows of the chosen methods."""
        rows = [row for row in self.rows(setup) if not setup.methods or row.method in setup.methods]
        if not rows:
            raise ValueError(f"{self.name} has no row of {', '.join(setup.methods)}")
        return rows


def method_rows(
    published: Mapping[str, Mapping[str, float]], *, changes: Changes | None = None, suffix: str = ""
) -> list[StudyRow]:
    """Make a row for every method, with the paper's numbers."""
    return [
        StudyRow(f"{label}{suffix}", name, changes or {}, published.get(name, {}), whole=name == "gta")
        for name, label in LABELS.items()
    ]


def accuracy_columns(
    setup: Setup,
    *,
    paper: str = "",
    name: str = "phases",
    each: bool = False,
    train: Changes | None = None,
    test: Mapping[str, Any] | None = None,
) -> list[Column]:
    """Return the columns of phase classification; the paper's number is shown beside the first.

    With `each` every action has its own classifier and the mean over actions is taken, as in GTA's and TCC's scripts.
    """
    kinds = {
        "SVM": classifier_name("linear", "raw"),
        "SVM, standardized": classifier_name("linear", "standardized"),
    }
    if setup.budget == "full":
        kinds = {"SVM, RBF": classifier_name("rbf", "raw"), **kinds}  # as in those scripts
    metric = "accuracy_per_action" if each and not setup.about.single_action else "accuracy"
    changed: dict[str, Any] = {"train": train or {}, "test": test or {}}
    columns = [
        Column(f"{name}, {kind}, %", "phase_classification", metric, 100, setting=setting, **changed)
        for kind, setting in kinds.items()
    ]
    return [replace(columns[0], paper=paper), *columns[1:]]


def tau_columns(*, paper: str = "") -> list[Column]:
    """Return the columns of Kendall's τ, in percent as in the paper; nc: frames whose context lies in the video."""
    return [
        Column("τ, %", "kendall_tau", "tau", 100, paper),
        Column("τ nc, %", "kendall_tau", "tau_unclamped", 100),
    ]


def error_columns(setup: Setup) -> list[Column]:
    """Return the columns of the errors in time that the labels of the data set allow."""
    alignment = [
        Column("alignment error, nearest, %", "alignment_error", "error", 100, setting="nearest"),
        Column("alignment error, DTW, %", "alignment_error", "error", 100, setting="dtw"),
    ]
    events = [
        Column("event error, nearest", "event_error", "mean", setting="nearest"),
        Column("event error, DTW", "event_error", "mean", setting="dtw"),
        Column("median", "event_error", "median", setting="dtw"),
        Column("event error, contrastive DTW", "event_error", "mean", setting="contrastive"),
        Column("its median", "event_error", "median", setting="contrastive"),
        Column("enclosed area, DTW, %", "event_error", "area", 100, setting="dtw"),
    ]
    return [*(alignment if setup.about.true_times else []), *(events if setup.about.events is not None else [])]


def other_columns(setup: Setup) -> list[Column]:
    """Return the columns of F1, progression, retrieval and cycle error."""
    f1 = "f1" if setup.about.single_action else "f1_per_action"
    return [
        Column("F1, %", "phase_classification", f1, 100, setting=classifier_name("linear", "raw")),
        Column("progression, R²", "phase_progression", "r2"),
        Column("AP@5, %", "frame_retrieval", "ap@5", 100),
        Column("mAP@10, %", "frame_retrieval", "map@10", 100),
        Column("cycle missed, %", "cycle_error", "missed", 100),
    ]


def health_columns() -> list[Column]:
    """Return the columns that show a collapse."""
    return [
        Column("mean cosine", "health", "mean_cosine"),
        Column("effective rank", "health", "effective_rank"),
    ]


def task_options(setup: Setup) -> dict[str, dict[str, Any]]:
    """Return the options of the tasks; a full budget has radial kernels, a small one fewer episodes."""
    kernels = ["linear", "rbf"] if setup.budget == "full" else ["linear"]
    return {
        "phase_classification": {"fractions": [1.0], "kernels": kernels},
        "few_shot": {"episodes": 5 if setup.budget == "small" else 50, "per": setup.about.shots_per},
        "event_error": {"events": list(setup.about.events)} if setup.about.events else {},
    }


def differences_from(setup: Setup, *, data: str) -> str:
    """Describe why scores are not comparable with the paper's on `data`; empty where they are."""
    reasons = []
    if setup.about.label != data:
        reasons.append(f"the paper's are of {data}, these of {setup.about.label}")
    if setup.modality != "image":
        inputs = "pose and images" if setup.modality == "both" else setup.modality
        reasons.append(f"the paper's network embeds images, this one {inputs}")
    elif setup.budget != "full":
        reasons.append("the paper trains a larger network for 150,000 steps")
    if setup.about.caveat:
        reasons.append(setup.about.caveat)
    return "; ".join(reasons)
