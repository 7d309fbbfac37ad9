"""What an encoder sees of videos: their pictures or their poses, from files, from labels or from a store."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from warnings import warn

from inphase.data.pose import JOINTS13, select_joints
from inphase.data.reading import Read, measured_length, read_pictures, read_pose, read_stored, read_stored_pose
from inphase.data.video import Problem, Video, summarise
from inphase.media.pose_store import PoseStore
from inphase.media.store import FrameStore
from inphase.models import Encoder


@dataclass(frozen=True, eq=False)
class Sight:
    """Videos, how their frames are read, and how many each has; `source` names where frames come from."""

    videos: list[Video]
    read: Read
    frame_count: Callable[[Video], int]
    source: str


def sight(encoder: Encoder, videos: Sequence[Video], *, store: Path | None = None, name: str = "") -> Sight:
    """Choose how an encoder sees videos.

    Poses come from the store, where one is given, or from the labels, reduced to the encoder's joints. Pictures come
    from the store, or are decoded or drawn at the encoder's size. Videos that a store does not hold are left out with
    a warning. `name` is the collection's, with its options: in another one a video of the same name is another.
    """
    if encoder.sees in ("poses", "pictures"):
        seen = (_poses if encoder.sees == "poses" else _pictures)(encoder, videos, store)
        return replace(seen, source=f"{name} {seen.source}")
    raise ValueError(f"an encoder of {encoder.sees} cannot be evaluated by frames: name a run on pictures or poses")


def _poses(encoder: Encoder, videos: Sequence[Video], store: Path | None) -> Sight:
    joints = tuple(encoder.config["joints"])
    if encoder.config["space"] != 2:
        raise ValueError("an encoder of poses in space is not evaluated here: labels and stores hold them in the plane")
    if store is None:
        posed = [video for video in videos if video.keypoints is not None]
        _warn_of_absent(videos, posed, "no keypoints", "find them with `inphase data pose` and name the store")
        return Sight([select_joints(video, joints) for video in posed], read_pose, measured_length, "labels")
    if joints != JOINTS13:
        raise ValueError(f"stores hold the joints {', '.join(JOINTS13)}; this encoder wants {', '.join(joints)}")
    poses = PoseStore(store)
    found = [video for video in videos if video.id in poses]
    _warn_of_absent(videos, found, f"not in {store}", "fill it with `inphase data pose`")
    read = partial(read_stored_pose, store=poses)
    return Sight(found, read, lambda video: poses.frames(video.id), f"poses {store.resolve()}")


def _pictures(encoder: Encoder, videos: Sequence[Video], store: Path | None) -> Sight:
    height, width = encoder.shape[:2]
    if store is None:
        shown = [video for video in videos if video.path is not None or video.draw is not None]
        _warn_of_absent(videos, shown, "no pictures", "name a run on poses, or get the files")
        return Sight(shown, partial(read_pictures, size=(height, width)), measured_length, f"pictures {height}×{width}")
    frames = FrameStore(store)
    if frames.size != (height, width):
        raise ValueError(
            f"{store} holds pictures of {frames.size}, this encoder sees {(height, width)}: "
            f"`inphase data cache … --size {height} {width}`"
        )
    found = [video for video in videos if video.id in frames]
    _warn_of_absent(videos, found, f"not in {store}", "fill it with `inphase data cache`")
    read = partial(read_stored, store=frames)
    return Sight(found, read, lambda video: frames.frames(video.id), f"pictures {store.resolve()}")


def _warn_of_absent(wanted: Iterable[Video], found: Iterable[Video], what: str, fix: str) -> None:
    here = {video.id for video in found}
    absent = [video.id for video in wanted if video.id not in here]
    if absent and not here:
        raise ValueError(f"{what}: all {len(absent)} videos; {fix}")
    if absent:
        warn(Problem(f"{len(absent)} videos ({summarise(absent)})", what, f"they are left out; {fix}"), stacklevel=4)
