"""PennAction in its original layout, with or without its frames.

    root/labels/0001.mat         action, pose (view), x, y, visibility [T, 13], bbox [T, 4], dimensions, nframes, train
    root/frames/0001/000001.jpg  absent if only the poses are used
    root/phases/**/0001.npy      one integer per frame, as the authors of CARL distribute them; optional. A file
                                 of another length than its video is resampled as in CARL's preparation

An invisible joint has a guessed position, or (1, 1) without one. The published names of joints put left before right,
but the joints called left are the person's right: in frames with both shoulders or both hips visible they are on the
image's left in 97 % of the frontal views and on its right in 84 % of the rear views; in views from the left they are
the hidden side, and seven of ten people throw with them. Here left is the person's left, as in every other data set.

Zhang, Zhu, Derpanis, "From Actemes to Action", ICCV 2013.
"""

from pathlib import Path
from typing import Any
from warnings import warn

import numpy as np
from numpy.typing import NDArray

from inphase.data.video import Problem, Video, check_split
from inphase.pose.pose import JOINTS13, mirrored

SPLITS = ("train", "test")
ACTIONS = (
    "baseball_pitch",
    "baseball_swing",
    "bench_press",
    "bowl",
    "clean_and_jerk",
    "golf_swing",
    "jumping_jacks",
    "pullup",
    "pushup",
    "situp",
    "squat",
    "tennis_forehand",
    "tennis_serve",
)
ALL_ACTIONS = (*ACTIONS, "jump_rope", "strum_guitar")


def load(
    root: Path | str,
    *,
    split: str,
    actions: tuple[str, ...] = ACTIONS,
    phases: Path | str | None = None,
) -> list[Video]:
    """Parse PennAction's labels into videos; the official split's −1 is "test".

    The default omits the two repetitive classes, as papers on alignment do; `actions=ALL_ACTIONS` keeps them.
    `phases` is the folder of label files, by default `root/phases` if it exists.
    """
    root = Path(root)
    check_split(split, of=SPLITS)
    unknown = set(actions) - set(ALL_ACTIONS)
    if unknown:
        raise ValueError(f"no such action: {', '.join(sorted(unknown))}; there are {', '.join(ALL_ACTIONS)}")
    files = sorted((root / "labels").glob("*.mat"))
    if not files:
        raise FileNotFoundError(f"no labels/*.mat under {root}: point at the folder that holds PennAction's labels")
    phase_files = {file.stem: file for file in sorted(_phase_folder(root, phases).rglob("*.npy"))}
    frames = root / "frames" if (root / "frames").is_dir() else None
    videos = []
    for file in files:
        labels = _read_labels(file)
        if labels is None:
            continue
        video = _parse(file.stem, labels, frames=frames, phase_file=phase_files.get(file.stem))
        if video.action in actions and split in ("all", video.split):
            videos.append(video)
    return videos


def _phase_folder(root: Path, phases: Path | str | None) -> Path:
    """Find the folder of phase labels; raise if the given one does not exist."""
    if phases is None:
        return root / "phases"
    folder = Path(phases)
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder of phase labels at {folder}")
    return folder


def _read_labels(file: Path) -> dict[str, Any] | None:
    """Read one label file; warn of a damaged one and return None."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    needed = ("action", "pose", "x", "y", "visibility", "bbox", "dimensions", "nframes", "train")
    try:
        with file.open("rb") as opened:
            labels: dict[str, Any] = loadmat(opened, variable_names=needed)
    except (MatReadError, ValueError, TypeError, OSError, NotImplementedError) as error:
        warn(Problem(str(file), f"unreadable label file ({error})", "copy it again"), stacklevel=3)
        return None
    absent = [name for name in needed if name not in labels]
    if absent:
        warn(Problem(str(file), f"without {', '.join(absent)}", "copy it again"), stacklevel=3)
        return None
    shapes = {name: labels[name].shape for name in ("x", "y", "visibility")}
    single = all(labels[name].size == 1 for name in ("action", "pose", "nframes", "train"))
    if set(shapes.values()) != {(labels["x"].shape[0], len(JOINTS13))} or not single or labels["dimensions"].size < 2:
        warn(Problem(str(file), f"labels of other shapes than PennAction's ({shapes})", "copy it again"), stacklevel=3)
        return None
    return labels


def _parse(stem: str, labels: dict[str, Any], *, frames: Path | None, phase_file: Path | None) -> Video:
    """Convert the arrays of one label file to a video."""
    # MATLAB stored this count in the smallest type that holds it: uint8 would overflow in arithmetic.
    length = int(labels["nframes"].item())
    sides = mirrored(JOINTS13)
    notes = {"view": str(labels["pose"].item())}
    boxes = labels["bbox"].astype(np.float32)
    if 0 < len(boxes) < length:
        notes["repaired"] = f"{len(boxes)} boxes for {length} frames: the last is repeated"
        boxes = boxes[np.minimum(np.arange(length), len(boxes) - 1)]
    phases = None if phase_file is None else _read_phases(phase_file)
    if phases is not None and len(phases) != length:
        notes["repaired"] = "; ".join(
            [
                *([notes["repaired"]] if "repaired" in notes else []),
                f"{len(phases)} phases resampled to {length} frames",
            ]
        )
        phases = resample_phases(phases, length=length)
    return Video(
        id=stem,
        action=str(labels["action"].item()),
        split="train" if labels["train"].item() == 1 else "test",
        path=None if frames is None else frames / stem,
        length=length,
        size=(int(labels["dimensions"].flat[0]), int(labels["dimensions"].flat[1])),
        phases=phases,
        keypoints=np.stack([labels["x"], labels["y"]], axis=-1).astype(np.float32)[:, sides],
        visibility=labels["visibility"].astype(np.bool_)[:, sides],
        joints=JOINTS13,
        boxes=boxes,
        notes=notes,
    )


def _read_phases(file: Path) -> NDArray[np.int64] | None:
    """Read a list of integers; warn of anything else and return None."""
    try:
        phases: NDArray[np.int64] = np.load(file, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        warn(Problem(str(file), f"not an array of integers ({error})", "copy it again"), stacklevel=4)
        return None
    if phases.ndim != 1 or not len(phases) or phases.dtype.kind not in "iu":
        what = f"{phases.dtype} {list(phases.shape)} instead of a list of integers, one per frame"
        warn(Problem(str(file), what, "use the labels of these frames"), stacklevel=4)
        return None
    return phases.astype(np.int64, copy=False)


def resample_phases(phases: NDArray[np.int64], *, length: int) -> NDArray[np.int64]:
    """Assign the phases of L frames to `length` others, as CARL's preparation does.

    Of more labels than frames, frame i gets label ⌊i L / length⌋. Of fewer, CARL keeps the frame ⌊j length / L⌋ for
    label j; here the frames between two of them have the label of the first.
    """
    if len(phases) >= length:
        return phases[np.arange(length) * len(phases) // length]
    kept = np.arange(len(phases)) * length // len(phases)
    return phases[np.searchsorted(kept, np.arange(length), side="right") - 1]
