"""Fill a store of poses: find and follow the person of every recording once."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from inphase.media.atomic import write_whole
from inphase.media.cache import Filled, Progress, Source, fill
from inphase.media.landmarks import require_mediapipe
from inphase.media.pose import pose_of
from inphase.media.pose_store import FOLDER, kind_of_poses, pack
from inphase.media.recording import describe_damage, open_recording


def fill_poses(
    folder: Path | str,
    sources: Mapping[str, Source],
    *,
    complexity: int = 1,
    workers: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> Filled:
    """Read the poses that a store lacks and add them under the ids of their recordings, as `fill_store` adds frames.

    A recording that shows nobody counts as broken: it is recorded with the reason and not tried again until its file
    changes. `folder` may be that of a store of frames.
    """
    require_mediapipe()
    kind, write = kind_of_poses(complexity=complexity), partial(write_pose, complexity=complexity)
    return fill(Path(folder) / FOLDER, sources, kind=kind, write=write, workers=workers, progress=progress)


def write_pose(source: Source, file: Path, *, complexity: int) -> tuple[int, str, str]:
    """Read the pose of one source into its file."""
    recording = open_recording(source.path, native_rate=source.native_rate)
    pose = pose_of(recording, spans=source.spans, rate=source.rate, complexity=complexity)
    digest = write_whole(file, [pack(pose).tobytes()])
    return len(pose), digest, describe_damage(recording)
