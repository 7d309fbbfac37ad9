"""Annotated data sets, and how training samples from them."""

from collections.abc import Callable
from pathlib import Path

from inphase.data import (
    finegym,
    folder,
    golfdb,
    keypoints,
    penn_action,
    pouring,
    stage_videos,
    utd_mhad,
    vggsound,
)
from inphase.data.video import Video

# Each takes the folder, which the stage can omit, and `split`: "train", "val", "test" if the data set has them, or
# "all".
DATASETS: dict[str, Callable[..., list[Video]]] = {
    "events": keypoints.load_events,
    "finegym": finegym.load,
    "folder": folder.load,
    "golfdb": golfdb.load,
    "keypoints": keypoints.load,
    "knot_tying": keypoints.load_knots,
    "lsa64_signs": keypoints.load_signs,
    "penn_action": penn_action.load,
    "pouring": pouring.load,
    "ski_jump_poses": keypoints.load_ski_jumps,
    "stage": stage_videos.load,
    "utd_mhad": utd_mhad.load,
    "vggsound": vggsound.load,
}
# Data sets with joints of their own → these joints, and 2 or 3 dimensions; a pose encoder is built for them.
OWN_JOINTS: dict[str, Callable[[Path | str], tuple[tuple[str, ...], int]]] = {"keypoints": keypoints.read_joints}
