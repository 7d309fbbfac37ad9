"""The report of one run: a table for each task, the controls beside the run's own numbers."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from inphase.evaluation.few_shot import plot_few_shot
from inphase.evaluation.measure import Measured
from inphase.evaluation.report import Figure, Number, Report, Table, picture, versions

DETAILS = ", by action and event"

# What each number is a mean of, in the words of a table; the details are in docs/evaluation.md.
NOTES = {
    "kendall_tau": "Order of nearest neighbours; rewards whatever grows with time. nc: frames whose context exists, "
    "among such frames; nc_whole: the same among all frames.",
    "event_error": "Key events carried from video to video: frames, or fractions of the length. Less is better.",
    "alignment_error": "Difference of canonical time of matched frames. Less is better.",
    "phase_classification": "Frames whose phase a support vector machine tells rightly: kernel/features/labelled.",
    "few_shot": "The same from k labelled videos of each action; mean over episodes, half of its 95 % interval.",
    "phase_progression": "R² of a linear regression of the time since each key event.",
    "retrieval": "Fraction of the nearest frames in other videos that show the same phase.",
    "cycle_error": "Frames that do not return to themselves by nearest neighbours there and back. Less is better.",
    "sound_recall": "A second of sound finds its event within ±0.5 s among all videos, or those of its own action.",
    "health": "mean_cosine 1 or variance 0: collapsed to a point. effective_rank: dimensions in use.",
}


def summarise_run(measured: Measured, *, title: str, recipe: str = "") -> Report:
    """Lay out the numbers of each task, and the curve of few shots."""
    tables, by_action = [], []
    for task, columns in measured.numbers.items():
        rows = [
            (key, *(Number(column[key]) if key in column else None for column in columns.values()))
            for key in columns["this run"]
        ]
        headlines = tuple(row for row in rows if _is_headline(str(row[0])))
        tables.append(Table(task, ("", *columns), headlines, note=NOTES.get(task, "")))
        if len(headlines) < len(rows):
            others = tuple(row for row in rows if not _is_headline(str(row[0])))
            by_action.append(Table(f"{task}{DETAILS}", ("", *columns), others))
    left_out = [f"{task} left out: {reason}" for task, reason in measured.left_out.items()]
    return Report(
        title=title,
        tables=(*tables, *by_action),
        figures=_figures(measured.numbers),
        recipe=recipe,
        notes=(", ".join(f"{count:,} {name}" for name, count in measured.sizes.items()), *left_out),
        versions=versions(),
    )


def _figures(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> tuple[Figure, ...]:
    """Draw the curve of few shots, where matplotlib is installed and there is one."""
    curves = found.get("few_shot")
    if not curves or find_spec("matplotlib") is None:
        return ()
    return (picture(plot_few_shot(curves), title="Few-shot classification", caption=NOTES["few_shot"]),)


def _is_headline(key: str) -> bool:
    """Tell a number over everything from that of one action or event."""
    kinds = ("mean", "median", "mean_fraction", "median_fraction", "nc", "nc_whole", "per_action")
    parts = key.split("/")
    return (
        len(parts) == 1
        or parts[-1] in kinds
        or parts[-1].startswith(("k=", "recall@", "action@"))
        or _is_fraction(parts)
    )


def _is_fraction(parts: Sequence[str]) -> bool:
    return len(parts) == 3 and parts[-1].replace(".", "").isdigit()
