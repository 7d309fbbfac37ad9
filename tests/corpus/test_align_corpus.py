import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from inphase.align.matching import match
from inphase.corpus.align_corpus import align_action, align_corpus
from inphase.corpus.embedding_store import EmbeddingStore
from inphase.corpus.engines import Threads
from inphase.corpus.pairs import (
    PackedEmbeddings,
    Spread,
    blocks,
    cluster,
    median_distances,
    medoid,
    outlier_bound,
    pack,
)
from inphase.corpus.shards import ShardRow
from inphase.models import Embedding, save_encoder
from inphase.models.embedding import unit_rows
from inphase.models.joint_encoder import add_motion_energy
from inphase.models.motion_encoder import PooledFeatures
from tests.conftest import CUDA
from tests.corpus.made import made_store, row, walk


def varied(base: Embedding, rng: np.random.Generator, *, noise: float = 0.05) -> Embedding:
    """Make another performance: other speeds, a little noise."""
    frames = np.sort(rng.integers(0, len(base), rng.integers(20, 40)))
    values = base.values[frames] + rng.normal(0, noise, (len(frames), base.values.shape[1]))
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    return Embedding(values.astype(np.float32), np.arange(len(frames)) / 25)


@pytest.fixture
def rows() -> list[ShardRow]:
    """Nineteen performances of one thing, two of another under the same name, and two of something else."""
    rng = np.random.default_rng(0)
    base, other = walk(rng), walk(rng)
    squats = [row(f"squat/{n}", varied(base, rng)) for n in range(19)]
    wrong = [row(f"squat/wrong{n}", varied(other, rng)) for n in range(2)]
    bowls = [row(f"bowl/{n}", walk(rng), action="bowl") for n in range(2)]
    return [*squats, *wrong, *bowls]


@pytest.fixture
def folder(tmp_path: Path, rows: list[ShardRow]) -> Path:
    broken = row("squat/broken", None, reason="no images")
    return made_store(tmp_path / "s", {"1": rows[:10], "2": [broken, *rows[10:]]})


def test_blocks_hold_every_pair_once() -> None:
    for count in (1, 2, 7, 20):
        held = [pair for block in blocks(count, side=4) for pair in block.pairs()]
        assert sorted(held) == [(i, j) for i in range(count) for j in range(i + 1, count)]


def test_what_is_packed_comes_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    seen = [walk(rng, frames=n).values for n in (3, 5, 4)]
    pack(tmp_path / "p", [3, 5, 4], iter([(1, seen[1]), (0, seen[0]), (2, seen[2])]))
    packed = PackedEmbeddings(tmp_path / "p")
    for number, values in enumerate(seen):
        np.testing.assert_allclose(packed[number], values, atol=1e-3)
    with pytest.raises(IndexError, match="no video number 3"):
        packed[3]


def test_all_videos_of_an_action_are_compared(folder: Path, rows: list[ShardRow], tmp_path: Path) -> None:
    with EmbeddingStore(folder) as store:
        compared = align_action(store, "squat", tmp_path / "out", engine=Threads(workers=2, device="cpu"))
    names = [fact.id for fact in compared.videos]
    assert sorted(names) == sorted(each.id for each in rows if each.action == "squat")
    seen = {each.id: each.embedding for each in rows}
    distances = np.load(tmp_path / "out" / "distances.npy")
    np.testing.assert_array_equal(distances, distances.T)
    for i, j in [(0, 5), (3, 20), (11, 12)]:
        x, y = seen[names[i]], seen[names[j]]
        assert x is not None
        assert y is not None
        assert distances[i, j] == pytest.approx(match(x.values, y.values).distance, abs=2e-3)
    assert {fact.id for fact, _ in compared.misfits} == {"squat/wrong0", "squat/wrong1"}
    assert {fact.id for fact, _ in compared.far} == {"squat/wrong0", "squat/wrong1"}
    assert compared.reference.id == names[int(distances.sum(0).argmin())]
    wrong = [names.index("squat/wrong0"), names.index("squat/wrong1")]
    places = [list(compared.order).index(k) for k in wrong]
    assert abs(places[0] - places[1]) == 1
    assert compared.clusters[wrong[0]] == compared.clusters[wrong[1]]
    assert list(compared.clusters).count(compared.clusters[wrong[0]]) == 2
    assert compared.pairs == 21 * 20 // 2
    lines = (tmp_path / "out" / "videos.csv").read_text(encoding="utf-8").splitlines()
    assert [line.split(",")[0] for line in lines[1:]] == names
    assert sum(",no," in line for line in lines) == 2
    assert not list((tmp_path / "out").glob(".*"))


