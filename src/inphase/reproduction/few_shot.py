"""Figure 4: classification when few videos of each action are labelled."""

from inphase.evaluation.few_shot import SHOTS
from inphase.reproduction import measures
from inphase.reproduction.events import rows as method_rows_of
from inphase.reproduction.figures import few_shot_curves
from inphase.reproduction.published import RECOGNITION
from inphase.reproduction.study import Column, Row, Setup, Study

PAPER = "FineGym101, all"


def rows(setup: Setup) -> list[Row]:
    """Train every method; of the paper's curves only the last point is printed as a number."""
    return [
        Row(row.label, row.method, row.changes, _last_point(row.method), whole=row.whole)
        for row in method_rows_of(setup)
    ]


def _last_point(method: str) -> dict[str, float]:
    known = RECOGNITION["only_bn"].get(method)
    return {} if known is None else {PAPER: known[0]}


def columns(setup: Setup) -> list[Column]:
    """Measure the accuracy from each number of labelled videos of an action."""
    return [Column(f"{k}, %", "few_shot", f"k={k}", 100, PAPER if k == "all" else "") for k in SHOTS]


STUDY = Study(
    name="few-shot",
    title="Few-shot recognition (Figure 4)",
    about="Frames classified rightly from k labelled videos of each action. The paper draws curves without numbers.",
    rows=rows,
    columns=columns,
    unlike=lambda setup: measures.unlike(setup, collection="FineGym"),
    figures=few_shot_curves,
)
