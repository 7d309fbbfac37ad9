"""Evaluate a run: embed the videos of its data once, run tasks on them and on controls, and report the scores."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import torch

from inphase.align.consensus import NEIGHBORS
from inphase.data.frame_source import FrameSource, find_loader, load_videos, open_frame_source
from inphase.data.video import Video
from inphase.evaluation.embedded_videos import (
    CONTROLS,
    EmbeddedVideo,
    NotApplicableError,
    controls,
    embed_videos,
    join_videos,
    untrained,
    with_motion_energy,
)
from inphase.evaluation.report import Report, summarize_scores, write_report
from inphase.evaluation.scores import Score, select
from inphase.evaluation.tasks import FITTED_TASKS, TASKS, run_tasks
from inphase.evaluation.tasks.sound_recall import measure_sound_recall
from inphase.models import Encoder
from inphase.models.embed_videos import load_joint_encoder, open_encoder
from inphase.models.encoder import ModalityChoice
from inphase.models.joint_encoder import JointEncoder
from inphase.progress import Progress, Summary, ignore_progress
from inphase.runs import Run, cache_features
from inphase.storage.errors import MediaError, MissingExtraError

# The name of the encoders that ship, in place of a run.
SHIPPED = "shipped"
# The task of runs with an audio encoder.
SOUND_RECALL = "sound_recall"
# Pairs of random networks that sound recall is averaged over.
UNTRAINED_PAIRS = 5


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The scores of an encoder and its controls; the tasks left out or failed, and why; the size of the data."""

    scores: list[Score]
    left_out: dict[str, str] = field(default_factory=dict)  # task → reason
    failed: dict[str, str] = field(default_factory=dict)  # task → error
    sizes: dict[str, int] = field(default_factory=dict)  # as "test videos" → 24
    title: str = ""
    recipe: str = ""  # as TOML

    @property
    def report(self) -> Report:
        """The report: a table for each task, with a column for each control."""
        return summarize_scores(
            self.scores, title=self.title, left_out=self.left_out, sizes=self.sizes, recipe=self.recipe
        )

    def summary(self) -> Summary:
        """Return the tables of the report, those by action and event as details, and the tasks left out."""
        reasons = [f"{name} left out: {reason}" for name, reason in self.left_out.items()]
        return Summary(then=[*(table.summary() for table in self.report.tables), Summary(reasons)])

    def write(self, folder: Path | str, *, progress: Progress | None = None) -> list[Path]:
        """Write report.md, report.json and report.html into a folder; return the files."""
        return write_report(self.report, Path(folder))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values: the scores, one row each, the tasks left out and the size of the data."""
        return {
            "title": self.title,
            "scores": [score.to_dict() for score in self.scores],
            "left_out": dict(self.left_out),
            "failed": dict(self.failed),
            "sizes": dict(self.sizes),
            "recipe": self.recipe,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Evaluation":
        """Read a dictionary that `to_dict` made."""
        return cls(**{**content, "scores": [Score.from_dict(row) for row in content["scores"]]})


@dataclass(frozen=True, eq=False)
class FitEvaluation(Evaluation):
    """An evaluation of a fitted run beside the encoders that ship, and its outcome in words.

    `frames` is the error in frames of the run, `shipped_frames` that of the shipped encoders: the mean event error of
    single pairs, or without labels the cycle error.
    """

    frames: float = math.nan
    shipped_frames: float = math.nan
    sentence: str = ""

    def summary(self) -> Summary:
        """Return the sentence; the tables are details."""
        found = super().summary()
        return replace(found, then=[*(replace(each, is_detail=True) for each in found.then), Summary([self.sentence])])

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values: the scores, the two errors and the sentence."""
        errors = {"frames": self.frames, "shipped_frames": self.shipped_frames}
        known = {name: None if math.isnan(value) else value for name, value in errors.items()}
        return {**super().to_dict(), **known, "sentence": self.sentence}


