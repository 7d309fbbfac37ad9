"""Modalities: how a recording becomes the input of an encoder. A new modality is one file and one line in `MODALITIES`.

An encoder names its modality; everything that differs between modalities outside the network is looked up here, and in
`inphase.data.frame_source.FRAME_SOURCES` for annotated videos.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from inphase.media.frames import Clip, decode_ahead, stream_clips
from inphase.media.recording import ScaledCopies, open_recording
from inphase.media.sampling import choose
from inphase.models.audio_encoder import WINDOWS
from inphase.models.embedding import Embedding, embed, rate_of, resample
from inphase.models.encoder import Encoder, image_precision
from inphase.models.joint_encoder import JointEncoder
from inphase.models.weights import fingerprint
from inphase.pose.estimator import first_without_person
from inphase.pose.pose import JOINTS13, Pose
from inphase.pose.pose_store import cached_pose, is_pose_cached
from inphase.storage.cache import Cache, cache_key
from inphase.storage.errors import NoPersonError

# Images are decoded ahead of the network in clips of this many frames, at most this many clips.
CLIP_FRAMES, CLIPS_AHEAD = 16, 4
# The same on a GPU, where videos that are embedded side by side share batches.
GPU_FRAMES = 128
# A recording supports pose if a person is found in at least this fraction of its frames.
MIN_PERSON_FRACTION = 0.5

FrameProgress = Callable[[int, int], None]  # frames done, frames in total
# (encoder, path, cache, fps, progress, pose estimator) → the embedding of a recording, all of its frames or `fps` a
# second; modalities other than pose ignore the estimator.
EmbedFile = Callable[[Encoder, Path | str, Cache, float | None, FrameProgress | None, str], Embedding]


@dataclass(frozen=True)
class ModalityReader:
    """How embedding, evaluation and training handle a modality.

    - `embed_file`    embeds a recording, or raises ValueError if this encoder cannot
    - `check`         raises ValueError if an encoder cannot embed video files
    - `batch`         frames in a forward pass without gradients
    - `parallel`      whether recordings are embedded in parallel threads; False where torch uses all cores by itself
    - `read_threads`  threads that read training batches ahead; 0 where reading is too cheap to hand over
    - `timed`         whether frame times are seconds even if the fps of a video is not annotated
    """

    embed_file: EmbedFile
    check: Callable[[Encoder], None]
    batch: int
    parallel: bool = False
    read_threads: int = 2
    timed: bool = True

    @property
    def threads(self) -> int:
        """Return the number of recordings to embed at a time."""
        return os.cpu_count() or 1 if self.parallel else 1


def find_modality(encoder: Encoder) -> ModalityReader:
    """Look up the modality of an encoder."""
    if encoder.modality not in MODALITIES:
        raise ValueError(
            f"{type(encoder).__name__} has the modality {encoder.modality!r}: use one of {', '.join(MODALITIES)}, or "
            "register it in inphase.models.modality.MODALITIES"
        )
    return MODALITIES[encoder.modality]


def require_video_encoder(encoder: Encoder) -> None:
    """Raise if an encoder cannot embed video files."""
    find_modality(encoder).check(encoder)


def embed_pose(encoder: Encoder, pose: Pose, *, density: float = 1.0) -> Embedding:
    """Embed a tracked pose in the 13 joints of PennAction, at `density` times its frames, interpolated where above 1.

    Below 1 every second frame is embedded, every third, …. The context keeps its number of frames, so that in slow
    motion it covers as much of the action as usual; above 1 it is stretched, for the same reason.
    """
    _require_joints13(encoder)
    points, visible = pose.joints13()
    context = encoder.context_at(rate_of(pose.times)).stretched(max(density, 1.0))
    values = np.concatenate([points, visible[..., None].astype(np.float32)], axis=-1)
    stretch = resample(values, density), resample(pose.times, density)
    return replace(embed(encoder, stretch, context=context, batch=512), pose=pose)


def _embed_pose_file(
    encoder: Encoder, path: Path | str, cache: Cache, fps: float | None, progress: FrameProgress | None, estimator: str
) -> Embedding:
    """Embed the pose of the main person; the pose is cached, since any pose encoder can use it."""
    report = None if progress is None else lambda _, done, total: progress(done, total)
    return embed_pose(encoder, cached_pose(path, cache=cache, fps=fps, estimator=estimator, progress=report))


def _embed_image_file(
    encoder: Encoder,
    path: Path | str,
    cache: Cache,
    fps: float | None,
    progress: FrameProgress | None,
    _: str = "",
    *,
    copies: ScaledCopies | None = None,
) -> Embedding:
    """Embed images as they are decoded, a few in memory at a time, or `copies` of them; the embedding is cached."""
    key = _image_key(encoder, path, cache, fps)
    cached = cache.get(key)
    if cached is not None and {"values", "times"} <= cached.keys():
        embedding = Embedding(cached["values"], cached["times"], encoder.modality, routes=encoder.routes)
        if progress is not None:
            progress(len(embedding), len(embedding))
        return embedding
    taken = None if copies is None else copies.take()
    embedding = _embed_images(encoder, path, fps=fps, progress=progress, clip=None if taken is None else Clip(*taken))
    cache.put(key, {"values": embedding.values, "times": embedding.times})
    return embedding


def _image_key(encoder: Encoder, path: Path | str, cache: Cache, fps: float | None) -> str:
    return cache_key(path, "embedding", fingerprint(encoder, source=image_precision()), fps) if cache.folder else ""


def _embed_images(
    encoder: Encoder, path: Path | str, *, fps: float | None, progress: FrameProgress | None, clip: Clip | None
) -> Embedding:
    times = open_recording(path).times
    chosen = choose(times, fps=fps)
    total = len(times) if chosen is None else len(chosen)
    height, width = encoder.shape[:2]
    on_frames = None if progress is None else lambda done: progress(done, total)
    batch = GPU_FRAMES if next(encoder.parameters()).is_cuda else CLIP_FRAMES
    if clip is not None:
        return embed(encoder, clip, batch=batch, progress=on_frames)
    clips = decode_ahead(stream_clips(path, length=batch, size=(height, width), fps=fps), number=CLIPS_AHEAD)
    return embed(encoder, clips, batch=batch, progress=on_frames)


def _embed_joint_file(
    encoder: Encoder, path: Path | str, cache: Cache, fps: float | None, progress: FrameProgress | None, estimator: str
) -> Embedding:
    """Embed by images and, where the recording shows a person in enough of its frames, by pose."""
    assert isinstance(encoder, JointEncoder)

    # Half of a frame is done when its pose is estimated, and all of it when its image is embedded.
    on_pose = None if progress is None else lambda _, done, total: progress(done // 2, total)
    on_image = None if progress is None else lambda done, total: progress((total + done) // 2, total)
    tracked, recording, copies = None, open_recording(path), None
    if cache.get(_image_key(encoder.image, path, cache, fps)) is None:  # decode once for both
        copies = ScaledCopies(recording, size=(encoder.image.shape[0], encoder.image.shape[1]), fps=fps)
    how: dict[str, Any] = {"cache": cache, "fps": fps, "estimator": estimator}
    try:
        if is_pose_cached(path, **how) or shows_person(path, estimator=estimator):
            tracked = cached_pose(path, **how, progress=on_pose, recording=recording)
    except NoPersonError:
        tracked = None
    image = _embed_image_file(encoder.image, path, cache, fps, on_image, copies=copies)
    if tracked is None or tracked.found.mean() < MIN_PERSON_FRACTION:
        return encoder.join(image, None)
    return encoder.join(image, embed_pose(encoder.pose, tracked), visible=tracked.joints13()[1])


def shows_person(path: Path | str, *, estimator: str) -> bool:
    """Return whether a few frames of a recording suggest that estimating its pose is worth the time."""
    return first_without_person([Path(path)], estimator=estimator) is None


def _require_parts(encoder: Encoder) -> None:
    assert isinstance(encoder, JointEncoder)
    for part in encoder.parts.values():
        find_modality(part).check(part)


def _refuse_audio(encoder: Encoder, *_: object) -> NoReturn:
    raise ValueError("an audio encoder embeds sound, not the frames of a video: use an image or a pose encoder")


def _require_joints13(encoder: Encoder) -> None:
    joints = tuple(encoder.config.get("joints", ()))
    if joints != JOINTS13 or encoder.shape != (len(JOINTS13), 3):
        raise ValueError(
            f"this encoder takes poses of shape {encoder.shape} ({', '.join(joints)}); poses estimated in videos have "
            f"the {len(JOINTS13)} joints of JOINTS13 in two dimensions: train an encoder on these"
        )


MODALITIES: dict[str, ModalityReader] = {
    # Pose estimation uses one core and releases the interpreter's lock: one recording per core. Poses are a few arrays
    # in memory: a thread that reads them ahead would only contend for that lock.
    "pose": ModalityReader(_embed_pose_file, _require_joints13, batch=4096, parallel=True, read_threads=0, timed=False),
    "image": ModalityReader(_embed_image_file, lambda encoder: None, batch=16),
    "both": ModalityReader(_embed_joint_file, _require_parts, batch=16, parallel=True),
    "audio": ModalityReader(_refuse_audio, _refuse_audio, batch=WINDOWS),
}
