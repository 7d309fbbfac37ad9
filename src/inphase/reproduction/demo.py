"""The demo: train on drawn people, evaluate on people not in the training data, and align two of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inphase.apps.align_videos import Aligned, synchronize
from inphase.data import stage_videos
from inphase.data.frame_source import FrameSource, open_frame_source
from inphase.data.video import Video
from inphase.evaluation import embed_videos, value_of
from inphase.evaluation.evaluate import Evaluation, measure
from inphase.media.recording import open_recordings
from inphase.models import Encoder
from inphase.progress import Progress, Summary
from inphase.training import Recipe, read_recipe, train
from inphase.training.loop import OnStatus

MODALITIES = ("pose", "image")
# Videos of each action to evaluate on, and the height and width of the aligned pair in pixels.
TEST_VIDEOS, PAIR_SIZE = 6, 256
# Changes of speed shorter than this are removed from the aligned pair, in seconds.
SMOOTH_SECONDS = 0.3
ERRORS_EXPLAINED = "error: fraction of the action's duration, 0 is perfect; τ: 1 is perfect, time alone is a control"


@dataclass(frozen=True, eq=False)
class Demo:
    """The result of the demo: the evaluation of each modality, and two videos aligned by the first."""

    measured: dict[str, Evaluation]
    aligned: Aligned

    def rows(self) -> list[tuple[str, float | None, float | None, float | None, float | None]]:
        """Return a row for each encoder and control: alignment error after DTW and by nearest frame, and two τ.

        Errors are fractions of the action's duration. The second τ is of frames whose context lies inside the video.
        """
        first = next(iter(self.measured.values()))
        linear = value_of(first.scores, "error", setting="linear")
        rows = [("linear stretch", linear, None, None, None), _row("time alone", first, "time only")]
        for modality, found in self.measured.items():
            rows.append(_row(f"untrained, by {modality}", found, "untrained"))
            rows.append(_row(f"trained, by {modality}", found, None))
        return rows

    def summary(self) -> Summary:
        """Return the rows as text, errors in percent of the action's duration."""
        digits = (".1%", ".1%", ".3f", ".3f")
        rows = [
            (name, *("" if value is None else format(value, form) for value, form in zip(values, digits, strict=True)))
            for name, *values in self.rows()
        ]
        columns = ("", ">alignment error after DTW", ">by nearest frame", ">Kendall's τ", ">τ, whole context")
        return Summary([ERRORS_EXPLAINED], [], "people not in the training data", columns, rows)

    def write(self, folder: Path | str, *, progress: Progress | None = None) -> list[Path]:
        """Write the aligned pair; return the paths of its files."""
        return self.aligned.write(folder, progress=progress)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers and the alignment as JSON-ready values."""
        names = ("name", "dtw_error", "nearest_error", "tau", "tau_whole_context")
        return {
            "rows": [dict(zip(names, row, strict=True)) for row in self.rows()],
            "aligned": self.aligned.to_dict(),
        }


def run_demo(
    out: Path | str,
    *,
    modalities: Sequence[str] = MODALITIES,
    on_status: OnStatus | None = None,
    progress: Progress | None = None,
) -> Demo:
    """Train the recipe demo_MODALITY of each modality into `out`/MODALITY, evaluate it, and align a test pair.

    Takes a few minutes on two cores; the same call resumes an interrupted one.
    """
    unknown = [modality for modality in modalities if modality not in MODALITIES]
    if unknown or not modalities:
        raise ValueError(f"the demo trains {' or '.join(MODALITIES)}, not {', '.join(unknown) or 'nothing'}")
    recipes = {modality: read_recipe(f"demo_{modality}") for modality in modalities}
    measured, encoders = {}, {}
    for modality, recipe in recipes.items():
        trained = train(recipe, Path(out) / modality, on_status=on_status, progress=progress)
        encoders[modality] = trained.run.encoder()
        measured[modality] = _measure(encoders[modality], recipe, cache=trained.run.folder)
    return Demo(measured, _align_pair(encoders[modalities[0]], recipes[modalities[0]], folder=Path(out) / "stage"))


def _measure(encoder: Encoder, recipe: Recipe, *, cache: Path) -> Evaluation:
    """Evaluate an encoder on the test split of the stage, with its controls."""

    def source() -> FrameSource:
        return open_frame_source(encoder, _load_test(recipe, videos=TEST_VIDEOS), name="stage test")

    return measure(encoder, test=source, train=source, tasks=("alignment_error", "kendall_tau"), cache=cache)


def _load_test(recipe: Recipe, **changes: object) -> list[Video]:
    """List the test split of a recipe's stage."""
    options = {name: value for name, value in recipe.data.items() if name != "name"}
    return stage_videos.load(split="test", **{**options, **changes})


def _row(
    name: str, found: Evaluation, control: str | None
) -> tuple[str, float | None, float | None, float | None, float | None]:
    """Collect the scores of an encoder, or of one of its controls."""
    dtw, nearest = (value_of(found.scores, "error", setting=method, control=control) for method in ("dtw", "nearest"))
    tau, unclamped = (value_of(found.scores, metric, control=control) for metric in ("tau", "tau_unclamped"))
    return (name, dtw, nearest, tau, unclamped)


def _align_pair(encoder: Encoder, recipe: Recipe, *, folder: Path) -> Aligned:
    """Write two videos of the test split at the first action into `folder`, and align them."""
    action = recipe.data["actions"][0]
    options = {"videos": 2, "level": recipe.data["level"], "actions": [action]}
    stage_videos.write(folder, split="test", size=PAIR_SIZE, **options)
    films = [video.path for video in stage_videos.load(folder, split="test", actions=[action]) if video.path]
    source = open_frame_source(encoder, _load_test(recipe, **options), name="stage pair")
    embeddings = tuple(each.embedding for each in embed_videos(encoder, source.videos, read=source.read))
    synchronization = synchronize(embeddings, smooth=SMOOTH_SECONDS)
    return Aligned(tuple(open_recordings(films)), embeddings, synchronization, "Using the trained encoder.")
