"""Verify stores, caches and run folders: read every file again and name each that changed since it was written.

Files carry their checksums (`inphase.storage.files`), lines of an index and pages of a shard have one each. Derived
files, such as the catalog of a store and the encoders of a run, are compared with their sources.
"""

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from inphase.corpus.embed_corpus import model_name
from inphase.corpus.embedding_store import MARK
from inphase.corpus.shards import SUFFIX, read_facts
from inphase.media.frame_store import FRAMES, frame_format
from inphase.models.weights import (
    ENCODER_FILE,
    STATE_FILE,
    STATE_KEY,
    describe_state_encoders,
    load_encoder,
    read_description,
)
from inphase.pose.pose_store import POSES, frame_dtype
from inphase.progress import Progress, Summary, stage_progress
from inphase.runs import Run, hash_beginning
from inphase.storage.cache import INDEX, Entry, is_complete, parse_index_line, read_arrays
from inphase.storage.errors import MediaError, MissingExtraError, import_extra
from inphase.storage.files import SHA256SUMS, atomic_write, find_changed, is_draft, verify_checksum
from inphase.storage.settings import parse_json

# A file and the function that returns what is wrong with it: empty if it is as it was written, None without a checksum.
Check = tuple[Path, Callable[[], str | None]]
# Files that hold nothing: locks, and what SQLite writes beside its database.
EMPTY = ("lock", ".lock", "-journal", "-wal", "-shm")
CHANGED = "it changed since it was written"


@dataclass(frozen=True)
class VerifiedStore:
    """The result of verifying a folder: `damaged` maps files, relative to it, to what is wrong and what to do.

    `kind` is "embeddings", "run", "frames", "poses", "frames and poses" or "cache". `unchecked` lists files that have
    no checksum.
    """

    folder: Path
    kind: str
    files: int
    bytes: int
    seconds: float
    damaged: dict[str, str] = field(default_factory=dict)
    unchecked: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Return whether nothing is damaged."""
        return not self.damaged

    def summary(self) -> Summary:
        """Return the counts, and a warning for every damaged file."""
        size = f"{self.files:,} files, {self.bytes / 1e6:,.1f} MB, {self.seconds:.1f} s"
        verdict = "all as they were written" if self.whole else f"{len(self.damaged):,} damaged"
        without = f"; {len(self.unchecked):,} without a checksum" if self.unchecked else ""
        warnings = [f"{self.folder / name}: {reason}" for name, reason in self.damaged.items()]
        return Summary([f"{self.folder} ({self.kind}): {size}, {verdict}{without}"], warnings)

    def write(self, folder: Path | str, *, progress: Progress | None = None) -> list[Path]:
        """Write verified.json."""
        file = Path(folder) / "verified.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as part:
            part.write_text(json.dumps(self.to_dict(), indent=1, ensure_ascii=False), encoding="utf-8")
        return [file]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON-ready values."""
        return {**asdict(self), "folder": str(self.folder), "unchecked": list(self.unchecked), "whole": self.whole}


def verify_store(folder: Path | str, *, progress: Progress | None = None) -> VerifiedStore:
    """Verify all files of a store of frames, poses or embeddings, of a run folder, or of a cache. Nothing is changed.

    Every file is read once. A process that writes into the folder meanwhile may cause false alarms.
    """
    folder, began = Path(folder), time.perf_counter()
    kind, checks = find_checks(folder)
    report = stage_progress(progress, f"verifying {folder.name}")
    damaged, unchecked, size = dict[str, str](), list[str](), 0
    for number, (file, check) in enumerate(checks, start=1):
        name = os.path.relpath(file, folder)
        try:
            size += file.stat().st_size if file.is_file() else 0
            wrong = check()
        except OSError as error:
            wrong = f"it cannot be read ({error.strerror or error}): check the disk and the permissions"
        if wrong is None:
            unchecked.append(name)
        elif wrong:
            damaged[name] = wrong
        report(number, len(checks))
    return VerifiedStore(
        folder, kind, len(checks), size, time.perf_counter() - began, damaged, tuple(dict.fromkeys(unchecked))
    )


