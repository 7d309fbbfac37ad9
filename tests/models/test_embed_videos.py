from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from time import sleep

import numpy as np
import pytest
import torch

from inphase.media.frames import Clip, decode_ahead, read_clip
from inphase.media.recording import Recording
from inphase.models import Encoder, ImageEncoder, PoseEncoder, embed
from inphase.models import embed_videos as module
from inphase.models import modality as modality_module
from inphase.models.embed_videos import embed_each, embed_video, embed_videos
from inphase.models.joint_encoder import JointEncoder, has_route
from inphase.models.motion_encoder import PooledFeatures
from inphase.models.pose_encoder import PoseArmsEncoder
from inphase.models.weights import fingerprint
from inphase.pose.pose import JOINTS13, Pose
from inphase.storage.cache import Cache
from inphase.storage.errors import DamagedMediaWarning, MediaError, MissingExtraError, NoPersonError
from tests.apps.test_retrieve_sound import ears
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


def test_images_are_seen_as_they_are_decoded(video: Path) -> None:
    reported: list[tuple[str, int, int]] = []
    seen = embed_video(small(), video, progress=lambda *news: reported.append(news))
    clip = read_clip(video, size=(32, 32))
    np.testing.assert_allclose(seen.values, embed(small(), clip).values, atol=1e-5)
    np.testing.assert_array_equal(seen.times, clip.times)
    assert reported[-1] == ("embedding a.mp4", 40, 40)


def test_fewer_frames_can_be_embedded(video: Path) -> None:
    np.testing.assert_allclose(embed_video(small(), video, fps=10).times, np.arange(14) / 10, atol=1e-3)


def test_what_was_seen_is_kept_for_the_same_contents_and_encoder(
    video: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path / "cache")
    first = embed_video(small(), video, cache=cache)
    renamed = video.rename(tmp_path / "b.mp4")
    monkeypatch.setattr(modality_module, "stream_clips", lambda *_, **__: pytest.fail("decoded again"))
    np.testing.assert_array_equal(embed_video(small(), renamed, cache=cache).values, first.values)
    with pytest.raises(pytest.fail.Exception, match="decoded again"):
        embed_video(small(seed=1), renamed, cache=cache)


def test_encoders_differ_by_weights_and_by_what_builds_them() -> None:
    joints = PoseEncoder(joints=JOINTS13)
    assert fingerprint(small()) == fingerprint(small()) != fingerprint(small(seed=1))
    assert fingerprint(joints) != fingerprint(small())


