"""The stage on disk: real mp4 files with sound, to go through the codec like any recording, and their labels.

    root/stage.json         the version of this layout and the size of the pictures
    root/videos/<id>.mp4    h264 at 30 frames a second, aac
    root/labels/<id>.npz    progress [T], phases [T], keypoints [T, 17, 2], joints3d [T, 17, 3], visibility [T, 17],
                            and about: events, names of the phases and notes, as JSON

Labels are written after their video: a recording that has labels is whole.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from warnings import warn
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from inphase.data.stage.body import JOINTS
from inphase.data.stage.take import RATE, Slate
from inphase.data.text_files import read_json
from inphase.data.video import Problem, Video
from inphase.media.audio import Sound
from inphase.media.encode import SOUND_RATE, write_mp4
from inphase.storage.files import atomic_write

INDEX = "stage.json"
VERSION = 2
ARRAYS = ("progress", "phases", "keypoints", "joints3d", "visibility")


def open_folder(root: Path, *, size: int) -> None:
    """Make a folder ready for recordings of one size; one that holds those of another is refused."""
    for folder in (root / "videos", root / "labels"):
        folder.mkdir(parents=True, exist_ok=True)
    if (root / INDEX).is_file():
        written = read_size(root)
        if written != size:
            raise ValueError(f"{root} holds pictures of {written} pixels, not {size}: use another folder")
        return
    with atomic_write(root / INDEX) as part:
        part.write_text(json.dumps({"version": VERSION, "size": size}), encoding="utf-8")


def is_whole(root: Path, video_id: str) -> bool:
    """Tell whether a recording and its labels are there."""
    return (root / "labels" / f"{video_id}.npz").is_file() and (root / "videos" / f"{video_id}.mp4").is_file()


def write_video(root: Path, video: Video, *, quality: int = 18) -> None:
    """Write one drawn recording and its labels; `quality` is x264's crf, lower is better."""
    write_recording(root / "videos" / f"{video.id}.mp4", video, quality=quality)
    about = {"events": dict(video.events), "phase_names": video.phase_names, "notes": dict(video.notes)}
    arrays = {name: getattr(video, name) for name in ARRAYS}
    with atomic_write(root / "labels" / f"{video.id}.npz") as part:
        np.savez_compressed(part, allow_pickle=False, about=np.array(json.dumps(about)), **arrays)


def write_recording(path: Path, video: Video, *, quality: int = 18) -> None:
    """Write pictures and sound of one drawn recording."""
    if video.draw is None or video.hear is None:
        raise ValueError(f"{video.id} has nothing to draw: it was read from files")
    write_mp4(path, video.draw().frames, rate=RATE, sound=_blocks(video.hear()), quality=quality)


def read_size(root: Path) -> int:
    """Read how large the pictures below `root` are."""
    index = root / INDEX
    if not index.is_file():
        raise FileNotFoundError(
            f"no {INDEX} in {root}: write one with `inphase data stage`, or leave the folder out to draw"
        )
    try:
        content = read_json(index)
        version, size = content["version"], int(content["size"])
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{index} is damaged ({error}): remove it and write the stage again") from error
    if version != VERSION:
        raise ValueError(f"{index} has version {version}, this release reads {VERSION}: write the stage again")
    return size


def read_videos(root: Path, *, split: str) -> list[Video]:
    """List the recordings of a split that were written below `root`; damaged labels are reported and left out."""
    size = read_size(root)
    files = sorted((root / "labels").glob("[!.]*.npz"))
    chosen = [(file, slate) for file in files if split in ("all", (slate := Slate.parse(file.stem)).split)]
    videos = (_read(root, file, slate, size=size) for file, slate in chosen)
    return [video for video in videos if video is not None]


def _read(root: Path, file: Path, slate: Slate, *, size: int) -> Video | None:
    """Read the labels of one recording."""
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as labels:
            arrays = {name: labels[name] for name in ARRAYS}
            about = json.loads(str(labels["about"]))
            names, events, notes = tuple(about["phase_names"]), about["events"], about["notes"]
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        warn(Problem(str(file), f"unreadable labels ({error})", "remove it and write the stage again"), stacklevel=4)
        return None
    path = root / "videos" / f"{slate.id}.mp4"
    return Video(
        id=slate.id,
        action=slate.action,
        split=slate.split,
        path=path,
        sound=path,
        length=len(arrays["progress"]),
        rate=RATE,
        size=(size, size),
        joints=JOINTS,
        phase_names=names,
        events=events,
        notes=notes,
        **arrays,
    )


def _blocks(sound: Sound) -> Iterator[NDArray[np.float32]]:
    """Cut a sound track into what is heard while each picture is shown."""
    from scipy.signal import resample_poly

    track = resample_poly(sound.samples.astype(np.float64), SOUND_RATE, sound.rate)
    block = round(SOUND_RATE / RATE)
    for start in range(0, len(track), block):
        yield np.clip(track[start : start + block], -1.0, 1.0).astype(np.float32)
