from pathlib import Path

import numpy as np
import pytest
import torch

from inphase.align.matching import match
from inphase.data.video import Problem, Video, read_pose
from inphase.evaluation.embedded_videos import EmbeddedVideo, embed_videos
from inphase.media.sampling import Frames
from inphase.models import PoseEncoder, embed
from inphase.models.pose_encoder import PoseArmsEncoder
from inphase.models.weights import fingerprint
from inphase.pose.pose import JOINTS13
from inphase.storage.errors import StoreError
from inphase.storage.files import exclusive_lock


def video(name: str, *, length: int = 30, rate: float | None = None) -> Video:
    keypoints = np.random.default_rng(len(name)).uniform(0, 99, (length, 13, 2)).astype(np.float32)
    return Video(name, "squat", "test", length=length, rate=rate, keypoints=keypoints, joints=JOINTS13)


def encoder(*, seed: int = 0, edges: str = "mirror", rate: float | None = None) -> PoseEncoder:
    torch.manual_seed(seed)
    return PoseEncoder(joints=JOINTS13, hidden=(8,), dimension=4, edges=edges, rate=rate).eval()  # type: ignore[arg-type]


class Counting:
    """A `Read` that counts."""

    def __init__(self) -> None:
        self.reads: list[str] = []

    def __call__(self, video: Video, frames: Frames) -> tuple[np.ndarray, np.ndarray]:
        self.reads.append(video.id)
        return read_pose(video, frames)


def test_each_video_is_embedded_as_embed_does() -> None:
    network = encoder()
    calls: list[tuple[str, int, int]] = []
    found = embed_videos(
        network, [video("a"), video("bb", length=17)], read=read_pose, progress=lambda *call: calls.append(call)
    )
    expected = embed(network, read_pose(video("bb", length=17), np.arange(17)))
    np.testing.assert_allclose(found[1].values, expected.values, atol=1e-6)
    assert (found[1].first, found[1].length, len(found[1])) == (0, 17, 17)
    assert found[1].clamped.tolist() == [True] * 8 + [False] + [True] * 8
    assert calls == [("embedding", 1, 2), ("embedding", 2, 2)]


def test_valid_edges_leave_out_the_ends_and_labels_stay_on_their_rows() -> None:
    (item,) = embed_videos(encoder(edges="valid"), [video("a")], read=read_pose)
    assert (item.first, len(item), item.length) == (8, 14, 30)
    assert not item.clamped.any()
    labelled = EmbeddedVideo(
        Video("a", "squat", "test", phases=np.arange(30), progress=np.arange(30) / 30),
        item.embedding,
        length=30,
        first=8,
    )
    assert labelled.phases.tolist() == list(range(8, 22))
    assert labelled.progress is not None
    assert labelled.progress[0] == 8 / 30
    short = Video("a", "squat", "test", phases=np.arange(29))
    with pytest.raises(ValueError, match="30 frames and 29 phases"):
        _ = EmbeddedVideo(short, item.embedding, length=30, first=8).phases
    with pytest.raises(ValueError, match="has 20 frames, not those from 8 to 22"):
        EmbeddedVideo(short, item.embedding, length=20, first=8)


def test_the_context_reaches_as_far_in_seconds() -> None:
    (item,) = embed_videos(encoder(rate=30), [video("a", rate=15.0)], read=read_pose)
    assert item.context.offsets == (-4, -2, 0, 2, 4)


def test_what_is_embedded_is_read_and_other_weights_sources_and_lengths_are_not(tmp_path: Path) -> None:
    read, videos = Counting(), [video("a"), video("../b c")]
    first = embed_videos(encoder(), videos, read=read, cache=tmp_path)
    again = embed_videos(encoder(), videos, read=read, cache=tmp_path)
    assert read.reads == ["a", "../b c"]
    for one, two in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.values, two.values)
        np.testing.assert_array_equal(one.embedding.times, two.embedding.times)
        assert (one.first, one.length, one.context) == (two.first, two.length, two.context)
    embed_videos(encoder(seed=1), videos[:1], read=read, cache=tmp_path)
    embed_videos(encoder(), videos[:1], read=read, cache=tmp_path, source="a store")
    embed_videos(encoder(), [video("a", length=31)], read=read, cache=tmp_path)
    assert read.reads[2:] == ["a", "a", "a"]
    assert fingerprint(encoder()) == fingerprint(encoder()) != fingerprint(encoder(edges="clamp"))


def test_cached_embeddings_keep_their_routes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network, signer = PoseArmsEncoder(hidden=(8,), dimension=4).eval(), video("a", rate=30.0)
    first, again = (embed_videos(network, [signer], read=read_pose, cache=tmp_path)[0] for _ in range(2))
    assert first.embedding.routes == again.embedding.routes == network.routes
    assert len(network.routes) == 2
    costs, expected = (match(each.embedding, each.embedding).cost_matrix for each in (first, again))
    assert costs is not None
    assert expected is not None
    np.testing.assert_array_equal(costs, expected)


def test_a_damaged_file_is_made_again(tmp_path: Path) -> None:
    read = Counting()
    (whole,) = embed_videos(encoder(), [video("a")], read=read, cache=tmp_path)
    (file,) = tmp_path.rglob("*.safetensors")
    content = file.read_bytes()
    for damage in (content[:50], b"", content.replace(b'"about"', b'"abuot"')):
        file.write_bytes(damage)
        (again,) = embed_videos(encoder(), [video("a")], read=read, cache=tmp_path)
        np.testing.assert_array_equal(again.values, whole.values)
        assert file.read_bytes() == content
    assert len(read.reads) == 4


def test_drafts_of_killed_writers_are_removed_where_all_is_cached(tmp_path: Path) -> None:
    embed_videos(encoder(), [video("a")], read=read_pose, cache=tmp_path)
    (folder,) = (tmp_path / "embeddings").iterdir()
    (folder / ".a.safetensors.inphase-draft").mkdir()
    embed_videos(encoder(), [video("a")], read=read_pose, cache=tmp_path)
    assert not [*folder.glob(".*.inphase-draft")]


def test_broken_videos_are_left_out_with_a_warning() -> None:
    bare = Video("no pose", "squat", "test", length=9)
    nan = video("nan")
    assert nan.keypoints is not None
    nan.keypoints[3] = np.nan
    with pytest.warns(Problem) as caught:
        found = embed_videos(encoder(), [bare, video("a"), nan], read=read_pose)
    assert [item.video.id for item in found] == ["a"]
    assert "no pose: cannot be embedded (ValueError: no pose has no keypoints" in str(caught[0].message)
    assert "not finite" in str(caught[1].message)
    with pytest.raises(ValueError, match=r"no video could be embedded \(no pose: ValueError"):
        embed_videos(encoder(), [bare], read=read_pose)


def test_one_process_writes_at_a_time_and_any_reads(tmp_path: Path) -> None:
    embed_videos(encoder(), [video("a")], read=read_pose, cache=tmp_path)
    with exclusive_lock(tmp_path / "embeddings" / fingerprint(encoder())):
        assert len(embed_videos(encoder(), [video("a")], read=read_pose, cache=tmp_path)) == 1
        with pytest.raises(StoreError, match="another process is filling"):
            embed_videos(encoder(), [video("b")], read=read_pose, cache=tmp_path)


def test_poses_of_unknown_rate_keep_the_context_in_frames() -> None:
    trained = encoder(rate=30)
    (item,) = embed_videos(trained, [video("a")], read=read_pose)
    assert item.context == trained.context
