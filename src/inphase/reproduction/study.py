"""What a study is: rows of networks, columns of numbers, and the paper's own beside them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inphase.evaluation.report import Figure
    from inphase.reproduction.results import Results

DATA = ("stage", "penn_action", "golfdb", "finegym")
MODALITIES = ("pose", "image")
BUDGETS = ("small", "medium", "full")
Changes = Mapping[str, Mapping[str, Any]]  # table → key → value

# Methods by the names of their losses, and as the paper writes them.
LABELS: Mapping[str, str] = {
    "speednet": "SpeedNet",
    "tcn": "TCN",
    "sal": "SaL",
    "d3tw": "D³TW*",
    "tcc": "TCC",
    "lav": "LAV",
    "soft_dtw": "soft-DTW",
    "gta": "GTA",
    "supervised": "supervised (upper bound)",
}


@dataclass(frozen=True)
class Setup:
    """What a study is run on: a collection, how it is seen, how much is spent."""

    data: str = "stage"
    root: Path | None = None
    store: Path | None = None
    modality: str = "pose"
    budget: str = "small"
    seeds: int = 3
    methods: tuple[str, ...] = ()  # all that a study has, where none is named
    changes: tuple[str, ...] = ()  # to every recipe, written TABLE.KEY=VALUE

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
        for name, value, known in (
            ("data", self.data, DATA),
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
        if self.data != "stage" and self.root is None:
            raise ValueError(f"{self.data} is read from a folder: name it with --root ROOT")


@dataclass(frozen=True)
class StudyRow:
    """A network: a method's recipe and changes to it; what the paper reports, by the names that columns ask for.

    `whole` marks GTA as it is, of which reports show the recipe.
    """

    label: str
    method: str = "gta"
    changes: Changes = field(default_factory=dict)
    published: Mapping[str, float] = field(default_factory=dict)
    whole: bool = False


@dataclass(frozen=True)
class Column:
    """A score of a task, times `scale`; `paper` names the published figure that stands beside it.

    `train` changes the recipes of the networks that are measured, `test` the data they are measured on.
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
    """A table or figure of the paper: which networks are trained and what is measured of them.

    `unlike` says why the numbers cannot be compared with the paper's, or nothing. With `each_action` a network is
    trained for each action, and numbers are means over actions; with `by_action` reports show τ of each action as well.
    """

    name: str
    title: str
    about: str
    rows: Callable[[Setup], Sequence[StudyRow]]
    columns: Callable[[Setup], Sequence[Column]]
    unlike: Callable[[Setup], str]
    figures: Callable[["Results"], tuple["Figure", ...]]
    each_action: bool = False
    by_action: bool = False

    def chosen_rows(self, setup: Setup) -> list[StudyRow]:
        """Give the rows of the methods that are asked for."""
        rows = [row for row in self.rows(setup) if not setup.methods or row.method in setup.methods]
        if not rows:
            raise ValueError(f"{self.name} has no row of {', '.join(setup.methods)}")
        return rows


def method_rows(
    published: Mapping[str, Mapping[str, float]], *, changes: Changes | None = None, suffix: str = ""
) -> list[StudyRow]:
    """Make a row of every method, with what the paper reports of it."""
    return [
        StudyRow(f"{label}{suffix}", name, changes or {}, published.get(name, {}), whole=name == "gta")
        for name, label in LABELS.items()
    ]
