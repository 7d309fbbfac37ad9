"""Numbers: what embeddings are worth. The network runs once and all tasks share its output.

test = embed_videos(encoder, videos, read=read, cache=run)    # list[Embedded]
numbers = TASKS["kendall_tau"](train, test)                   # dict[str, float]; NaN where undefined
"""

from collections.abc import Callable

from inphase.evaluation.alignment_error import alignment_error
from inphase.evaluation.cycle_error import cycle_error
from inphase.evaluation.embedded import Embedded, NotApplicableError
from inphase.evaluation.embedding import embed_videos
from inphase.evaluation.event_error import event_error
from inphase.evaluation.few_shot import few_shot
from inphase.evaluation.health import health
from inphase.evaluation.kendall_tau import controls, kendall_tau
from inphase.evaluation.phase_classification import phase_classification
from inphase.evaluation.phase_progression import phase_progression
from inphase.evaluation.retrieval import retrieval

# Each takes the embedded training and test videos and its own options.
TASKS: dict[str, Callable[..., dict[str, float]]] = {
    "kendall_tau": kendall_tau,
    "event_error": event_error,
    "alignment_error": alignment_error,
    "phase_classification": phase_classification,
    "few_shot": few_shot,
    "phase_progression": phase_progression,
    "retrieval": retrieval,
    "cycle_error": cycle_error,
    "health": health,
}
# Those that learn something on top of the embeddings; the others do without training videos.
LEARN = frozenset({"phase_classification", "few_shot", "phase_progression"})

__all__ = ["LEARN", "TASKS", "Embedded", "NotApplicableError", "controls", "embed_videos"]
