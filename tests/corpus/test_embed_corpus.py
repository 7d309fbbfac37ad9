import errno
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from inphase.corpus import embed_corpus as embed_corpus_module
from inphase.corpus.embed_corpus import EmbeddedCorpus, EmbedJob, EmbedJobResult, embed_corpus
from inphase.corpus.embedding_store import EmbeddingStore
from inphase.corpus.engines import Processes
from inphase.models import Embedding, load_encoder
from inphase.models.embed_videos import embed_video
from inphase.storage.cache import content_hash
from inphase.storage.errors import StoreError
from inphase.storage.files import DRAFT_SUFFIX, exclusive_lock, is_draft
from inphase.storage.processes import FATAL, VideoLimits
from tests.apps.test_retrieve_sound import ears
from tests.commands import type_command as run
from tests.corpus.made import small_corpus, small_encoder
from tests.media.recordings import write_video
from tests.processes import hang, kill_group, start_command

pytestmark = pytest.mark.slow


def embed(place: Path, *, model: str = "model.safetensors", videos: int = 2) -> EmbeddedCorpus:
    return embed_corpus(place / "gym", place / "store", model=place / model, workers=0, shard_videos=videos)


def shards(place: Path) -> list[str]:
    return sorted(path.name for path in (place / "store" / "shards").glob("*.parquet"))


def contents(store: Path) -> dict[str, tuple[int, str]]:
    with EmbeddingStore(store) as opened:
        found = list(opened.catalog.current(embedded=False))
        assert len({fact.id for fact in found}) == len(found)
        return {fact.id: (fact.frames, fact.reason) for fact in found}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    small_encoder(tmp_path / "model.safetensors")
    small_corpus(tmp_path / "gym", actions={"vault": 3, "beam": 2})
    return tmp_path


def test_a_corpus_becomes_a_store(place: Path) -> None:
    (place / "gym" / "beam" / "broken.mp4").write_bytes(b"no video at all")
    reported: list[tuple[str, int, int]] = []
    result = embed_corpus(
        place / "gym",
        place / "store",
        model=place / "model.safetensors",
        workers=0,
        shard_videos=2,
        progress=lambda *now: reported.append(now),
    )
    assert (result.new, result.done, result.failed, result.kept) == (6, 6, 1, 0)
    assert reported == [("embedding gym", done, 6) for done in (2, 4, 6)]
    assert list(result.broken) == ["gym/beam/broken.mp4"]
    counts, broken = result.write(place / "counts")
    assert json.loads(counts.read_text(encoding="utf-8")) == result.to_dict()
    assert result.to_dict()["frames"] == 12 + 13 + 14 + 12 + 13
    assert "gym/beam/broken.mp4" in broken.read_text(encoding="utf-8")
    found = contents(place / "store")
    assert {id: frames for id, (frames, _) in found.items()} == {
        "gym/vault/00.mp4": 12,
        "gym/vault/01.mp4": 13,
        "gym/vault/02.mp4": 14,
        "gym/beam/00.mp4": 12,
        "gym/beam/01.mp4": 13,
        "gym/beam/broken.mp4": 0,
    }
    assert "broken.mp4" in found["gym/beam/broken.mp4"][1]
    with EmbeddingStore(place / "store") as store:
        fact = store.catalog.find("gym/vault/01.mp4")
        assert fact is not None
        assert (fact.action, fact.path) == ("vault", str(place / "gym/vault/01.mp4"))
        (row,) = store.read([fact])
        encoder = load_encoder(store.encoder_file(store.model()))
    assert row.embedding is not None
    seen = embed_video(encoder, fact.path)
    np.testing.assert_allclose(row.embedding.values, seen.values, atol=1e-3)
    np.testing.assert_array_equal(row.embedding.times, seen.times)


