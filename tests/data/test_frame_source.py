from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor

from inphase.data import stage_videos
from inphase.data.batches import apply_augmentations
from inphase.data.frame_source import (
    FRAME_SOURCES,
    FrameSource,
    ModalitySource,
    augmentation_arguments,
    open_frame_source,
)
from inphase.data.stream import GroupStream
from inphase.data.video import Problem, Video
from inphase.media.frame_store import Source, fill_store
from inphase.models import ImageEncoder, PoseEncoder
from inphase.pose.pose import JOINTS13
from tests.apps.test_retrieve_sound import ears
from tests.media.recordings import write_video


def images(size: int) -> ImageEncoder:
    return ImageEncoder(
        backbone="resnet50v2", mode="scratch", weights=None, size=(size, size), convolutions=(4,), hidden=(4,)
    )


def test_poses_of_labels_are_reduced_to_the_encoders_joints() -> None:
    (video,) = stage_videos.load(split="test", videos=1, actions=["squat"])
    bare = Video("bare", "squat", "test", length=3)
    with pytest.warns(Problem, match=r"1 videos \(bare\): no keypoints; they are skipped"):
        seen = open_frame_source(PoseEncoder(joints=JOINTS13), [video, bare], name="stage")
    values, _ = seen.read(seen.videos[0], np.arange(5))
    assert values.shape == (5, 13, 3)
    assert seen.frame_count(seen.videos[0]) == video.length
    assert seen.source == "stage labels"
    with pytest.raises(ValueError, match="no keypoints: all 1 videos; estimate them with `inphase data pose`"):
        open_frame_source(PoseEncoder(joints=JOINTS13), [bare])


def test_images_are_read_at_the_encoders_size_from_files_or_a_store(tmp_path: Path) -> None:
    write_video(tmp_path / "a.mp4", count=6, rate=10)
    videos = [
        Video("a", "squat", "test", path=tmp_path / "a.mp4"),
        Video("b", "squat", "test", path=tmp_path / "b.mp4"),
    ]
    encoder = images(32)
    with pytest.warns(Problem, match=r"1 videos \(b\): no images; they are skipped"):
        seen = open_frame_source(encoder, videos)
    assert [video.id for video in seen.videos] == ["a"]
    assert seen.read(videos[0], np.arange(6))[0].shape == (6, 32, 32, 3)
    fill_store(tmp_path / "store", {"a": Source(tmp_path / "a.mp4")}, size=(32, 32))
    with pytest.warns(Problem, match="fill it with `inphase data cache`"):
        stored = open_frame_source(encoder, videos, store=tmp_path / "store")
    assert [video.id for video in stored.videos] == ["a"]
    assert stored.frame_count(videos[0]) == 6
    assert stored.source != seen.source
    with pytest.raises(ValueError, match=r"holds images of \(32, 32\), the encoder takes \(64, 64\)"):
        open_frame_source(images(64), videos, store=tmp_path / "store")


def test_what_cannot_be_shown_is_refused(tmp_path: Path) -> None:
    videos = stage_videos.load(split="test", videos=1, actions=["squat"])
    with pytest.raises(ValueError, match="have no audio frames"):
        open_frame_source(ears(), videos)
    with pytest.raises(ValueError, match="the encoder takes 4 numbers"):
        open_frame_source(PoseEncoder(joints=JOINTS13, space=3), videos, store=tmp_path)
    with pytest.raises(ValueError, match="no 3-D joints: all 1 videos"):
        open_frame_source(PoseEncoder(joints=JOINTS13, space=3), [Video("a", "wave", "test")])
    with pytest.raises(ValueError, match="stores hold the joints head, "):
        open_frame_source(PoseEncoder(joints=(*JOINTS13, "nose")), videos, store=tmp_path)


class Depth:
    """What a frame source needs of an encoder of depth maps."""

    modality = "depth"
    shape = (4, 4)
    config: ClassVar[dict[str, Any]] = {}


@dataclass(frozen=True)
class Scale:
    """An augmentation from outside: a factor on all depths."""

    factor: float

    def apply(self, frames: Tensor) -> Tensor:
        return frames * self.factor


def test_a_modality_from_outside_is_one_entry_that_reads_and_augments(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(video: Video, frames: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
        return np.broadcast_to(frames[:, None, None], (len(frames), 4, 4)).astype(np.float32), frames / 10

    def sample_scale(*, rng: np.random.Generator, most: float = 2.0) -> Scale:
        return Scale(float(rng.uniform(1, most)))

    videos = [Video(f"a{number}", "wave", "train", length=20) for number in range(3)]
    with pytest.raises(ValueError, match="annotated videos have no depth frames: use one of image, pose"):
        open_frame_source(Depth(), videos)
    kind = ModalitySource(lambda encoder, found, store: FrameSource(list(found), read, lambda _: 20), sample_scale)
    monkeypatch.setitem(FRAME_SOURCES, "depth", kind)
    source = open_frame_source(Depth(), videos)
    more = augmentation_arguments("depth", {"most": 3.0})
    (group,) = GroupStream(source.videos, read=source.read, videos=2, frames=5, **more)[0].groups
    assert group.values.shape[-2:] == (4, 4)
    factors = [each.factor for each in group.augmentations if isinstance(each, Scale)]
    assert len(factors) == 2
    assert all(1 <= factor <= 3 for factor in factors)
    augmented = apply_augmentations(group.values, augmentations=group.augmentations)
    np.testing.assert_allclose(augmented[1], group.values[1] * factors[1])
