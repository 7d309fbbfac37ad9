"""Look at a recording through what an encoder sees, and embed every frame of it."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from inphase.media.frames import Clip, stream_clips
from inphase.media.kept_pose import kept_pose
from inphase.media.pose import JOINTS13, Pose
from inphase.media.recording import open_recording
from inphase.media.selection import choose
from inphase.media.shelf import Shelf, content_key
from inphase.models.embed import Embedding, embed
from inphase.models.encoder import Encoder
from inphase.models.fingerprint import fingerprint
from inphase.models.pooled_features import PooledFeatures

# Pictures decoded ahead of the network: clips of so many frames, so many of them.
LENGTH, AHEAD = 16, 4
# Poses are small: this many at a time.
POSES = 512

Tell = Callable[[int, int], None]  # frames done, frames there are


def look(
    encoder: Encoder,
    path: Path | str,
    *,
    shelf: Shelf | None = None,
    rate: float | None = None,
    progress: Tell | None = None,
) -> Embedding:
    """Embed the frames of a video file, all of them or `rate` a second.

    Pictures are decoded, scaled to what the encoder sees and embedded as they come, in memory for a few of them; poses
    are those of the one person the video is about. What was seen is kept on the `shelf`: embeddings of pictures by the
    contents of the file and of the encoder, and poses, which any encoder of poses can use. `progress` is told the
    frames done and to do.
    """
    shelf = shelf or Shelf(None)
    require_sight(encoder)
    if encoder.sees == "poses":
        return embed_pose(encoder, kept_pose(path, shelf=shelf, rate=rate, progress=progress))
    key = content_key(path, "embedding", fingerprint(encoder), rate) if shelf.folder else ""
    kept = shelf.find(key)
    if kept is not None and {"values", "times"} <= kept.keys():
        embedding = Embedding(kept["values"], kept["times"])
        if progress is not None:
            progress(len(embedding), len(embedding))
        return embedding
    embedding = _embed_pictures(encoder, path, rate=rate, progress=progress)
    if isinstance(encoder, PooledFeatures):
        embedding = encoder.settle(embedding)
    shelf.keep(key, {"values": embedding.values, "times": embedding.times})
    return embedding


def embed_pose(encoder: Encoder, pose: Pose) -> Embedding:
    """Embed the pose of a recording in the joints of PennAction."""
    require_sight(encoder)
    points, seen = pose.joints13()
    values = np.concatenate([points, seen[..., None].astype(np.float32)], axis=-1)
    return embed(encoder, (values, pose.times), batch=POSES)


def require_sight(encoder: Encoder) -> None:
    """Refuse an encoder that cannot see video files."""
    if encoder.sees == "sounds":
        raise ValueError("this encoder hears sounds and does not see videos: give one that sees pictures or poses")
    joints = tuple(encoder.config.get("joints", ()))
    if encoder.sees == "poses" and (joints != JOINTS13 or encoder.shape != (len(JOINTS13), 3)):
        raise ValueError(
            f"this encoder sees poses of shape {encoder.shape} ({', '.join(joints)}); those of videos have the "
            f"{len(JOINTS13)} joints of JOINTS13 in the plane: train one on these"
        )


def _embed_pictures(encoder: Encoder, path: Path | str, *, rate: float | None, progress: Tell | None) -> Embedding:
    times = open_recording(path).times
    wanted = choose(times, rate=rate)
    total = len(times) if wanted is None else len(wanted)
    height, width = encoder.shape[:2]
    clips = ahead(stream_clips(path, length=LENGTH, size=(height, width), rate=rate), number=AHEAD)
    tell = None if progress is None else lambda done: progress(done, total)
    return embed(encoder, clips, batch=LENGTH, progress=tell)


def ahead(clips: Iterator[Clip], *, number: int) -> Iterator[Clip]:
    """Decode up to `number` clips ahead, in a thread: the codec works while the network does."""
    with ThreadPoolExecutor(1) as codec:
        waiting = deque(codec.submit(next, clips, None) for _ in range(number))
        while (clip := waiting.popleft().result()) is not None:
            waiting.append(codec.submit(next, clips, None))
            yield clip
