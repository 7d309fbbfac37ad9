"""Table 1: what the contrastive cost, the cycle consistency and the smooth minimum are each worth."""

from inphase.reproduction import measures
from inphase.reproduction.figures import bars_and_errors
from inphase.reproduction.published import ABLATION, ABLATION_MIN_GAMMA
from inphase.reproduction.study import Changes, Column, Setup, Study, StudyRow

PAPER = "FineGym101"


def rows(setup: Setup) -> list[StudyRow]:
    """Switch the two terms on and off, and replace smoothMin by min^γ."""
    labels = {
        (False, False): "cosine cost",
        (False, True): "cosine cost + cycle",
        (True, False): "contrastive cost",
        (True, True): "contrastive cost + cycle (GTA)",
    }
    found = [
        StudyRow(label, "gta", _changes(*on), {PAPER: ABLATION[on]}, whole=on == (True, True))
        for on, label in labels.items()
    ]
    soft = _changes(True, True, minimum="soft")
    return [*found, StudyRow("the same with min^γ", "gta", soft, {PAPER: ABLATION_MIN_GAMMA})]


def _changes(contrastive: bool, cycle: bool, minimum: str = "smooth") -> Changes:
    cost = "contrastive" if contrastive else "cosine"
    return {"loss": {"cost": cost, "cycle_weight": 1.0 if cycle else 0.0, "minimum": minimum}}


def columns(setup: Setup) -> list[Column]:
    """Measure classification as the paper does, and everything that tells a collapse."""
    return [
        *measures.accuracy(setup, paper=PAPER),
        *measures.tau(),
        *measures.errors(setup),
        *measures.health(),
    ]


STUDY = Study(
    name="ablation",
    title="Ablation (Table 1)",
    about="The contrastive cost and the cycle consistency on and off, and min^γ in place of smoothMin.",
    rows=rows,
    columns=columns,
    unlike=lambda setup: measures.unlike(setup, collection="FineGym"),
    figures=bars_and_errors,
)
