"""Fit: train on a folder of your own videos, without labels and without a GPU."""

import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

from inphase.data import folder as collection
from inphase.data.frame_source import frame_parts, pose_key, pose_source
from inphase.data.keypoints import EVENTS_TABLE, load_events
from inphase.data.video import Problem, Video
from inphase.media.frame_store import FillSummary, Source, fill_store
from inphase.pose.pose_store import fill_poses
from inphase.progress import Progress, Summary, ignore_progress, summarize
from inphase.runs import Run
from inphase.storage.cache import Cache, default_cache_folder
from inphase.storage.errors import MissingExtraError
from inphase.storage.files import atomic_write, write_table
from inphase.storage.processes import DEFAULT_LIMITS, VideoLimits
from inphase.training.build import build_encoder_with_loss
from inphase.training.loop import OnStatus, train
from inphase.training.metrics import Status
from inphase.training.recipe import Recipe, read_recipe

FitModality = Literal["pose", "image", "both"]
# "auto" uses poses where a person is found in at least this fraction of the videos.
MIN_PERSON_FRACTION = 0.8
# With fewer videos of an action none is held out: too few would be left to train on, or to measure on.
MIN_VIDEOS_TO_HOLD_OUT = 10
# A clip of one action is no session: its halves pass for two repetitions.
MIN_REPETITIONS = 3
HELD_OUT_FRACTION = 0.2


@dataclass(frozen=True)
class Fitted:
    """The result of fitting a folder: the run, its modality, and the videos that were left out with the reasons.

    `split` is the one to evaluate on: "test" where videos were held out, otherwise "train". `labeled` is whether
    phases.csv or events.csv labels when something happens. `messages` are the decisions, in sentences for the user.
    `measured` is the evaluation, if one was made.
    """

    run: Run
    modality: FitModality
    left_out: dict[str, str]
    split: Literal["train", "test"]
    labeled: bool
    messages: tuple[str, ...] = ()
    measured: "Measured | None" = None

    @property
    def tasks(self) -> tuple[str, ...]:
        """Return the tasks that evaluate the run on its own videos."""
        return ("kendall_tau", *(("event_error",) if self.labeled else ()), "cycle_error", "health")

    def summary(self) -> Summary:
        """Return the summary of the evaluation, or where the run is."""
        return Summary([f"The run is in {self.run.folder}."]) if self.measured is None else self.measured.summary()

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        measured = None if self.measured is None else self.measured.to_dict()
        return {**vars(self), "run": str(self.run.folder), "messages": list(self.messages), "measured": measured}

    def write(self, folder: Path | str, *, progress: Progress | None = None) -> Path:
        """Write the result as fit.json; the weights are in the run folder already."""
        file = Path(folder) / "fit.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as part:
            part.write_text(json.dumps(self.to_dict(), indent=1, ensure_ascii=False), encoding="utf-8")
        return file