def measure_fit(
    run: Path | str, *, modality: ModalityChoice, tasks: Sequence[str], split: str, progress: Progress | None = None
) -> FitEvaluation:
    """Evaluate the run of a fit beside the shipped encoders of its modality; write the report into the run folder.

    Both are measured as `inphase align` uses them, with motion energy; other clips also vote on labeled events.
    """
    how: dict[str, Any] = {"tasks": tasks, "options": {"event_error": {"neighbors": NEIGHBORS}}}
    how |= {"motion_energy": True, "progress": progress}
    own = evaluate(run, split=split, **how)
    shipped, left_out, data = list[Score](), dict(own.left_out), choose_data(Path(run))
    for store in (data.store, None):  # its frames may have another size than those of the shipped encoder
        try:
            encoder = open_encoder(None, modality) or load_joint_encoder()
            source = partial(replace(data, store=store).open, encoder, split)
            found = measure(encoder, test=source, train=source, compare=(), **how)
        except (ValueError, MissingExtraError, MediaError) as error:
            left_out[SHIPPED] = str(error)
        else:
            shipped = [replace(score, control=SHIPPED) for score in found.scores]
            left_out.pop(SHIPPED, None)
            break
    mine = [score for score in own.scores if score.control is None]
    controls = [score for score in own.scores if score.control is not None]
    scores = [score for task in tasks for score in select([*mine, *shipped, *controls], task=task)]
    errors, sentence = _describe_fit(scores, split, clips=own.sizes["test videos"])
    made = FitEvaluation(scores, left_out, own.failed, own.sizes, own.title, own.recipe, *errors, sentence)
    made.write(Run(run).evaluation, progress=progress)
    return made


def _describe_fit(scores: Sequence[Score], split: str, *, clips: int) -> tuple[tuple[float, float], str]:
    """Return the error of a run and of the shipped encoders, and describe them in words."""

    def read(task: str, metric: str, setting: str | None) -> tuple[float, float]:
        rows = select(scores, task=task, metric=metric, setting=setting, action=None, event=None)
        found = {row.control: row.value for row in rows}
        return found.get(None, math.nan), found.get(SHIPPED, math.nan)

    def beside(errors: tuple[float, float], words: str) -> str:
        return f"{errors[0]:.1f} frames" + ("" if math.isnan(errors[1]) else f" ({words}: {errors[1]:.1f})")

    def advise(*rows: tuple[float, float]) -> str:
        known = [(round(own, 1), round(shipped, 1)) for own, shipped in rows if not math.isnan(own + shipped)]
        gains = not known or any(own < shipped for own, shipped in known)
        return "" if gains else " This is no gain: keep the shipped model, or fit more clips."

    where = f"On {clips} held-out clips" if split == "test" else "On the training clips, since none is held out"
    errors, voted = (read("event_error", "mean", setting) for setting in ("contrastive", "consensus"))
    if math.isnan(errors[0]):
        errors = read("cycle_error", "frames", None)
        found = beside(errors, "before, with the shipped model")
        why = f"mean cycle error, since there are no labels.{advise(errors)}"
        return errors, f"{where}, frames matched there and back now return to within {found}; {why}"
    found = beside(errors, "before, with the shipped model")
    votes = "" if math.isnan(voted[0]) else f", and where the other clips vote, to within {beside(voted, 'before')}"
    median = beside(read("event_error", "median", "contrastive"), "before")  # one bad clip among a few makes the mean
    sentence = f"{where}, moments are now matched to within {found}{votes}: means over the labeled moments."
    return errors, f"{sentence} The median of single pairs is {median}.{advise(errors, voted)}"


