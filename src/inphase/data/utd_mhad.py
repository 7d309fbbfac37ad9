"""UTD-MHAD: 3-D skeletons of 27 actions by 8 people, and their projections into synthetic cameras.

    root/skeleton3d.npz   seq_a<action>_s<subject>_t<trial> [T, 20, 3] meters, joint_names, parents, fps, action_names

Chen, Jafari, Kehtarnavaz, "UTD-MHAD", ICIP 2015.
"""

import re
from pathlib import Path
from typing import Any
from warnings import warn
from zipfile import BadZipFile, is_zipfile

import numpy as np
from numpy.typing import NDArray

from inphase.data.video import Problem, Video, check_split
from inphase.pose.pose import project_joints, sample_camera

SPLITS = ("train", "test")
SIZE = (240, 320)  # of the camera's image
_KEY = re.compile(r"(?:seq_)?a(?P<action>\d+)_s(?P<subject>\d+)_t(?P<trial>\d+)")


def load(
    root: Path | str, *, split: str, actions: tuple[str, ...] = (), seed: int = 0, turn: float = np.pi
) -> list[Video]:
    """Parse the skeletons into videos of keypoints; `actions` selects some of the 27.

    As in the protocol of the data set, odd subjects are "train" and even ones "test". Every video has a camera of its
    own, sampled from `seed` and the name of the video within ±`turn` radians of the front.
    """
    check_split(split, of=SPLITS)
    file = Path(root) / "skeleton3d.npz"
    if not file.is_file():
        raise FileNotFoundError(f"no skeleton3d.npz in {root}: point at the folder that holds it")
    if not is_zipfile(file):
        raise ValueError(f"{file} is damaged or not an archive: copy it again")
    with np.load(file, allow_pickle=False) as archive:
        absent = [name for name in ("action_names", "joint_names", "fps") if name not in archive]
        if absent:
            raise ValueError(f"{file} has no {', '.join(absent)}: copy it again, or point at UTD-MHAD's folder")
        names = tuple(map(str, archive["action_names"]))
        unknown = set(actions) - set(names)
        if unknown:
            raise ValueError(f"no such action: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
        videos = []
        for found in filter(None, map(_KEY.fullmatch, sorted(archive.files))):
            belongs = "train" if int(found["subject"]) % 2 else "test"
            number = int(found["action"])
            action = names[number - 1] if 1 <= number <= len(names) else f"action {number}"
            if split in ("all", belongs) and (not actions or action in actions):
                video = _parse(archive, found, file=file, action=action, split=belongs, seed=seed, turn=turn)
                videos.extend([video] if video is not None else [])
    return videos


def _parse(
    archive: Any, found: re.Match[str], *, file: Path, action: str, split: str, seed: int, turn: float
) -> Video | None:
    """Convert one skeleton to a video with keypoints in a camera of its own."""
    joints = tuple(map(str, archive["joint_names"]))
    skeleton = _read(archive, found[0], file=file, joints=len(joints))
    if skeleton is None:
        return None
    rng = np.random.default_rng([seed, *map(int, found.groups())])
    camera = sample_camera(skeleton, rng=rng, turn=turn, size=SIZE)
    keypoints, visibility = project_joints(camera, skeleton, joints=joints)
    return Video(
        id=found[0].removeprefix("seq_"),
        action=action,
        split=split,
        length=len(skeleton),
        rate=float(archive["fps"]),
        size=SIZE,
        keypoints=keypoints,
        visibility=visibility,
        joints3d=skeleton,
        joints=joints,
        notes={"subject": found["subject"], "trial": found["trial"]},
    )


def _read(archive: Any, key: str, *, file: Path, joints: int) -> NDArray[np.float32] | None:
    """Read one skeleton; warn of a damaged one and return None."""
    try:
        skeleton: NDArray[np.float32] = archive[key].astype(np.float32)
    except (ValueError, OSError, BadZipFile) as error:
        warn(Problem(f"{file}, {key}", f"unreadable ({error})", "copy the file again"), stacklevel=4)
        return None
    if skeleton.ndim != 3 or skeleton.shape[1:] != (joints, 3) or not len(skeleton) or not np.isfinite(skeleton).all():
        what = f"{list(skeleton.shape)} instead of finite [T, {joints}, 3]"
        warn(Problem(f"{file}, {key}", what, "copy the file again"), stacklevel=3)
        return None
    return skeleton