def test_only_what_is_missing_or_changed_is_done(place: Path) -> None:
    (place / "gym" / "beam" / "broken.mp4").write_bytes(b"no video at all")
    embed(place)
    before = shards(place)
    result = embed(place)
    assert (result.done, result.kept) == (0, 6)
    assert shards(place) == before
    # The same bytes at another time are the same video; other bytes are not, nor is a mended file.
    os.utime(place / "gym" / "vault" / "00.mp4", (1, 1))
    write_video(place / "gym" / "vault" / "01.mp4", count=20)
    write_video(place / "gym" / "beam" / "broken.mp4", count=7)
    write_video(place / "gym" / "beam" / "new.mp4", count=8)
    result = embed(place)
    assert (result.kept, result.changed, result.new, result.done, result.failed) == (4, 2, 1, 3, 0)
    found = contents(place / "store")
    assert found["gym/vault/01.mp4"][0] == 20
    assert found["gym/beam/broken.mp4"] == (7, "")
    assert (embed(place).kept, len(found)) == (7, 7)


def test_contents_that_were_compared_once_are_not_hashed_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embed(place)
    os.utime(place / "gym" / "vault" / "00.mp4", (1, 1))
    assert embed(place).kept == 5
    monkeypatch.setattr("inphase.corpus.embed_corpus.content_hash", lambda path: pytest.fail(f"{path} was hashed"))
    assert embed(place).kept == 5


def test_a_changed_model_is_noticed(place: Path) -> None:
    embed(place)
    small_encoder(place / "other.safetensors", seed=1)
    result = embed(place, model="other.safetensors")
    assert (result.kept, result.changed, result.done) == (0, 5, 5)
    with EmbeddingStore(place / "store") as store:
        store.model()  # one alone: what the other made is gone
        assert store.catalog.totals()[0] == 5
    # Fewer frames per second are another model.
    result = embed_corpus(place / "gym", place / "store", model=place / "other.safetensors", workers=0, fps=10.0)
    assert result.changed == 5
    assert contents(place / "store")["gym/vault/00.mp4"][0] < 12


def test_a_clock_that_steps_back_keeps_the_newest_embedding(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embed(place)
    hour = 3600 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: 1_000 * hour)
    write_video(place / "gym" / "vault" / "00.mp4", count=20)
    assert embed(place).changed == 1
    assert contents(place / "store")["gym/vault/00.mp4"] == (20, "")
    again = embed(place)
    assert (again.changed, again.kept) == (0, 5)


