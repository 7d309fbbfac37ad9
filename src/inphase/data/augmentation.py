"""Chance changes of a video's look that leave its timing alone: one draw per video, shared by all its frames."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inphase.data.video import Video
from inphase.pose.skeleton import mirrored


@dataclass(frozen=True)
class ImageAugmentation:
    """One draw of how a video's pictures are changed; the default changes nothing."""

    flip: bool = False
    brightness: float = 0.0  # added, where black is 0 and white is 1
    contrast: float = 1.0  # factor about each frame's and channel's own mean


def sample_image_augmentation(
    *,
    rng: np.random.Generator,
    flip: float = 0.5,
    brightness: float = 32 / 255,
    contrast: tuple[float, float] = (0.5, 1.5),
) -> ImageAugmentation:
    """Draw a look, by default as the released code does: a chance of a flip, ± brightness, a range of contrast."""
    return ImageAugmentation(
        flip=bool(rng.random() < flip),
        brightness=float(rng.uniform(-brightness, brightness)),
        contrast=float(rng.uniform(*contrast)),
    )


def apply_image_augmentation(frames: NDArray[np.uint8] | Tensor, *, look: ImageAugmentation | None = None) -> Tensor:
    """Turn pictures [..., H, W, 3] uint8 into floats in [−1, 1], changed by `look`.

    In the released order: to [0, 1], flip, brightness, contrast, clip to [0, 1], then (x − ½) / ½. Contrast is
    TensorFlow's: (x − μ)·c + μ with μ the mean of one frame's channel. On the frames' device, in place after one copy.
    """
    look = look or ImageAugmentation()
    pictures = torch.from_numpy(np.ascontiguousarray(frames)) if isinstance(frames, np.ndarray) else frames
    if pictures.dtype != torch.uint8 or pictures.ndim < 3 or pictures.shape[-1] != 3:
        raise ValueError(f"frames must be [..., H, W, 3] uint8, got {list(pictures.shape)} {pictures.dtype}")
    if look.flip:
        pictures = pictures.flip(-2)
    values = pictures.to(torch.float32).div_(255)
    if look.brightness:
        values.add_(look.brightness)
    if look.contrast != 1:
        mean = values.mean((-3, -2), keepdim=True)
        values.sub_(mean).mul_(look.contrast).add_(mean)
    return values.clamp_(0, 1).sub_(0.5).div_(0.5)


def apply_image_augmentations(frames: Tensor, *, looks: Sequence[ImageAugmentation] = ()) -> Tensor:
    """Turn the pictures [K, …, H, W, 3] of a group into floats in [−1, 1], each sequence changed by its own look."""
    if looks and len(looks) != len(frames):
        raise ValueError(f"{len(frames)} sequences need as many looks, got {len(looks)}")
    if not looks:
        return apply_image_augmentation(frames)
    return torch.stack(
        [apply_image_augmentation(sequence, look=look) for sequence, look in zip(frames, looks, strict=True)]
    )


@dataclass(frozen=True)
class PoseAugmentation:
    """One draw of how a video's poses are changed; the default changes nothing."""

    flip: bool = False
    scale: float = 1.0
    rotation: float = 0.0  # radians, about the middle of the visible joints of all frames given
    jitter: float = 0.0  # standard deviation of noise on every joint, as a fraction of the body's size
    seed: int = 0  # of that noise


def sample_pose_augmentation(
    *, rng: np.random.Generator, flip: float = 0.5, scale: float = 0.0, rotation: float = 0.0, jitter: float = 0.0
) -> PoseAugmentation:
    """Draw a stance: a chance of a flip, a factor between e^−`scale` and e^`scale`, up to ±`rotation` radians."""
    return PoseAugmentation(
        flip=bool(rng.random() < flip),
        scale=float(np.exp(rng.uniform(-scale, scale))),
        rotation=float(rng.uniform(-rotation, rotation)),
        jitter=jitter,
        seed=int(rng.integers(2**31)),
    )


def apply_pose_augmentation(
    poses: NDArray[np.float32], *, stance: PoseAugmentation, joints: tuple[str, ...], width: float
) -> NDArray[np.float32]:
    """Change poses [T, J, 3] (x, y, visibility): a flip in a picture of `width` also swaps left and right joints."""
    if poses.ndim != 3 or poses.shape[1:] != (len(joints), 3):
        raise ValueError(f"poses must be [T, {len(joints)}, 3] (x, y, visibility), got {list(poses.shape)}")
    changed = poses.copy()
    if stance.flip:
        changed = changed[:, mirrored(joints)]
        changed[..., 0] = width - 1 - changed[..., 0]
    seen = changed[changed[..., 2] > 0][:, :2]
    if len(seen) == 0:
        return changed
    if stance.scale != 1 or stance.rotation:
        middle = (seen.min(0) + seen.max(0)) / 2
        cos, sin = stance.scale * np.cos(stance.rotation), stance.scale * np.sin(stance.rotation)
        turn = np.array([[cos, sin], [-sin, cos]], dtype=np.float32)
        changed[..., :2] = (changed[..., :2] - middle) @ turn + middle
    if stance.jitter:
        noise = np.random.default_rng(stance.seed).normal(size=(*changed.shape[:2], 2))
        changed[..., :2] += (stance.jitter * stance.scale * float(np.ptp(seen, axis=0).max()) * noise).astype(
            np.float32
        )
    return changed


def augment_images(pictures: NDArray[np.uint8], video: Video, rng: np.random.Generator, **settings: Any) -> Tensor:
    """Augment the images of a video by one sample; `settings` go to `sample_image_augmentation`."""
    return apply_image_augmentation(pictures, look=sample_image_augmentation(rng=rng, **settings))


def augment_poses(
    poses: NDArray[np.float32], video: Video, rng: np.random.Generator, **settings: float
) -> NDArray[np.float32]:
    """Augment the poses of a video by one sample; `settings` go to `sample_pose_augmentation`."""
    stance = sample_pose_augmentation(rng=rng, **settings)
    if video.size is None and stance.flip:
        raise ValueError(f"{video.id}: a pose is flipped in a picture of known width: set Video.size")
    return apply_pose_augmentation(
        poses, stance=stance, joints=video.joints, width=0 if video.size is None else video.size[1]
    )
