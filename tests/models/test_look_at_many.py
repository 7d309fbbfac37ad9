from pathlib import Path

import pytest

from inphase.models import Encoder, PoseEncoder
from inphase.models import embed_videos as look_at_many
from inphase.models.embed_videos import embed_each, embed_videos
from inphase.models.motion_encoder import PooledFeatures
from inphase.pose.pose import JOINTS13, Pose
from inphase.storage.errors import MediaError, MissingExtraError
from tests.media.recordings import write_video
from tests.models.test_look import small
from tests.pose.people import make_pose


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

    monkeypatch.setattr(look_at_many, "load_shipped", load)
    monkeypatch.setattr(look_at_many, "_without_people", lambda _: None)
    monkeypatch.setattr(look_at_many, "PooledFeatures", lambda: PooledFeatures(size=64, weights=None))
    return ships


def following(monkeypatch: pytest.MonkeyPatch, *, found: float) -> None:
    """Let everybody be found in a fraction of the frames."""

    def pose(path: Path, **_: object) -> Pose:
        made = make_pose(20)
        made.found[:] = [frame < found * 20 for frame in range(20)]
        return made

    monkeypatch.setattr(look_at_many, "kept_pose", pose)


def test_people_are_seen_by_their_poses(
    videos: list[Path], shipped: dict[str, Encoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    following(monkeypatch, found=0.9)
    seen = embed_videos(videos)
    assert seen.encoder is shipped["pose"]
    assert [len(each) for each in seen.embeddings] == [20, 20]
    assert "a person was found in every video, in at least 90% of its frames" in seen.why
    following(monkeypatch, found=1.0)
    assert "a person was found in every video, in all of its frames" in embed_videos(videos).why


def test_where_people_are_rarely_seen_pictures_are_used(
    videos: list[Path], shipped: dict[str, Encoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    following(monkeypatch, found=0.3)
    seen = embed_videos(videos)
    assert seen.encoder is shipped["image"]
    assert "a.mp4 shows a person in 30% of its frames only" in seen.why


def test_a_glance_is_enough_where_nobody_is(
    videos: list[Path], shipped: dict[str, Encoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look_at_many, "_without_people", lambda paths: paths[1])
    monkeypatch.setattr(look_at_many, "kept_pose", lambda *_, **__: pytest.fail("searched every frame"))
    assert "b.mp4 shows nobody" in embed_videos(videos).why


def test_without_mediapipe_the_reason_says_how_to_get_it(
    videos: list[Path], shipped: dict[str, Encoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_: object) -> None:
        raise MissingExtraError("pose from video needs MediaPipe: pip install 'inphase[pose]'")

    monkeypatch.setattr(look_at_many, "_without_people", missing)
    assert "pip install 'inphase[pose]'" in embed_videos(videos).why


def test_without_an_encoder_of_pictures_features_stand_in_and_it_is_said(
    videos: list[Path], shipped: dict[str, Encoder], monkeypatch: pytest.MonkeyPatch
) -> None:
    following(monkeypatch, found=0.0)
    del shipped["image"]
    seen = embed_videos(videos)
    assert isinstance(seen.encoder, PooledFeatures)
    assert "never trained to align" in seen.why


def test_the_encoder_asked_for_is_used(videos: list[Path]) -> None:
    encoder = small()
    told: set[tuple[int, int, int]] = set()
    seen = embed_videos(videos, encoder=encoder, progress=lambda *news: told.add(news))
    assert seen.encoder is encoder
    assert {(0, 20, 20), (1, 20, 20)} <= told


def test_one_that_cannot_be_read_stops_all_and_is_named(videos: list[Path]) -> None:
    videos[1].write_bytes(b"no video")
    with pytest.raises(MediaError, match=r"b\.mp4 cannot be opened"):
        embed_videos(videos, encoder=small())


def test_of_many_those_that_can_be_seen_are(videos: list[Path], tmp_path: Path) -> None:
    videos[1].write_bytes(b"no video")
    seen, failed = embed_each(videos, encoder=small())
    assert list(seen) == videos[:1]
    assert "cannot be opened" in failed[videos[1]]


@pytest.mark.parametrize("nobody", [True, False])
def test_a_glance_looks_for_people(videos: list[Path], monkeypatch: pytest.MonkeyPatch, nobody: bool) -> None:
    class Eye:
        def __enter__(self) -> "Eye":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def find(self, picture: object) -> list[int]:
            return [] if nobody else [1]

    monkeypatch.setattr(look_at_many, "Landmarker", Eye)
    assert look_at_many._without_people(videos) == (videos[0] if nobody else None)
