"""The stage: a procedural renderer of people who perform actions, with exact ground truth and nothing to download.

    take = sample_take(Slate("kick", "train", index=0))    # everything that is sampled at random for one recording
    clip = scene.render(take, size=64)                      # its images; `take.keypoints`, `take.events` … label them
    sound = scene.synthesize_track(take)              # its sound at 16 kHz

`actions` holds key poses; `physique` turns them into joints, `figure` joints into shapes; `appearance` gives colors and
backgrounds; `take` samples everything random; `scene` and `raster_numba` render images and sound.
`data/stage_videos.py` lists and writes recordings as a data set. The same release on the same machine renders the same
bits; another processor may round differently.
"""

from inphase.stage.actions import ACTIONS
from inphase.stage.physique import JOINTS, LEVELS
from inphase.stage.take import Slate, sample_take

__all__ = ["ACTIONS", "JOINTS", "LEVELS", "Slate", "sample_take"]
