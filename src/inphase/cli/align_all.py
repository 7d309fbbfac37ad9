"""`inphase align-all`: all videos of an action with each other and with one reference."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import tyro
from rich.console import Console
from rich.markup import escape

from inphase.cli.corpus import Ray
from inphase.cli.looking import bars

if TYPE_CHECKING:
    from inphase.corpus.align_corpus import Compared
    from inphase.corpus.embedding_store import Fact
    from inphase.evaluation.report import Cell, Figure, Report, Table

StoreGiven = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="STORE", help="made by `inphase embed`")]

# Names are written beside a matrix of at most so many videos.
NAMED = 60
# Videos named in a table of the page.
LISTED = 100
NOTE = "Their median distance to the others is beyond the bound: the median of all and 3.5 robust deviations."


def align_all(
    store: StoreGiven,
    *,
    action: tuple[str, ...] = (),
    reference: str | None = None,
    most: int = 2000,
    out: Path = Path("out/align-all"),
    workers: int | None = None,
    device: str = "auto",
    ray: Ray = None,
) -> None:
    """Align every video of an action with one reference and all pairs with each other; show which do not fit.

    Writes report.html, with a page for every action where there are several, and for every action distances.npy,
    videos.csv and alignments.parquet, which has for each frame of the reference the second of the video that goes with
    it.

    Args:
        store: the embeddings.
        action: which actions; all of them where none is named.
        reference: the video to align with; the one nearest to all others where none is named.
        most: compare all pairs of at most so many videos of an action, drawn at random where there are more.
        out: the folder to write.
        workers: threads; one for every core where nothing is said.
        device: where costs and tables are computed: auto, cpu or cuda.
        ray: where a Ray cluster is that compares the pairs.
    """
    from inphase.corpus.align_corpus import align_action
    from inphase.corpus.embedding_store import EmbeddingStore
    from inphase.corpus.pair_engines import in_actors, in_threads
    from inphase.evaluation.report import write_report
    from inphase.models.encoder import choose_device

    device = choose_device(device)
    workers = workers or (2 if device == "cuda" else os.cpu_count() or 1)
    engine = in_threads(workers=workers, device=device) if ray is None else in_actors(ray)
    console = Console()
    with EmbeddingStore(store) as opened:
        actions = action or tuple(opened.catalogue.counts("action"))
        if not actions:
            raise ValueError(f"{store} holds no embedding yet: fill it with `inphase embed`")
        if reference is not None and len(actions) > 1:
            raise ValueError(f"--reference is a video of one action: name which with --action ({', '.join(actions)})")
        several = Overview()
        for folder, name in zip(folders(out, actions), actions, strict=True):
            with bars() as bar:
                tasks = {"": bar.add_task(escape(name), total=None)}

                def tell(doing: str, done: int, total: int) -> None:
                    bar.update(tasks[""], description=f"{escape(name)}: {doing}", completed=done, total=total)  # noqa: B023

                compared = align_action(
                    opened, name, folder, engine=engine, reference=reference, most=most, progress=tell
                )
            console.print(said(compared), soft_wrap=True)
            write_report(report_of(compared, store), out if len(actions) == 1 else folder)
            several.add(compared, folder.name)
    if len(actions) > 1:
        write_report(several.report(store), out)
    console.print(f"[green]{escape(str(out / 'report.html'))}[/green]")


def folders(out: Path, actions: tuple[str, ...]) -> list[Path]:
    """Name a folder for every action: letters of any script, nothing that leads elsewhere, none twice."""
    names: list[str] = []
    for number, action in enumerate(actions):
        name = re.sub(r"[^\w .-]", "_", action).strip(". ") or "action"
        names.append(name if name.lower() not in {other.lower() for other in names} else f"{name}-{number}")
    return [out / name for name in names]


def said(compared: "Compared") -> str:
    """Say what was done, how fast, and what stands out."""
    speed = compared.pairs / max(compared.pair_seconds, 1e-9)
    line = (
        f"[bold]{escape(compared.action)}[/bold]: {compared.total:,} videos, reference {escape(compared.reference.id)}"
    )
    line += f"; {compared.pairs:,} pairs in {compared.pair_seconds:.1f} s ({speed:,.0f} pairs/s)"
    misfits = [fact.id for fact, _ in compared.misfits]
    if misfits:
        more = f" and {len(misfits) - 5} more" if len(misfits) > 5 else ""
        line += f"; [yellow]{len(misfits)} do not fit: {escape(', '.join(misfits[:5]))}{more}[/yellow]"
    return line


class Overview:
    """What a page about several actions says: a line of each, and what fits worst in all of them.

    The page of each action is written before the next one begins: nothing grows but this.
    """

    def __init__(self) -> None:
        """Begin with no action."""
        self._rows: list[tuple[Cell, ...]] = []
        self._worst: list[tuple[float, Fact, Cell]] = []

    def add(self, compared: "Compared", folder: str) -> None:
        """Enter an action, whose page is in a folder beside this one's."""
        from inphase.evaluation.report import Link

        misfits, page = compared.misfits, Link(compared.action, f"{folder}/report.html")
        counts = f"{compared.total:,}", f"{len(misfits):,}" if np.isfinite(compared.bound) else "too few to tell"
        speed = compared.pairs / max(compared.pair_seconds, 1e-9)
        self._rows.append((page, *counts, f"{compared.pairs:,}", f"{speed:,.0f}", compared.reference.id))
        worst = [*self._worst, *((score / compared.bound, fact, page) for fact, score in misfits)]
        self._worst = sorted(worst, key=lambda each: -each[0])[:LISTED]

    def report(self, store: Path) -> "Report":
        """Write the page."""
        from inphase.evaluation.report import Report, Table

        head = ("action", "videos", "do not fit", "pairs", "pairs a second", "reference")
        actions = Table(f"{len(self._rows):,} actions", head, tuple(self._rows), texts=("reference",))
        rows = tuple((fact.id, page, f"{times:.2f}", fact.path) for times, fact, page in self._worst)
        misfits = Table(
            "Videos that do not fit, the worst first",
            ("video", "action", "× bound", "file"),
            rows,
            note=NOTE if rows else "Every video is about as far from the others of its action as most are.",
            texts=("action", "file"),
        )
        return Report(f"Videos of {store.resolve().name} aligned", (actions, misfits), versions=_versions())


