"""Frame sources: how the frames of annotated videos reach an encoder, by its modality.

Poses come from labels or from a pose store, images from files, the renderer or a frame store. `FRAME_SOURCES` has one
entry per modality, `inphase.models.modality.MODALITIES` another one for files without annotation. The table [data] of
a recipe names a data set; its other entries are the keyword arguments of the loader.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from itertools import product
from pathlib import Path
from typing import Any, Protocol
from warnings import catch_warnings, simplefilter, warn

import numpy as np
from numpy.typing import NDArray

from inphase.data import DATASETS, OWN_JOINTS
from inphase.data.batches import augment_poses, sample_image_augmentation, sample_pose_augmentation
from inphase.data.keypoints import EVENTS_TABLE
from inphase.data.video import (
    Problem,
    Read,
    RenderedFrames,
    Video,
    find_present,
    join_parts,
    measured_length,
    native_fps,
    read_images,
    read_pose,
    read_pose3d,
    span_begins,
    span_files,
)
from inphase.media.frame_store import FrameStore, Source, is_made_from
from inphase.media.sampling import Frames
from inphase.pose.pose import JOINTS13
from inphase.pose.pose_store import FOLDER, PoseStore
from inphase.progress import summarize
from inphase.storage.cache import INDEX
from inphase.storage.settings import Table, call, check_value

# Entries of a table [data] that are not options of the loader.
OTHERS = {
    "name": str,
    "root": str | None,
    "store": str | None,
    "split": str,
    "max_videos_per_action": int,
    "also": list[dict[str, Any]],
}


def load_videos(table: Table, *, split: str) -> list[Video]:
    """List the videos of a split that a recipe's table [data] names: `name`, `root` and the loader's own options.

    The tables [[data.also]] name other data sets, whose videos follow.
    """
    if "name" not in table:
        raise ValueError(f"[data] has no name: choose one of {', '.join(DATASETS)}")
    for key, hint in OTHERS.items():
        if key in table:
            check_value(f"[data] {key}", table[key], hint)
    root = table.get("root")
    load = find_loader(table["name"], root)
    options = {key: value for key, value in table.items() if key not in OTHERS}
    videos = call(load, options, where="[data]", root=root, split=split)
    return [*videos, *(video for other in table.get("also", ()) for video in load_videos(other, split=split))]


def find_loader(name: str, root: Path | str | None) -> Callable[..., list[Video]]:
    """Find a data set by name; raise if it needs a folder and none is given.

    A "folder" with an events.csv is loaded as "events".
    """
    if name not in DATASETS:
        raise ValueError(f"no data set {name!r}: choose one of {', '.join(DATASETS)}")
    with_events = name == "folder" and root is not None and (Path(root) / EVENTS_TABLE).is_file()
    load = DATASETS["events" if with_events else name]
    if root is None and signature(load).parameters["root"].default is not None:
        raise ValueError(f"{name} is read from a folder: name it as root")
    return load


def list_files(name: str, root: Path, *, split: str, options: Mapping[str, Any] | None = None) -> list[Video]:
    """List the videos of a data set that have files, to fill a store with; raise if it has none.

    `options` are arguments of its loader. One that is a list stands for several data sets, as `labels` [101, 290].
    """
    chosen = {key: value if isinstance(value, list) else [value] for key, value in (options or {}).items()}
    load = find_loader(name, root)
    found = [
        video
        for values in product(*chosen.values())
        for video in call(load, dict(zip(chosen, values, strict=True)), where=name, root=root, split=split)
        if video.path is not None
    ]
    if not found:
        raise ValueError(f"{name} in {root} has no video files: there is nothing to cache")
    return found


def sources(videos: Iterable[Video]) -> dict[str, Source]:
    """List the sources to fill a frame store with; videos without a file need none."""
    return {key: source for video in videos for key, source in frame_parts(video)}


def frame_parts(video: Video) -> list[tuple[str, Source]]:
    """Return the parts of a video in a frame store: one for each span, named by file and span, else the whole file.

    Videos of several label sets share the parts that they have in common.
    """
    if video.path is None:
        return []
    if not video.spans:
        return [(video.id, Source(video.path, native_fps=native_fps(video)))]
    return [
        (f"{path.stem} {start:.3f} to {end:.3f}", Source(path, spans=((start, end),)))
        for path, (start, end) in span_files(video)
    ]


def pose_sources(videos: Iterable[Video]) -> dict[str, Source]:
    """List the sources to fill a pose store with: one for each video, since a person is tracked through all of it."""
    return {pose_key(video): pose_source(video) for video in videos if video.path is not None}


def pose_key(video: Video) -> str:
    """Return the id of a video in a pose store, which names its spans: other label sets cut an event otherwise."""
    if not video.spans:
        return video.id
    return f"{video.id} {hashlib.blake2b(json.dumps(video.spans).encode(), digest_size=4).hexdigest()}"


def pose_source(video: Video) -> Source:
    """Return the source of a video's pose."""
    if video.path is None:
        raise ValueError(f"{video.id} has no file to estimate a pose in")
    if video.span_paths:
        raise ValueError(
            f"{video.id} consists of several files: poses are estimated in one; use whole videos or events"
        )
    return Source(video.path, spans=video.spans, native_fps=native_fps(video))


