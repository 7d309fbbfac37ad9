"""Look at a recording through what an encoder sees, and embed every frame of it."""
# MERGED: Listen to a sound second by second, on the clock of its pictures.
# MERGED: See several recordings with one encoder, the one asked for or the one that suits them.

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from inphase.media.audio import Sound, log_mel_windows
from inphase.media.frames import Clip, choose, open_recording, read_clip, stream_clips
from inphase.models.embedding import Embedding, embed
from inphase.models.encoder import Encoder
from inphase.models.motion_encoder import PooledFeatures
from inphase.models.weights import fingerprint, load_shipped
from inphase.pose.blazepose import Landmarker, deprecations_ignored
from inphase.pose.pose import JOINTS13, Pose
from inphase.pose.pose_store import cached_pose, is_pose_cached
from inphase.storage.cache import Cache, cache_key
from inphase.storage.errors import MediaError, MissingExtraError, NoPersonError

# Pictures decoded ahead of the network: clips of so many frames, so many of them.
LENGTH, AHEAD = 16, 4
# Poses are small: this many at a time.
POSES = 512

FrameProgress = Callable[[int, int], None]  # frames done, frames there are


def embed_video(
    encoder: Encoder,
    path: Path | str,
    *,
    cache: Cache | None = None,
    rate: float | None = None,
    progress: FrameProgress | None = None,
) -> Embedding:
    """Embed the frames of a video file, all of them or `rate` a second.

    Pictures are decoded, scaled to what the encoder sees and embedded as they come, in memory for a few of them; poses
    are those of the one person the video is about. What was seen is kept on the `shelf`: embeddings of pictures by the
    contents of the file and of the encoder, and poses, which any encoder of poses can use. `progress` is told the
    frames done and to do.
    """
    cache = cache or Cache(None)
    require_video_encoder(encoder)
    if encoder.modality == "pose":
        return embed_pose(encoder, cached_pose(path, cache=cache, fps=rate, progress=progress))
    key = cache_key(path, "embedding", fingerprint(encoder), rate) if cache.folder else ""
    kept = cache.get(key)
    if kept is not None and {"values", "times"} <= kept.keys():
        embedding = Embedding(kept["values"], kept["times"])
        if progress is not None:
            progress(len(embedding), len(embedding))
        return embedding
    embedding = _embed_pictures(encoder, path, rate=rate, progress=progress)
    if isinstance(encoder, PooledFeatures):
        embedding = encoder.settle(embedding)
    cache.put(key, {"values": embedding.values, "times": embedding.times})
    return embedding


def embed_pose(encoder: Encoder, pose: Pose) -> Embedding:
    """Embed the pose of a recording in the joints of PennAction."""
    require_video_encoder(encoder)
    points, seen = pose.joints13()
    values = np.concatenate([points, seen[..., None].astype(np.float32)], axis=-1)
    return embed(encoder, (values, pose.times), batch=POSES)


def require_video_encoder(encoder: Encoder) -> None:
    """Refuse an encoder that cannot see video files."""
    if encoder.modality == "audio":
        raise ValueError("this encoder hears sounds and does not see videos: give one that sees pictures or poses")
    joints = tuple(encoder.config.get("joints", ()))
    if encoder.modality == "pose" and (joints != JOINTS13 or encoder.shape != (len(JOINTS13), 3)):
        raise ValueError(
            f"this encoder sees poses of shape {encoder.shape} ({', '.join(joints)}); those of videos have the "
            f"{len(JOINTS13)} joints of JOINTS13 in the plane: train one on these"
        )


def _embed_pictures(
    encoder: Encoder, path: Path | str, *, rate: float | None, progress: FrameProgress | None
) -> Embedding:
    times = open_recording(path).times
    wanted = choose(times, fps=rate)
    total = len(times) if wanted is None else len(wanted)
    height, width = encoder.shape[:2]
    clips = decode_ahead(stream_clips(path, length=LENGTH, size=(height, width), fps=rate), number=AHEAD)
    tell = None if progress is None else lambda done: progress(done, total)
    return embed(encoder, clips, batch=LENGTH, progress=tell)


def decode_ahead(clips: Iterator[Clip], *, number: int) -> Iterator[Clip]:
    """Decode up to `number` clips ahead, in a thread: the codec works while the network does."""
    with ThreadPoolExecutor(1) as codec:
        waiting = deque(codec.submit(next, clips, None) for _ in range(number))
        while (clip := waiting.popleft().result()) is not None:
            waiting.append(codec.submit(next, clips, None))
            yield clip


