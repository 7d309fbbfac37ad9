"""A procedural set of people performing actions: exact ground truth, no download.

    videos = stage(split="train", level="plain")     # what is known: progress, phases, events, joints
    clip = videos[0].draw()                          # its pictures
    sound = stage_sound(videos[0].id)                # its sound track, 16 kHz
    write_stage("folder", videos=5)                  # the same as mp4 files; stage("folder", split="train") lists them

Key poses (`actions`, written in `controls`) become curves, joints (`body`), solids (`figure`, `props`, `scene`), what a
`camera` sees of them, and pictures (`film`, `draw_numba`). A `take` holds all that chance decides, each aspect from its
own random stream. The same release on the same machine draws the same bits; another processor may round differently.
"""

from inphase.data.stage.actions import ACTIONS
from inphase.data.stage.body import JOINTS, PENN_JOINTS
from inphase.data.stage.collection import stage, write_stage
from inphase.data.stage.look import LEVELS
from inphase.data.stage.sound import stage_sound

__all__ = ["ACTIONS", "JOINTS", "LEVELS", "PENN_JOINTS", "stage", "stage_sound", "write_stage"]