def evaluate(
    run: Path | str,
    *,
    tasks: Sequence[str] = (),
    modality: ModalityChoice = "auto",
    data: str | None = None,
    root: Path | None = None,
    store: Path | None = None,
    split: str = "test",
    options: Mapping[str, Mapping[str, Any]] | None = None,
    compare: Collection[str] = CONTROLS,
    motion_energy: bool = False,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> Evaluation:
    """Evaluate a run folder, an encoder file, or the "shipped" encoders, on the data of its recipe.

    `modality` chooses a shipped encoder, or one part of a run that trained both; by default both together. `data` names
    another data set, `root` its folder, `store` the store of its frames or poses. `tasks` are the tasks to run, by
    default all that the labels allow; classifiers are fitted on the split "train". `options` are keyword arguments of
    tasks by name, as {"kendall_tau": {"stride": 1}}; `compare` names the controls; `motion_energy` adds that of images,
    as `inphase align` does. Embeddings are cached in the run
    folder, and the features that the training of a frozen backbone cached there are reused; nothing is written beside
    an encoder file.
    """
    run = Path(run)
    folder, cache = (run, run) if run.is_dir() else (run.parent, None)
    encoder = open_encoder(None if str(run) == SHIPPED else run, modality) or load_joint_encoder()
    encoder.to(device)
    dataset = choose_data(folder, name=data, root=root, store=store)
    is_trained_on = cache is not None and not (data or root or store)

    def open_split(name: str) -> FrameSource:
        source = dataset.open(encoder, name)
        if not is_trained_on:
            return source
        if isinstance(encoder, JointEncoder):
            image = cache_features(encoder.image, source.parts["image"], folder=Run(folder / "image").features)
            return replace(source, parts={**source.parts, "image": image}) if encoder.image.is_frozen else source
        return cache_features(encoder, source, folder=Run(folder).features) if encoder.is_frozen else source

    others = tuple(task for task in tasks if task != SOUND_RECALL)
    found = Evaluation([])
    if others or not tasks:
        found = measure(
            encoder,
            test=partial(open_split, split),
            train=partial(open_split, "train"),
            tasks=others or None,
            options=options,
            compare=compare,
            motion_energy=motion_energy,
            cache=cache,
            progress=progress,
        )
    if SOUND_RECALL in tasks or (not tasks and Run(folder).audio_file.is_file()):
        try:
            source = dataset.open(encoder, split)
            found.sizes["test videos"] = len(source.videos)
            found.scores.extend(
                measure_sound_recall(
                    encoder,
                    Run(folder).audio_encoder(device=next(encoder.parameters()).device),
                    source,
                    untrained=UNTRAINED_PAIRS if compare else 0,
                    cache=cache,
                    progress=progress,
                )
            )
        except NotApplicableError as error:
            if tasks:
                raise
            found.left_out[SOUND_RECALL] = str(error)
    return replace(found, title=f"{run.resolve().name} on {dataset.name}, {split}", recipe=dataset.recipe)


def measure(
    encoder: Encoder,
    *,
    test: Callable[[], FrameSource],
    train: Callable[[], FrameSource],
    tasks: Sequence[str] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    compare: Collection[str] = CONTROLS,
    motion_energy: bool = False,
    optional: bool = False,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Run tasks on an encoder's embeddings and on the controls `compare`.

    Without `tasks`, all that the labels allow are run. A named task that the labels do not allow raises an error; with
    `optional` it is left out, and one that fails is named in `failed` beside the scores of the others. `train` is
    called only if a task is fitted on training videos. "time only" and "clamped only" run no such task. Tasks with an
    option `device` run on that of the encoder. `cache` is a run folder.
    """
    wanted = tuple(TASKS if tasks is None else tasks)
    unknown = [name for name in wanted if name not in TASKS]
    if unknown:
        raise ValueError(f"no task {', '.join(unknown)}: choose some of {', '.join(TASKS)}")
    report = progress or ignore_progress
    sources = {"test": test(), **({"train": train()} if set(wanted) & FITTED_TASKS else {})}

    def embed(network: Encoder) -> dict[str, list[EmbeddedVideo]]:
        found = {
            split: _embed_source(network, source, cache=cache, progress=report, stage=f"embedding {split}")
            for split, source in sources.items()
        }
        return {split: with_motion_energy(network, each) for split, each in found.items()} if motion_energy else found

    left_out, failed = dict[str, str](), dict[str, str]()
    given = partial(run_tasks, options=options or {}, device=next(encoder.parameters()).device)
    run_all = partial(given, progress=report, failed=failed if optional else None)
    videos = embed(encoder)
    columns: dict[str | None, list[Score]] = {}
    columns[None] = run_all(wanted, videos, left_out=left_out if tasks is None or optional else None)
    possible = [task for task in wanted if task not in left_out and task not in failed]
    if "untrained" in compare:
        columns["untrained"] = run_all(possible, embed(untrained(encoder)))
    for name, found in controls(videos["test"]).items():
        if name in compare:
            columns[name] = run_all([task for task in possible if task not in FITTED_TASKS], {"test": found})
    scores = [replace(score, control=control) for control, found in columns.items() for score in found]
    sizes = {f"{split} videos": len(found) for split, found in videos.items()}
    sizes["test frames"] = sum(map(len, videos["test"]))
    ordered = [score for task in wanted for score in select(scores, task=task)]
    return Evaluation(ordered, left_out, failed, sizes)


def validate(encoder: Encoder, source: FrameSource) -> dict[str, float]:
    """Measure Kendall's τ on the validation videos: the `validate` of `inphase.training.train`."""
    scores = TASKS["kendall_tau"]([], _embed_source(encoder, source))
    return {
        score.metric: score.value
        for metric in ("tau", "tau_unclamped")
        for score in select(scores, metric=metric, action=None)
    }


def _embed_source(
    encoder: Encoder,
    source: FrameSource,
    *,
    cache: Path | None = None,
    progress: Progress | None = None,
    stage: str = "embedding",
) -> list[EmbeddedVideo]:
    if isinstance(encoder, JointEncoder):
        images, poses = (
            _embed_source(
                encoder.parts[name], source.parts[name], cache=cache, progress=progress, stage=f"{stage}, {name}"
            )
            for name in ("image", "pose")
        )
        return join_videos(encoder, images, poses)
    return embed_videos(
        encoder,
        source.videos,
        read=source.read,
        frame_count=source.frame_count,
        progress=progress,
        stage=stage,
        cache=cache,
        source=source.source,
        precomputed=source.precomputed,
    )


@dataclass(frozen=True)
class EvaluationData:
    """A data set, its options and the store of its frames; the text of the recipe that names them."""

    name: str
    root: Path | None
    store: Path | None
    options: Mapping[str, Any]
    recipe: str = ""

    def __str__(self) -> str:
        """Identify this data: a video of the same id in other data is another video."""
        return f"{self.name} {self.root} {sorted(self.options.items())}"

    def load(self, split: str, *, size: int | None) -> list[Video]:
        """List the videos of a split; drawn ones at the image size of the encoder."""
        table = {**self.options, "name": self.name, "root": self.root}
        if size is not None and self.root is None and "size" in signature(find_loader(self.name, None)).parameters:
            table["size"] = size
        return load_videos(table, split=split)

    def open(self, encoder: Encoder, split: str) -> FrameSource:
        """Open the videos of a split in the modality of an encoder."""
        videos = self.load(split, size=encoder.image_size[0] if encoder.image_size else None)
        if not videos:
            raise ValueError(
                f"{self.name} has no video in the split {split!r}: choose another, as --split train or all"
            )
        return open_frame_source(encoder, videos, store=self.store, name=str(self))


def choose_data(
    folder: Path, *, name: str | None = None, root: Path | None = None, store: Path | None = None
) -> EvaluationData:
    """Choose the data of a run's recipe, or the data set `name`; the recipe's options apply to its own data only."""
    run = Run(folder)
    text = run.recipe_file.read_text(encoding="utf-8") if run.recipe_file.is_file() else ""
    options = dict(run.recipe.get("data", {}) if text else {})
    own_name, own_root, own_store = (options.pop(key, None) for key in ("name", "root", "store"))
    options.pop("split", None)
    for key, value in (("root", own_root), ("store", own_store)):
        if value is not None and not isinstance(value, str):
            raise ValueError(f"{run.recipe_file}: data.{key} must be the path of a folder, got {value!r:.80}")
    if name is None and own_name is None:
        raise ValueError(f"{folder} has no recipe that names its data: name a data set and its folder")
    if name is not None and name != own_name:
        return EvaluationData(name, root, store, {}, text)
    root = root or (None if own_root is None else Path(own_root))
    store = store or (None if own_store is None else Path(own_store))
    return EvaluationData(str(own_name), root, store, options, text)
