"""Measure an encoder: embed its videos once, run tasks on them, and on what they have to be compared with."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import torch

from inphase.data.frame_source import FrameSource
from inphase.evaluation import LEARN, TASKS, Embedded, NotApplicableError, controls, embed_videos
from inphase.models import Encoder
from inphase.storage.errors import MissingExtraError

# What is being done, and the fraction of it that is.
Progress = Callable[[str, float], None]
# What numbers are compared with: an encoder before training, and what has not looked at the video.
CONTROLS = ("untrained", "time only", "clamped only")


@dataclass(frozen=True, eq=False)
class Measured:
    """The numbers of each task by column, the encoder's own first; the tasks left out and why; what they are of."""

    numbers: dict[str, dict[str, dict[str, float]]]  # task → column → key → number
    left_out: dict[str, str]
    sizes: dict[str, int]


def measure(
    encoder: Encoder,
    *,
    test: Callable[[], FrameSource],
    train: Callable[[], FrameSource],
    tasks: Sequence[str] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    compare: Collection[str] = CONTROLS,
    optional: bool = False,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Measured:
    """Run tasks, all that the labels allow or those that are named; one named that they do not allow is an error.

    With `optional` it is left out instead. `train` is asked for only where a task learns. `options` are keyword
    arguments of a task. The columns `compare` follow the encoder's own; what has not looked at the video runs no task
    that learns. Tasks that can, compute where the encoder is. `cache` is a run folder.
    """
    wanted = tuple(TASKS if tasks is None else tasks)
    unknown = [name for name in wanted if name not in TASKS]
    if unknown:
        raise ValueError(f"no task {', '.join(unknown)}: choose some of {', '.join(TASKS)}")
    learns, tell = bool(set(wanted) & LEARN), progress or (lambda what, fraction: None)
    seen = {"test": test(), **({"train": train()} if learns else {})}

    def embedded(network: Encoder) -> dict[str, list[Embedded]]:
        return {split: _embed(network, found, split, cache=cache, tell=tell) for split, found in seen.items()}

    device = next(encoder.parameters()).device
    run = partial(_run, options=options or {}, device=device, tell=tell)
    videos = embedded(encoder)
    left_out: dict[str, str] = {}
    columns = {"this run": run(wanted, videos, left_out=left_out if tasks is None or optional else None)}
    possible = [task for task in wanted if task not in left_out]
    if "untrained" in compare:
        columns["untrained"] = run(possible, embedded(untrained(encoder)))
    for name, found in controls(videos["test"]).items():
        if name in compare:
            columns[name] = run([task for task in possible if task not in LEARN], {"test": found})
    sizes = {f"{split} videos": len(found) for split, found in videos.items()}
    sizes["test frames"] = sum(map(len, videos["test"]))
    return Measured(
        {task: {name: found[task] for name, found in columns.items() if task in found} for task in columns["this run"]},
        left_out,
        sizes,
    )


def validate(encoder: Encoder, sight: FrameSource) -> dict[str, float]:
    """Measure Kendall's τ of the videos that training watches: what `inphase.training.train` takes as `validate`."""
    found = TASKS["kendall_tau"]([], _embed(encoder, sight, "val", cache=None, tell=lambda what, fraction: None))
    return {name: found[name] for name in ("tau", "tau/nc")}


def untrained(encoder: Encoder, *, seed: int = 0) -> Encoder:
    """Build an encoder again as it was before training: a frozen backbone as it is, all else random."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fresh = type(encoder)(**encoder.config)
    if encoder.is_frozen:
        fresh.get_submodule("backbone").load_state_dict(encoder.get_submodule("backbone").state_dict())
    return fresh.to(next(encoder.parameters()).device).eval()


def _embed(encoder: Encoder, seen: FrameSource, split: str, *, cache: Path | None, tell: Progress) -> list[Embedded]:
    return embed_videos(
        encoder,
        seen.videos,
        read=seen.read,
        frame_count=seen.frame_count,
        progress=lambda done: tell(f"embedding {split}", done / len(seen.videos)),
        cache=cache,
        source=seen.source,
        precomputed=seen.precomputed,
    )


def _run(
    tasks: Sequence[str],
    videos: Mapping[str, list[Embedded]],
    *,
    options: Mapping[str, Mapping[str, Any]],
    device: torch.device,
    tell: Progress,
    left_out: dict[str, str] | None = None,
) -> dict[str, dict[str, float]]:
    found = {}
    for task in tasks:
        tell(task, 0.0)
        chosen, takes = dict(options.get(task, {})), signature(TASKS[task]).parameters
        if "progress" in takes:
            chosen["progress"] = partial(_tell_more, tell, task)
        if "device" in takes:
            chosen.setdefault("device", device)
        try:
            found[task] = TASKS[task](videos.get("train", []), videos["test"], **chosen)
        except (NotApplicableError, MissingExtraError) as error:
            if left_out is None:
                raise
            left_out[task] = str(error)
    return found


def _tell_more(tell: Progress, task: str, what: str, fraction: float) -> None:
    tell(f"{task} {what}".strip(), fraction)
