"""The tasks of an evaluation, by what they need; a new one is added to `TASKS`."""

from collections.abc import Callable

from inphase.evaluation.scores import Score
from inphase.evaluation.tasks.few_shot import few_shot
from inphase.evaluation.tasks.matching_errors import alignment_error, cycle_error, event_error
from inphase.evaluation.tasks.phases import frame_retrieval, phase_classification, phase_progression
from inphase.evaluation.tasks.unlabeled import health, kendall_tau

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