def read_stored(video: Video, frames: Frames, *, store: FrameStore) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Read some frames of a cached video, without a codec: `partial(read_stored, store=store)` is a `Read`."""
    keys, begins = [key for key, _ in frame_parts(video)], span_begins(video)

    def read(part: int, numbers: Frames) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
        clip = store[keys[part]]
        return clip.frames[numbers], clip.times[numbers] + begins[part]

    return join_parts(frames, [store.frames(key) for key in keys], read)


def stored_length(video: Video, *, store: FrameStore) -> int:
    """Count the frames of a cached video."""
    return sum(store.frames(key) for key, _ in frame_parts(video))


def fill_joints(encoder: Table, data: Table) -> Table:
    """Add the joints of a data set that has its own, and their dimensions, to a table [encoder] that names none."""
    name = data.get("name", "")
    check_value("[data] name", name, str)
    own = OWN_JOINTS.get(name)
    if own is None or encoder.get("name") != "pose" or {"joints", "start"} & encoder.keys():
        return encoder
    find_loader(data["name"], data.get("root"))
    joints, space = own(data["root"])
    return {**encoder, "joints": list(joints), "space": encoder.get("space", space)}


@dataclass(frozen=True, eq=False)
class FrameSource:
    """Videos, how to read their frames, and how to count them; `source` describes where frames come from.

    If `precomputed`, `read` returns the features of a frozen network instead of frames. `parts` are the sources of the
    encoders that a joint encoder consists of, which read videos instead.
    """

    videos: list[Video]
    read: Read
    frame_count: Callable[[Video], int]
    source: str = ""
    precomputed: bool = False
    parts: Mapping[str, "FrameSource"] = field(default_factory=dict)


class FrameEncoder(Protocol):
    """The part of an encoder that a frame source depends on."""

    @property
    def modality(self) -> str:
        """A key of `FRAME_SOURCES`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one frame."""

    @property
    def config(self) -> dict[str, Any]:
        """The keyword arguments of the encoder: the joints of a pose encoder, among others."""


@dataclass(frozen=True)
class ModalitySource:
    """The frame source of a modality, and the augmentation of its frames.

    - `open`                 chooses how an encoder reads videos, with or without a store
    - `sample_augmentation`  samples one augmentation from `rng`; its other arguments are the recipe's [augmentation]
    - `augment`              applies such a sample while frames are read. Without it, samples travel with the batch, and
                             their `apply` runs on the device of the encoder
    """

    open: Callable[[FrameEncoder, Sequence[Video], Path | None], FrameSource]
    sample_augmentation: Callable[..., Any] | None = None
    augment: Callable[..., Any] | None = None


def open_frame_source(
    encoder: FrameEncoder, videos: Sequence[Video], *, store: Path | str | None = None, name: str = ""
) -> FrameSource:
    """Choose how an encoder reads the frames of videos.

    Poses come from the store, if one is given, or from labels, reduced to the joints of the encoder. Images come from
    the store, or are decoded or rendered, which is slow for training. Videos without such frames are skipped with a
    warning. `name` identifies the data set and its options: videos of two data sets may share an id.
    """
    if encoder.modality not in FRAME_SOURCES:
        raise ValueError(
            f"annotated videos have no {encoder.modality} frames: use one of {', '.join(FRAME_SOURCES)}, or register "
            "the modality in inphase.data.frame_source.FRAME_SOURCES"
        )
    found = FRAME_SOURCES[encoder.modality].open(encoder, videos, None if store is None else Path(store))
    return replace(found, source=f"{name} {found.source}")


def augmentation_arguments(modality: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Build the arguments `prepare` or `augmentation` of a stream from the settings of a recipe."""
    kind = FRAME_SOURCES[modality]
    if kind.sample_augmentation is None:
        raise ValueError(f"{modality} frames have no augmentation: remove the table [augmentation]")
    if kind.augment is not None:
        return {"prepare": partial(kind.augment, **settings)}
    return {"augmentation": partial(kind.sample_augmentation, **settings)}