SECOND = 1.0  # how much is listened to at a time
HOP = 0.1


def embed_sound(encoder: Encoder, sound: Sound, *, duration: float | None = None, hop: float = HOP) -> Embedding:
    """Embed every second of a sound between 0 and its end or `duration`, `hop` apart; `times` are their middles.

    Of what lasts less than a second, the one that begins with it, silence at its end.
    """
    if encoder.modality != "audio":
        raise ValueError(
            f"this encoder sees {encoder.modality}: one of sounds lies in a run folder as audio.safetensors"
        )
    if not hop > 0:
        raise ValueError(f"hop must be above 0 seconds, got {hop}")
    end = sound.start + len(sound) / sound.rate if duration is None else duration
    starts: NDArray[np.float64] = hop * np.arange(1 + max(0, int((end - SECOND) / hop + 1e-6)), dtype=np.float64)
    return embed(encoder, (log_mel_windows(sound, starts, seconds=SECOND), starts + SECOND / 2), batch=64)


def embed_sound_at(encoder: Encoder, sound: Sound, second: float) -> NDArray[np.float32]:
    """Embed the second of a sound that has `second` in its middle, as a vector [D]."""
    found = embed(encoder, (log_mel_windows(sound, np.array([second - SECOND / 2]), seconds=SECOND), np.zeros(1)))
    return np.asarray(found.values[0])


# Poses are used where somebody is found in this fraction of the frames of every video.
MIN_PERSON_FRACTION = 0.5
# Before all frames are searched for people, so many are; where this fraction of them shows nobody, that is enough.
PREVIEW_FRAMES, EMPTY_FRACTION = 12, 0.75

Result = TypeVar("Result")
VideoProgress = Callable[[int, int, int], None]  # which recording, frames done, frames there are


@dataclass(frozen=True, eq=False)
class EmbeddedVideos:
    """Embeddings of several videos by one encoder; `why` is a sentence on how the encoder was chosen."""

    embeddings: list[Embedding]
    encoder: Encoder
    why: str


def embed_videos(
    paths: Sequence[Path],
    *,
    encoder: Encoder | None = None,
    cache: Cache | None = None,
    rate: float | None = None,
    progress: VideoProgress | None = None,
) -> EmbeddedVideos:
    """Embed recordings with one encoder; without one, with the shipped one that suits all of them."""
    cache = cache or Cache(None)
    if encoder is not None:
        return EmbeddedVideos(
            _embed_all(paths, encoder, cache, rate, progress), encoder, f"Using the given {encoder.modality} encoder."
        )
    try:
        of_poses = load_shipped("pose")
        unknown = [path for path in paths if not is_pose_cached(path, cache=cache, fps=rate)]
        if (empty := _without_people(unknown)) is not None:
            raise NoPersonError(f"{empty} shows nobody in most of {PREVIEW_FRAMES} frames looked at")
        poses = _poses(paths, cache, rate, progress)
    except (NoPersonError, MissingExtraError, FileNotFoundError) as error:
        encoder, name = load_image_encoder()
        why = f"Using {name} ({error})."
        return EmbeddedVideos(_embed_all(paths, encoder, cache, rate, progress), encoder, why)
    seen = min(float(pose.found.mean()) for pose in poses)
    share = "all" if seen == 1 else f"at least {seen:.0%}"
    why = f"Using body pose (a person was found in every video, in {share} of its frames)."
    return EmbeddedVideos([embed_pose(of_poses, pose) for pose in poses], of_poses, why)


def embed_each(
    paths: Sequence[Path],
    *,
    encoder: Encoder,
    cache: Cache | None = None,
    rate: float | None = None,
    progress: VideoProgress | None = None,
) -> tuple[dict[Path, Embedding], dict[Path, str]]:
    """Embed those of many recordings that can be, and say of each other one why not."""
    cache = cache or Cache(None)

    def look_at(path: Path, tell: Callable[[int, int], None]) -> Embedding | str:
        try:
            return embed_video(encoder, path, cache=cache, rate=rate, progress=tell)
        except MediaError as error:
            tell(1, 1)  # there is no more to do
            return str(error)

    found = _side_by_side(look_at, paths, threads=_threads(encoder), progress=progress)
    seen = {path: each for path, each in zip(paths, found, strict=True) if isinstance(each, Embedding)}
    return seen, {path: each for path, each in zip(paths, found, strict=True) if isinstance(each, str)}


