"""The tasks of an evaluation, one file each; a new one is added to `TASKS`."""

from collections.abc import Callable

from inphase.evaluation.scores import Score
from inphase.evaluation.tasks.alignment_error import alignment_error
from inphase.evaluation.tasks.cycle_error import cycle_error
from inphase.evaluation.tasks.event_error import event_error
from inphase.evaluation.tasks.few_shot import few_shot
from inphase.evaluation.tasks.frame_retrieval import frame_retrieval
from inphase.evaluation.tasks.health import health
from inphase.evaluation.tasks.kendall_tau import kendall_tau
from inphase.evaluation.tasks.phase_classification import phase_classification
from inphase.evaluation.tasks.phase_progression import phase_progression

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