def test_untrained_image_features_are_compared_with_their_motion_energy(tmp_path: Path) -> None:
    encoder, rng = PooledFeatures(size=32, grid=2, weights=None).eval(), np.random.default_rng(1)
    width = encoder.routes[0].width

    def film(frames: int) -> Embedding:
        values = unit_rows(rng.normal(size=(frames, width)).cumsum(0).astype(np.float16).astype(np.float32))
        return Embedding(values, np.arange(frames) / 25, routes=encoder.routes)

    films = {f"squat/{frames}": film(frames) for frames in (20, 24, 28, 31)}
    folder = made_store(tmp_path / "s", {"1": [row(id, each) for id, each in films.items()]})
    with EmbeddingStore(folder) as store:
        file = store.encoder_file(store.model())
        file.parent.mkdir()
        save_encoder(file, encoder)
        found = align_action(store, "squat", tmp_path / "out", engine=Threads(workers=1, device="cpu"))
    distances, names = np.load(tmp_path / "out" / "distances.npy"), [video.id for video in found.videos]
    added = dict(zip(films, add_motion_energy(encoder, list(films.values())), strict=True))
    for i, j in [(0, 1), (1, 3)]:
        expected = match(added[names[i]], added[names[j]]).distance
        assert distances[i, j] == pytest.approx(expected, abs=2e-3)
        assert abs(match(films[names[i]], films[names[j]]).distance - expected) > 0.01
    table = pq.read_table(tmp_path / "out" / "alignments.parquet").to_pydict()
    for id, distance in zip(table["id"], table["distance"], strict=True):
        if id != found.reference.id:
            expected = match(added[found.reference.id], added[id]).distance
            assert distance == pytest.approx(expected, abs=2e-3)


