"""Evaluate a run: find its encoder and its data, and measure the one on the other."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from inphase.data.frame_source import FrameSource
from inphase.evaluation.choice import choose_data
from inphase.evaluation.embedded import NotApplicableError
from inphase.evaluation.measure import CONTROLS, Measured, Progress, measure
from inphase.evaluation.sound_recall import measure_sound_recall
from inphase.models import Encoder, load_encoder
from inphase.runs import Run

# The task of runs with an audio encoder.
HEARD = "sound_recall"
# A mean over so many random networks stands beside what a trained one hears.
UNTRAINED = 5


def evaluate(
    run: Path | str,
    *,
    tasks: Sequence[str] = (),
    data: str | None = None,
    root: Path | None = None,
    store: Path | None = None,
    split: str = "test",
    options: Mapping[str, Mapping[str, Any]] | None = None,
    compare: Collection[str] = CONTROLS,
    device: torch.device | str = "cpu",
    keep: Callable[[Encoder, FrameSource], FrameSource] | None = None,
    progress: Progress | None = None,
) -> Measured:
    """Measure a run folder, or an encoder's file, on the data of its recipe.

    `data` names another collection, `root` the folder it lies in, `store` that of its frames or poses. All tasks that
    the labels allow are run, or those that are named; classifiers learn from the split "train". `options` are keyword
    arguments of tasks by name, as {"kendall_tau": {"stride": 1}}, `compare` the controls beside the run. Embeddings are
    kept in the run folder: a second evaluation embeds nothing. Beside a file alone nothing is written. `keep` may put
    what a frozen network sees in place of the frames, as `inphase.training.features.cache_features` does.
    """
    run = Path(run)
    folder, cache = (run, run) if run.is_dir() else (run.parent, None)
    encoder = load_encoder(run, device=device)
    choice = choose_data(folder, name=data, root=root, store=store)

    def look(split: str) -> FrameSource:
        sight = choice.seen_by(encoder, split)
        return keep(encoder, sight) if keep is not None and encoder.is_frozen else sight

    others = tuple(task for task in tasks if task != HEARD)
    measured = Measured({}, {}, {})
    if others or not tasks:
        measured = measure(
            encoder,
            test=partial(look, split),
            train=partial(look, "train"),
            tasks=others or None,
            options=options,
            compare=compare,
            cache=cache,
            progress=progress,
        )
    if HEARD in tasks or (not tasks and Run(folder).audio_file.is_file()):
        try:
            sight = choice.seen_by(encoder, split)
            measured.sizes["test videos"] = len(sight.videos)
            measured.numbers[HEARD] = measure_sound_recall(
                encoder,
                Run(folder).audio_encoder(device=next(encoder.parameters()).device),
                sight,
                untrained=UNTRAINED if compare else 0,
                cache=cache,
                progress=progress,
            )
        except NotApplicableError as error:
            if tasks:
                raise
            measured.left_out[HEARD] = str(error)
    return measured
