"""A frame store survives whatever interrupts it, and is read without a codec."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inphase.media import frame_store as cache
from inphase.media.frame_store import FRAMES, FillSummary, FrameStore, Source, fill_store
from inphase.media.frames import read_clip
from inphase.media.recording import open_recording
from inphase.storage.cache import StoreFormat, read_index
from inphase.storage.errors import StoreError
from inphase.storage.files import DRAFT_SUFFIX, is_draft, write_blocks
from inphase.storage.processes import VideoLimits
from tests.media.recordings import numbers_of, write_images, write_video
from tests.processes import hang

pytestmark = pytest.mark.slow

SIZE = (48, 40)


@pytest.fixture
def films(tmp_path: Path) -> dict[str, Source]:
    folder = tmp_path / "films"
    folder.mkdir()
    return {f"film {i}": Source(write_video(folder / f"{i}.mp4", count=20 + i)) for i in range(4)}


def fill(store: Path, films: dict[str, Source], **settings: Any) -> tuple[FillSummary, list[tuple[str, str]]]:
    """Fill a store; return the summary and the outcomes by id."""
    steps: list[tuple[str, int, int]] = []
    filled = fill_store(store, films, size=SIZE, progress=lambda *step: steps.append(step), **settings)
    assert steps == [("decoding videos", i + 1, len(films)) for i in range(len(films))]
    return filled, sorted(filled.outcomes.items())


def run_python(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "error", "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_store_gives_the_frames_of_the_reader(tmp_path: Path, films: dict[str, Source], workers: int) -> None:
    filled, reported = fill(tmp_path / "store", films, workers=workers)
    assert filled == FillSummary(written=4, frames=86)
    assert reported == [(f"film {i}", "written") for i in range(4)]
    store = FrameStore(tmp_path / "store")
    assert sorted(store) == sorted(films)
    assert store.size == SIZE
    for id, source in films.items():
        truth = read_clip(source.path, size=SIZE)
        np.testing.assert_array_equal(store[id].frames, truth.frames)
        np.testing.assert_array_equal(store[id].times, truth.times)
        assert store.frames(id) == len(truth)
        np.testing.assert_array_equal(store[id].frames[[7, 3, 3]], truth.frames[[7, 3, 3]])
    assert store.verify() == []


def test_spans_rates_and_folders_are_cached_as_asked(tmp_path: Path) -> None:
    film = write_video(tmp_path / "film.mp4", count=40)
    frames = write_images(tmp_path / "frames", range(6))
    sources = {
        "spans": Source(film, spans=((1.0, 1.1), (0.0, 0.1))),
        "rate": Source(film, fps=10),
        "images": Source(frames, native_fps=20),
    }
    fill_store(tmp_path / "store", sources, size=SIZE)
    store = FrameStore(tmp_path / "store")
    assert numbers_of(store["spans"].frames) == [30, 31, 32, 0, 1, 2]
    assert numbers_of(store["rate"].frames) == list(range(0, 40, 3))
    assert numbers_of(store["images"].frames) == list(range(6))
    np.testing.assert_allclose(store["spans"].times, np.arange(6) / 30, atol=1e-9)


def test_reading_needs_no_codec(tmp_path: Path, films: dict[str, Source]) -> None:
    fill_store(tmp_path / "store", films, size=SIZE)
    code = """if True:
        import sys
        sys.modules["av"] = None  # importing it fails from here on
        import inphase.media
        from inphase.media.frame_store import FrameStore
        store = FrameStore(sys.argv[1])
        print(sum(int(clip.frames.sum()) for clip in store.values()), store.verify())
    """
    reader = run_python(code, tmp_path / "store")
    out, err = reader.communicate(timeout=60)
    total = sum(int(read_clip(source.path, size=SIZE).frames.sum()) for source in films.values())
    assert (out.strip(), err) == (f"{total} []", "")


FILLER = """if True:
    import sys
    from pathlib import Path
    from inphase.media.frame_store import Source, fill_store
    films = {f"film {i}": Source(Path(sys.argv[2]) / f"{i}.mp4") for i in range(4)}
    def wait(stage, done, total):
        print(done, flush=True)
        if done == 2:
            sys.stdin.read()
    fill_store(sys.argv[1], films, size=(48, 40), progress=wait)
