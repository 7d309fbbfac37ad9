"""Scores: the rows that every task returns and every report holds."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Score:
    """One number of a task; NaN where it is undefined.

    `setting` names the variant it belongs to, where a task has several: the way of matching ("dtw"), the classifier
    ("linear raw 1"), the number of labeled videos ("k=5"). `control` names the control that was scored in place of the
    evaluated encoder. A score without an action or an event is over all of them.
    """

    task: str
    metric: str
    value: float
    setting: str | None = None
    control: str | None = None
    action: str | None = None
    event: str | None = None

    @property
    def is_detail(self) -> bool:
        """Whether the score is of a single action or event."""
        return self.action is not None or self.event is not None

    @property
    def label(self) -> str:
        """The name of the score within its task: metric, setting, action and event."""
        return ", ".join(part for part in (self.metric, self.setting, self.action, self.event) if part is not None)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready row; an undefined value is None."""
        return {**asdict(self), "value": None if math.isnan(self.value) else self.value}

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> "Score":
        """Read a row that `to_dict` wrote."""
        return cls(**{**row, "value": math.nan if row["value"] is None else row["value"]})


FIELDS = tuple(field.name for field in fields(Score) if field.name != "value")


def select(scores: Iterable[Score], **chosen: str | None) -> list[Score]:
    """Return the scores whose fields have the given values; a field that is not given may have any value.

    >>> scores = [Score("kendall_tau", "tau", 0.9), Score("kendall_tau", "tau", 0.8, action="squat")]
    >>> [score.value for score in select(scores, metric="tau", action=None)]
    [0.9]
    """
    unknown = [name for name in chosen if name not in FIELDS]
    if unknown:
        raise ValueError(f"a score has no field {', '.join(unknown)}: select by {', '.join(FIELDS)}")
    return [score for score in scores if all(getattr(score, name) == value for name, value in chosen.items())]


def value_of(
    scores: Iterable[Score],
    metric: str,
    *,
    setting: str | None = None,
    control: str | None = None,
    action: str | None = None,
    event: str | None = None,
    task: str | None = None,
) -> float:
    """Return the value of one score: of the encoder itself, over all actions and events, unless they are given."""
    listed = list(scores)
    found = select(listed, metric=metric, setting=setting, control=control, action=action, event=event)
    found = [score for score in found if task is None or score.task == task]
    if len(found) != 1:
        labels = sorted({score.label for score in listed})
        wanted = ", ".join(part for part in (task, metric, setting, control, action, event) if part is not None)
        raise ValueError(f"{len(found)} scores are {wanted}, need 1; there are {'; '.join(labels) or 'none'}")
    return found[0].value


def mean(numbers: Iterable[float]) -> float:
    """Average the numbers that are defined; NaN where none is."""
    defined = [number for number in numbers if not np.isnan(number)]
    return float(np.mean(defined)) if defined else float("nan")
