"""A procedural set of people performing actions: exact ground truth, no download.

    videos = stage.load(split="train", level="plain")    # what is known: progress, phases, events, joints
    clip, sound = videos[0].draw(), videos[0].hear()     # its pictures and its sound track, 16 kHz
    stage.write("folder", videos=5)                      # the same as mp4 files, which load("folder", …) lists

Key poses (`actions`, written in `controls`) become curves, joints (`body`), solids (`figure`, `props`, `scene`), what a
`camera` sees of them, and pictures (`film`, `draw_numba`). A `take` holds all that chance decides, each aspect from its
own random stream. The same release on the same machine draws the same bits; another processor may round differently.
"""

from inphase.data.stage.actions import ACTIONS
from inphase.data.stage.body import JOINTS
from inphase.data.stage.collection import load, write
from inphase.data.stage.look import LEVELS

__all__ = ["ACTIONS", "JOINTS", "LEVELS", "load", "write"]
