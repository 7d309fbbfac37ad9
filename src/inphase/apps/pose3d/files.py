"""A reconstruction as a file, and as something to play."""

from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from inphase.apps.pose3d.reconstruct import Reconstruction
from inphase.apps.pose3d.views import Performance
from inphase.media.atomic import atomic_write
from inphase.media.skeleton import bones
from inphase.playback import Keypoints, Playback, Skeleton, TimeMap, Track

# Names in the file → fields of a reconstruction.
_FIELDS = {
    "joints": "joints3d",
    "joint_names": "joints",
    "times": "times",
    "travel": "travel",
    "error": "error",
    "confidence": "confidence",
    "views": "views",
    "view_names": "names",
    "trust": "trust",
    "flipped": "flipped",
    "rotations": "rotations",
}


def write_reconstruction(file: Path, found: Reconstruction) -> None:
    """Write a reconstruction as npz: `joints` [T, J, 3], `joint_names` [J], `times` [T], and how sure each is."""
    arrays = {name: np.asarray(getattr(found, field)) for name, field in _FIELDS.items()}
    with atomic_write(file) as part:
        np.savez_compressed(part, **arrays)  # type: ignore[arg-type]


def read_reconstruction(file: Path | str) -> Reconstruction:
    """Read what `write_reconstruction` wrote."""
    try:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {field: archive[name] for name, field in _FIELDS.items()}
    except (KeyError, ValueError, EOFError, BadZipFile) as error:
        raise ValueError(f"{file} holds no reconstruction ({error}): write it again with `inphase pose3d`") from error
    for names in ("joints", "names"):
        arrays[names] = tuple(map(str, arrays[names]))
    return Reconstruction(**arrays)


def make_track(
    shown: Performance,
    *,
    size: tuple[int, int],
    media: str | None = None,
    query: Performance | None = None,
    seconds: NDArray[np.float64] | None = None,
) -> Track:
    """Describe a video by its joints, and by its file where there is one.

    `size` is the height and width of its picture. Where it is not the query's, `seconds` are its seconds for the
    frames of the `query`.
    """
    step = float(np.median(np.diff(shown.times))) if len(shown.times) > 1 else 1 / 30
    warp = TimeMap(query.times, np.maximum.accumulate(seconds)) if query is not None and seconds is not None else None
    points = np.where(shown.seen[..., None], shown.points, np.nan)
    joints = Keypoints(shown.times, points, shown.joints, tuple(bones(shown.joints)))
    return Track(
        name=shown.name,
        duration=float(shown.times[-1]) + step,
        rate=1 / step,
        size=size,
        media=media,
        time_map=warp,
        keypoints=joints,
    )


def make_playback(title: str, found: Reconstruction, tracks: Sequence[Track]) -> Playback:
    """Show a body in space beside the videos it was found in, the query first."""
    body = Skeleton(
        f"{found.names[0]} in space", found.times, found.joints3d, found.joints, tuple(bones(found.joints)), up="-y"
    )
    return Playback(title, tracks=tuple(tracks), skeletons=(body,))
