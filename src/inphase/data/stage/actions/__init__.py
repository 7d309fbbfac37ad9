"""The actions of the stage by name."""

from inphase.data.stage.actions.kicks import KICK
from inphase.data.stage.actions.leaps import JUMP_SHOT, LONG_JUMP, VAULT
from inphase.data.stage.actions.lifts import CLEAN_AND_JERK, PUSH_UP, SHELF_LIFT, SQUAT
from inphase.data.stage.actions.strikes import AXE_CHOP, SERVE
from inphase.data.stage.actions.swings import BAT_SWING, GOLF_SWING
from inphase.data.stage.actions.throws import BOWL, PITCH, SHOT_PUT
from inphase.data.stage.controls import Action

ACTIONS: dict[str, Action] = {
    action.name: action
    for action in (
        GOLF_SWING,
        PITCH,
        BOWL,
        SERVE,
        CLEAN_AND_JERK,
        SHELF_LIFT,
        VAULT,
        KICK,
        SHOT_PUT,
        BAT_SWING,
        AXE_CHOP,
        JUMP_SHOT,
        LONG_JUMP,
        SQUAT,
        PUSH_UP,
    )
}
