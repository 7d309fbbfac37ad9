"""Train a recipe with audio and print its recall beside chance and untrained networks.

    python -m benchmarks.sound [--recipe stage_sound] [--seeds 0 1] [--set run.steps=300]

Recall is that of `inphase.evaluation.tasks.sound_recall` on the test split, mean over seeds.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from inphase.data.frame_source import open_frame_source
from inphase.evaluation import Score
from inphase.evaluation.evaluate import choose_data
from inphase.evaluation.tasks.sound_recall import measure_sound_recall
from inphase.runs import Run
from inphase.training import read_recipe, train


def main() -> None:
    """Train once for each seed, measure, print one table."""
    options = argparse.ArgumentParser(description="recall of sound and image")
    options.add_argument("--recipe", default="stage_sound")
    options.add_argument("--seeds", type=int, nargs="+", default=[0])
    options.add_argument("--set", action="append", default=[])
    options.add_argument("--untrained", type=int, default=5)
    chosen = options.parse_args()
    found: dict[str, dict[str, list[float]]] = {}
    for seed in chosen.seeds:
        begin = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            train(read_recipe(chosen.recipe, changes=[*chosen.set, f"run.seed={seed}"]), out)
            print(f"seed {seed}: trained in {time.perf_counter() - begin:.0f} s", flush=True)
            # The recall of random weights does not depend on the run: it is measured once.
            scores = measure(out, untrained=chosen.untrained if seed == chosen.seeds[0] else 0)
        for score in scores:
            found.setdefault(score.control or "this run", {}).setdefault(score.label, []).append(score.value)
    show(found)


def measure(out: Path, *, untrained: int) -> list[Score]:
    """Measure a run on the test split of its data."""
    encoder, sound = Run(out).encoder(), Run(out).audio_encoder()
    choice = choose_data(out, name=None, root=None, store=None)
    size = encoder.shape[0] if encoder.modality == "image" else None
    source = open_frame_source(encoder, choice.load("test", size=size), store=choice.store, name=str(choice))
    return measure_sound_recall(encoder, sound, source, untrained=untrained)


def show(found: dict[str, dict[str, list[float]]]) -> None:
    """Print a row for each number, a column for each network."""
    columns = list(found)
    print(f"{'':40}" + "".join(f"{name:>18}" for name in columns))
    for key in found["this run"]:
        cells = [np.array(found[column].get(key, [np.nan])) for column in columns]
        text = [f"{cell.mean():.3f}" + (f" ± {cell.std():.3f}" if len(cell) > 1 else "") for cell in cells]
        print(f"{key:40}" + "".join(f"{cell:>18}" for cell in text))


if __name__ == "__main__":
    main()
