"""How commands run functions of the package: a process that leaves cores to others, progress, and a summary.

Nothing here imports numpy or torch.
"""

import atexit
import gc
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

# Called as progress(stage, done, total): `stage` names the work in a few words ("embedding a.mp4"), `done` of `total`
# units are finished. A stage may be reported from several threads; a `total` of 0 is not known yet.
Progress = Callable[[str, int, int], None]


def ignore_progress(stage: str, done: int, total: int) -> None:
    """Do nothing: the default of functions that take a `Progress`."""


def stage_progress(progress: Progress | None, stage: str) -> Callable[[int, int], None]:
    """Bind a stage: return the function of (done, total) that reports it."""
    report = progress or ignore_progress
    return lambda done, total: report(stage, done, total)


@dataclass(frozen=True)
class Summary:
    """A result in words: warnings, lines, and a table whose columns named with a leading ">" hold numbers.

    `caption` stands below the table, and further summaries `then` follow it. One that `is_detail` is shown on request.
    """

    lines: Sequence[str] = ()
    warnings: Sequence[str] = ()
    title: str = ""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    caption: str = ""
    then: "Sequence[Summary]" = ()
    is_detail: bool = False

    def split(self, width: int) -> "Iterator[Summary]":
        """Split a table into tables of at most about `width` characters, each with the first column."""
        widths = [3 + max(map(len, column)) for column in zip(self.columns, *self.rows, strict=True)]
        first = 1
        while first < len(widths) or first == 1:
            last = first + 1
            while last < len(widths) and widths[0] + sum(widths[first : last + 1]) < width:
                last += 1
            kept = (0, *range(first, min(last, len(widths))))
            columns, *rows = ([row[place] for place in kept] for row in (self.columns, *self.rows))
            caption = self.caption * (last >= len(widths))
            yield Summary((), (), self.title * (first == 1), columns, rows, caption)
            first = last


def summarize(names: Iterable[str], *, show: int = 3) -> str:
    """List the first few names and the number of the others."""
    listed = list(names)
    return ", ".join(listed[:show]) + (f" and {len(listed) - show:,} more" if len(listed) > show else "")


def describe_left_out(left_out: Mapping[Any, str]) -> list[str]:
    """Return a sentence for every video that was left out, with the reason."""
    return [
        f"left out: {reason}" if str(name) in reason else f"left out: {name}: {reason}"
        for name, reason in left_out.items()
    ]


def share_cores(*, training: bool) -> None:
    """Let waiting threads sleep instead of spin; numpy and torch read these settings when they are imported.

    Matrices in numpy are small here: two of its threads on busy cores took 50 times as long as one. Training keeps the
    spinning threads of torch, since it has the cores to itself.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if not training:
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def import_function(name: str) -> Callable[..., Any]:
    """Import a function of `inphase`; later searches for garbage skip the imported modules.

    The search as Python ends skips them too, which saves 0.2 s or more.
    """
    new = "torch" not in sys.modules
    function: Callable[..., Any] = getattr(import_module("inphase"), name)
    if new:
        gc.freeze()  # each full collection would visit half a million objects that stay
        atexit.register(gc.freeze)
    return function
