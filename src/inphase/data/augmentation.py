"""Random augmentation of images and poses: one sample per video, shared by all its frames, so that timing is kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inphase.data.video import Video
from inphase.pose.pose import mirrored


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
