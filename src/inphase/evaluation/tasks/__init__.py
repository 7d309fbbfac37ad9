"""The tasks of an evaluation, by what they need; a new one is added to `TASKS`."""

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any

import torch

from inphase.evaluation.embedded_videos import EmbeddedVideo, NotApplicableError
from inphase.evaluation.scores import Score
from inphase.evaluation.tasks.few_shot import few_shot
from inphase.evaluation.tasks.matching_errors import alignment_error, cycle_error, event_error
from inphase.evaluation.tasks.phases import frame_retrieval, phase_classification, phase_progression
from inphase.evaluation.tasks.unlabeled import health, kendall_tau
from inphase.progress import Progress
from inphase.storage.errors import MissingExtraError

# Each takes the embedded training and test videos and its own options.
TASKS: dict[str, Callable[..., list[Score]]] = {
    "kendall_tau": kendall_tau,
    "event_error": event_error,
    "alignment_error": alignment_error,
    "phase_classification": phase_classification,
    "few_shot": few_shot,
    "phase_progression": phase_progression,
    "frame_retrieval": frame_retrieval,
    "cycle_error": cycle_error,
    "health": health,
}
# The tasks that fit a model on the training videos; the others need no training videos.
FITTED_TASKS = frozenset({"phase_classification", "few_shot", "phase_progression"})


def run_tasks(
    tasks: Sequence[str],
    videos: Mapping[str, list[EmbeddedVideo]],
    *,
    options: Mapping[str, Mapping[str, Any]],
    device: torch.device,
    progress: Progress,
    left_out: dict[str, str] | None = None,
    failed: dict[str, str] | None = None,
) -> list[Score]:
    """Run tasks; enter the reason in `left_out` for a task that lacks labels, and in `failed` for one that raises."""
    scores: list[Score] = []
    for task in tasks:
        progress(task, 0, 1)
        chosen, parameters = dict(options.get(task, {})), signature(TASKS[task]).parameters
        if "progress" in parameters:
            chosen["progress"] = progress
        if "device" in parameters:
            chosen.setdefault("device", device)
        try:
            scores += TASKS[task](videos.get("train", []), videos["test"], **chosen)
        except (NotApplicableError, MissingExtraError) as error:
            if left_out is None:
                raise
            left_out[task] = str(error)
        # Any error of one task is reported with the scores of the others.
        except Exception as error:
            if failed is None:
                raise
            failed[task] = f"{type(error).__name__}: {error}"
        progress(task, 1, 1)
    return scores
