"""The stage on disk: real mp4 files with sound, to go through the codec like any recording, and their labels.

    root/stage.json         what was drawn, and for each recording its id, action, split, frames and events
    root/videos/<id>.mp4    h264 at 30 frames a second, aac
    root/labels/<id>.npz    progress [T], phases [T], keypoints [T, 17, 2], joints3d [T, 17, 3], visibility [T, 17]

Labels are written before their video and stage.json last: what it lists is whole.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import resample_poly

from inphase.data.stage.sound import SAMPLES, stage_sound
from inphase.data.stage.take import RATE, SPLITS
from inphase.data.video import Video
from inphase.media.encode import SOUND_RATE, write_mp4

INDEX = "stage.json"
VERSION = 1
ARRAYS = ("progress", "phases", "keypoints", "joints3d", "visibility")


def write_videos(root: str | Path, videos: Iterable[Video], *, about: dict[str, Any], quality: int = 18) -> int:
    """Write drawn recordings below `root` and return how many; `quality` is x264's crf, lower is better."""
    root = Path(root)
    for folder in ("videos", "labels"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    entries = []
    for video in videos:
        if video.draw is None:
            raise ValueError(f"{video.id} has nothing to draw: it was read from files")
        np.savez_compressed(
            root / "labels" / f"{video.id}.npz",
            allow_pickle=False,
            **{name: getattr(video, name) for name in ARRAYS},
        )
        pictures = video.draw().frames
        write_mp4(root / "videos" / f"{video.id}.mp4", pictures, rate=RATE, sound=_blocks(video.id), quality=quality)
        entries.append(
            {
                "id": video.id,
                "action": video.action,
                "split": video.split,
                "frames": len(pictures),
                "events": dict(video.events),
                "notes": dict(video.notes),
            }
        )
    part = root / f".{INDEX}.part"
    part.write_text(json.dumps({"version": VERSION, **about, "videos": entries}, indent=1), encoding="utf-8")
    part.replace(root / INDEX)
    return len(entries)


def read_videos(root: str | Path, *, split: str) -> list[Video]:
    """List the recordings of a split that were written below `root`."""
    if split not in (*SPLITS, "all"):
        raise ValueError(f"no split {split!r} on the stage; choose one of {', '.join(SPLITS)}, all")
    root = Path(root)
    index = root / INDEX
    if not index.is_file():
        raise FileNotFoundError(f"no {INDEX} in {root}: write one with write_stage, or leave the folder out to draw")
    content = json.loads(index.read_text(encoding="utf-8"))
    if content.get("version") != VERSION:
        raise ValueError(f"{index} has version {content.get('version')}, this release reads {VERSION}: write it again")
    return [_parse(root, entry) for entry in content["videos"] if split in ("all", entry["split"])]


def _parse(root: Path, entry: dict[str, Any]) -> Video:
    """Put an entry of the index and its labels together."""
    path = root / "videos" / f"{entry['id']}.mp4"
    with np.load(root / "labels" / f"{entry['id']}.npz", allow_pickle=False) as labels:
        arrays = {name: labels[name] for name in ARRAYS}
    return Video(
        id=entry["id"],
        action=entry["action"],
        split=entry["split"],
        path=path,
        sound=path,
        length=entry["frames"],
        rate=RATE,
        events=entry["events"],
        notes=entry["notes"],
        **arrays,
    )


def _blocks(video_id: str) -> Iterator[NDArray[np.float32]]:
    """Cut a sound track into what is heard while each picture is shown."""
    track = resample_poly(stage_sound(video_id).astype(np.float64), SOUND_RATE, SAMPLES)
    block = round(SOUND_RATE / RATE)
    for start in range(0, len(track), block):
        yield np.clip(track[start : start + block], -1.0, 1.0).astype(np.float32)
