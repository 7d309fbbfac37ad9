"""A procedural set of people performing actions: exact ground truth, no download."""

from inphase.data.stage.actions import ACTIONS
from inphase.data.stage.body import JOINTS, PENN_JOINTS
from inphase.data.stage.collection import stage, write_stage
from inphase.data.stage.look import LEVELS
from inphase.data.stage.sound import stage_sound

__all__ = ["ACTIONS", "JOINTS", "LEVELS", "PENN_JOINTS", "stage", "stage_sound", "write_stage"]