def select_joints(video: Video, joints: tuple[str, ...] = JOINTS13) -> Video:
    """Reduce the poses of a video to the named joints, in that order."""
    absent = [name for name in joints if name not in video.joints]
    if absent:
        raise ValueError(f"{video.id} has no joint {', '.join(absent)}: it has {', '.join(video.joints) or 'none'}")
    columns = [video.joints.index(name) for name in joints]
    return replace(
        video,
        joints=joints,
        keypoints=None if video.keypoints is None else video.keypoints[:, columns],
        joints3d=None if video.joints3d is None else video.joints3d[:, columns],
        visibility=None if video.visibility is None else video.visibility[:, columns],
    )


def add_poses(videos: Iterable[Video], *, store: PoseStore) -> list[Video]:
    """Add the poses of a store to videos, in the joints of PennAction, like labels."""
    return [_add_pose(video, store=store) if pose_key(video) in store else video for video in videos]


def _add_pose(video: Video, *, store: PoseStore) -> Video:
    pose = store[pose_key(video)]
    points, visible = pose.joints13()
    return replace(video, keypoints=points, visibility=visible, joints=JOINTS13, size=pose.size, length=len(pose))


def _open_poses(encoder: FrameEncoder, videos: Sequence[Video], store: Path | None) -> FrameSource:
    joints, numbers = tuple(encoder.config["joints"]), encoder.shape[-1]
    if numbers == 4 and store is None:
        return _labeled_poses3d(videos, joints)
    if numbers != 3:
        raise ValueError(
            f"pose labels and stores hold x, y and visibility of a joint; the encoder takes {numbers} numbers"
        )
    return _labeled_poses(videos, joints) if store is None else _stored_poses(videos, joints, store)


def _labeled_poses(videos: Sequence[Video], joints: tuple[str, ...]) -> FrameSource:
    posed = [video for video in videos if video.keypoints is not None]
    _report_absent(videos, posed, "no keypoints", "estimate them with `inphase data pose` and name the store")
    return FrameSource([select_joints(video, joints) for video in posed], read_pose, measured_length, "labels")


def _labeled_poses3d(videos: Sequence[Video], joints: tuple[str, ...]) -> FrameSource:
    posed = [video for video in videos if video.joints3d is not None]
    _report_absent(videos, posed, "no 3-D joints", "use an encoder with space = 2")
    return FrameSource([select_joints(video, joints) for video in posed], read_pose3d, measured_length, "3-D labels")


def _stored_poses(videos: Sequence[Video], joints: tuple[str, ...], store: Path) -> FrameSource:
    """Load poses into memory, a hundred bytes per frame, like labels."""
    if not set(joints) <= set(JOINTS13):
        raise ValueError(f"stores hold the joints {', '.join(JOINTS13)}; this encoder takes {', '.join(joints)}")
    poses = PoseStore(store)
    kept = [video for video in videos if pose_key(video) in poses]
    _report_absent(videos, kept, f"not in {store}", "fill it with `inphase data pose`")
    found = [video for video in kept if is_made_from(poses.source(pose_key(video)), pose_source(video))]
    _report_absent(kept, found, f"{store} was filled from other files of these names", "fill it again")
    posed = [select_joints(_add_rate(video, poses), joints) for video in add_poses(found, store=poses)]
    return FrameSource(posed, read_pose, lambda video: poses.frames(pose_key(video)), f"poses {store.resolve()}")


