"""The stage as a data set: recordings rendered on demand, or written as mp4 files with sound and labels.

    root/stage.json         version of this layout and size of the images
    root/videos/<id>.mp4    h264 at 30 fps, aac
    root/labels/<id>.npz    progress [T], phases [T], keypoints [T, 17, 2], joints3d [T, 17, 3], visibility [T, 17];
                            about: events, phase names and notes as JSON

The labels of a recording are written after its video, so a recording with labels is complete.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from warnings import warn
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from inphase.data.video import SPLITS, Problem, Video, check_split, read_json
from inphase.media.audio import Sound
from inphase.media.frames import Clip
from inphase.media.render import SOUND_RATE, write_mp4
from inphase.progress import Progress, Summary, stage_progress
from inphase.stage.actions import ACTIONS
from inphase.stage.physique import JOINTS
from inphase.stage.take import FPS, Slate, Take, sample_take
from inphase.storage.files import atomic_write, exclusive_lock
from inphase.storage.settings import Count, Pixels, parse_json

INDEX_FILE = "stage.json"
VERSION = 2
ARRAYS = ("progress", "phases", "keypoints", "joints3d", "visibility")


def load(
    root: Path | str | None = None,
    *,
    split: str,
    actions: Sequence[str] | None = None,
    videos: Count = 20,
    level: str = "medium",
    size: Pixels = 64,
    seed: int = 0,
) -> list[Video]:
    """List the recordings of a split, `videos` per action; no two splits share a body or an appearance.

    Without `root`, images of `size` × `size` pixels at 30 fps and sound are made when `render` and `synthesize` of a
    recording are called; `level` is "plain", "medium" or "hard". With `root`, the files that `write` left there are
    listed, and `videos`, `level`, `size` and `seed` have no effect.
    """
    check_split(split)
    if root is not None:
        return [video for video in read_videos(Path(root), split=split) if actions is None or video.action in actions]
    return [label_take(sample_take(slate), size=size) for slate in _list_slates(split, actions, videos, level, seed)]


@dataclass(frozen=True)
class WrittenStage:
    """A written data set: its folder, and the numbers of new and of kept videos."""

    root: Path
    new: int
    kept: int

    def summary(self) -> Summary:
        """Return the counts."""
        return Summary([f"{self.new + self.kept:,} videos in {self.root} ({self.new:,} new)"])

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {"root": str(self.root), "new": self.new, "kept": self.kept}


def write(
    root: Path | str,
    *,
    split: str = "all",
    actions: Sequence[str] | None = None,
    videos: Count = 20,
    level: str = "medium",
    size: int = 128,
    seed: int = 0,
    progress: Progress | None = None,
) -> WrittenStage:
    """Write recordings as mp4 with sound, and their labels, to `root`.

    An interrupted call leaves complete recordings only, and the next call writes the missing ones. A lock admits one
    process at a time.
    """
    check_split(split)
    root, slates, new = Path(root), _list_slates(split, actions, videos, level, seed), 0
    report = stage_progress(progress, "rendering videos")
    with exclusive_lock(root):
        _prepare_folder(root, size=size)
        for done, slate in enumerate(slates, start=1):
            if not _is_complete(root, slate.id):
                _write_video(root, label_take(sample_take(slate), size=size))
                new += 1
            report(done, len(slates))
    return WrittenStage(root, new, len(slates) - new)


def label_take(take: Take, *, size: int) -> Video:
    """Convert a take to a video with images on demand and labels per frame."""
    # Imported here because the compiled code loads slowly and listing the other data sets does not need it.
    from inphase.stage.scene import visible_joints

    slate = take.slate
    return Video(
        id=slate.id,
        action=slate.action,
        split=slate.split,
        render=partial(_render, slate, size=size),
        synthesize=partial(_synthesize, slate),
        length=len(take.progress),
        rate=FPS,
        size=(size, size),
        phases=take.action.phase_at(take.progress),
        phase_names=tuple(take.action.phases),
        progress=take.progress,
        events=take.events,
        keypoints=(take.keypoints * size).astype(np.float32),
        joints3d=take.posture.joints.astype(np.float32),
        visibility=visible_joints(take),
        joints=JOINTS,
        notes={"level": slate.level},
    )


# These take a slate because it is small: lists of videos stay cheap to keep and to send to workers.
def _render(slate: Slate, *, size: int) -> Clip:
    """Render the images of a recording."""
    from inphase.stage.scene import render

    return render(sample_take(slate), size=size)


def _synthesize(slate: Slate) -> Sound:
    """Synthesize the sound of a recording."""
    from inphase.stage.scene import synthesize_track

    return synthesize_track(sample_take(slate))


def _list_slates(split: str, actions: Sequence[str] | None, videos: int, level: str, seed: int) -> list[Slate]:
    """List the slates of a split."""
    if videos < 1 or seed < 0:
        raise ValueError(f"the stage needs at least 1 video per action and a seed ≥ 0, got {videos} and {seed}")
    return [
        Slate(action=action, split=part, index=index, seed=seed, level=level)
        for part in (SPLITS if split == "all" else (split,))
        for action in (ACTIONS if actions is None else actions)
        for index in range(videos)
    ]


def _prepare_folder(root: Path, *, size: int) -> None:
    """Create the folders and the index; raise if the folder holds images of another size."""
    for folder in (root / "videos", root / "labels"):
        folder.mkdir(parents=True, exist_ok=True)
    if (root / INDEX_FILE).is_file():
        written = _read_size(root)
        if written != size:
            raise ValueError(f"{root} holds images of {written} pixels, not {size}: use another folder")
        return
    with atomic_write(root / INDEX_FILE) as part:
        part.write_text(json.dumps({"version": VERSION, "size": size}), encoding="utf-8")


def _is_complete(root: Path, video_id: str) -> bool:
    """Return whether a recording and its labels exist."""
    return (root / "labels" / f"{video_id}.npz").is_file() and (root / "videos" / f"{video_id}.mp4").is_file()


def _write_video(root: Path, video: Video, *, quality: int = 18) -> None:
    """Write one rendered recording and its labels; `quality` is the crf of x264, lower is better."""
    write_recording(root / "videos" / f"{video.id}.mp4", video, quality=quality)
    about = {"events": dict(video.events), "phase_names": video.phase_names, "notes": dict(video.notes)}
    arrays = {name: getattr(video, name) for name in ARRAYS}
    with atomic_write(root / "labels" / f"{video.id}.npz") as part:
        np.savez_compressed(part, allow_pickle=False, about=np.array(json.dumps(about)), **arrays)


def write_recording(path: Path, video: Video, *, quality: int = 18) -> None:
    """Write the images and the sound of one rendered recording as mp4."""
    if video.render is None or video.synthesize is None:
        raise ValueError(f"{video.id} was read from files and cannot be rendered: copy its file {video.path}")
    write_mp4(path, video.render().frames, fps=FPS, sound=_audio_blocks(video.synthesize()), quality=quality)


def _audio_blocks(sound: Sound) -> Iterator[NDArray[np.float32]]:
    """Resample a sound track and cut it into one block per image."""
    from scipy.signal import resample_poly

    track = resample_poly(sound.samples.astype(np.float64), SOUND_RATE, sound.rate)
    block = round(SOUND_RATE / FPS)
    for start in range(0, len(track), block):
        yield np.clip(track[start : start + block], -1.0, 1.0).astype(np.float32)


def _read_size(root: Path) -> int:
    """Read the size of the images from the index."""
    index = root / INDEX_FILE
    if not index.is_file():
        raise FileNotFoundError(
            f"no {INDEX_FILE} in {root}: write the stage there with `inphase data stage`, or omit the folder to render "
            "on demand"
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
    """List the written recordings of a split; warn of damaged labels and omit them."""
    size = _read_size(root)
    files = sorted((root / "labels").glob("[!.]*.npz"))
    chosen = [(file, slate) for file in files if split in ("all", (slate := Slate.parse(file.stem)).split)]
    videos = (_read_video(root, file, slate, size=size) for file, slate in chosen)
    return [video for video in videos if video is not None]


def _read_video(root: Path, file: Path, slate: Slate, *, size: int) -> Video | None:
    """Read the labels of one recording; warn and return None if they are damaged."""
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as labels:
            arrays = {name: labels[name] for name in ARRAYS}
            about = parse_json(str(labels["about"]))
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
        rate=FPS,
        size=(size, size),
        joints=JOINTS,
        phase_names=names,
        events=events,
        notes=notes,
        **arrays,
    )