def report_of(compared: "Compared", store: Path) -> "Report":
    """Write the page of one action."""
    from inphase.evaluation.report import Report

    figure = draw_matrix(compared)
    title = f"{compared.action}: videos of {store.resolve().name} aligned"
    figures = () if figure is None else (figure,)
    return Report(title, tuple(tables_of(compared)), figures, about=about(compared), versions=_versions())


def _versions() -> dict[str, str]:
    from inphase.evaluation.report import versions

    return versions("inphase", "torch", "numpy", "scipy", "numba", "pyarrow")


def about(compared: "Compared") -> dict[str, str]:
    """Say how an action was compared."""
    speed = compared.pairs / max(compared.pair_seconds, 1e-9)
    drawn = "all" if len(compared.facts) == compared.total else f"{len(compared.facts):,} drawn at random"
    return {
        "videos": f"{compared.total:,}",
        "reference": compared.reference.id,
        "compared with each other": drawn,
        "pairs": f"{compared.pairs:,}",
        "pairs a second": f"{speed:,.0f}",
        "clusters": str(len(set(compared.clusters.tolist()))),
        "median distance of the videos": f"{np.median(compared.scores):.4f}",
        "bound": f"{compared.bound:.4f}" if np.isfinite(compared.bound) else "none, with so few videos",
    }


def tables_of(compared: "Compared") -> "list[Table]":
    """Tabulate what does not fit."""
    from inphase.evaluation.report import Number, Table

    rows = [(fact.id, Number(score), f"{score / compared.bound:.2f}", fact.path) for fact, score in compared.misfits]
    misfits = Table(
        f"{len(rows):,} {'video does' if len(rows) == 1 else 'videos do'} not fit",
        ("video", "median distance", "× bound", "file"),
        tuple(rows[:LISTED]),
        note=NOTE if rows else "Every video is about as far from the others as most are.",
        texts=("file",),
    )
    if len(compared.facts) == compared.total:
        return [misfits]
    far = [(fact.id, Number(distance), fact.path) for fact, distance in compared.far[:LISTED]]
    head, note = ("video", "distance", "file"), "Of all videos, whether they were compared with each other or not."
    return [misfits, Table("Too far from the reference", head, tuple(far), note=note, texts=("file",))]


def draw_matrix(compared: "Compared") -> "Figure | None":
    """Draw the distances, those alike beside each other; nothing where matplotlib is not installed."""
    from importlib.util import find_spec

    from inphase.evaluation.report import picture

    if find_spec("matplotlib") is None or len(compared.facts) < 2:
        return None
    from matplotlib.figure import Figure as Drawing

    order = compared.order
    values = np.asarray(compared.distances)[np.ix_(order, order)]
    count = len(order)
    side = 4.5 + min(count, NAMED) * 0.07
    drawing = Drawing(figsize=(side + 3.2, side), layout="compressed")
    axes = drawing.subplots()
    shown = axes.imshow(values, cmap="viridis", vmin=0, vmax=float(np.quantile(values, 0.99)) or 1.0)
    drawing.colorbar(shown, ax=axes, label="mean of 1 − cos along the alignment", shrink=0.8)
    misfits = {fact.id for fact, _ in compared.misfits}
    places = [k for k in range(count) if count <= NAMED or compared.facts[order[k]].id in misfits][:NAMED]
    names = [_short(compared.facts[order[k]].id) for k in places]
    axes.set_yticks(places, labels=[name.replace("$", r"\$") for name in names], fontsize=7)
    for label, k in zip(axes.get_yticklabels(), places, strict=True):
        label.set_color("crimson" if compared.facts[order[k]].id in misfits else "black")
    axes.set_xticks([])
    caption = f"{count:,} videos of {compared.action}, those alike beside each other. Red: do not fit."
    return picture(drawing, title="Distances of all pairs", caption=caption)


def _short(name: str) -> str:
    """Keep the end of a long name, which tells videos apart."""
    return name if len(name) <= 32 else "…" + name[-31:]
