"""Poses are cached with the guarantees of frames, and read without a codec and without OpenVINO."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inphase.media.frame_store import FillSummary, FrameStore, Source, fill_store
from inphase.media.recording import Recording
from inphase.pose import pose_store
from inphase.pose.pose import Pose
from inphase.pose.pose_store import PoseStore, cached_pose, fill_poses, pack, unpack
from inphase.storage.cache import Cache
from inphase.storage.errors import NoPersonError, StoreError
from tests.media.recordings import write_video
from tests.pose.people import JOINTS, make_pose

FIELDS = ("keypoints", "world", "visibility", "found", "times")


@pytest.fixture
def films(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Source]:
    """Write videos of 10, 11 and 12 frames; those of 12 are taken to show nobody."""

    def read(recording: Recording, **settings: Any) -> Pose:
        length = len(recording.times)
        if length == 12:
            raise NoPersonError(f"{recording.path} shows no person")
        return make_pose(length, seed=length)

    monkeypatch.setattr(pose_store, "estimate_recording", read)
    monkeypatch.setattr(pose_store, "require_estimator", lambda name: None)
    return {f"film {i}": Source(write_video(tmp_path / f"{i}.mp4", count=10 + i)) for i in range(3)}


def assert_same(pose: Pose, truth: Pose) -> None:
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(pose, name), getattr(truth, name))
        assert getattr(pose, name).dtype == getattr(truth, name).dtype
    assert pose.size == truth.size


def test_what_is_stored_comes_back() -> None:
    assert_same(unpack(pack(make_pose(7)), joints=JOINTS), make_pose(7))


def test_poses_lie_beside_frames_and_are_made_once(tmp_path: Path, films: dict[str, Source]) -> None:
    fill_store(tmp_path / "store", films, size=(8, 8))
    steps: list[tuple[str, int, int]] = []
    filled = fill_poses(tmp_path / "store", films, progress=lambda *step: steps.append(step))
    assert (filled.written, filled.frames) == (2, 21)
    assert "2.mp4 shows no person" in filled.broken["film 2"]
    assert list(filled.outcomes.values()) == ["written", "written", "broken"]
    assert steps == [("estimating poses", done, 3) for done in (1, 2, 3)]
    again = fill_poses(tmp_path / "store", films)
    assert again == FillSummary(kept=2, frames=21, broken=filled.broken)
    store = PoseStore(tmp_path / "store")
    assert (sorted(store), store.verify(), store.frames("film 1")) == (["film 0", "film 1"], [], 11)
    assert_same(store["film 1"], make_pose(11, seed=11))
    with pytest.raises(StoreError, match=r"film 2 is not in .* shows no person"):
        store["film 2"]
    assert len(FrameStore(tmp_path / "store")) == 3
    assert FrameStore(tmp_path / "store").verify() == []


def test_whole_recordings_are_followed_once_for_all_who_share_a_cache(
    tmp_path: Path, films: dict[str, Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Cache(tmp_path / "cache")
    first = fill_poses(tmp_path / "store", films, cache=cache)
    part = {"part": Source(films["film 1"].path, spans=((0.0, 0.2),))}
    fill_poses(tmp_path / "parts", part, cache=cache)
    assert len(list((tmp_path / "cache").iterdir())) == len(films) + 1  # those that show nobody and the part among them
    monkeypatch.setattr(pose_store, "estimate_recording", lambda *_, **__: pytest.fail("estimated again"))
    assert fill_poses(tmp_path / "other", films, cache=cache) == first
    assert_same(PoseStore(tmp_path / "other")["film 1"], make_pose(11, seed=11))
    assert_same(cached_pose(films["film 1"].path, cache=cache), make_pose(11, seed=11))
    with pytest.raises(NoPersonError, match=r"2\.mp4 shows no person"):
        cached_pose(films["film 2"].path, cache=cache)


def test_a_cache_that_cannot_be_written_keeps_nobody_from_filling_a_store(
    tmp_path: Path, films: dict[str, Source]
) -> None:
    (tmp_path / "cache").write_text("a file")
    assert fill_poses(tmp_path / "store", films, cache=Cache(tmp_path / "cache")).written == 2


def test_a_changed_video_and_a_spoilt_file_are_made_again(tmp_path: Path, films: dict[str, Source]) -> None:
    fill_poses(tmp_path / "store", films)
    write_video(films["film 0"].path, count=15)
    (file,) = (tmp_path / "store" / "poses").glob(f"*{PoseStore(tmp_path / 'store')._entries['film 1'].file}")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(StoreError, match="has changed since it was written"):
        PoseStore(tmp_path / "store")["film 1"]
    assert fill_poses(tmp_path / "store", films).written == 2
    assert [PoseStore(tmp_path / "store").frames(id) for id in ("film 0", "film 1")] == [15, 11]
    assert len(list((tmp_path / "store" / "poses").glob("*.pose"))) == 2


def test_another_network_needs_another_folder(tmp_path: Path, films: dict[str, Source]) -> None:
    fill_poses(tmp_path / "store", films)
    with pytest.raises(StoreError, match=r"'options': {'complexity': 1, .*, not .*'options': {'complexity': 2, "):
        fill_poses(tmp_path / "store", films, options={"complexity": 2})
    with pytest.raises(StoreError, match="holds no store of poses"):
        PoseStore(tmp_path)


def test_reading_needs_neither_codec_nor_openvino(tmp_path: Path, films: dict[str, Source]) -> None:
    fill_poses(tmp_path / "store", films)
    code = """if True:
        import sys
        sys.modules["av"] = sys.modules["openvino"] = None  # importing them fails from here on
        from inphase.pose.pose_store import PoseStore
        store = PoseStore(sys.argv[1])
        print([len(pose.joints13()[0]) for pose in store.values()], store.verify())
    """
    command = [sys.executable, "-W", "error", "-c", code, str(tmp_path / "store")]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert (run.stdout.strip(), run.stderr) == ("[10, 11] []", "")
