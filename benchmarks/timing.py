"""Time calls side by side, format tables and describe the machine."""

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

Call = Callable[[], object]


def interleave(
    calls: dict[str, Call],
    *,
    seconds: float = 1.0,
    burst: float = 0.005,
    wait: Call = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the median seconds of each call over rounds in which every call has its turn.

    By `clock` seconds of the wall; `time.process_time` leaves out those in which other work had the processor.

    A turn repeats a call until it fills `burst` seconds (0: once) and then waits for the device, so that drift of a
    shared machine affects all calls alike. Rounds go on for about `seconds` times the number of calls, 5 at least.
    """
    repeats = {}
    for name, call in calls.items():
        call()
        once = _turn(call, 1, wait, clock)
        repeats[name] = max(1, round(burst / once))
    turns: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < end or len(next(iter(turns.values()))) < 5:
        for name, call in calls.items():
            turns[name].append(_turn(call, repeats[name], wait, clock))
    return {name: statistics.median(values) for name, values in turns.items()}


def interleave_cpu(calls: dict[str, Call], *, rounds: int = 5) -> dict[str, float]:
    """Return the median seconds of processor time of each call over rounds in which every call has its turn."""
    for call in calls.values():
        call()
    turns: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            begin = time.process_time()
            call()
            turns[name].append(time.process_time() - begin)
    return {name: statistics.median(values) for name, values in turns.items()}


def _turn(call: Call, repeats: int, wait: Call, clock: Callable[[], float]) -> float:
    wait()
    start = clock()
    for _ in range(repeats):
        call()
    wait()
    return (clock() - start) / repeats


def lay_out(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table that reads well as plain text and as Markdown."""
    cells = [list(head), *[list(row) for row in rows]]
    widths = [max(len(row[k]) for row in cells) for k in range(len(head))]
    lines = ["| " + " | ".join(text.ljust(w) for text, w in zip(row, widths, strict=True)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


def machine(device: str) -> str:
    """Return the processor, its load from other work, and the versions of Python and the libraries."""
    parts = [f"Python {platform.python_version()}"]
    for name in ("torch", "numba", "triton"):
        try:
            parts.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    where = f"{_processor()}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} from other work"
    if device == "cuda":
        where = f"{torch.cuda.get_device_name()} beside {where}"
    return f"{where}; {', '.join(parts)}"


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def write_block(file: Path, name: str, text: str) -> None:
    """Replace the text between `<!-- bench:name -->` and `<!-- end -->` in a file."""
    content = file.read_text(encoding="utf-8")
    start, end = f"<!-- bench:{name} -->", "<!-- end -->"
    before, found, rest = content.partition(start)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"{file} has no block {start} … {end}")
    file.write_text(f"{before}{start}\n{text}\n{closed}{after}", encoding="utf-8")
