"""The parts of a batch: sampled frames of one video, augmented, the plan of an epoch, and videos that are skipped.

Images and poses are augmented by one sample per video, shared by all its frames, so that timing is kept. A video that
cannot be read never stops a run: it is skipped, reported once, and counted.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inphase.data.video import Read, Video
from inphase.media.sampling import Context, Frames, context_frames, usable
from inphase.pose.pose import mirrored
from inphase.progress import summarize


class Augmentation(Protocol):
    """One sample of an augmentation that is applied to the frames of a batch on the device of the encoder."""

    def apply(self, frames: Tensor) -> Tensor:
        """Convert the stored frames of one video to augmented input of an encoder."""


@dataclass(frozen=True)
class ImageAugmentation:
    """One sample of how the images of a video change; the default changes nothing."""

    flip: bool = False
    brightness: float = 0.0  # added, where black is 0 and white is 1
    contrast: float = 1.0  # factor about each frame's and channel's own mean

    def apply(self, frames: Tensor) -> Tensor:
        """Apply this sample to images [..., H, W, 3] uint8."""
        return apply_image_augmentation(frames, augmentation=self)


def sample_image_augmentation(
    *,
    rng: np.random.Generator,
    flip: float = 0.5,
    brightness: float = 32 / 255,
    contrast: tuple[float, float] = (0.5, 1.5),
) -> ImageAugmentation:
    """Sample by default as the released code: probability of a flip, ± brightness, range of contrast."""
    return ImageAugmentation(
        flip=bool(rng.random() < flip),
        brightness=float(rng.uniform(-brightness, brightness)),
        contrast=float(rng.uniform(*contrast)),
    )


def apply_image_augmentation(
    frames: NDArray[np.uint8] | Tensor, *, augmentation: ImageAugmentation | None = None
) -> Tensor:
    """Convert images [..., H, W, 3] uint8 to augmented floats in [−1, 1].

    In the released order: to [0, 1], flip, brightness, contrast, clip to [0, 1], then (x − ½) / ½. Contrast is
    TensorFlow's: (x − μ)·c + μ with μ the mean of one frame's channel. On the frames' device, in place after one copy.
    """
    sample = augmentation or ImageAugmentation()
    images = torch.from_numpy(np.ascontiguousarray(frames)) if isinstance(frames, np.ndarray) else frames
    if images.dtype != torch.uint8 or images.ndim < 3 or images.shape[-1] != 3:
        raise ValueError(f"frames must be [..., H, W, 3] uint8, got {list(images.shape)} {images.dtype}")
    if sample.flip:
        images = images.flip(-2)
    values = images.to(torch.float32).div_(255)
    if sample.brightness:
        values.add_(sample.brightness)
    if sample.contrast != 1:
        mean = values.mean((-3, -2), keepdim=True)
        values.sub_(mean).mul_(sample.contrast).add_(mean)
    return values.clamp_(0, 1).sub_(0.5).div_(0.5)


def apply_augmentations(frames: Tensor, *, augmentations: Sequence[Augmentation]) -> Tensor:
    """Augment the K sequences of a group [K, …], each by its own sample."""
    if len(augmentations) != len(frames):
        raise ValueError(f"{len(frames)} sequences need as many augmentations, got {len(augmentations)}")
    return torch.stack([each.apply(sequence) for sequence, each in zip(frames, augmentations, strict=True)])


@dataclass(frozen=True)
class ViewAugmentation:
    """One sample of an augmentation for each of several equal parts of the frames of a video."""

    parts: tuple[Augmentation, ...]

    def apply(self, frames: Tensor) -> Tensor:
        """Apply the samples to the parts of frames [T, …]."""
        views = torch.tensor_split(frames, len(self.parts))
        return torch.cat([each.apply(view) for view, each in zip(views, self.parts, strict=True)])


@dataclass(frozen=True)
class PoseAugmentation:
    """One sample of how the poses of a video change; the default changes nothing."""

    flip: bool = False
    scale: float = 1.0
    rotation: float = 0.0  # radians, about the middle of the visible joints of all frames given
    jitter: float = 0.0  # standard deviation of noise on every joint, as a fraction of the body's size
    seed: int = 0  # of that noise


def sample_pose_augmentation(
    *, rng: np.random.Generator, flip: float = 0.5, scale: float = 0.0, rotation: float = 0.0, jitter: float = 0.0
) -> PoseAugmentation:
    """Sample: probability of a flip, a factor between e^−`scale` and e^`scale`, up to ±`rotation` radians."""
    return PoseAugmentation(
        flip=bool(rng.random() < flip),
        scale=float(np.exp(rng.uniform(-scale, scale))),
        rotation=float(rng.uniform(-rotation, rotation)),
        jitter=jitter,
        seed=int(rng.integers(2**31)),
    )


def apply_pose_augmentation(
    poses: NDArray[np.float32], *, augmentation: PoseAugmentation, joints: tuple[str, ...], width: float
) -> NDArray[np.float32]:
    """Augment poses [T, J, 3] (x, y, visibility); a flip in an image of `width` also swaps left and right joints."""
    if poses.ndim != 3 or poses.shape[1:] != (len(joints), 3):
        raise ValueError(f"poses must be [T, {len(joints)}, 3] (x, y, visibility), got {list(poses.shape)}")
    changed = poses.copy()
    if augmentation.flip:
        changed = changed[:, mirrored(joints)]
        changed[..., 0] = width - 1 - changed[..., 0]
    visible = changed[changed[..., 2] > 0][:, :2]
    if len(visible) == 0:
        return changed
    if augmentation.scale != 1 or augmentation.rotation:
        middle, scale, angle = (visible.min(0) + visible.max(0)) / 2, augmentation.scale, augmentation.rotation
        cos, sin = scale * np.cos(angle), scale * np.sin(angle)
        turn = np.array([[cos, sin], [-sin, cos]], dtype=np.float32)
        changed[..., :2] = (changed[..., :2] - middle) @ turn + middle
    if augmentation.jitter:
        noise = np.random.default_rng(augmentation.seed).normal(size=(*changed.shape[:2], 2))
        extent = float(np.ptp(visible, axis=0).max())
        changed[..., :2] += (augmentation.jitter * augmentation.scale * extent * noise).astype(np.float32)
    return changed


def augment_images(images: NDArray[np.uint8], video: Video, rng: np.random.Generator, **settings: Any) -> Tensor:
    """Augment the images of a video by one sample; `settings` go to `sample_image_augmentation`."""
    return apply_image_augmentation(images, augmentation=sample_image_augmentation(rng=rng, **settings))


def augment_poses(
    poses: NDArray[np.float32], video: Video, rng: np.random.Generator, **settings: float
) -> NDArray[np.float32]:
    """Augment the poses of a video by one sample; `settings` go to `sample_pose_augmentation`."""
    sample = sample_pose_augmentation(rng=rng, **settings)
    if video.size is None and sample.flip:
        raise ValueError(f"{video.id}: flipping a pose needs the width of the image: set Video.size")
    return apply_pose_augmentation(
        poses, augmentation=sample, joints=video.joints, width=0 if video.size is None else video.size[1]
    )


# (frames, video, rng) → frames; once per video, before frames are repeated for their contexts.
Prepare = Callable[[NDArray[Any], Video, np.random.Generator], NDArray[Any] | Tensor]


@dataclass(frozen=True, eq=False)
class SampledFrames:
    """Sampled frames of one video and their context, without repeated frames."""

    id: str
    values: NDArray[Any]  # [D, …]
    rows: Frames  # [T, C] the row of `values` of each context frame
    frames: Frames  # [T]
    times: NDArray[np.float64]  # [T]
    total: int  # the number of frames they were sampled from
    labels: Frames | None = None  # [T] phase, −1 if unknown
    progress: NDArray[np.float32] | None = None  # [T, E] frames since each key event over the video's frames
    augmentation: Augmentation | None = None


def read_sampled_frames(
    video: Video,
    frames: Frames,
    *,
    length: int,
    context: Context,
    read: Read,
    prepare: Prepare | None = None,
    first_phase: int = 0,
    rng: np.random.Generator,
) -> SampledFrames:
    """Read frames with their context and labels; the phases of the action are numbered from `first_phase`."""
    wanted = context_frames(frames, length=length, context=context)
    distinct, places = np.unique(np.concatenate([wanted.ravel(), frames]), return_inverse=True)
    values, times = read(video, distinct)
    if len(values) != len(distinct) or len(times) != len(distinct):
        raise ValueError(f"{len(distinct)} frames requested, {len(values)} read with {len(times)} times")
    ready = np.asarray(values if prepare is None else prepare(values, video, rng))
    seconds = times[places[wanted.size :]]
    return SampledFrames(
        id=video.id,
        values=ready,
        rows=places[: wanted.size].reshape(wanted.shape),
        frames=frames,
        times=seconds,
        total=len(usable(length, context=context)),
        labels=_labels(video, frames, seconds, first=first_phase),
        progress=_progress(video, frames, length=length),
    )


def join_views(views: Sequence[SampledFrames]) -> SampledFrames:
    """Join views of one video, each augmented by itself, into one sequence."""
    firsts = np.cumsum([0, *(len(each.values) for each in views[:-1])])
    labels = [each.labels for each in views if each.labels is not None]
    progress = [each.progress for each in views if each.progress is not None]
    return replace(
        views[0],
        values=np.concatenate([each.values for each in views]),
        rows=np.concatenate([each.rows + first for each, first in zip(views, firsts, strict=True)]),
        frames=np.concatenate([each.frames for each in views]),
        times=np.concatenate([each.times for each in views]),
        labels=np.concatenate(labels) if labels else None,
        progress=np.concatenate(progress) if progress else None,
    )


def _labels(video: Video, frames: Frames, times: NDArray[np.float64], *, first: int) -> Frames | None:
    """Return the phase of each frame, if the video has phases."""
    if video.phases is None and not video.intervals:
        return None
    phases = video.phases[frames] if video.phases is not None else video.phases_at(times)
    return np.where(phases < 0, -1, first + phases)


def _progress(video: Video, frames: Frames, *, length: int) -> NDArray[np.float32] | None:
    """Return the frames since each key event divided by the length of the video, if it has events."""
    if not video.events:
        return None
    events = np.array(list(video.events.values()))
    return np.asarray((frames[:, None] - events) / length, dtype=np.float32)


def stack(sequences: Sequence[SampledFrames]) -> Tensor:
    """Stack the values of K videos as [K, T, C, …], padded to the longest by repeating the last step.

    Every frame is copied once: for images this is the cost of reading a store.
    """
    longest = max(len(each.rows) for each in sequences)
    first = sequences[0]
    whole = np.empty((len(sequences), longest, first.rows.shape[1], *first.values.shape[1:]), first.values.dtype)
    for each, place in zip(sequences, whole, strict=True):
        rows = each.rows[np.minimum(np.arange(longest), len(each.rows) - 1)]
        # The default mode would copy the output, and the rows cannot be out of range.
        np.take(each.values, rows, axis=0, out=place, mode="clip")
    return torch.from_numpy(whole)


def pad(sequences: Sequence[Tensor]) -> Tensor:
    """Stack sequences [T, …] of different lengths, padded to the longest by repeating the last entry."""
    longest = max(len(sequence) for sequence in sequences)
    return torch.stack([sequence[torch.arange(longest).clamp_(max=len(sequence) - 1)] for sequence in sequences])


Planned = tuple[int, NDArray[np.int64]]  # the action, and the numbers of its videos


class Epochs:
    """The groups of every epoch, for actions with `counts` videos each.

    Every video is in one group of an epoch, so that one of several processes reads it.
    """

    def __init__(self, counts: Sequence[int], *, size: int, seed: int) -> None:
        """Count the groups of an epoch."""
        self._counts, self._seed = list(counts), seed
        # A last group of one video would be useless: it joins another one, which for K = 2 then has three.
        self._cuts = [max(1, min(-(-count // size), count // 2)) for count in self._counts]
        self.groups = sum(self._cuts)
        self._plan = lru_cache(maxsize=2)(self._make_plan)  # at the boundary of epochs two are in use

    def group(self, slot: int) -> Planned:
        """Return the group of a slot."""
        epoch, place = divmod(slot, self.groups)
        return self._plan(epoch)[place]

    def alternatives(self, slot: int, *, world: int) -> Iterator[int]:
        """List the slots of the same epoch and the same one of `world` processes, this one first.

        They replace a group that cannot be read, without the videos of another process.
        """
        epoch = slot // self.groups
        begin, end = epoch * self.groups, (epoch + 1) * self.groups
        yield from range(slot, end, world)
        yield from range(begin + (slot - begin) % world, slot, world)

    def _make_plan(self, epoch: int) -> list[Planned]:
        rng = np.random.default_rng([7, self._seed, epoch])  # streams use seeds of another form
        planned: list[Planned] = []
        places: list[float] = []
        for action, (count, cuts) in enumerate(zip(self._counts, self._cuts, strict=True)):
            parts = np.array_split(rng.permutation(count), cuts)
            planned += [(action, part) for part in parts]
            places += ((np.arange(cuts) + rng.random()) / cuts).tolist()
        return [planned[k] for k in np.argsort(places, kind="stable")]


Result = TypeVar("Result")


@dataclass(frozen=True)
class Skip:
    """A video that could not be read, and the reason."""

    id: str
    reason: str


class SkipLog:
    """A count of the videos that could not be read."""

    def __init__(self) -> None:
        """Start with none."""
        self.counts: Counter[str] = Counter()

    def note(self, skipped: Iterable[Skip]) -> list[str]:
        """Count the skips of a batch; return a message for each video that fails for the first time."""
        listed = list(skipped)
        new = {skip.id: skip.reason for skip in listed if skip.id not in self.counts}
        self.counts.update(skip.id for skip in listed)
        return [f"{name} cannot be read and is skipped: {reason}" for name, reason in new.items()]

    def summary(self) -> str:
        """Summarize the skipped videos in one sentence."""
        if not self.counts:
            return "every video could be read"
        return (
            f"{len(self.counts)} videos could not be read and were skipped {self.counts.total()} times: "
            + summarize(sorted(self.counts))
        )


def try_reading(
    video: Video, work: Callable[[], Result], *, failed: dict[str, str], skipped: list[Skip]
) -> Result | None:
    """Process a video, or record why that failed; a video that failed once is not tried again."""
    if video.id not in failed:
        try:
            return work()
        # Any error of a codec or a file system in one video must not end a run of days.
        except Exception as error:
            failed[video.id] = f"{type(error).__name__}: {error}"
    skipped.append(Skip(video.id, failed[video.id]))
    return None