def find_checks(folder: Path) -> tuple[str, list[Check]]:
    """Determine the kind of a folder, and list the checks of its files."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder: name a store, a run folder or a cache")
    if (folder / "store.json").exists() or (folder / "shards").is_dir():
        return "embeddings", list(_checks_of_embeddings(folder))
    if (folder / "recipe.toml").exists() or (folder / STATE_FILE).exists() or (folder / ENCODER_FILE).exists():
        return "run", list(_checks_of_run(Run(folder)))
    stores = [place for place in (folder, folder / "poses") if (place / INDEX).exists()]
    if stores:
        kind = " and ".join("poses" if place.name == "poses" else "frames" for place in stores)
        return kind, [check for place in stores for check in _checks_of_arrays(place)]
    cached = sorted(folder.glob("*.npz"))
    if cached:
        return "cache", [(file, partial(_check_arrays, file)) for file in cached]
    raise ValueError(f"{folder} holds no store, no run and no cache: name the folder that a command wrote")


def _checks_of_arrays(folder: Path) -> Iterator[Check]:
    """Check the lines of an index, and the file of each line that counts."""
    yield folder / INDEX, partial(_check_index, folder)
    records = _readable_lines(folder)
    header = records.pop(0) if records and "format" in records[0] else {}
    frame_bytes = 0
    if "size" in header:
        frame_bytes = frame_format(tuple(header["size"])).frame_bytes
    elif "joints" in header:
        frame_bytes = frame_dtype(len(header["joints"])).itemsize
    entries = {record["id"]: Entry(**record) for record in records}
    for entry in entries.values():
        if not entry.broken:
            yield folder / entry.file, partial(_check_entry, folder, entry, frame_bytes)


def _readable_lines(folder: Path) -> list[dict[str, Any]]:
    found = []
    for line in (folder / INDEX).read_bytes().split(b"\n"):
        try:
            record = parse_index_line(line)
            Entry(**record) if "id" in record else None
            found.append(record)
        except (ValueError, TypeError, AttributeError):
            continue
    return found


def _check_index(folder: Path) -> str:
    lines = (folder / INDEX).read_bytes().split(b"\n")
    fix = "run the command that filled it again, into a new folder"
    for number, line in enumerate(lines[:-1], start=1):
        try:
            record = parse_index_line(line, strict=True)
            if number == 1 and record.get("format") not in (FRAMES, POSES):
                return f"it is not an index of this version: {fix}"
        except (ValueError, TypeError, AttributeError) as error:
            return f"line {number} is damaged ({error}): {fix}"
    return f"its last line is unfinished: {fix}, or into this one, which adds that recording again" if lines[-1] else ""


def _check_entry(folder: Path, entry: Entry, frame_bytes: int) -> str:
    file = folder / entry.file
    fix = "remove it and run the command that filled the store again"
    if not is_complete(folder, entry, frame_bytes=frame_bytes):
        return f"{CHANGED}, or it is missing ({entry.id}): {fix}"
    with file.open("rb") as opened:
        same = hashlib.file_digest(opened, hashlib.blake2b).hexdigest() == entry.digest
    return "" if same else f"{CHANGED} ({entry.id}): {fix}"


def _check_arrays(file: Path) -> str:
    try:
        read_arrays(file)
    except MediaError:
        return f"{CHANGED}: remove it, and it is computed again"
    return ""


def _check_sum(file: Path, *, fix: str) -> str | None:
    found = verify_checksum(file)
    return None if found is None else "" if found else f"{CHANGED}: {fix}"


def _must_match(file: Path, *, fix: str) -> str:
    """Check a file that must have a checksum; a missing one is damage."""
    found = _check_sum(file, fix=fix)
    return f"it has no checksum: {fix}" if found is None else found


def _checks_of_embeddings(folder: Path) -> Iterator[Check]:
    yield folder / "store.json", partial(_check_mark, folder / "store.json")
    for file in sorted((folder / "shards").glob(f"[!.]*{SUFFIX}")):
        yield file, partial(_must_match, file, fix="remove it and run `inphase embed` again")
    for file in sorted((folder / "models").glob("*.safetensors")):
        yield file, partial(_check_model, file)
    if (folder / "catalog.sqlite").exists():
        yield folder / "catalog.sqlite", partial(_check_catalog, folder)
    for file in sorted((folder / "index").glob("*")):
        if not is_draft(file) and not file.name.endswith(EMPTY):
            yield file, partial(_must_match, file, fix=f"remove {folder / 'index'}, and it is built again")


def _check_mark(file: Path) -> str:
    fix = f"write {json.dumps(MARK)} into it"
    try:
        return "" if parse_json(file.read_bytes()) == MARK else f"{CHANGED}: {fix}"
    except (OSError, ValueError):
        return f"{CHANGED}, or it is missing: {fix}"


def _check_model(file: Path) -> str:
    """Check an encoder, and the file of its fps: both together give its name."""
    fix = "remove it and run `inphase embed` again"
    if wrong := _must_match(file, fix=fix):
        return wrong
    try:
        fps = parse_json(file.with_suffix(".json").read_bytes())
        same = model_name(load_encoder(file), fps) == file.stem
    except (OSError, ValueError, TypeError):
        same = False
    return "" if same else f"it, or {file.stem}.json beside it, does not match its name: {fix}"


def _check_catalog(folder: Path) -> str:
    """Compare the catalog with the shards that it was made from."""
    file, fix = folder / "catalog.sqlite", "remove it, and it is made again from the shards"
    query = "SELECT * FROM videos WHERE shard = ? ORDER BY row"
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as opened:
            opened.row_factory = sqlite3.Row
            if opened.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
                return f"{CHANGED}: {fix}"
            listed = {str(name) for (name,) in opened.execute("SELECT name FROM shards")}
            listed |= {str(name) for (name,) in opened.execute("SELECT DISTINCT shard FROM videos")}
            for shard in sorted(listed):
                place = folder / "shards" / (shard + SUFFIX)
                if not place.exists() or verify_checksum(place) is not True:
                    continue  # replaced since, or named as damaged itself
                rows = {row["id"]: dict(row) for row in opened.execute(query, [shard])}
                facts = {
                    fact["id"]: {**fact, "row": number, "shard": shard} for number, fact in enumerate(read_facts(place))
                }
                if rows != facts:
                    return f"it does not agree with {place.name}: {fix}"
    except (sqlite3.Error, MediaError, UnicodeError, ValueError) as error:
        return f"it cannot be read ({error}): {fix}"
    return ""


def _checks_of_run(run: Run) -> Iterator[Check]:
    again = "restore it, or train again into another folder"
    if run.recipe_file.exists():
        yield run.recipe_file, partial(_must_match, run.recipe_file, fix=again)
    if run.state.exists():
        yield run.state, partial(_must_match, run.state, fix="remove it to start over, or restore it")
    for name in dict.fromkeys([ENCODER_FILE, *describe_state_encoders(run.state)]):
        if (run.folder / name).exists() or name in describe_state_encoders(run.state):
            yield run.folder / name, partial(_check_encoder, run, name)
    if run.metrics.exists():
        yield run.metrics, partial(_check_metrics, run)
    for file in sorted(run.tensorboard.rglob("*tfevents*")):
        yield file, partial(_check_events, file)
    for place in (run.store, run.store / "poses"):
        if (place / INDEX).exists():
            yield from _checks_of_arrays(place)
    remove = "remove it, and it is computed again"
    for file in sorted([*run.features.glob("*.npy"), *run.embeddings.rglob("*.safetensors")]):
        yield file, partial(_must_match, file, fix=remove)
    yield from _checks_of_report(run)
    for file in sorted(run.folder.glob("*.json")):
        yield file, lambda: None


def _checks_of_report(run: Run) -> Iterator[Check]:
    """Check the report of the last evaluation, where the process that wrote it reached its end."""
    files = sorted(file for file in run.evaluation.rglob("*") if file.is_file() and not is_draft(file.parent))
    sums = run.evaluation / SHA256SUMS
    changed = find_changed(run.evaluation) if sums.exists() else {}
    fix = f"run `inphase evaluate {run.folder}` again"
    for name in sorted(set(changed) - {str(file.relative_to(run.evaluation)) for file in files}):
        yield sums, lambda name=name: f"it names {name!r}, which is not there: {fix}"  # type: ignore[misc]
    for file in files:
        wrong = changed.get(str(file.relative_to(run.evaluation)))
        message = (
            None if wrong is None and file != sums else f"{CHANGED}, or its line in {sums.name}: {fix}" if wrong else ""
        )
        yield file, lambda message=message: message  # type: ignore[misc]


def _check_encoder(run: Run, name: str) -> str | None:
    file, fix = run.folder / name, "run the command that trained it again, which rebuilds it from state.safetensors"
    expected = describe_state_encoders(run.state).get(name)
    if not file.exists():
        return f"it is missing: {fix}"
    wrong = _check_sum(file, fix=fix if expected else "restore it")
    if wrong == "" and expected and read_description(file).get("fingerprint") != expected["fingerprint"]:
        return f"it is not the encoder of state.safetensors: {fix}"
    return f"it has no checksum: {fix}" if wrong is None and expected else wrong


def _check_metrics(run: Run) -> str | None:
    """Compare the rows up to the checkpoint with its record of them."""
    recorded = read_description(run.state, key=STATE_KEY).get("metrics")
    if not recorded:
        return None
    same = list(hash_beginning(run.metrics, recorded[0])) == list(recorded)
    return "" if same else f"{CHANGED}: restore it; weights and checkpoint do not depend on it"


def _check_events(file: Path) -> str | None:
    """Read the records of a TensorBoard file, which have checksums of their own."""
    try:
        errors = import_extra("tensorboard.compat.tensorflow_stub.errors", extra="train")
        records = import_extra("tensorboard.compat.tensorflow_stub.pywrap_tensorflow", extra="train")
    except MissingExtraError:
        return None
    reader = records.PyRecordReader_New(str(file))
    try:
        while True:
            reader.GetNext()
    except errors.OutOfRangeError:
        return ""
    except (errors.DataLossError, ValueError, OverflowError, MemoryError):
        return f"{CHANGED}: remove it; metrics.jsonl has the same numbers"
