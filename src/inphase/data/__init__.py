"""Annotated collections: what is known of recordings, and how training draws from them."""

from collections.abc import Callable

from inphase.data import finegym, folder, golfdb, penn_action, stage_videos, utd_mhad, vggsound
from inphase.data.video import Video

# Each takes the folder, which the stage can do without, and `split`: "train", "val", "test" as far as the collection
# has them, or "all".
DATASETS: dict[str, Callable[..., list[Video]]] = {
    "finegym": finegym.load,
    "folder": folder.load,
    "golfdb": golfdb.load,
    "penn_action": penn_action.load,
    "stage": stage_videos.load,
    "utd_mhad": utd_mhad.load,
    "vggsound": vggsound.load,
}
