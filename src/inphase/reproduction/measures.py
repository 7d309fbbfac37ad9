"""The numbers that studies have in common, by what the labels of a collection allow."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from inphase.data.golfdb import EVENTS
from inphase.evaluation.tasks.phase_classification import classifier_name
from inphase.reproduction.study import Changes, Column, Setup

# Somebody stands still before the first event and after the last: when those are says little.
INNER_EVENTS = EVENTS[1:-1]


def accuracy(
    setup: Setup,
    *,
    paper: str = "",
    name: str = "phases",
    each: bool = False,
    train: Changes | None = None,
    test: Mapping[str, Any] | None = None,
) -> list[Column]:
    """Give the columns of phase classification; the paper's figure stands beside the first.

    With `each` an action has its own classifier, and the mean over actions counts, as in GTA's and TCC's scripts.
    """
    kinds = {
        "SVM": classifier_name("linear", "raw"),
        "SVM, standardized": classifier_name("linear", "standardized"),
    }
    if setup.budget != "small":
        kinds = {"SVM, RBF": classifier_name("rbf", "raw"), **kinds}  # as those scripts have it
    metric = "accuracy_per_action" if each and setup.data != "golfdb" else "accuracy"  # which has one action
    columns = [
        Column(
            f"{name}, {kind}, %",
            "phase_classification",
            metric,
            100,
            setting=setting,
            train=train or {},
            test=test or {},
        )
        for kind, setting in kinds.items()
    ]
    return [replace(columns[0], paper=paper), *columns[1:]]


def tau(*, paper: str = "") -> list[Column]:
    """Give the columns of Kendall's τ, in percent as the paper does; nc: frames whose context exists."""
    return [
        Column("τ, %", "kendall_tau", "tau", 100, paper),
        Column("τ nc, %", "kendall_tau", "tau_unclamped", 100),
    ]


def events() -> list[Column]:
    """Give the columns of the event error, in frames."""
    return [
        Column("event error, nearest", "event_error", "mean", setting="nearest"),
        Column("event error, DTW", "event_error", "mean", setting="dtw"),
        Column("median", "event_error", "median", setting="dtw"),
        Column("event error, contrastive DTW", "event_error", "mean", setting="contrastive"),
        Column("its median", "event_error", "median", setting="contrastive"),
    ]


def alignment() -> list[Column]:
    """Give the columns of the alignment error, in percent of the action; the stage alone knows its true time."""
    return [
        Column("alignment error, nearest, %", "alignment_error", "error", 100, setting="nearest"),
        Column("alignment error, DTW, %", "alignment_error", "error", 100, setting="dtw"),
    ]


def errors(setup: Setup) -> list[Column]:
    """Give the columns of what people feel, as far as the collection knows it."""
    return [*(alignment() if setup.data == "stage" else []), *(events() if setup.data in ("stage", "golfdb") else [])]


def others() -> list[Column]:
    """Give the columns of the other tasks."""
    return [
        Column("progression, R²", "phase_progression", "r2"),
        Column("AP@5, %", "frame_retrieval", "ap@5", 100),
        Column("cycle missed, %", "cycle_error", "missed", 100),
    ]


def health() -> list[Column]:
    """Give the columns that tell a collapse."""
    return [
        Column("mean cosine", "health", "mean_cosine"),
        Column("effective rank", "health", "effective_rank"),
    ]


def options(setup: Setup) -> dict[str, dict[str, Any]]:
    """Give the options of the tasks; a small budget does without radial kernels and with fewer episodes."""
    small = setup.budget == "small"
    return {
        "phase_classification": {"fractions": [1.0], "kernels": ["linear"] if small else ["linear", "rbf"]},
        "few_shot": {"episodes": 5 if small else 50},
        "event_error": {"events": list(INNER_EVENTS)} if setup.data == "golfdb" else {},
    }


def unlike(setup: Setup, *, collection: str) -> str:
    """Say why numbers on this data cannot be compared with the paper's on `collection`, or nothing where they can."""
    reasons = []
    names = {"penn_action": "PennAction", "finegym": "FineGym", "golfdb": "GolfDB", "stage": "the stage"}
    if names[setup.data] != collection:
        reasons.append(f"the paper's are of {collection}, these of {names[setup.data]}")
    if setup.modality != "image":
        reasons.append(f"the paper's network sees pictures, this one {setup.modality}")
    elif setup.budget != "full":
        reasons.append("the paper trains a larger network for 150,000 steps")
    if setup.data == "penn_action":
        reasons.append("the paper's phase labels are not public")
    return "; ".join(reasons)
