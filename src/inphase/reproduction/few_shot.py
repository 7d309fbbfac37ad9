"""Figure 4: classification when few videos of each action are labelled."""

from inphase.evaluation.tasks.few_shot import SHOTS, shots_name
from inphase.reproduction import measures
from inphase.reproduction.figures import few_shot_curves
from inphase.reproduction.published import RECOGNITION
from inphase.reproduction.recognition import one_of_each
from inphase.reproduction.study import Column, Setup, Study

PAPER = "FineGym101, all"
# Of the paper's curves only the last point is printed as a number.
LAST_POINT = {method: {PAPER: fine} for method, (fine, _) in RECOGNITION["only_bn"].items()}


def columns(setup: Setup) -> list[Column]:
    """Measure the accuracy from each number of labelled videos of an action."""
    return [
        Column(f"{k}, %", "few_shot", "accuracy", 100, PAPER if k == "all" else "", setting=shots_name(k))
        for k in SHOTS
    ]


STUDY = Study(
    name="few-shot",
    title="Few-shot recognition (Figure 4)",
    about="Frames classified rightly from k labelled videos of each action. The paper draws curves without numbers.",
    rows=lambda setup: one_of_each(setup, LAST_POINT),
    columns=columns,
    unlike=lambda setup: measures.unlike(setup, collection="FineGym"),
    figures=few_shot_curves,
)