def test_every_video_is_aligned_with_the_reference(
    folder: Path, rows: list[ShardRow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inphase.corpus.pairs.WINDOW_VIDEOS", 4)
    with EmbeddingStore(folder) as store:
        compared = align_action(
            store, "squat", tmp_path / "out", engine=Threads(workers=1, device="cpu"), reference="7", max_compared=5
        )
    assert compared.reference.id == "squat/7"
    assert (len(compared.videos), compared.total, compared.pairs) == (5, 21, 10)
    table = pq.read_table(tmp_path / "out" / "alignments.parquet")
    assert table.schema.metadata[b"reference"] == b"squat/7"
    found = {each["id"]: each for each in table.to_pylist()}
    assert len(found) == table.num_rows == 21
    seen = {each.id: each.embedding for each in rows}
    reference, other = seen["squat/7"], seen["squat/12"]
    assert reference is not None
    assert other is not None
    expected = match(reference.values, other.values)
    assert found["squat/12"]["distance"] == pytest.approx(expected.distance, abs=2e-3)
    np.testing.assert_allclose(found["squat/12"]["seconds"], expected.time_map(reference.times, other.times), atol=0.09)
    np.testing.assert_allclose(found["squat/7"]["seconds"], reference.times)
    assert {fact.id for fact, _ in compared.far} == {"squat/wrong0", "squat/wrong1"}


def test_a_reference_has_to_be_one_video(folder: Path, tmp_path: Path) -> None:
    engine = Threads(workers=1, device="cpu")
    with EmbeddingStore(folder) as store:
        with pytest.raises(ValueError, match="no video is called 'x' among those of 'squat'"):
            align_action(store, "squat", tmp_path / "out", engine=engine, reference="x", max_compared=2)
        with pytest.raises(ValueError, match="there are squat, bowl"):
            align_action(store, "swim", tmp_path / "out", engine=engine)


def test_nothing_stands_out_among_equals() -> None:
    rng = np.random.default_rng(0)
    points = rng.standard_normal((30, 3))
    distances = np.linalg.norm(points[:, None] - points[None], axis=2).astype(np.float32)
    scores = median_distances(distances)
    assert (scores > outlier_bound(scores)).sum() == 0
    assert medoid(distances) == int(distances.sum(0).argmin())
    assert outlier_bound(np.ones(3)) == float("inf")
    order, clusters = cluster(distances, apart=float("inf"))
    assert sorted(order) == list(range(30))
    assert set(clusters) == {0}
    assert [list(part) for part in cluster(np.zeros((1, 1), np.float32), apart=1.0)] == [[0], [0]]


@pytest.mark.skipif(find_spec("matplotlib") is None, reason="matplotlib is not installed")
def test_the_page_names_what_does_not_fit(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.commands import type_command as run

    out = tmp_path / "page"
    assert run(monkeypatch, "align-all", str(folder), "--out", str(out), "--device", "cpu") == 0
    printed = capsys.readouterr().out
    assert "pairs/s" in printed
    assert "2 do not fit: squat/wrong" in printed
    overview = (out / "report.html").read_text(encoding="utf-8")
    assert '<a href="squat/report.html">squat</a>' in overview
    assert "squat/wrong1" in overview
    page = (out / "squat" / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 1
    assert "squat/wrong1" in page
    assert "pairs per second" in page
    assert (out / "bowl" / "distances.npy").exists()
    assert "none, with so few videos" in (out / "bowl" / "report.html").read_text(encoding="utf-8")
    # One action alone needs no overview.
    assert run(monkeypatch, "align-all", str(folder), "--action", "squat", "--out", str(tmp_path / "one")) == 0
    page = (tmp_path / "one" / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 1
    assert "squat/wrong1" in page


def test_a_store_is_aligned_by_one_call(folder: Path, tmp_path: Path) -> None:
    stages: set[str] = set()
    out = tmp_path / "out"
    aligned = align_corpus(folder, out, device="cpu", progress=lambda stage, *_: stages.add(stage))
    assert [each.action for each in aligned.actions] == ["squat", "bowl"]
    squat, bowl = aligned.actions
    assert {id for id, _, _ in squat.worst} == {"squat/wrong0", "squat/wrong1"}
    assert (squat.misfits, squat.pairs, squat.videos, bowl.bound) == (2, 210, 21, None)
    assert "squat: comparing pairs" in stages
    assert "bowl: aligning with the reference" in stages
    found = json.loads(json.dumps(aligned.to_dict(), allow_nan=False))
    assert found["actions"][0]["reference"] == squat.reference
    assert found["actions"][0]["worst"][0]["path"].startswith("/nowhere/squat/wrong")
    # The overview links to the pages from wherever it is written.
    aligned.write(tmp_path / "elsewhere" / "page")
    page = (tmp_path / "elsewhere" / "page" / "report.html").read_text(encoding="utf-8")
    assert 'href="../../out/squat/report.html"' in page


@pytest.mark.parametrize("device", [CUDA])
def test_an_action_is_aligned_on_a_gpu_as_on_cores(folder: Path, tmp_path: Path, device: str) -> None:
    with EmbeddingStore(folder) as store:
        here = align_action(store, "squat", tmp_path / "here", engine=Threads(workers=2, device="cpu"))
        there = align_action(store, "squat", tmp_path / "there", engine=Threads(workers=2, device=device))
    assert [fact.id for fact in there.videos] == [fact.id for fact in here.videos]
    np.testing.assert_allclose(there.distances, here.distances, atol=1e-4)
    assert there.reference == here.reference
    assert [fact.id for fact, _ in there.misfits] == [fact.id for fact, _ in here.misfits]
    one, other = (pq.read_table(tmp_path / name / "alignments.parquet").to_pylist() for name in ("here", "there"))
    for each, same in zip(one, other, strict=True):
        assert same["id"] == each["id"]
        assert same["distance"] == pytest.approx(each["distance"], abs=1e-4)
        assert np.mean(np.abs(np.subtract(same["seconds"], each["seconds"]))) < 0.02


def test_the_bound_of_many_distances_is_that_of_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inphase.corpus.pairs.MAX_DISTANCES", 1000)
    distances = np.random.default_rng(0).gamma(9, 0.02, 50_000).astype(np.float32)
    spread = Spread()
    for part in np.split(distances, np.cumsum(np.random.default_rng(1).integers(1, 300, 300))):
        spread.add(part)
    assert spread.total == len(distances)
    assert 500 <= len(spread.kept) <= 1000
    np.testing.assert_array_equal(spread.kept, distances[:: spread.every])
    assert spread.bound() == pytest.approx(outlier_bound(distances.astype(np.float64)), rel=0.05)


def test_the_template_of_an_action_is_its_average(folder: Path, tmp_path: Path) -> None:
    with EmbeddingStore(folder) as store:
        compared = align_action(store, "squat", tmp_path / "out", engine=Threads(workers=1, device="cpu"))
        (row,) = store.read([compared.reference])
    assert row.embedding is not None
    with np.load(tmp_path / "out" / "template.npz") as template:
        assert template["values"].shape == row.embedding.values.shape
        assert (np.diff(template["seconds"]) >= 0).all()
        assert np.abs(template["seconds"][-1] - row.embedding.times[-1]) < 2
        average = template["values"]
    others = [video for video in compared.videos if not video.id.startswith("squat/wrong")]
    with EmbeddingStore(folder) as store:
        others = sorted(others, key=lambda video: (video.shard, video.row))
        read = [found.embedding.values for found in store.read(others) if found.embedding is not None]
    nearer = [match(average, each).distance < match(row.embedding.values, each).distance for each in read]
    assert np.mean(nearer) > 0.5