def test_poses_are_kept_for_any_encoder_of_poses(video: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from inphase.pose import pose_store

    pose, cache = make_pose(40), Cache(tmp_path / "cache")
    monkeypatch.setattr(pose_store, "estimate_pose", lambda *_, **__: pose)
    points, visible = pose.joints13()
    values = np.concatenate([points, visible[..., None]], axis=-1).astype(np.float32)
    encoder = PoseEncoder(joints=JOINTS13)
    np.testing.assert_allclose(
        embed_video(encoder, video, cache=cache).values, embed(encoder, (values, pose.times)).values, atol=1e-5
    )
    monkeypatch.setattr(pose_store, "estimate_pose", lambda *_, **__: pytest.fail("followed again"))
    assert len(embed_video(PoseEncoder(joints=JOINTS13, hidden=(8,)), video, cache=cache)) == 40


def test_that_nobody_is_there_is_kept_too(video: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from inphase.pose import pose_store

    def nobody(path: Path, **_: object) -> None:
        raise NoPersonError(f"{path} shows no person")

    monkeypatch.setattr(pose_store, "estimate_pose", nobody)
    encoder, cache = PoseEncoder(joints=JOINTS13), Cache(tmp_path / "cache")
    with pytest.raises(NoPersonError, match=r"a\.mp4 shows no person"):
        embed_video(encoder, video, cache=cache)
    renamed = video.rename(tmp_path / "b.mp4")
    monkeypatch.setattr(pose_store, "estimate_pose", lambda *_, **__: pytest.fail("searched again"))
    with pytest.raises(NoPersonError, match=r"b\.mp4 shows no person"):
        embed_video(encoder, renamed, cache=cache)


@pytest.mark.parametrize(
    ("encoder", "wrong"),
    [
        (ears, "embeds sound"),
        (lambda: PoseEncoder(joints=[f"{s}_{j}" for s in ("left", "right") for j in ("hip", "shoulder")]), "JOINTS13"),
    ],
)
def test_encoders_that_cannot_read_videos_are_refused(
    video: Path, encoder: Callable[[], Encoder], wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from inphase.pose import pose_store

    monkeypatch.setattr(pose_store, "estimate_pose", lambda *_, **__: make_pose(40))
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
    frames = torch.from_numpy(read_clip(video, size=(64, 64)).frames)
    raw = encoder.features(encoder.prepare(frames)).flatten(1).numpy()
    rest = raw - raw.mean(0)
    np.testing.assert_allclose(seen.values, rest / np.linalg.norm(rest, axis=1, keepdims=True), atol=1e-4)


def test_pooled_features_keep_their_temperature_in_the_cache(video: Path, tmp_path: Path) -> None:
    encoder, cache = PooledFeatures(size=64, grid=2, weights=None), Cache(tmp_path / "cache")
    for seen in (embed_video(encoder, video, cache=cache), embed_video(encoder, video, cache=cache)):
        assert [tuple(route) for route in seen.routes] == [(seen.values.shape[1], 0.05)]


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


@pytest.fixture
def videos(tmp_path: Path) -> list[Path]:
    return [write_video(tmp_path / f"{name}.mp4", count=20) for name in "ab"]


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch) -> dict[str, Encoder]:
    """Let untrained encoders ship, and everybody be seen at a glance."""
    ships: dict[str, Encoder] = {"pose": PoseEncoder(joints=JOINTS13).eval(), "image": small()}

    def load(modality: str) -> Encoder:
        if modality not in ships:
            raise FileNotFoundError(f"no encoder of {modality} ships")
        return ships[modality]

    monkeypatch.setattr(module, "load_shipped", load)
    monkeypatch.setattr(module, "require_estimator", lambda _: None)
    monkeypatch.setattr(modality_module, "first_without_person", lambda *_, **__: None)
    monkeypatch.setattr(module, "PooledFeatures", lambda: PooledFeatures(size=64, weights=None))
    return ships


def following(monkeypatch: pytest.MonkeyPatch, **found: float) -> None:
    """Let a person be found in a fraction of the frames of each video, by its stem."""

    def pose(path: Path, **_: object) -> Pose:
        made = make_pose(20)
        made.found[:] = [frame < found[path.stem] * 20 for frame in range(20)]
        made.visibility[~made.found] = 0
        return made

    monkeypatch.setattr(modality_module, "cached_pose", pose)


def test_people_are_embedded_by_pose_and_images(
    videos: list[Path], shipped: dict[str, Encoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    following(monkeypatch, a=1.0, b=0.9)
    seen = embed_videos(videos)
    assert isinstance(seen.encoder, JointEncoder)
    assert seen.encoder.image is shipped["image"]
    assert isinstance(seen.encoder.pose, PoseArmsEncoder)  # the shipped one, and the arms
    torch.testing.assert_close(seen.encoder.pose.head.state_dict(), shipped["pose"].head.state_dict())
    assert seen.embeddings[0].values.shape == (20, 128 + 8 + 16)
    assert [has_route(each, 0) for each in seen.embeddings] == [True, True]
    assert seen.why == "Using body pose and images (a person was found in every video)."


def test_pose_and_images_share_one_decoding(
    videos: list[Path], shipped: dict[str, Encoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    following(monkeypatch, a=1.0, b=1.0)
    expected = embed_videos(videos)

    def estimate(path: Path, *, recording: Recording, **_: object) -> Pose:
        assert len(list(recording.images(None))) == 20
        return make_pose(20)

    monkeypatch.setattr(modality_module, "cached_pose", estimate)
    monkeypatch.setattr(modality_module, "stream_clips", lambda *_, **__: pytest.fail("decoded again"))
    for one, other in zip(embed_videos(videos).embeddings, expected.embeddings, strict=True):
        np.testing.assert_array_equal(one.values, other.values)


def test_a_video_without_a_person_leaves_the_others_alone(
    videos: list[Path], shipped: dict[str, Encoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    following(monkeypatch, a=1.0, b=1.0)
    before = embed_videos(videos).embeddings[0]
    following(monkeypatch, a=1.0, b=0.3)
    seen = embed_videos(videos)
    assert [has_route(each, 0) for each in seen.embeddings] == [True, False]
    np.testing.assert_array_equal(seen.embeddings[0].values, before.values)
    assert "images alone for b.mp4, where no person is found in enough frames" in seen.why
    following(monkeypatch, a=0.3, b=0.3)
    assert embed_videos(videos).why == "Using images (no video shows a person in enough of its frames)."


def test_a_glance_is_enough_where_nobody_is(
    videos: list[Path], shipped: dict[str, Encoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modality_module, "first_without_person", lambda paths, **_: paths[0])
    monkeypatch.setattr(modality_module, "cached_pose", lambda *_, **__: pytest.fail("searched every frame"))
    assert embed_videos(videos).why == "Using images (no video shows a person in enough of its frames)."


def test_without_openvino_the_reason_says_how_to_get_it(
    videos: list[Path], shipped: dict[str, Encoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_: object) -> None:
        raise MissingExtraError("pose from video needs OpenVINO: pip install 'inphase[pose]'")

    monkeypatch.setattr(module, "require_estimator", missing)
    seen = embed_videos(videos)
    assert seen.encoder is shipped["image"]
    assert "pip install 'inphase[pose]'" in seen.why


def test_without_an_encoder_of_images_features_stand_in_and_it_is_said(
    videos: list[Path], shipped: dict[str, Encoder]
) -> None:
    del shipped["image"], shipped["pose"]
    seen = embed_videos(videos)
    assert isinstance(seen.encoder, PooledFeatures)
    assert "never trained to align" in seen.why
    assert "never trained to align" in embed_videos(videos, modality="image").why


def test_the_encoder_asked_for_is_used(videos: list[Path]) -> None:
    encoder = small()
    reported: set[tuple[str, int, int]] = set()
    seen = embed_videos(videos, model=encoder, progress=lambda *news: reported.add(news))
    assert seen.encoder is encoder
    assert {("embedding a.mp4", 20, 20), ("embedding b.mp4", 20, 20)} <= reported


def test_one_that_cannot_be_read_stops_all_and_is_named(videos: list[Path]) -> None:
    videos[1].write_bytes(b"no video")
    with pytest.raises(MediaError, match=r"b\.mp4 cannot be opened"):
        embed_videos(videos, model=small())


def test_of_many_those_that_can_be_seen_are(videos: list[Path], tmp_path: Path) -> None:
    videos[1].write_bytes(b"no video")
    seen, failed = embed_each(videos, encoder=small())
    assert list(seen) == videos[:1]
    assert "cannot be opened" in failed[videos[1]]


def test_the_first_failure_in_time_is_raised_not_one_that_it_caused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from threading import Barrier

    together, failed = Barrier(3), Event()

    def cached_pose(path: Path, *, progress: Callable[[str, int, int], None], **_: object) -> Pose:
        together.wait(timeout=60)
        if path.name == "c.mp4":
            failed.set()
            raise MediaError(f"{path} is damaged")
        failed.wait(timeout=60)
        for frame in range(1000):
            sleep(0.01)
            progress("estimating pose", frame, 1000)
        return make_pose(20)

    monkeypatch.setattr(modality_module, "cached_pose", cached_pose)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    with pytest.raises(MediaError, match=r"c\.mp4 is damaged"):
        embed_videos([tmp_path / f"{name}.mp4" for name in "abc"], model=PoseEncoder(joints=JOINTS13))


def test_a_forced_modality_needs_no_search_for_people(
    videos: list[Path], shipped: dict[str, Encoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modality_module, "first_without_person", lambda *_, **__: pytest.fail("searched for people"))
    monkeypatch.setattr(modality_module, "cached_pose", lambda *_, **__: make_pose(20))
    by_image, by_pose = embed_videos(videos, modality="image"), embed_videos(videos, modality="pose")
    assert (by_image.encoder, by_pose.encoder) == (shipped["image"], shipped["pose"])
    assert {each.modality for each in by_image.embeddings} == {"image"}
    assert {each.modality for each in by_pose.embeddings} == {"pose"}


def test_modalities_that_cannot_be_had_are_refused(videos: list[Path]) -> None:
    with pytest.raises(ValueError, match="must be auto, pose, image or both, got 'smell'"):
        embed_videos(videos, modality="smell")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the model embeds image"):
        embed_videos(videos, model=small(), modality="pose")


def test_a_fast_recording_is_embedded_at_30_frames_a_second_by_default(tmp_path: Path) -> None:
    video = write_video(tmp_path / "fast.mp4", count=48, rate=240)
    cache = Cache(tmp_path / "cache")
    encoder = small(context=(0,))
    usual, every = (embed_video(encoder, video, cache=cache, fps=fps) for fps in (None, 240.0))
    assert usual.times.tolist() == pytest.approx([k / 30 for k in range(6)])
    assert len(every) == 48
    np.testing.assert_allclose(usual.values, every.values[::8], atol=1e-5)
    assert len(embed_video(encoder, video, cache=cache)) == 6, "cached by its frame rate"