"""


def test_two_processes_do_not_meet_and_a_killed_one_is_resumed(tmp_path: Path, films: dict[str, Source]) -> None:
    store = tmp_path / "store"
    command = [sys.executable, "-c", FILLER, str(store), str(tmp_path / "films")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as filler:
        assert filler.stdout is not None
        assert [filler.stdout.readline().strip() for _ in range(2)] == ["1", "2"]
        with pytest.raises(StoreError, match="another process is filling"):
            fill_store(store, films, size=SIZE)
        assert sorted(FrameStore(store)) == ["film 0", "film 1"], "what is written can be read while the rest is"
        filler.send_signal(signal.SIGKILL)
    filled, reported = fill(store, films)
    assert reported == [("film 0", "kept"), ("film 1", "kept"), ("film 2", "written"), ("film 3", "written")]
    assert (filled.kept, filled.written) == (2, 2)
    assert FrameStore(store).verify() == []


@pytest.mark.parametrize("torn", [1, 7, 40])
def test_what_is_half_written_does_not_exist(tmp_path: Path, films: dict[str, Source], torn: int) -> None:
    store = tmp_path / "store"
    fill_store(store, films, size=SIZE)
    lines = (store / "index.jsonl").read_bytes()
    (store / "index.jsonl").write_bytes(lines[:-torn])
    (store / f".begun{DRAFT_SUFFIX}").mkdir()
    whole = [id for id in films if id != "film 3"]
    assert sorted(FrameStore(store)) == whole
    filled, reported = fill(store, films)
    assert reported == [*((id, "kept") for id in whole), ("film 3", "written")]
    assert filled.written == 1
    assert FrameStore(store).verify() == []
    assert {file.suffix for file in store.iterdir()} == {"", ".jsonl", ".frames"}
    assert len(list(store.glob("*.frames"))) == 4


def test_a_store_without_its_first_line_starts_again(tmp_path: Path, films: dict[str, Source]) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "index.jsonl").write_bytes(b'{"format": "inph')
    with pytest.raises(StoreError, match="is empty"):
        FrameStore(tmp_path / "store")
    assert fill(tmp_path / "store", films)[0].written == 4


def test_a_spoilt_file_is_noticed_and_made_again(tmp_path: Path, films: dict[str, Source]) -> None:
    store = tmp_path / "store"
    fill_store(store, films, size=SIZE)
    entries = read_index(store, format=FRAMES)[1]
    short, changed = store / entries["film 0"].file, store / entries["film 1"].file
    os.truncate(short, short.stat().st_size - 1)
    data = bytearray(changed.read_bytes())
    data[1000] ^= 1
    changed.write_bytes(data)
    assert FrameStore(store).verify() == ["film 0", "film 1"]
    with pytest.raises(StoreError, match=r"\(film 0\) has changed since it was written"):
        FrameStore(store)["film 0"]
    assert ("film 0", "written") in fill(store, films)[1]
    assert FrameStore(store).verify() == ["film 1"]


def test_a_changed_video_is_noticed(tmp_path: Path, films: dict[str, Source]) -> None:
    store = tmp_path / "store"
    fill_store(store, films, size=SIZE)
    write_video(films["film 2"].path, count=33)
    films["film 3"] = Source(films["film 3"].path, fps=10)
    reported = fill(store, films)[1]
    assert reported == [("film 0", "kept"), ("film 1", "kept"), ("film 2", "written"), ("film 3", "written")]
    assert FrameStore(store).frames("film 2") == 33
    assert FrameStore(store).frames("film 3") == 8
    assert len(list(store.glob("*.frames"))) == 4, "the old frames are gone"


def test_a_broken_video_is_reported_once_and_tried_again_when_it_changes(
    tmp_path: Path, films: dict[str, Source]
) -> None:
    store, broken = tmp_path / "store", films["film 1"].path
    whole = broken.read_bytes()
    broken.write_bytes(b"rubbish" * 100)
    films["gone"] = Source(tmp_path / "gone.mp4")
    for attempt in range(2):
        filled, reported = fill(store, films)
        assert filled.written == (0 if attempt else 3)
        assert filled.kept == (3 if attempt else 0)
        assert sorted(filled.broken) == ["film 1", "gone"]
        assert "1.mp4 cannot be opened" in filled.broken["film 1"]
        assert "does not exist" in filled.broken["gone"]
        assert [outcome for _, outcome in reported].count("broken") == 2
    assert "film 1" not in FrameStore(store)
    assert sorted(FrameStore(store).broken) == ["film 1", "gone"]
    with pytest.raises(StoreError, match=r"film 1 is not in .* could not be decoded: .*cannot be opened"):
        FrameStore(store)["film 1"]
    broken.write_bytes(whole)
    films["gone"].path.write_bytes(whole)
    assert fill(store, films)[0].broken == {}
    assert len(FrameStore(store)) == 5


def test_a_damaged_video_is_cached_as_far_as_it_goes(tmp_path: Path) -> None:
    path = write_video(tmp_path / "film.mp4", count=60, faststart=True, options={"bf": "0"})
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 7 // 10])
    filled = fill_store(tmp_path / "store", {"film": Source(path)}, size=SIZE)
    store = FrameStore(tmp_path / "store")
    assert "are lost" in filled.damaged["film"] == store.damaged["film"]
    assert 0 < len(store["film"]) < 60


def test_a_full_disk_is_explained_and_spoils_nothing(tmp_path: Path, films: dict[str, Source]) -> None:
    films["long"] = Source(write_video(tmp_path / "films" / "long.mp4", count=200))
    code = """if True:
        import resource, sys
        from pathlib import Path
        from inphase.media.frame_store import Source, fill_store
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
        films = {f"film {i}": Source(Path(sys.argv[2]) / f"{i}.mp4") for i in range(4)}
        films = {"film 0": films["film 0"], "long": Source(Path(sys.argv[2]) / "long.mp4"), **films}
        fill_store(sys.argv[1], films, size=(48, 40))
    """
    filler = run_python(code, tmp_path / "store", tmp_path / "films")
    err = filler.communicate(timeout=60)[1]
    assert "StoreError" in err
    assert "keeps the files written so far, but the disk is full; make room" in err
    assert list(FrameStore(tmp_path / "store")) == ["film 0"]
    assert FrameStore(tmp_path / "store").verify() == []
    assert not [path for path in (tmp_path / "store").iterdir() if is_draft(path)]
    assert ("film 0", "kept") in fill(tmp_path / "store", films)[1]


def test_a_disk_that_fills_under_the_index_leaves_it_whole(
    tmp_path: Path, films: dict[str, Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    fill_store(store, {"film 0": films["film 0"]}, size=SIZE)
    before = (store / "index.jsonl").read_bytes()

    def refuse(descriptor: int) -> None:
        if os.path.samestat(os.fstat(descriptor), (store / "index.jsonl").stat()):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StoreError, match="the disk is full"):
        fill_store(store, films, size=SIZE)
    assert (store / "index.jsonl").read_bytes() == before


def test_an_error_of_the_caller_is_not_taken_for_one_of_the_disk(tmp_path: Path, films: dict[str, Source]) -> None:
    def closed(stage: str, done: int, total: int) -> None:
        raise BrokenPipeError(f"nobody listens to {stage}")

    with pytest.raises(BrokenPipeError, match="nobody listens"):
        fill_store(tmp_path / "store", films, size=SIZE, progress=closed)
    assert fill(tmp_path / "store", films)[0].kept == 1


def test_what_is_no_store_or_another_one_is_explained(tmp_path: Path, films: dict[str, Source]) -> None:
    with pytest.raises(StoreError, match="holds no store of frames"):
        FrameStore(tmp_path)
    fill_store(tmp_path / "store", films, size=SIZE)
    with pytest.raises(StoreError, match=r"filled with {'size': \[48, 40\]}, not .*9.*: use another folder"):
        fill_store(tmp_path / "store", films, size=(9, 9))
    with (tmp_path / "store" / "index.jsonl").open("ab") as file:
        file.write(b"{}\n")
    with pytest.raises(StoreError, match="damaged in line 6"):
        FrameStore(tmp_path / "store")
    (tmp_path / "store" / "index.jsonl").write_bytes(b'{"format": "inphase frames 9", "size": [1, 1]}\n')
    with pytest.raises(StoreError, match="inphase frames 9"):
        FrameStore(tmp_path / "store")
    with pytest.raises(ValueError, match=r"\(height, width\)"):
        fill_store(tmp_path / "other", films, size=(0, 9))


def test_a_file_that_may_be_read_later_is_tried_again(
    tmp_path: Path, films: dict[str, Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", path)

    with monkeypatch.context() as closed:
        closed.setattr(os, "access", lambda *_: False)
        closed.setattr("av.open", refuse)
        filled, _ = fill(tmp_path / "store", films)
    assert len(filled.broken) == 4
    assert "is not readable: change its permissions" in filled.broken["film 0"]
    assert fill(tmp_path / "store", films)[0] == FillSummary(written=4, frames=86)


def test_a_file_that_changes_while_it_is_read_is_not_kept(
    tmp_path: Path, films: dict[str, Source], monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = open_recording

    def disturbed(path: Path, **how: float | None) -> object:
        recording = decode(path, **how)
        if path.name == "2.mp4":
            path.write_bytes(path.read_bytes() + b"more")
        return recording

    monkeypatch.setattr(cache, "open_recording", disturbed)
    filled, _ = fill(tmp_path / "store", films)
    assert list(filled.broken) == ["film 2"]
    assert "changed while it was read: run this again" in filled.broken["film 2"]
    assert "film 2" not in FrameStore(tmp_path / "store")
    monkeypatch.undo()
    assert fill(tmp_path / "store", films)[0] == FillSummary(written=1, kept=3, frames=86)


def write_or_fail(source: Source, file: Path) -> tuple[int, str, str]:
    """Write a file of one byte, or fail in the way that the name of the source says."""
    match source.path.stem:
        case "hang":
            hang()
        case "crash":
            os.abort()
        case "memory":
            bytearray(2**31)
        case "bug":
            raise AttributeError("no such thing\nin two lines")
        case "network":
            raise OSError(errno.EIO, "Input/output error")
    return 1, write_blocks(file, [b"x"]), ""


def test_whatever_one_video_does_the_others_are_kept(tmp_path: Path) -> None:
    names = ["a", "hang", "b", "crash", "memory", "bug", "network", "c"]
    for name in names:
        (tmp_path / f"{name}.mp4").write_bytes(b"video")
    sources = {name: Source(tmp_path / f"{name}.mp4") for name in names}
    kind = StoreFormat("inphase frames 1", ".frames", 1, {})

    def run(names: list[str], **limits: float) -> FillSummary:
        return cache.fill(
            tmp_path / "store",
            {name: sources[name] for name in names},
            kind=kind,
            write=write_or_fail,
            workers=2,
            limits=VideoLimits(**{"seconds": 3.0, "memory": 0.5, **limits}),
            stage="",
            progress=None,
        )

    filled = run(names)
    assert (filled.written, sorted(filled.broken)) == (3, ["bug", "crash", "hang", "memory", "network"])
    assert re.search(r"hang\.mp4 took longer than 3 s: .* raise --video-seconds", filled.broken["hang"])
    assert re.search(
        r"memory\.mp4 needs more than 0\.5 GiB of memory: .* raise --video-memory", filled.broken["memory"]
    )
    assert re.search(r"crash\.mp4: reading it ended the process", filled.broken["crash"])
    assert re.search(r"bug\.mp4 cannot be read \(AttributeError: no such thing in two lines\)", filled.broken["bug"])
    assert re.search(r"network\.mp4 cannot be read: Input/output error", filled.broken["network"])
    assert not [path for path in (tmp_path / "store").iterdir() if is_draft(path)]
    # A failing network is tried again, a limit that was exceeded with another limit, the others when they change.
    before = (tmp_path / "store" / "index.jsonl").read_text().splitlines()
    again = run([name for name in names if name != "hang"], memory=0.6)
    added = (tmp_path / "store" / "index.jsonl").read_text().splitlines()[len(before) :]
    assert sorted(json.loads(line)["id"] for line in added) == ["memory", "network"]
    assert (again.kept, again.written, len(again.broken)) == (3, 0, 4)
