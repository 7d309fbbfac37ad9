"""Fill a store of poses: find and follow the person of every recording once."""

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from inphase.media.atomic import write_whole
from inphase.media.cache import Filled, Progress, Source, fill
from inphase.media.kept_pose import kept_pose
from inphase.media.landmarks import require_mediapipe
from inphase.media.pose import Pose, pose_of
from inphase.media.pose_store import FOLDER, kind_of_poses, pack
from inphase.media.recording import describe_damage, open_recording
from inphase.media.shelf import Shelf


def fill_poses(
    folder: Path | str,
    sources: Mapping[str, Source],
    *,
    complexity: int = 1,
    workers: int = 0,
    progress: Callable[[Progress], None] | None = None,
    shelf: Shelf | None = None,
) -> Filled:
    """Read the poses that a store lacks and add them under the ids of their recordings, as `fill_store` adds frames.

    A recording that shows nobody counts as broken: it is recorded with the reason and not tried again until its file
    changes. `folder` may be that of a store of frames. With a `shelf`, whole recordings that were followed before are
    not followed again, and those followed now are known to whoever uses it.
    """
    require_mediapipe()
    kind, write = kind_of_poses(complexity=complexity), partial(write_pose, complexity=complexity, shelf=shelf)
    return fill(Path(folder) / FOLDER, sources, kind=kind, write=write, workers=workers, progress=progress)


def write_pose(source: Source, file: Path, *, complexity: int, shelf: Shelf | None = None) -> tuple[int, str, str]:
    """Read the pose of one source into its file."""
    damage = ""  # what was kept has been complained of when it was found

    def read() -> Pose:
        nonlocal damage
        recording = open_recording(source.path, native_rate=source.native_rate)
        pose = pose_of(recording, spans=source.spans, rate=source.rate, complexity=complexity)
        damage = describe_damage(recording)
        return pose

    if shelf is not None and not source.spans and source.native_rate is None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="nothing is kept")  # the store does, whatever the shelf does
            pose = kept_pose(source.path, shelf=shelf, rate=source.rate, complexity=complexity, read=read)
    else:
        pose = read()
    return len(pose), write_whole(file, [pack(pose).tobytes()]), damage
