"""Evaluation: scores of embeddings. The encoder runs once and all tasks share its embeddings.

test = embed_videos(encoder, videos, read=read, cache=run)    # list[EmbeddedVideo]
scores = TASKS["kendall_tau"](train, test)                    # list[Score]; NaN where undefined
"""

from inphase.evaluation.embedded_videos import EmbeddedVideo, NotApplicableError, controls, embed_videos
from inphase.evaluation.scores import Score, select, value_of
from inphase.evaluation.tasks import FITTED_TASKS, TASKS

__all__ = [
    "FITTED_TASKS",
    "TASKS",
    "EmbeddedVideo",
    "NotApplicableError",
    "Score",
    "controls",
    "embed_videos",
    "select",
    "value_of",
]