def _add_rate(video: Video, poses: PoseStore) -> Video:
    """Set the fps of a video without annotated fps to that of its frames."""
    times = poses[pose_key(video)].times
    gap = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
    return video if video.rate or not gap > 0 else replace(video, rate=1 / gap)


def _open_images(encoder: FrameEncoder, videos: Sequence[Video], store: Path | None) -> FrameSource:
    size = (encoder.shape[0], encoder.shape[1])
    return _files_or_renderer(videos, size) if store is None else _stored_images(videos, size, store)


def _files_or_renderer(videos: Sequence[Video], size: tuple[int, int]) -> FrameSource:
    present, _ = find_present(videos)
    shown = [video for video in present if video.path is not None or video.render is not None]
    _report_absent(videos, shown, "no images", "use a pose encoder, or get the files")
    rendered = all(video.render is not None for video in shown)
    read: Read = RenderedFrames() if rendered else partial(read_images, size=size)
    return FrameSource(shown, read, measured_length, f"images {size[0]}×{size[1]}")


def _stored_images(videos: Sequence[Video], size: tuple[int, int], store: Path) -> FrameSource:
    frames = FrameStore(store)
    if frames.size != size:
        height, width = size
        raise ValueError(
            f"{store} holds images of {frames.size}, the encoder takes {size}: "
            f"fill another with `inphase data cache … --size {height} {width}`"
        )
    parts = {video.id: frame_parts(video) for video in videos}
    kept = [video for video in videos if parts[video.id] and all(key in frames for key, _ in parts[video.id])]
    fix = "fill it with `inphase data cache`, for FineGym with the same --labels and --unit"
    _report_absent(videos, kept, f"not in {store}", fix)
    found = [v for v in kept if all(is_made_from(frames.source(key), source) for key, source in parts[v.id])]
    _report_absent(kept, found, f"{store} was filled from other files of these names", "fill it again")
    read = partial(read_stored, store=frames)
    return FrameSource(found, read, partial(stored_length, store=frames), f"images {store.resolve()}")


def _open_both(encoder: FrameEncoder, videos: Sequence[Video], store: Path | None) -> FrameSource:
    """Open the images of all videos, and the poses of videos that have any."""
    parts: Mapping[str, FrameEncoder] = encoder.parts  # type: ignore[attr-defined]
    images = _open_images(parts["image"], videos, _if_present(store, Path()))
    with catch_warnings():
        simplefilter("ignore", Problem)  # videos without a person are no problem here
        poses = _open_poses(parts["pose"], videos, _if_present(store, Path(FOLDER)))
    return replace(images, source=f"{images.source}, {poses.source}", parts={"pose": poses, "image": images})


def _if_present(store: Path | None, folder: Path) -> Path | None:
    """Return a store if it holds such frames: images in its folder, poses in a folder of their own."""
    return store if store is not None and (store / folder / INDEX).is_file() else None


def _report_absent(wanted: Iterable[Video], found: Iterable[Video], what: str, fix: str) -> None:
    """Warn of videos without frames; raise if all are."""
    present = {video.id for video in found}
    absent = [video.id for video in wanted if video.id not in present]
    if absent and not present:
        raise ValueError(f"{what}: all {len(absent)} videos; {fix}")
    if absent:
        warn(Problem(f"{len(absent)} videos ({summarize(absent)})", what, f"they are skipped; {fix}"), stacklevel=5)


FRAME_SOURCES: dict[str, ModalitySource] = {
    # Images travel as bytes, a quarter of floats, and are augmented on the device; poses are small.
    "image": ModalitySource(_open_images, sample_image_augmentation),
    "pose": ModalitySource(_open_poses, sample_pose_augmentation, augment_poses),
    "both": ModalitySource(_open_both),
}
