"""Align the videos of a store action by action: all pairs with each other, and every video with one reference."""

import os
import random
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from inphase.corpus.embedding_store import CatalogEntry, EmbeddingStore
from inphase.corpus.engines import Engine, open_engine
from inphase.corpus.pairs import (
    Values,
    add_energy,
    align_with,
    average_nearest,
    cluster,
    fill_matrix,
    find_reference,
    median_distances,
    medoid,
    outlier_bound,
    pack,
)
from inphase.progress import Progress, Summary, stage_progress
from inphase.storage.files import explain_os_errors, scratch_folder, write_table

if TYPE_CHECKING:
    from inphase.evaluation.report import Figure, Table

# Videos of an action whose pairs are all aligned, at most.
MAX_COMPARED = 2000
# Videos listed in a table of a page, names beside a matrix of distances, misfits in a summary, at most.
MAX_LISTED, MAX_NAMES, MAX_MISFITS = 100, 60, 5
PACKAGES = ("inphase", "torch", "numpy", "scipy", "numba", "pyarrow")
NOTE = "Their median distance to the others is beyond the bound: the median of all and 3.5 robust deviations."


@dataclass(frozen=True)
class AlignedCorpus:
    """The aligned actions of a store, in a folder each: distances.npy, videos.csv, alignments.parquet, report.html.

    distances.npy is the symmetric matrix of all pairs, in the order of videos.csv; alignments.parquet has, for every
    video of the action, the second that goes with each frame of the reference. Where there are enough videos, both are
    aligned by way of template.npz, the average of those nearest to the reference, which is more like each of them.
    """

    store: Path
    actions: "tuple[ActionSummary, ...]"

    def write(self, folder: Path | str, *, progress: Progress | None = None) -> list[Path]:
        """Write report.html: the page of a single action, or an overview that links to the page of each action."""
        out = Path(folder)
        if len(self.actions) > 1:
            files = write_overview(self.actions, self.store, out)
        else:
            with explain_os_errors(out):
                out.mkdir(parents=True, exist_ok=True)
                files = [Path(shutil.copy(page, out)) for page in self.actions[0].pages()]
        stage_progress(progress, "writing the report")(len(files), len(files))
        return files

    def summary(self) -> Summary:
        """Return the reference, the speed and the misfits of every action."""
        lines = []
        for each in self.actions:
            speed = f"{each.pairs:,} pairs in {each.pair_seconds:.1f} s ({each.pairs_per_second:,.0f} pairs/s)"
            lines.append(f"{each.action}: {each.videos:,} videos, reference {each.reference}; {speed}")
            if each.misfits:
                more = f" and {each.misfits - MAX_MISFITS} more" if each.misfits > MAX_MISFITS else ""
                names = ", ".join(id for id, _, _ in each.worst[:MAX_MISFITS])
                lines.append(f"  {each.misfits} do not fit: {names}{more}")
        return Summary(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the counts, the reference and the misfits of every action as JSON-ready values."""
        return {"store": str(self.store), "actions": [action.to_dict() for action in self.actions]}


def align_corpus(
    store: Path | str,
    out: Path | str,
    *,
    actions: Sequence[str] = (),
    reference: str | None = None,
    max_compared: int = MAX_COMPARED,
    device: str = "auto",
    workers: int | None = None,
    engine: str | Engine = "threads",
    progress: Progress | None = None,
) -> AlignedCorpus:
    """Align every video of an action with one reference, and all pairs with each other; find outliers.

    `actions` are those of the store by default; the `reference`, of a single action, is a video's id or the end of it,
    by default the video with the least sum of distances to the others. All pairs of at most `max_compared` videos of
    an action are aligned, drawn at random where there are more. `engine` is a name of `ENGINES` or an engine of your
    own, `workers` its threads or processes.

    The arrays may be larger than memory, so they are written to a folder of `out` for each action as they are computed,
    together with its page; `AlignedCorpus.write` adds the overview.
    """
    folder, out = Path(store), Path(out)
    chosen = open_engine(engine, workers=workers, device=device)
    with EmbeddingStore(folder) as opened:
        names = tuple(actions) or tuple(opened.catalog.counts("action"))
        if not names:
            raise ValueError(f"{folder} holds no embedding yet: fill it with `inphase embed`")
        if reference is not None and len(names) > 1:
            raise ValueError(f"a reference belongs to one action: name which action ({', '.join(names)})")
        summaries = []
        for place, name in zip(name_folders(out, names), names, strict=True):
            aligned = align_action(
                opened, name, place, engine=chosen, reference=reference, max_compared=max_compared, progress=progress
            )
            write_page(aligned, folder, place)
            summaries.append(ActionSummary.of(aligned, place))
    return AlignedCorpus(folder, tuple(summaries))


def name_folders(out: Path, actions: Sequence[str]) -> list[Path]:
    """Name a folder for every action: letters of any script, no path separators, no two that differ in case alone."""
    names: list[str] = []
    for number, action in enumerate(actions):
        name = re.sub(r"[^\w .-]", "_", action).strip(". ") or "action"
        names.append(name if name.lower() not in {other.lower() for other in names} else f"{name}-{number}")
    return [out / name for name in names]


@dataclass(frozen=True, eq=False)
class AlignedAction:
    """The aligned videos of an action; arrays are in the order of `videos`, the compared ones of all `total`.

    `distances` [n, n] on disk; `scores` [n] the median distance of each video to the others, beyond `bound` it does not
    fit; `order` [n] in which alike videos are neighbors; `clusters` [n]; `reference` the video that all of the action
    were aligned with, and `far` the videos too far from it, the farthest first; `pairs` compared in `pair_seconds`.
    """

    action: str
    total: int
    videos: list[CatalogEntry]
    distances: Values
    scores: NDArray[np.float64]
    bound: float
    order: NDArray[np.int64]
    clusters: NDArray[np.int64]
    reference: CatalogEntry
    far: list[tuple[CatalogEntry, float]]
    pairs: int
    pair_seconds: float
    align_seconds: float

    @property
    def misfits(self) -> list[tuple[CatalogEntry, float]]:
        """List the compared videos that do not fit, the worst first."""
        worst = np.argsort(-self.scores)
        return [(self.videos[k], float(self.scores[k])) for k in worst if self.scores[k] > self.bound]


def align_action(
    store: EmbeddingStore,
    action: str,
    out: Path,
    *,
    engine: Engine,
    reference: str | None = None,
    max_compared: int = MAX_COMPARED,
    progress: Progress | None = None,
) -> AlignedAction:
    """Align all pairs of videos of an action, and each video with a reference.

    Writes distances.npy, videos.csv, template.npz and alignments.parquet into `out`. Time: `max_compared`² pairs + two
    per video; memory: some videos, and `max_compared`² numbers.
    """
    store.model()
    store.require_action(action)
    if max_compared < 2:
        raise ValueError(f"max_compared must be at least 2, got {max_compared}")
    with explain_os_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    videos, total = sample_videos(store, action, max_compared)
    videos.sort(key=lambda video: (video.frames, video.id))
    began = time.perf_counter()
    report = stage_progress(progress, f"{action}: comparing pairs")
    with scratch_folder(out) as scratch:
        pack(scratch, [video.frames for video in videos], _read_numbered(store, videos))
        pairs = fill_matrix(out / "distances.npy", scratch, len(videos), engine=engine, progress=report)
    pair_seconds = time.perf_counter() - began
    distances: Values = np.load(out / "distances.npy", mmap_mode="r", allow_pickle=False)
    scores = median_distances(distances)
    bound = outlier_bound(scores)
    order, clusters = cluster(distances, apart=bound)
    chosen = videos[medoid(distances)] if reference is None else find_reference(store, action, reference)
    began = time.perf_counter()
    report = stage_progress(progress, f"{action}: aligning with the reference")
    how: dict[str, Any] = {"engine": engine, "progress": lambda done: report(done, total)}
    how["template"] = average_nearest(store, videos, distances, chosen, out / "template.npz")
    far = align_with(store, action, chosen, out / "alignments.parquet", **how)
    aligned = AlignedAction(
        action=action,
        total=total,
        videos=videos,
        distances=distances,
        scores=scores,
        bound=bound,
        order=order,
        clusters=clusters,
        reference=chosen,
        far=far,
        pairs=pairs,
        pair_seconds=pair_seconds,
        align_seconds=time.perf_counter() - began,
    )
    _write_videos(aligned, out / "videos.csv")
    return aligned


def sample_videos(store: EmbeddingStore, action: str, count: int) -> tuple[list[CatalogEntry], int]:
    """Draw at most `count` videos of an action, uniformly and the same ones in every run; also count all of them."""
    rng = random.Random(0)
    kept: list[CatalogEntry] = []
    total = 0
    for video in store.catalog.current(action=action):
        total += 1
        if len(kept) < count:
            kept.append(video)
        elif (place := rng.randrange(total)) < count:
            kept[place] = video
    return kept, total


def _read_numbered(store: EmbeddingStore, videos: list[CatalogEntry]) -> Iterator[tuple[int, Any]]:
    """Read embeddings in the order of the shards, each with its number among `videos`."""
    model = store.encoder_file(store.model())
    places = sorted(range(len(videos)), key=lambda k: (videos[k].shard, videos[k].row))
    for place, row in zip(places, store.read(videos[k] for k in places), strict=True):
        assert row.embedding is not None
        yield place, add_energy(model, row.embedding)


def _write_videos(aligned: AlignedAction, file: Path) -> None:
    """Write a table of the compared videos; row k is row k and column k of the distances."""
    rows: list[list[object]] = [["id", "path", "frames", "median_distance", "fits", "cluster"]]
    for video, score, number in zip(aligned.videos, aligned.scores, aligned.clusters, strict=True):
        fits = "yes" if score <= aligned.bound else "no"
        rows.append([video.id, video.path, video.frames, f"{score:.5f}", fits, int(number)])
    write_table(file, rows)


@dataclass(frozen=True)
class ActionSummary:
    """The summary of an aligned action, whose arrays and page are in `folder`.

    Of `videos` in all, `compared` were aligned with each other in `pairs` pairs; `misfits` of them do not fit, the
    worst of which are listed as (id, path, median distance). `bound` is None where there are too few videos for one.
    """

    action: str
    folder: Path
    videos: int
    compared: int
    reference: str
    pairs: int
    pair_seconds: float
    align_seconds: float
    clusters: int
    bound: float | None
    misfits: int
    worst: tuple[tuple[str, str, float], ...]

    @classmethod
    def of(cls, aligned: AlignedAction, folder: Path) -> "ActionSummary":
        """Summarize an aligned action, in memory that does not grow with its videos."""
        return cls(
            action=aligned.action,
            folder=folder,
            videos=aligned.total,
            compared=len(aligned.videos),
            reference=aligned.reference.id,
            pairs=aligned.pairs,
            pair_seconds=aligned.pair_seconds,
            align_seconds=aligned.align_seconds,
            clusters=len(set(aligned.clusters.tolist())),
            bound=aligned.bound if np.isfinite(aligned.bound) else None,
            misfits=len(aligned.misfits),
            worst=tuple((video.id, video.path, score) for video, score in aligned.misfits[:MAX_LISTED]),
        )

    @property
    def pairs_per_second(self) -> float:
        """Return how many pairs were aligned per second."""
        return self.pairs / max(self.pair_seconds, 1e-9)

    def pages(self) -> list[Path]:
        """List the files of the action's page."""
        return sorted([*self.folder.glob("report.*"), *self.folder.glob("figure_*.png")])

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as JSON-ready values."""
        worst = [{"id": id, "path": path, "median_distance": score} for id, path, score in self.worst]
        return {**asdict(self), "folder": str(self.folder), "worst": worst}


def write_overview(actions: Sequence[ActionSummary], store: Path, out: Path) -> list[Path]:
    """Write a page about several actions: a row for each, and the videos that fit worst in all of them."""
    from inphase.evaluation.report import Link, Report, Table, versions, write_report

    rows, worst = [], []
    for each in actions:
        page = Link(each.action, Path(os.path.relpath(each.folder / "report.html", out)).as_posix())
        misfits = "too few videos" if each.bound is None else f"{each.misfits:,}"
        counts = f"{each.videos:,}", misfits, f"{each.pairs:,}", f"{each.pairs_per_second:,.0f}"
        rows.append((page, *counts, each.reference))
        worst += [(score / (each.bound or 1.0), id, page, path) for id, path, score in each.worst]
    head = ("action", "videos", "do not fit", "pairs", "pairs per second", "reference")
    worst = sorted(worst, key=lambda row: -row[0])[:MAX_LISTED]
    misfit = Table(
        "Videos that do not fit, the worst first",
        ("video", "action", "× bound", "file"),
        tuple((id, page, f"{times:.2f}", path) for times, id, page, path in worst),
        note=NOTE if worst else "Every video is about as far from the others of its action as most are.",
        texts=("action", "file"),
    )
    table = Table(f"{len(rows):,} actions", head, tuple(rows), texts=("reference",))
    made = versions(*PACKAGES)
    return write_report(Report(f"Videos of {store.resolve().name} aligned", (table, misfit), versions=made), out)


def write_page(aligned: AlignedAction, store: Path, out: Path) -> list[Path]:
    """Write the page of one action."""
    from inphase.evaluation.report import Report, versions, write_report

    summary = ActionSummary.of(aligned, out)
    about = {
        "videos": f"{summary.videos:,}",
        "reference": summary.reference,
        "compared with each other": "all"
        if summary.compared == summary.videos
        else f"{summary.compared:,} drawn at random",
        "pairs": f"{summary.pairs:,}",
        "pairs per second": f"{summary.pairs_per_second:,.0f}",
        "clusters": str(summary.clusters),
        "median distance of the videos": f"{np.median(aligned.scores):.4f}",
        "bound": "none, with so few videos" if summary.bound is None else f"{summary.bound:.4f}",
    }
    figure = draw_matrix(aligned)
    title = f"{aligned.action}: videos of {store.resolve().name} aligned"
    figures = () if figure is None else (figure,)
    report = Report(title, tuple(_misfit_tables(aligned)), figures, about=about, versions=versions(*PACKAGES))
    return write_report(report, out)


def _misfit_tables(aligned: AlignedAction) -> "list[Table]":
    from inphase.evaluation.report import Number, Table

    rows = [(video.id, Number(score), f"{score / aligned.bound:.2f}", video.path) for video, score in aligned.misfits]
    misfits = Table(
        f"{len(rows):,} {'video does' if len(rows) == 1 else 'videos do'} not fit",
        ("video", "median distance", "× bound", "file"),
        tuple(rows[:MAX_LISTED]),
        note=NOTE if rows else "Every video is about as far from the others as most are.",
        texts=("file",),
    )
    if len(aligned.videos) == aligned.total:
        return [misfits]
    far = [(video.id, Number(distance), video.path) for video, distance in aligned.far[:MAX_LISTED]]
    head, note = ("video", "distance", "file"), "Of all videos, whether they were compared with each other or not."
    return [misfits, Table("Too far from the reference", head, tuple(far), note=note, texts=("file",))]


def draw_matrix(aligned: AlignedAction) -> "Figure | None":
    """Draw the distances, alike videos beside each other; None where matplotlib is not installed."""
    if find_spec("matplotlib") is None or len(aligned.videos) < 2:
        return None
    from matplotlib.figure import Figure as Drawing

    from inphase.evaluation.report import render_figure

    order, count = aligned.order, len(aligned.order)
    values = np.asarray(aligned.distances)[np.ix_(order, order)]
    side = 4.5 + min(count, MAX_NAMES) * 0.07
    drawing = Drawing(figsize=(side + 3.2, side), layout="compressed")
    axes = drawing.subplots()
    shown = axes.imshow(values, cmap="viridis", vmin=0, vmax=float(np.quantile(values, 0.99)) or 1.0)
    drawing.colorbar(shown, ax=axes, label="mean of 1 − cos along the alignment", shrink=0.8)
    misfits, ids = {video.id for video, _ in aligned.misfits}, [aligned.videos[k].id for k in order]
    places = [k for k in range(count) if count <= MAX_NAMES or ids[k] in misfits][:MAX_NAMES]
    names = [ids[k] if len(ids[k]) <= 32 else "…" + ids[k][-31:] for k in places]  # the end is the distinctive part
    axes.set_yticks(places, labels=[name.replace("$", r"\$") for name in names], fontsize=7)
    for label, k in zip(axes.get_yticklabels(), places, strict=True):
        label.set_color("crimson" if ids[k] in misfits else "black")
    axes.set_xticks([])
    caption = f"{count:,} videos of {aligned.action}, alike ones beside each other. Red: do not fit."
    return render_figure(drawing, title="Distances of all pairs", caption=caption)
