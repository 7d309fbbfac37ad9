"""A procedural set of people performing actions: exact ground truth, no download."""

from inphase.data.stage.actions import ACTIONS
from inphase.data.stage.body import JOINTS, PENN_JOINTS

__all__ = ["ACTIONS", "JOINTS", "PENN_JOINTS"]