class Measured(Protocol):
    """An evaluation of a run."""

    def summary(self) -> Summary:
        """Return it in words."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        ...


# (a folder or a video) → video, start and end of each repetition, in seconds.
Cut = Callable[[Path], Iterable[Sequence[str]]]


class Measure(Protocol):
    """Evaluate the run in a folder on a split of its data: `inphase.evaluation.evaluate.measure_fit`."""

    def __call__(
        self, run: Path, *, modality: FitModality, tasks: Sequence[str], split: str, progress: Progress | None
    ) -> Measured:
        """Return the evaluation."""
        ...


def fit(
    folder: Path | str,
    out: Path | str,
    *,
    modality: Literal["auto", "pose", "image", "both"] = "auto",
    changes: Sequence[str] = (),
    workers: int = 2,
    limits: VideoLimits = DEFAULT_LIMITS,
    cache: Path | None = None,
    cut: Cut | None = None,
    measure: Measure | None = None,
    on_status: OnStatus | None = None,
    progress: Progress | None = None,
) -> Fitted:
    """Train on the videos of a folder, all of one action or a sub-folder for each, into the run folder `out`.

    "pose" embeds body poses, "image" whole frames, "both" trains an encoder of each into one run; "auto" is both where
    people are found in most of the videos, otherwise image. A video without a person trains the image part alone.
    Decoded frames or poses are stored in the run folder; poses are also cached in `cache`, by default the user's cache
    folder. `workers` processes extract them, each video within `limits` of time and memory; a video that cannot be read
    is left out. A fifth of the videos is held out for evaluation: of people, where events.csv in the folder names them.
    `cut` (`inphase.apps.repetitions.list_repetitions`) makes every repetition a video of its own, listed in
    repetitions.csv of the run; `folder` may then be one session, a file.
    `changes` to the recipe are `table.key=value`. `measure` evaluates the run at the end. Interrupted at any moment,
    the same call resumes. `on_status` receives messages and the status of training, `progress` the stage and counts.
    """
    if modality not in ("auto", "pose", "image", "both"):
        raise ValueError(f"modality must be auto, pose, image or both, got {modality!r}")
    folder, run = Path(folder), Run(out)
    with_events = cut is None and (folder / EVENTS_TABLE).is_file()
    parts = "" if cut is None else str(_write_repetitions(run.folder, cut(folder)))
    root = folder.parent if parts and folder.is_file() else folder
    load = load_events if with_events else partial(collection.load, repetitions=parts)
    videos = load(root, split="all", val=0.0, test=0.0)
    if parts and len(videos) < MIN_REPETITIONS:
        raise ValueError(f"only {len(videos)} repetitions in {folder}: give a longer session, or a folder of clips")
    _require_pairs(videos, folder)
    recipes = {name: read_recipe(f"fit_{name}", changes=changes) for name in ("pose", "image", "both")}
    extraction = _Extraction(
        run,
        videos,
        workers=workers,
        limits=limits,
        cache=cache,
        progress=progress or ignore_progress,
        on_status=on_status,
    )
    if parts:
        extraction.add_message(f"Using {len(videos)} repetitions; their seconds are in {parts}.")
    chosen, left_out = extraction.choose(modality, recipes["image"])
    kept = [video for video in videos if video.id not in left_out]
    _require_pairs(kept, folder)
    hold_out = min(Counter(video.action for video in kept).values()) >= MIN_VIDEOS_TO_HOLD_OUT
    if not hold_out:
        extraction.add_message(
            f"Fewer than {MIN_VIDEOS_TO_HOLD_OUT} videos of an action: none is held out, so the evaluation is on "
            "training videos."
        )
    data: dict[str, Any] = {"root": str(root.resolve()), "store": str(run.store.resolve()), "val": 0.0}
    data["test"] = HELD_OUT_FRACTION if hold_out else 0.0
    data |= {"name": "events"} if with_events else {"repetitions": parts} if parts else {}
    recipe = replace(recipes[chosen], data={**recipes[chosen].data, **data})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Problem)  # the messages name the videos that are left out
        train(recipe, run.folder, on_status=on_status, progress=progress)
        labeled = any(video.intervals or video.events for video in kept)
        split: Literal["train", "test"] = "test" if hold_out else "train"
        fitted = Fitted(run, chosen, left_out, split, labeled, tuple(extraction.messages))
        if measure is None:
            return fitted
        found = measure(run.folder, modality=chosen, tasks=fitted.tasks, split=split, progress=progress)
    return replace(fitted, measured=found)


class _Extraction:
    """Extract poses or frames of all videos into the run's store, and choose the modality by the poses found."""

    def __init__(
        self,
        run: Run,
        videos: Sequence[Video],
        *,
        workers: int,
        limits: VideoLimits,
        cache: Path | None,
        progress: Progress,
        on_status: OnStatus | None,
    ) -> None:
        """Prepare to extract."""
        self._run, self._videos, self._workers, self._limits = run, videos, workers, limits
        self._cache, self._progress, self._on_status = cache, progress, on_status
        self.messages: list[str] = []

    def choose(self, modality: str, recipe: Recipe) -> tuple[FitModality, dict[str, str]]:
        """Extract every video once; return the modality, and the videos left out with the reasons.

        `recipe` is the one for images, whose encoder determines the size of the frames.
        """
        chosen: FitModality = "image"
        if modality != "image":
            try:
                chosen, without_person = self._extract_poses(modality)
            except MissingExtraError as error:
                if modality != "auto":
                    raise
                self.add_message(f"Using images: {error}")
        if chosen == "pose":
            return "pose", without_person
        height, width = build_encoder_with_loss(recipe).encoder.shape[:2]
        filled = self._fill(partial(fill_store, size=(height, width)), frame_parts)
        self._report_left_out(filled)
        return chosen, filled.broken

    def _extract_poses(self, modality: str) -> tuple[FitModality, dict[str, str]]:
        """Estimate the poses of all videos; return the modality they allow, and the videos without a person."""
        kept = Cache(self._cache or default_cache_folder())
        filled = self._fill(partial(fill_poses, cache=kept), lambda video: [(pose_key(video), pose_source(video))])
        found, total = filled.written + filled.kept, filled.written + filled.kept + len(filled.broken)
        if modality == "pose":
            self._report_left_out(filled)
            self.add_message(f"Using body pose (a person was found in {_of_all(found, total)}).")
            return "pose", filled.broken
        if modality == "both" or found / max(1, total) >= MIN_PERSON_FRACTION:
            self.add_message(f"Using body pose and images (a person was found in {_of_all(found, total)}).")
            return "both", filled.broken
        self.add_message(f"Using images (a person was found in only {_of_all(found, total)}).")
        return "image", {}

    def _fill(
        self, fill: Callable[..., FillSummary], parts_of: Callable[[Video], list[tuple[str, Source]]]
    ) -> FillSummary:
        """Fill the store with the parts of the videos; broken parts are reported by the ids of their videos."""
        found = {key: (video.id, source) for video in self._videos for key, source in parts_of(video)}
        sources = {key: source for key, (_, source) in found.items()}
        filled = fill(self._run.store, sources, workers=self._workers, limits=self._limits, progress=self._progress)
        broken, damaged = (
            {found[key][0]: reason for key, reason in each.items()} for each in (filled.broken, filled.damaged)
        )
        return replace(filled, broken=broken, damaged=damaged)

    def _report_left_out(self, filled: FillSummary) -> None:
        if filled.broken:
            reasons = (f"{name} ({reason})" for name, reason in filled.broken.items())
            self.add_message(f"Left out {len(filled.broken)} of {len(self._videos)} videos: {summarize(reasons)}.")
        if filled.damaged:
            reasons = (f"{name} ({reason})" for name, reason in filled.damaged.items())
            self.add_message(f"Damaged, used as far as they can be decoded: {summarize(reasons)}.")

    def add_message(self, message: str) -> None:
        """Record a message for the user and report it."""
        self.messages.append(message)
        if self._on_status is not None:
            self._on_status(Status(0, 0, messages=(message,)))


def _write_repetitions(folder: Path, rows: Iterable[Sequence[str]]) -> Path:
    """Write the table that cuts sessions."""
    folder.mkdir(parents=True, exist_ok=True)
    write_table(folder / "repetitions.csv", [("video", "start", "end"), *rows])
    return (folder / "repetitions.csv").resolve()


def _of_all(found: int, total: int) -> str:
    """Describe a count of videos: "every video", or "3 of 4 videos"."""
    return "every video" if found == total else f"{found} of {total} videos"


def _require_pairs(videos: Sequence[Video], folder: Path) -> None:
    """Raise if an action has a single video, which cannot be aligned with another."""
    single = [action for action, number in Counter(video.action for video in videos).items() if number < 2]
    if single or not videos:
        problem = f"{summarize(single)} has only one" if single else "none can be used"
        raise ValueError(f"{folder} needs at least two videos of each action, but {problem}: add videos, or remove it")
