from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from inphase.media.frames import Clip, read_clip
from inphase.models import AudioEncoder, Encoder, ImageEncoder, PoseEncoder, embed
from inphase.models import embed_videos as look_module
from inphase.models.embed_videos import decode_ahead, embed_video
from inphase.models.motion_encoder import PooledFeatures
from inphase.models.weights import fingerprint
from inphase.pose.pose import JOINTS13
from inphase.storage.cache import Cache
from inphase.storage.errors import DamagedMediaWarning, MediaError, NoPersonError
from tests.media.recordings import write_video
from tests.pose.people import make_pose


def small(seed: int = 0, *, context: tuple[int, ...] = (-2, 0)) -> ImageEncoder:
    import torch

    torch.manual_seed(seed)
    return ImageEncoder(
        context=context, size=(32, 32), mode="scratch", weights=None, convolutions=(8,), hidden=(8,), dimension=8
    ).eval()


@pytest.fixture
def video(tmp_path: Path) -> Path:
    return write_video(tmp_path / "a.mp4", count=40)


def test_pictures_are_seen_as_they_are_decoded(video: Path) -> None:
    told: list[tuple[int, int]] = []
    seen = embed_video(small(), video, progress=lambda done, total: told.append((done, total)))
    clip = read_clip(video, size=(32, 32))
    np.testing.assert_allclose(seen.values, embed(small(), clip).values, atol=1e-5)
    np.testing.assert_array_equal(seen.times, clip.times)
    assert told[-1] == (40, 40)


def test_fewer_frames_can_be_looked_at(video: Path) -> None:
    np.testing.assert_allclose(embed_video(small(), video, rate=10).times, np.arange(14) / 10, atol=1e-3)


def test_what_was_seen_is_kept_for_the_same_contents_and_encoder(
    video: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path / "shelf")
    first = embed_video(small(), video, cache=cache)
    renamed = video.rename(tmp_path / "b.mp4")
    monkeypatch.setattr(look_module, "stream_clips", lambda *_, **__: pytest.fail("decoded again"))
    np.testing.assert_array_equal(embed_video(small(), renamed, cache=cache).values, first.values)
    with pytest.raises(pytest.fail.Exception, match="decoded again"):
        embed_video(small(seed=1), renamed, cache=cache)


def test_encoders_differ_by_weights_and_by_what_builds_them() -> None:
    joints = PoseEncoder(joints=JOINTS13)
    assert fingerprint(small()) == fingerprint(small()) != fingerprint(small(seed=1))
    assert fingerprint(joints) != fingerprint(small())


def test_poses_are_kept_for_any_encoder_of_poses(video: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from inphase.pose import pose_store as kept_pose

    pose, cache = make_pose(40), Cache(tmp_path / "shelf")
    monkeypatch.setattr(kept_pose, "read_pose", lambda *_, **__: pose)
    points, visible = pose.joints13()
    values = np.concatenate([points, visible[..., None]], axis=-1).astype(np.float32)
    encoder = PoseEncoder(joints=JOINTS13)
    np.testing.assert_allclose(
        embed_video(encoder, video, cache=cache).values, embed(encoder, (values, pose.times)).values, atol=1e-5
    )
    monkeypatch.setattr(kept_pose, "read_pose", lambda *_, **__: pytest.fail("followed again"))
    assert len(embed_video(PoseEncoder(joints=JOINTS13, hidden=(8,)), video, cache=cache)) == 40


def test_that_nobody_is_there_is_kept_too(video: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from inphase.pose import pose_store as kept_pose

    def nobody(path: Path, **_: object) -> None:
        raise NoPersonError(f"{path} shows no person")

    monkeypatch.setattr(kept_pose, "read_pose", nobody)
    encoder, cache = PoseEncoder(joints=JOINTS13), Cache(tmp_path / "shelf")
    with pytest.raises(NoPersonError, match=r"a\.mp4 shows no person"):
        embed_video(encoder, video, cache=cache)
    renamed = video.rename(tmp_path / "b.mp4")
    monkeypatch.setattr(kept_pose, "read_pose", lambda *_, **__: pytest.fail("searched again"))
    with pytest.raises(NoPersonError, match=r"b\.mp4 shows no person"):
        embed_video(encoder, renamed, cache=cache)


@pytest.mark.parametrize(
    ("encoder", "wrong"),
    [
        (lambda: AudioEncoder(), "hears sounds"),
        (lambda: PoseEncoder(joints=[f"{s}_{j}" for s in ("left", "right") for j in ("hip", "shoulder")]), "JOINTS13"),
    ],
)
def test_encoders_that_cannot_see_videos_are_refused(
    video: Path, encoder: Callable[[], Encoder], wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from inphase.pose import pose_store as kept_pose

    monkeypatch.setattr(kept_pose, "read_pose", lambda *_, **__: make_pose(40))
    with pytest.raises(ValueError, match=wrong):
        embed_video(encoder(), video)


def test_a_damaged_file_gives_what_it_has_and_one_that_is_none_an_error(video: Path, tmp_path: Path) -> None:
    (tmp_path / "none.mp4").write_bytes(b"no video")
    with pytest.raises(MediaError, match=r"none\.mp4 cannot be opened"):
        embed_video(small(), tmp_path / "none.mp4")
    film = write_video(tmp_path / "c.mp4", count=40, faststart=True)
    film.write_bytes(film.read_bytes()[:-400])
    with pytest.warns(DamagedMediaWarning):
        assert 0 < len(embed_video(small(), film)) < 40


def test_pooled_features_are_unit_vectors_about_the_mean_of_the_video(video: Path) -> None:
    encoder = PooledFeatures(size=64, weights=None)
    seen = embed_video(encoder, video)
    np.testing.assert_allclose(np.linalg.norm(seen.values, axis=1), 1, atol=1e-5)
    raw = embed(encoder, read_clip(video, size=(64, 64))).values
    rest = raw - raw.mean(0)
    np.testing.assert_allclose(seen.values, rest / np.linalg.norm(rest, axis=1, keepdims=True), atol=1e-4)


def test_pooled_features_of_one_frame_are_a_unit_vector(tmp_path: Path) -> None:
    seen = embed_video(PooledFeatures(size=64, weights=None), write_video(tmp_path / "one.mp4", count=1))
    assert np.linalg.norm(seen.values) == pytest.approx(1)


def test_clips_are_decoded_while_the_network_is_at_work_but_not_many() -> None:
    decoded: list[int] = []
    third = Event()

    def codec() -> Iterator[Clip]:
        for number in range(9):
            decoded.append(number)
            if number == 3:
                third.set()
            yield Clip(np.zeros((1, 2, 2, 3), np.uint8), np.array([float(number)]))

    clips = decode_ahead(codec(), number=3)
    assert next(clips).times[0] == 0
    assert third.wait(timeout=60), "nothing is decoded before the network asks for it"
    assert len(decoded) <= 4
    assert [clip.times[0] for clip in clips] == list(range(1, 9))
