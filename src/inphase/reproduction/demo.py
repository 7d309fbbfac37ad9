"""The demo: train on drawn people, evaluate on people not in the training data, and show the result on one page.

The page, tour.html, shows the scores, two golfers aligned and compared, the repetitions of a session, and the viewer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from inphase.apps.align_videos import Aligned, synchronize
from inphase.apps.compare_videos import compare_embeddings, read_marks
from inphase.apps.comparison import Comparison
from inphase.apps.labels import Event, Labels
from inphase.apps.repetitions import Repetitions, find_repetitions
from inphase.data import stage_videos
from inphase.data.frame_source import FrameSource, open_frame_source
from inphase.data.video import Video
from inphase.evaluation import embed_videos, value_of
from inphase.evaluation.evaluate import Evaluation, measure
from inphase.media.frames import read_clip
from inphase.media.recording import open_recordings
from inphase.media.render import write_mp4
from inphase.models import Encoder, load_shipped
from inphase.models.modality import embed_pose
from inphase.pose.pose import Pose
from inphase.progress import Progress, Summary
from inphase.stage.take import FPS
from inphase.storage.files import atomic_write
from inphase.training import Recipe, read_recipe, train
from inphase.training.loop import OnStatus
from inphase.viewer.page import export

MODALITIES = ("pose", "image")
# Videos of each action to evaluate on, and the height and width of the two golfers in pixels.
TEST_VIDEOS, PAIR_SIZE = 6, 256
# Two swings of the test split that differ in length and rhythm: the student's and the pro's.
GOLFERS, REPETITIONS = (4, 6), 3
# Changes of speed shorter than this are removed from the aligned pair, in seconds.
SMOOTH_SECONDS = 0.3
ERRORS_EXPLAINED = "error: fraction of the action's duration, 0 is perfect; τ: 1 is perfect, time alone is a control"


@dataclass(frozen=True, eq=False)
class Demo:
    """The result: the evaluation of each modality, two golfers aligned and compared, and the swings of a session."""

    measured: dict[str, Evaluation]
    aligned: Aligned
    comparison: Comparison
    session: Repetitions

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
        """Write tour.html and what it shows into aligned/, compare/, cut/ and viewer.html; return the files."""
        folder = Path(folder)
        files = self.aligned.write(folder / "aligned", progress=progress)
        files += self.comparison.write(folder / "compare", progress=progress)
        files += self.session.write(folder / "cut", progress=progress)
        files.append(export(folder / "aligned", folder / "viewer", single=True, progress=progress).page)
        tour = folder / "tour.html"
        with atomic_write(tour) as part:
            part.write_text(self.tour(), encoding="utf-8")
        return [tour, *files]

    def tour(self) -> str:
        """Return the page, whose links and videos lie beside it."""
        here = FileSystemLoader(Path(__file__).parent)
        pages = Environment(loader=here, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
        return pages.get_template("tour.html.j2").render(
            learned=self.summary(),
            compared=self.comparison.summary(),
            angles=self.comparison.angles()[:3],
            spans=self.session.spans,
            duration=self.session.session.properties.duration,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers and the alignment as JSON-ready values."""
        names = ("name", "dtw_error", "nearest_error", "tau", "tau_whole_context")
        return {
            "rows": [dict(zip(names, row, strict=True)) for row in self.rows()],
            "aligned": self.aligned.to_dict(),
            "comparison": self.comparison.to_dict(),
            "repetitions": self.session.to_dict()["repetitions"],
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
    golfers = _draw_golfers(Path(out) / "stage")
    aligned = _align_pair(encoders[modalities[0]], golfers)
    comparison = _compare_pair(encoders.get("pose") or load_shipped("pose"), golfers)
    return Demo(measured, aligned, comparison, _find_swings(golfers[0], Path(out) / "stage" / "session.mp4", progress))


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


def _draw_golfers(folder: Path) -> list[Video]:
    """Write two swings of the test split into `folder`; return them with their files."""
    count = max(GOLFERS) + 1
    drawn = stage_videos.load(split="test", actions=["golf_swing"], videos=count, level="plain", size=PAIR_SIZE)
    golfers = []
    for name, take in zip(("student", "pro"), GOLFERS, strict=True):
        file = folder / f"{name}.mp4"
        folder.mkdir(parents=True, exist_ok=True)
        stage_videos.write_recording(file, drawn[take])
        golfers.append(replace(drawn[take], path=file))
    return golfers


def _align_pair(encoder: Encoder, golfers: Sequence[Video]) -> Aligned:
    """Align two videos by the trained encoder."""
    source = open_frame_source(encoder, golfers, name="stage pair")
    embeddings = tuple(each.embedding for each in embed_videos(encoder, source.videos, read=source.read))
    synchronization = synchronize(embeddings, smooth=SMOOTH_SECONDS)
    films = [video.path for video in golfers if video.path]
    return Aligned(tuple(open_recordings(films)), embeddings, synchronization, "Using the trained encoder.")


def _compare_pair(encoder: Encoder, golfers: Sequence[Video]) -> Comparison:
    """Compare the student with the pro by their drawn joints; the pro's events are the key positions."""
    student, pro = golfers
    recordings = open_recordings([video.path for video in (pro, student) if video.path])
    embedded = [embed_pose(encoder, _pose_of(video)) for video in (pro, student)]
    events = sorted((frame / FPS, name) for name, frame in {"start": 0, **pro.events}.items())
    labels = Labels(events=tuple(Event(second, name) for second, name in events))
    marks = read_marks(recordings[0], labels, phases=len(events))
    return compare_embeddings((recordings[0], embedded[0]), (recordings[1], embedded[1]), marks=marks)


def _pose_of(video: Video) -> Pose:
    """Take the drawn joints as an estimated pose."""
    assert video.keypoints is not None, "the stage labels joints"
    assert video.visibility is not None, "the stage labels visibility"
    points, seen = video.keypoints.astype(np.float32), video.visibility.astype(np.float32)
    times = np.arange(len(points)) / FPS
    return Pose(video.joints, points, seen, np.ones(len(points), np.bool_), times, (PAIR_SIZE, PAIR_SIZE))


def _find_swings(golfer: Video, file: Path, progress: Progress | None) -> Repetitions:
    """Write a session of a swing that is repeated, and find the repetitions by images."""
    assert golfer.path is not None, "the golfer was written to a file"
    swing = read_clip(golfer.path).frames
    write_mp4(file, np.concatenate([swing] * REPETITIONS), fps=FPS)
    return find_repetitions(file, progress=progress)
