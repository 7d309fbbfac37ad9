"""Read the files that commands wrote as named values, so that two runs can be compared: see `tools.safety_net`."""

import csv
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

IGNORED_FIELDS = {"format", "version", "title"}  # of playback documents
IGNORED_METRICS = {"frames_per_second"}  # of metrics.jsonl: measured times
DETAILS = ", by action and event"  # ends the title of a table that continues another one

# Videos that are compared by the brightness of blocks: x264 does not always encode the same frames to the same bytes.
RENDERED = {"aligned.mp4"}

Values = dict[str, Any]


def read(path: Path) -> Values:
    """Read what must not change from one file, by its ending."""
    if path.name == "playback.json":
        document = json.loads(path.read_text(encoding="utf-8"))
        return dict(_flatten_document(document, "", folder=path.parent))
    if path.suffix == ".json":
        return flatten_report(json.loads(path.read_text(encoding="utf-8")))
    if path.suffix == ".jsonl":
        return flatten_metrics(path.read_text(encoding="utf-8"))
    if path.suffix == ".safetensors":
        return {name: describe(array) for name, array in load_file(path).items()}
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            return {name: describe(arrays[name]) for name in arrays.files}
    if path.suffix == ".csv":
        with path.open(encoding="utf-8", newline="") as stream:
            return {f"line {number}": row for number, row in enumerate(csv.reader(stream))}
    if path.suffix == ".mp4":
        return dict(_read_media(path))
    return {"": f"sha256 {hashlib.sha256(path.read_bytes()).hexdigest()}"}


def flatten_report(report: Any) -> Values:
    """Flatten a report's scores or tables: 'task | metric words, sorted | column' → value."""
    found: Values = {}
    for score in report.get("scores", ()):
        words = [score["metric"], *(score["setting"] or "").split(), score["action"] or "", score["event"] or ""]
        _add(found, name_number(score["task"], words, score["control"] or "this run"), score["value"])
    for table in report.get("tables", ()):
        task = table["title"].removesuffix(DETAILS)
        for row in table["rows"]:
            for column, cell in zip(table["head"][1:], row[1:], strict=True):
                if isinstance(cell, dict):
                    name = name_number(task, row[0].split("/"), column)
                    _add(found, name, cell["mean"])
                    if cell["deviation"] is not None:
                        _add(found, f"{name} | deviation of {cell['count']}", cell["deviation"])
    return found


def flatten_metrics(lines: str) -> Values:
    """Flatten metrics.jsonl: 'step | metric words, sorted' → value."""
    found: Values = {}
    for line in lines.splitlines():
        entry = json.loads(line)
        step = entry.pop("step")
        for key, value in entry.items():
            if key not in IGNORED_METRICS:
                _add(found, name_number(f"step {step}", key.split("/")), value)
    return found


def name_number(task: str, words: list[str], *columns: str) -> str:
    """Give a number its name in the recording."""
    return " | ".join([task, ", ".join(sorted(filter(None, words))), *columns])


def _read_media(path: Path) -> Iterator[tuple[str, Any]]:
    """Describe what is decoded, not the file: how images and sound are interleaved in it varies from run to run."""
    with av.open(str(path)) as container:
        for stream in container.streams:
            container.seek(0)
            content, times, blocks = hashlib.sha256(), [], []
            for frame in container.decode(stream):
                times.append(frame.pts)
                if path.name in RENDERED and isinstance(frame, av.VideoFrame):
                    blocks += _block_means(frame.to_ndarray(format="gray")) if len(times) % 10 == 1 else []
                else:
                    content.update(frame.to_ndarray().tobytes())  # type: ignore[union-attr]
            clock = hashlib.sha256(repr(times).encode()).hexdigest()
            yield f"{stream.type} clock", f"{len(times)} frames sha256 {clock}"
            yield stream.type, {"near": blocks, "within": 0.25} if blocks else f"sha256 {content.hexdigest()}"


def _block_means(image: NDArray[Any]) -> list[float]:
    """Give the brightness of 6 × 6 blocks of an image."""
    height, width = (side // 6 for side in image.shape)
    blocks = image[: 6 * height, : 6 * width].reshape(6, height, 6, width)
    return [round(float(mean), 2) for mean in blocks.mean(axis=(1, 3)).ravel()]


def describe(array: NDArray[Any]) -> Any:
    """Describe an array by type, shape, hash of its bytes, and two numbers that show how far it moved; keep text."""
    if array.dtype.kind == "U":
        return array.tolist()
    array = np.ascontiguousarray(array)
    text = f"{array.dtype.name} {list(array.shape)} sha256 {hashlib.sha256(array.tobytes()).hexdigest()}"
    if array.dtype.kind not in "fiu" or not array.size:
        return text
    size = np.abs(array.astype(np.float64))
    return f"{text} mean size {np.nanmean(size):.9g} max {np.nanmax(size):.9g}"


def _flatten_document(value: Any, where: str, *, folder: Path) -> Iterator[tuple[str, Any]]:
    """List the leaves of a playback document; an array file becomes its description, a list of numbers stays whole."""
    if isinstance(value, dict) and set(value) == {"file", "dtype", "shape"}:
        array = np.fromfile(folder / value["file"], dtype=np.dtype(value["dtype"]).newbyteorder("<"))
        yield where, describe(array.reshape(value["shape"]))
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in IGNORED_FIELDS:
                yield from _flatten_document(inner, f"{where}.{key}".lstrip("."), folder=folder)
    elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        for number, inner in enumerate(value):
            yield from _flatten_document(inner, f"{where}[{number}]", folder=folder)
    else:
        yield where, value


def _add(found: Values, name: str, value: Any) -> None:
    if name in found:
        raise ValueError(f"two numbers are called {name!r}: make name_number tell them apart")
    found[name] = value