def test_an_embedding_that_is_not_finite_is_recorded_and_not_stored(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def embed_with_nan(encoder: Any, path: Path, **options: Any) -> Embedding:
        found = embed_video(encoder, path, **options)
        values = found.values.copy()
        values[2] = np.nan if path.parts[-2:] == ("beam", "00.mp4") else values[2]
        return Embedding(values, found.times)

    monkeypatch.setattr(embed_corpus_module, "embed_video", embed_with_nan)
    result = embed(place)
    assert (result.done, result.failed) == (5, 1)
    assert "beam/00.mp4 has an embedding that is not finite" in result.broken["gym/beam/00.mp4"]


def test_an_interruption_loses_one_shard_at_most(place: Path) -> None:
    class Stopping:
        def map(self, start: Callable[[str], Callable[[Any], Any]], items: Iterable[Any]) -> Iterator[Any]:
            for number, done in enumerate(Processes(workers=0).map(start, items)):
                yield done
                if number == 1:
                    raise KeyboardInterrupt

    model = place / "model.safetensors"
    with pytest.raises(KeyboardInterrupt):
        embed_corpus(place / "gym", place / "store", model=model, engine=Stopping(), shard_videos=1)
    result = embed(place)
    assert (result.kept, result.new, result.done) == (2, 3, 3)
    assert len(contents(place / "store")) == 5


def test_two_corpora_share_a_store_and_one_corpus_has_one_writer(place: Path, tmp_path: Path) -> None:
    assert embed(place).broken == {}
    small_corpus(tmp_path / "golf", actions={"swing": 1})
    encoder = load_encoder(place / "model.safetensors")
    assert embed_corpus(tmp_path / "golf", place / "store", model=encoder, workers=0).broken == {}
    assert len(contents(place / "store")) == 6
    writers = list((place / "store" / "writers").iterdir())
    with (
        exclusive_lock(writers[0]),
        exclusive_lock(writers[1]),
        pytest.raises(StoreError, match=r"embedding .*gym into"),
    ):
        embed(place)
    # Another folder of the same name would silently stand for this one.
    shutil.copytree(tmp_path / "golf", tmp_path / "elsewhere" / "golf")  # an encoder may write other bytes each time
    with pytest.raises(ValueError, match=r"golf/swing/00\.mp4 already names .*, and now "):
        embed_corpus(tmp_path / "elsewhere" / "golf", place / "store", model=encoder, workers=0)
    # Where it was moved, it is the same.
    assert content_hash(tmp_path / "golf/swing/00.mp4") == content_hash(tmp_path / "elsewhere/golf/swing/00.mp4")
    shutil.rmtree(tmp_path / "golf")
    assert embed_corpus(tmp_path / "elsewhere" / "golf", place / "store", model=encoder, workers=0).done == 0


def test_a_store_is_read_while_it_is_filled(place: Path) -> None:
    """Another process finds what is there so far, and neither waits for the other."""
    found: list[int] = []

    class Meanwhile:
        def map(self, start: Callable[[str], Callable[[Any], Any]], items: Iterable[Any]) -> Iterator[Any]:
            for done in Processes(workers=0).map(start, items):
                with EmbeddingStore(place / "store") as other:  # enters the new shard into the catalog
                    found.append(other.catalog.totals()[0])
                yield done

    model = place / "model.safetensors"
    result = embed_corpus(place / "gym", place / "store", model=model, engine=Meanwhile(), shard_videos=2)
    assert (result.done, found) == (5, [2, 4, 5])


def test_a_disk_that_fails_is_no_fault_of_the_video(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> str:
        if path.name == "01.mp4":
            raise OSError(errno.EIO, "Input/output error")
        return content_hash(path)

    with monkeypatch.context() as patch:
        patch.setattr("inphase.corpus.embed_corpus.content_hash", fail)
        result = embed(place)
    assert (result.done, result.failed) == (5, 2)
    assert result.broken["gym/vault/01.mp4"] == f"{place / 'gym/vault/01.mp4'} cannot be read: Input/output error"
    assert contents(place / "store")["gym/vault/01.mp4"] == (0, result.broken["gym/vault/01.mp4"])
    # The file has not changed, and is tried again.
    result = embed(place)
    assert (result.kept, result.done, result.failed) == (3, 2, 0)


def test_a_store_whose_making_was_interrupted_is_a_store(place: Path) -> None:
    (place / "store").mkdir()
    (place / "store" / f".store.json{DRAFT_SUFFIX}").mkdir()
    assert embed(place).done == 5


def test_a_video_named_twice_is_embedded_once(place: Path) -> None:
    table = place / "twice.csv"
    table.write_text("path,action\n" + "gym/vault/00.mp4,vault\n" * 3)
    encoder = load_encoder(place / "model.safetensors")
    assert embed_corpus(table, place / "store", model=encoder, workers=0, shard_videos=1).done == 1


def test_an_encoder_of_another_modality_is_refused_before_anything_is_written(place: Path) -> None:
    with pytest.raises(ValueError, match="embeds sound"):
        embed_corpus(place / "gym", place / "store", model=ears(), workers=0)
    assert not (place / "store").exists()


def test_a_killed_command_goes_on(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGKILL takes the command and its processes at once, as a power cut does."""
    words = ["embed", str(place / "gym"), "--model", str(place / "model.safetensors"), "--out", str(place / "store")]
    words += ["--workers", "1", "--shard-videos", "1", "--device", "cpu"]
    process = start_command(*words, environment={"OMP_NUM_THREADS": "1"}, log=tmp_path / "log")
    while process.is_alive() and not shards(place):
        time.sleep(0.005)
    kill_group(process)
    done = len(contents(place / "store"))
    assert 1 <= done <= 5
    assert run(monkeypatch, *words[:-4], "--shard-videos", "1", "--workers", "0") == 0
    printed = capsys.readouterr().out
    assert f"{5 - done} videos embedded" in printed
    assert f"{done} kept" in printed
    assert len(contents(place / "store")) == 5
    assert not [path for path in (place / "store" / "shards").iterdir() if is_draft(path)]


class FaultyCodec:
    """Processes that end at one video, as by a fault in a codec."""

    def __init__(self, id: str) -> None:
        self.id = id

    def map(self, start: Callable[[str], Callable[[Any], Any]], items: Iterable[Any]) -> Iterator[Any]:
        return Processes(workers=1, device="cpu").map(partial(start_faulty, start, self.id), items)


def start_faulty(
    start: Callable[[str], Callable[[Any], Any]], id: str, device: str
) -> Callable[[EmbedJob], EmbedJobResult]:
    work: Callable[[EmbedJob], EmbedJobResult] = start(device)

    def run(job: EmbedJob) -> EmbedJobResult:
        if any(video.id == id for video in job.videos):
            os._exit(11)
        return work(job)

    return run


def test_a_video_that_ends_its_process_is_found_and_the_others_are_kept(place: Path) -> None:
    engine = FaultyCodec("gym/vault/01.mp4")
    model = place / "model.safetensors"
    result = embed_corpus(place / "gym", place / "store", model=model, engine=engine, shard_videos=3)
    assert (result.done, result.failed, result.broken) == (5, 1, {"gym/vault/01.mp4": FATAL})
    assert contents(place / "store") == {
        "gym/vault/00.mp4": (12, ""),
        "gym/vault/01.mp4": (0, FATAL),
        "gym/vault/02.mp4": (14, ""),
        "gym/beam/00.mp4": (12, ""),
        "gym/beam/01.mp4": (13, ""),
    }
    # It is not tried again until its file changes.
    assert embed_corpus(place / "gym", place / "store", model=model, workers=0).kept == 5


def hang_at(path: str, start: Callable[[str], Callable[[EmbedJob], EmbedJobResult]], device: str) -> Any:
    """Let embedding take for ever at one video, in this worker."""
    work, module = cast("Any", start(device)), cast("Any", embed_corpus_module)
    # The first video of a worker also waits for imports, which take many seconds on a busy machine.
    embed_video(work.args[1], Path(path).with_name("00.mp4"))

    def embed_or_hang(encoder: Any, file: Path, **rest: Any) -> Any:
        if file.name == "00.mp4" and "vault" in str(file):
            raise AttributeError("a bug")
        if str(file) == path:
            hang()
        return embed_video(encoder, file, **rest)

    module.embed_video = embed_or_hang
    return work


class HangingCodec:
    """The processes of the package, with a codec that never returns from one video."""

    def __init__(self, path: str) -> None:
        self.path = path

    def map(self, start: Any, items: Iterable[Any]) -> Iterator[Any]:
        return Processes(workers=1).map(partial(hang_at, self.path, start), items)


def test_a_video_that_takes_too_long_is_recorded_and_the_others_are_kept(place: Path, tmp_path: Path) -> None:
    given: Any = {"model": place / "model.safetensors", "shard_videos": 3, "cache": tmp_path / "cache"}
    engine, limits = HangingCodec(str(place / "gym/beam/01.mp4")), VideoLimits(seconds=5)
    result = embed_corpus(place / "gym", place / "store", engine=engine, limits=limits, **given)
    assert (result.done, result.failed) == (5, 2)
    assert "took longer than 5 s" in result.broken["gym/beam/01.mp4"]
    assert "00.mp4 cannot be read (AttributeError: a bug)" in result.broken["gym/vault/00.mp4"]
    assert {frames for frames, reason in contents(place / "store").values() if not reason} == {12, 13, 14}
    assert not [path for path in (place / "store" / "writers").rglob("*") if path.name != "lock" and path.is_file()]
    again = embed_corpus(place / "gym", place / "store", engine=engine, limits=limits, **given)
    assert (again.kept, again.done) == (5, 0)
    other = embed_corpus(place / "gym", place / "store", workers=0, limits=VideoLimits(seconds=4), **given)
    assert (other.changed, other.failed) == (1, 0)
