"""Embed recordings: one, several with an encoder that suits all of them, or all that can be read.

Without a model, every recording is embedded by its images and, where it shows a person, by pose as well.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from inphase.media.listing import VIDEO_SUFFIXES
from inphase.media.recording import NamedVideo, open_recording, reason_of, require_two_usable, usual_fps
from inphase.models.embedding import Embedding, resample, unit_rows
from inphase.models.encoder import Encoder, ModalityChoice
from inphase.models.joint_encoder import JointEncoder, has_route
from inphase.models.modality import MODALITIES, FrameProgress, embed_pose, find_modality, require_video_encoder
from inphase.models.motion_encoder import PooledFeatures
from inphase.models.pose_encoder import PoseArmsEncoder
from inphase.models.weights import load_encoder, load_shipped
from inphase.pose.estimator import DEFAULT_ESTIMATOR, require_estimator
from inphase.pose.pose import Pose
from inphase.pose.pose_store import cached_pose, is_pose_cached
from inphase.progress import Progress, ignore_progress, stage_progress
from inphase.storage.cache import Cache
from inphase.storage.errors import MediaError, MissingExtraError

LOGGER = logging.getLogger(__name__)
# Videos without a person that a sentence names.
MAX_NAMED = 3
# The weight of the arms beside the shipped pose encoder and images (docs/lab/transfer.md).
ARMS_WEIGHT = 0.25

Model = Path | str | Encoder | None  # a run folder, an encoder file, an encoder; None: a shipped encoder
Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class EmbeddedVideos:
    """Embeddings of several recordings by one encoder; `why` is a sentence on how the encoder was chosen."""

    embeddings: list[Embedding]
    encoder: Encoder
    why: str


def embed_video(
    encoder: Encoder,
    path: Path | str,
    *,
    cache: Cache | None = None,
    fps: float | None = None,
    pose_estimator: str = DEFAULT_ESTIMATOR,
    progress: Progress | None = None,
) -> Embedding:
    """Embed the frames of a recording: `fps` per second, by default all of them, or of a fast one about 30 per second.

    An image encoder embeds decoded frames, scaled to its size; a pose encoder the estimated pose of the main person.
    Embeddings of images are cached by the contents of the file and of the encoder, poses by those of the file and the
    `pose_estimator`, a name in `POSE_ESTIMATORS` or an import path.
    """
    on_frames = stage_progress(progress, f"embedding {Path(path).name}")
    return _embed_file(encoder, path, cache, fps, pose_estimator, on_frames)


def embed_videos(
    paths: Sequence[Path],
    *,
    model: Model = None,
    modality: ModalityChoice = "auto",
    cache: Cache | None = None,
    fps: float | None = None,
    pose_estimator: str = DEFAULT_ESTIMATOR,
    progress: Progress | None = None,
) -> EmbeddedVideos:
    """Embed recordings with one encoder: `model`, or the shipped one that suits all of them.

    `modality` "pose", "image" or "both" chooses among the shipped encoders; "auto" is both: images always, pose for
    each recording that shows a person in enough of its frames, or images alone where no pose estimator is installed.
    `fps` means the same as for `embed_video`.
    The first recording that fails stops the others, and its error is raised.
    """
    paths, cache = [Path(path) for path in paths], cache or Cache(None)
    chosen, note = "given" if model is not None else "shipped", ""
    encoder: Encoder | None
    if model is None and modality == "image":
        encoder, name = load_image_encoder()
        note = f"Using {name}."
    else:
        encoder = open_encoder(model, modality)
    if encoder is None:
        known = all(
            is_pose_cached(path, cache=cache, fps=choose_fps(path, fps), estimator=pose_estimator) for path in paths
        )
        encoder, note = choose_shipped(None if known else pose_estimator)
    embeddings = _embed_all(paths, encoder, cache, fps, pose_estimator, progress or ignore_progress)
    if encoder.modality == "both":
        return EmbeddedVideos(embeddings, encoder, describe_routes(paths, embeddings))
    return EmbeddedVideos(embeddings, encoder, note or f"Using the {chosen} {encoder.modality} encoder.")


def choose_shipped(pose_estimator: str | None = DEFAULT_ESTIMATOR) -> tuple[Encoder, str]:
    """Load the shipped pose and image encoders as one; without the pose estimator, images alone and the reason.

    With None no estimator is needed, since all poses are cached.
    """
    try:
        if pose_estimator is not None:
            require_estimator(pose_estimator)
        return load_joint_encoder(), ""
    except (MissingExtraError, FileNotFoundError) as error:
        encoder, name = load_image_encoder()
        return encoder, f"Using {name} ({error})."


def load_joint_encoder() -> JointEncoder:
    """Load the shipped pose encoder, with the arms as a further route, and the shipped or untrained image encoder."""
    shipped = load_shipped("pose")
    pose = PoseArmsEncoder(**shipped.config)
    pose.load_state_dict({**shipped.state_dict(), "arms": torch.tensor(ARMS_WEIGHT)})
    return JointEncoder(pose=pose, image=load_image_encoder()[0]).eval()


def describe_routes(paths: Sequence[Path], embeddings: Sequence[Embedding]) -> str:
    """Describe in a sentence which recordings use pose, and which their images alone."""
    names = [path.name for path, each in zip(paths, embeddings, strict=True) if not has_route(each, 0)]
    if not names:
        return "Using body pose and images (a person was found in every video)."
    if len(names) == len(paths):
        return "Using images (no video shows a person in enough of its frames)."
    listed = ", ".join(names[:MAX_NAMED]) + (f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else "")
    return f"Using body pose and images; images alone for {listed}, where no person is found in enough frames."


def embed_each(
    paths: Sequence[Path],
    *,
    encoder: Encoder,
    cache: Cache | None = None,
    fps: float | None = None,
    pose_estimator: str = DEFAULT_ESTIMATOR,
    progress: Progress | None = None,
) -> tuple[dict[Path, Embedding], dict[Path, str]]:
    """Embed many recordings; return the embeddings, and for every recording that failed the reason.

    Raise if all of them fail.
    """

    def embed_one(path: Path, on_frames: FrameProgress) -> Embedding:
        return _embed_file(encoder, path, cache, fps, pose_estimator, on_frames)

    threads = find_modality(encoder).threads
    embeddings, failed = _try_each(embed_one, paths, threads=threads, stage="embedding", progress=progress)
    if not embeddings:
        reason = next(iter(failed.values()), "there are none")
        raise ValueError(f"none of {len(paths)} videos can be embedded by {encoder.modality} ({reason})")
    return embeddings, failed


def estimate_poses(
    paths: Sequence[Path],
    *,
    cache: Cache | None = None,
    pose_estimator: str = DEFAULT_ESTIMATOR,
    progress: Progress | None = None,
) -> tuple[dict[Path, Pose], dict[Path, str]]:
    """Estimate the pose of the main person of many recordings; return poses and the reasons for failures."""
    kept = cache or Cache(None)

    def track(path: Path, on_frames: FrameProgress) -> Pose:
        report = _drop_stage(on_frames)
        return cached_pose(path, cache=kept, estimator=pose_estimator, progress=report)

    return _try_each(
        track, paths, threads=MODALITIES["pose"].threads, stage="estimating the poses of", progress=progress
    )


def add_poses(
    paths: Sequence[Path],
    embeddings: Sequence[Embedding],
    *,
    cache: Cache | None = None,
    pose_estimator: str = DEFAULT_ESTIMATOR,
    progress: Progress | None = None,
) -> list[Embedding]:
    """Estimate the missing poses of embeddings; an embedding stays without a pose if no person is found."""
    lacking = [path for path, each in zip(paths, embeddings, strict=True) if each.pose is None]
    poses, _ = estimate_poses(lacking, cache=cache, pose_estimator=pose_estimator, progress=progress)
    pairs = zip(paths, embeddings, strict=True)
    return [each if each.pose else replace(each, pose=poses.get(path)) for path, each in pairs]


def open_encoder(model: Model, modality: ModalityChoice = "auto") -> Encoder | None:
    """Load the encoder that `model` names or `modality` implies; None if the recordings decide (auto, no model)."""
    if modality not in ("auto", "pose", "image", "both"):
        raise ValueError(f"modality must be auto, pose, image or both, got {modality!r}")
    if model is None:
        if modality == "auto":
            return None
        if modality == "both":
            return load_joint_encoder()
        return load_shipped("pose") if modality == "pose" else load_image_encoder()[0]
    encoder = model if isinstance(model, Encoder) else load_encoder(model)
    if isinstance(encoder, JointEncoder) and modality in encoder.parts:
        return encoder.parts[modality]
    if modality not in ("auto", encoder.modality):
        raise ValueError(f"modality {modality!r}: the model embeds {encoder.modality}; leave one of the two out")
    return encoder


def load_image_encoder() -> tuple[Encoder, str]:
    """Load the shipped image encoder, or pooled ImageNet features if none ships; return it with its description."""
    try:
        return load_shipped("image"), "images"
    except FileNotFoundError:
        return PooledFeatures(), "images, by ImageNet features that were never trained to align"


def _embed_file(
    encoder: Encoder, path: Path | str, cache: Cache | None, fps: float | None, estimator: str, on_frames: FrameProgress
) -> Embedding:
    require_video_encoder(encoder)
    rate = choose_fps(path, fps)
    LOGGER.info("embedding %s by %s, %s", path, encoder.modality, "every frame" if rate is None else f"{rate:g} fps")
    found = find_modality(encoder).embed_file(encoder, path, cache or Cache(None), rate, on_frames, estimator)
    if encoder.normalizes:
        return found
    # Applications compare frames by the cosine, and some of them by the dot product.
    lengths = np.linalg.norm(found.values, axis=1, keepdims=True)
    return replace(found, values=found.values / np.maximum(lengths, np.finfo(np.float32).tiny))


def choose_fps(path: Path | str, fps: float | None) -> float | None:
    """Return the frames per second to embed: those given, or a whole fraction of a high frame rate; None: all."""
    if fps is not None or not Path(path).is_file() or Path(path).suffix.lower() not in VIDEO_SUFFIXES:
        return fps  # folders of images, and files of other modalities
    return usual_fps(open_recording(path).fps)


def _embed_all(
    paths: Sequence[Path],
    encoder: Encoder,
    cache: Cache,
    fps: float | None,
    pose_estimator: str,
    progress: Progress,
) -> list[Embedding]:
    """Embed every recording; the first error stops all."""

    def embed_one(path: Path, on_frames: FrameProgress) -> Embedding:
        return _embed_file(encoder, path, cache, fps, pose_estimator, on_frames)

    reports = [stage_progress(progress, f"embedding {path.name}") for path in paths]
    return _map_threads(embed_one, paths, threads=find_modality(encoder).threads, reports=reports)


def _drop_stage(on_frames: FrameProgress) -> Progress:
    return lambda _, done, total: on_frames(done, total)


def _try_each(
    work: Callable[[Path, FrameProgress], Result],
    paths: Sequence[Path],
    *,
    threads: int,
    stage: str,
    progress: Progress | None,
) -> tuple[dict[Path, Result], dict[Path, str]]:
    """Process recordings in threads; return results and, for recordings that cannot be read, reasons."""
    report = stage_progress(progress, f"{stage} {len(paths)} videos")
    finished: set[int] = set()

    def attempt(path: Path, on_frames: FrameProgress) -> Result | MediaError:
        try:
            return work(path, on_frames)
        except MissingExtraError:
            raise
        except MediaError as error:
            on_frames(1, 1)
            return error

    def count(number: int) -> FrameProgress:
        def on_frames(done: int, total: int) -> None:
            finished.update([number] if done == total else [])
            report(len(finished), len(paths))

        return on_frames

    results = _map_threads(attempt, paths, threads=threads, reports=[count(number) for number in range(len(paths))])
    pairs = list(zip(paths, results, strict=True))
    failed = {path: str(result) for path, result in pairs if isinstance(result, MediaError)}
    return {path: result for path, result in pairs if not isinstance(result, MediaError)}, failed


def _map_threads(
    work: Callable[[Path, FrameProgress], Result],
    paths: Sequence[Path],
    *,
    threads: int,
    reports: Sequence[FrameProgress],
) -> list[Result]:
    """Process recordings in threads; the first error, or an interruption, stops all of them and is raised."""
    stopped = threading.Event()
    failures: list[BaseException] = []  # in the order of time: the first one is the cause

    def run(path: Path, report: FrameProgress) -> Result:
        def on_frames(done: int, total: int) -> None:
            if stopped.is_set():
                raise InterruptedError(f"{path} was not finished, because another recording failed")
            report(done, total)

        try:
            return work(path, on_frames)
        except BaseException as error:
            failures.append(error)
            stopped.set()
            raise

    with ThreadPoolExecutor(max(1, min(len(paths), threads))) as pool:
        waiting = [pool.submit(run, path, report) for path, report in zip(paths, reports, strict=True)]
        try:
            wait(waiting, return_when=FIRST_EXCEPTION)
            if failures:
                raise failures[0]
            return [each.result() for each in waiting]
        finally:
            stopped.set()
            pool.shutdown(cancel_futures=True)


def change_density(encoder: Encoder, embedding: Embedding, density: float) -> Embedding:
    """Embed a video at `density` times its frames; its pose again, its images by interpolation."""
    joint = encoder if isinstance(encoder, JointEncoder) else None
    part: Encoder = encoder if joint is None else joint.pose
    tracked = embedding.pose if part.modality == "pose" else None
    pose = None if tracked is None else embed_pose(part, tracked, density=density)
    if joint is None and pose is not None:
        return pose
    values = resample(embedding.values if joint is None else joint.image_columns(embedding.values), density)
    routes = embedding.routes if joint is None else ()
    image = replace(embedding, values=unit_rows(values), times=resample(embedding.times, density), routes=routes)
    if joint is None:
        return image
    visible = None if tracked is None else resample(tracked.joints13()[1], density) > 0.5
    return joint.join(image if values.any() else None, pose, visible=visible)


def embed_usable(
    videos: Sequence[NamedVideo], left_out: dict[str, str], *, required: Sequence[NamedVideo] = (), **options: Any
) -> tuple[list[NamedVideo], EmbeddedVideos]:
    """Embed videos, like `embed_videos` with the same `options`; record each failure in `left_out`.

    Raise the error of a `required` video, and where fewer than two can be embedded. After a failure every video is
    embedded alone, which the cache makes cheap: so each error is the video's own.
    """
    try:
        return list(videos), embed_videos([each.path for each in videos], **options)
    except MissingExtraError:
        raise
    except Exception as error:
        kept, failed = list[NamedVideo](), dict[str, str]()
        for each in videos:
            try:
                embed_videos([each.path], **options)
            except Exception as own:
                if each in required:
                    raise
                failed[str(each.path)] = reason_of(each.path, own)
                LOGGER.info("leaving out %s", each.path, exc_info=own)
            else:
                kept.append(each)
        if not failed or not kept:  # not the fault of single videos
            raise
        left_out.update(failed)
        try:
            require_two_usable(kept, left_out)
        except ValueError as few:
            raise few from error
        return kept, embed_videos([each.path for each in kept], **options)