def estimate_poses(
    paths: Sequence[Path], *, cache: Cache | None = None, progress: VideoProgress | None = None
) -> tuple[dict[Path, Pose], dict[Path, str]]:
    """Follow the person of those recordings that show one, and say of each other one why not."""
    cache = cache or Cache(None)

    def follow(path: Path, tell: Callable[[int, int], None]) -> Pose | str:
        try:
            return cached_pose(path, cache=cache, progress=tell)
        except MissingExtraError:
            raise
        except MediaError as error:
            tell(1, 1)  # there is no more to do
            return str(error)

    found = _side_by_side(follow, paths, threads=os.cpu_count() or 1, progress=progress)
    seen = {path: each for path, each in zip(paths, found, strict=True) if isinstance(each, Pose)}
    return seen, {path: each for path, each in zip(paths, found, strict=True) if isinstance(each, str)}


def load_image_encoder() -> tuple[Encoder, str]:
    """Load the shipped image encoder, or pooled ImageNet features where none ships; return it with its description."""
    try:
        return load_shipped("image"), "images"
    except FileNotFoundError:
        return PooledFeatures(), "images, by ImageNet features that were never trained to align"


def _without_people(paths: Sequence[Path]) -> Path | None:
    """Glance at a few frames of each recording; name the first that shows nobody."""
    if not paths:
        return None
    with Landmarker() as eye:
        for path in paths:
            length = len(open_recording(path).times)
            frames = read_clip(path, indices=np.unique(np.linspace(0, length - 1, PREVIEW_FRAMES).astype(int))).frames
            if sum(not eye.find(picture) for picture in frames) >= EMPTY_FRACTION * len(frames):
                return path
    return None


def _poses(paths: Sequence[Path], cache: Cache, rate: float | None, progress: VideoProgress | None) -> list[Pose]:
    """Follow the person of every recording; refuse where in one there is none most of the time."""

    def follow(path: Path, tell: Callable[[int, int], None]) -> Pose:
        return cached_pose(path, cache=cache, fps=rate, progress=tell)

    # MediaPipe works outside the interpreter's lock: a thread for each core follows a person.
    poses = _side_by_side(follow, paths, threads=os.cpu_count() or 1, progress=progress)
    for path, pose in zip(paths, poses, strict=True):
        if pose.found.mean() < MIN_PERSON_FRACTION:
            raise NoPersonError(f"{path} shows a person in {pose.found.mean():.0%} of its frames only")
    return poses


def _embed_all(
    paths: Sequence[Path], encoder: Encoder, cache: Cache, rate: float | None, progress: VideoProgress | None
) -> list[Embedding]:
    """Look at every recording."""

    def look_at(path: Path, tell: Callable[[int, int], None]) -> Embedding:
        return embed_video(encoder, path, cache=cache, rate=rate, progress=tell)

    return _side_by_side(look_at, paths, threads=_threads(encoder), progress=progress)


def _threads(encoder: Encoder) -> int:
    """Choose how many recordings to look at side by side: torch uses all cores by itself, MediaPipe one each."""
    return os.cpu_count() or 1 if encoder.modality == "pose" else 1


def _side_by_side(
    work: Callable[[Path, Callable[[int, int], None]], Result],
    paths: Sequence[Path],
    *,
    threads: int,
    progress: VideoProgress | None,
) -> list[Result]:
    """Work on recordings in threads; the first error, or an interruption, stops all of them."""
    stopped = threading.Event()

    def work_on(number: int, path: Path) -> Result:
        def tell(done: int, total: int) -> None:
            if stopped.is_set():
                raise InterruptedError("another recording failed")
            if progress is not None:
                progress(number, done, total)

        try:
            return work(path, tell)
        except BaseException:
            stopped.set()
            raise

    # Filters of warnings are the process's, not a thread's: one that holds for all of them.
    with deprecations_ignored(), ThreadPoolExecutor(max(1, min(len(paths), threads))) as pool:
        waiting = [pool.submit(work_on, number, path) for number, path in enumerate(paths)]
        try:
            wait(waiting, return_when=FIRST_EXCEPTION)
            failed = [error for each in waiting if each.done() and (error := each.exception()) is not None]
            if failed:
                raise failed[0]
            return [each.result() for each in waiting]
        finally:
            stopped.set()
            pool.shutdown(cancel_futures=True)
