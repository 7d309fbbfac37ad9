"""Reports: tables, figures, the recipe and package versions, as Markdown, JSON and one self-contained HTML page."""

import base64
import io
import json
import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from inphase.evaluation.scores import Score, select
from inphase.evaluation.tasks.few_shot import plot_few_shot
from inphase.progress import Summary
from inphase.storage.errors import MissingExtraError
from inphase.storage.files import SHA256SUMS, atomic_write, explain_os_errors, write_sums

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

UNDEFINED = "undefined"


@dataclass(frozen=True)
class Number:
    """A measured number, and its standard deviation over `count` seeds if there are several; NaN is undefined."""

    mean: float
    deviation: float | None = None
    count: int = 1

    @classmethod
    def of(cls, values: Iterable[float]) -> "Number":
        """Average over seeds; undefined if it is for any seed, because the mean of the others would flatter."""
        listed = list(values)
        if not listed:
            raise ValueError("no values to average")
        deviation = float(np.std(listed, ddof=1)) if len(listed) > 1 else None
        return cls(float(np.mean(listed)), deviation, len(listed))

    def __str__(self) -> str:
        """Format with a few decimals, as many of the deviation as of the mean, or as "undefined"."""
        if math.isnan(self.mean):
            return UNDEFINED
        text = _decimal(self.mean)
        places = len(text.partition(".")[2])
        return text if self.deviation is None else f"{text} ± {self.deviation:.{places or 1}f}"


@dataclass(frozen=True)
class Link:
    """A hyperlink to a file, whose path is relative to the page."""

    text: str
    to: str

    def __str__(self) -> str:
        """Return the text of the link."""
        return self.text


Cell = Number | Link | str | None  # None: no such number


@dataclass(frozen=True)
class Table:
    """Rows of cells below a head; the first cell of a row names it.

    Columns named in `published` hold numbers from publications, those in `texts` names and files instead of numbers. A
    `detail` table is printed on the terminal only on request.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    published: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    detail: bool = False

    def __post_init__(self) -> None:
        """Raise if a row does not have as many cells as the head."""
        for row in self.rows:
            if len(row) != len(self.head):
                raise ValueError(f"table {self.title!r} has {len(self.head)} columns, a row has {len(row)}: {row}")

    def summary(self) -> Summary:
        """Return the table as text; an absent number is a dash."""
        rows = [["–" if cell is None else str(cell) for cell in row] for row in self.rows]
        columns = (self.head[0], *(f">{name}" for name in self.head[1:]))
        return Summary((), (), self.title, columns, rows, caption=self.note, is_detail=self.detail)


@dataclass(frozen=True)
class Figure:
    """An image with a title and a caption."""

    title: str
    png: bytes
    caption: str = ""


@dataclass(frozen=True)
class Report:
    """Tables and figures, and what they were made with; `scores` replace the tables in report.json."""

    title: str
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...] = ()
    details: tuple[Table, ...] = ()  # tables that follow the figures
    scores: tuple[Score, ...] = ()
    recipe: str = ""
    notes: tuple[str, ...] = ()
    about: dict[str, str] = field(default_factory=dict)  # command, data, machine, time …
    versions: dict[str, str] = field(default_factory=dict)


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python and of packages, if they are installed."""
    found = {"Python": platform.python_version()}
    for name in packages or ("inphase", "torch", "numpy", "scipy", "scikit-learn", "numba"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def render_figure(drawing: "Drawing", *, title: str, caption: str = "") -> Figure:
    """Render a matplotlib figure as PNG."""
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="png", dpi=150)
    return Figure(title, buffer.getvalue(), caption)


def summarize_scores(
    scores: Sequence[Score],
    *,
    title: str,
    left_out: Mapping[str, str] | None = None,
    sizes: Mapping[str, int] | None = None,
    recipe: str = "",
) -> Report:
    """Lay out the scores of each task, the controls as columns, and plot the few-shot curve."""
    tables, details = [], []
    for task in dict.fromkeys(score.task for score in scores):
        rows = select(scores, task=task)
        tables.append(_score_table(task, [row for row in rows if not row.is_detail], note=NOTES.get(task, "")))
        if any(row.is_detail for row in rows):
            name = f"{task}, by action and event"
            details.append(replace(_score_table(name, [row for row in rows if row.is_detail]), detail=True))
    reasons = [f"{task} left out: {reason}" for task, reason in (left_out or {}).items()]
    return Report(
        title=title,
        tables=(*tables, *details),
        figures=_few_shot_figure(select(scores, task="few_shot")),
        scores=tuple(scores),
        recipe=recipe,
        notes=(", ".join(f"{count:,} {name}" for name, count in (sizes or {}).items()), *reasons),
        versions=versions(),
    )


OWN = "this run"


def _score_table(title: str, scores: Sequence[Score], *, note: str = "") -> Table:
    """Lay out scores: a row for each label of the encoder itself, a column for each control."""
    columns = {
        control: {score.label: Number(score.value) for score in select(scores, control=control)}
        for control in dict.fromkeys(score.control for score in scores)
    }
    rows = tuple((label, *(column.get(label) for column in columns.values())) for label in columns[None])
    return Table(title, ("", *(control or OWN for control in columns)), rows, note=note)


def _few_shot_figure(scores: Sequence[Score]) -> tuple[Figure, ...]:
    """Plot the few-shot curves, if there are any and matplotlib is installed."""
    if not scores or find_spec("matplotlib") is None:
        return ()
    controls = dict.fromkeys(score.control for score in scores)
    curves = {control or OWN: select(scores, control=control) for control in controls}
    return (render_figure(plot_few_shot(curves), title="Few-shot classification", caption=NOTES["few_shot"]),)


# How to read the scores of a task; docs/research/evaluation.md has the definitions.
NOTES = {
    "kendall_tau": "Order of nearest neighbors; rewards anything that grows with time. unclamped: only frames whose "
    "whole context exists, in both videos; unclamped_queries: in the first video only.",
    "event_error": "Key events transferred from video to video: error in frames, or in fractions of the length. "
    "Less is better.",
    "alignment_error": "Difference in canonical time of matched frames. Less is better.",
    "phase_classification": "Fraction of frames whose phase a support vector machine predicts correctly, by kernel, "
    "features and fraction of labeled videos.",
    "few_shot": "Accuracy from k labeled videos of each action; mean over episodes, half of its 95 % interval.",
    "phase_progression": "R² of a linear regression of the time since each key event.",
    "frame_retrieval": "Fraction of the nearest frames in other videos that have the same phase.",
    "cycle_error": "Frames that do not return to themselves by nearest neighbors there and back. Less is better.",
    "sound_recall": "How often a second of sound retrieves its event within ±0.5 s, and the reverse.",
    "health": "mean_cosine 1 or variance 0: collapsed to a point. effective_rank: dimensions in use.",
}


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write report.md with its images, report.json and report.html into a folder, and SHA256SUMS; return the files."""
    with explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    names = [f"figure_{number}.png" for number in range(1, len(report.figures) + 1)]
    contents = {
        **{name: figure.png for name, figure in zip(names, report.figures, strict=True)},
        "report.md": to_markdown(report, image_files=names).encode(),
        "report.json": to_json(report).encode(),
        "report.html": to_html(report).encode(),
    }
    (folder / SHA256SUMS).unlink(missing_ok=True)  # it describes the files that are about to be replaced
    for name, content in contents.items():
        with atomic_write(folder / name) as part:
            part.write_bytes(content)
    write_sums(folder, list(contents))
    return [folder / name for name in contents]


def to_markdown(report: Report, *, image_files: Sequence[str] = ()) -> str:
    """Format the report as Markdown; `image_files` are the names of the figures' files."""
    parts = [f"# {_plain(report.title)}", *map(_plain, report.notes)]
    parts.append("\n".join(f"- {_plain(name)}: {_plain(text)}" for name, text in report.about.items()))
    parts += [_markdown_table(table) for table in report.tables]
    for figure, name in zip(report.figures, image_files, strict=False):
        parts += [f"## {_plain(figure.title)}", f"![{_plain(figure.title)}]({name})", _plain(figure.caption)]
    parts += [_markdown_table(table) for table in report.details]
    if report.recipe:
        fence = "```"
        while fence in report.recipe:
            fence += "`"
        parts += ["## Recipe", f"{fence}toml\n{report.recipe.rstrip()}\n{fence}"]
    if report.versions:
        parts.append("Made with " + ", ".join(f"{_plain(name)} {_plain(v)}" for name, v in report.versions.items()))
    return "\n\n".join(part for part in parts if part) + "\n"


def _markdown_table(table: Table) -> str:
    head = [f"{name} (published)" if name in table.published else name for name in table.head]
    lines = [_row(head), _row(["---", *["---:"] * (len(head) - 1)])]
    lines += [_row([_text(cell) for cell in row]) for row in table.rows]
    return "\n\n".join([f"## {_plain(table.title)}", "\n".join(lines), *([_plain(table.note)] if table.note else [])])


def to_json(report: Report) -> str:
    """Format the report as JSON: undefined numbers are null; figures have files of their own."""
    content: dict[str, Any] = {"title": report.title, "about": report.about, "notes": report.notes}
    if report.scores:
        content["scores"] = [score.to_dict() for score in report.scores]
    else:
        content["tables"] = [_json_table(table) for table in (*report.tables, *report.details)]
    content |= {
        "figures": [{"title": figure.title, "caption": figure.caption} for figure in report.figures],
        "recipe": report.recipe,
        "versions": report.versions,
    }
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _json_table(table: Table) -> dict[str, Any]:
    return {
        "title": table.title,
        "head": table.head,
        "published": table.published,
        "rows": [[_value(cell) for cell in row] for row in table.rows],
        "note": table.note,
    }


def to_html(report: Report) -> str:
    """Render the report as one self-contained page: style and images are embedded."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as error:
        raise MissingExtraError("HTML reports need Jinja2: pip install 'inphase[eval]'") from error
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("report.html.j2").render(
        report=report,
        tables=[_html_table(table) for table in report.tables],
        figures=[(figure, base64.b64encode(figure.png).decode()) for figure in report.figures],
        details=[_html_table(table) for table in report.details],
    )


def _html_table(table: Table) -> dict[str, Any]:
    """Prepare a table for the template: the class of each column, and the text and link of each cell."""
    kinds = [
        " ".join(kind for kind, names in (("published", table.published), ("text", table.texts)) if name in names)
        for name in table.head
    ]
    rows = [[_html_cell(cell, kind) for cell, kind in zip(row, kinds, strict=True)] for row in table.rows]
    return {"title": table.title, "note": table.note, "head": list(zip(table.head, kinds, strict=True)), "rows": rows}


def _html_cell(cell: Cell, kind: str) -> dict[str, Any]:
    return {
        "text": _text(cell),
        "kind": kind,
        "href": quote(cell.to) if isinstance(cell, Link) else "",
        "is_undefined": isinstance(cell, Number) and str(cell) == UNDEFINED,
    }


def _decimal(number: float) -> str:
    """Format a number: four decimals below 10, two below 1,000, none for whole numbers above."""
    size = abs(number)
    if size >= 1000 or (size >= 10 and number == round(number)):
        return f"{number:,.0f}"
    return f"{number:.4f}" if size < 10 else f"{number:.2f}"


def _text(cell: Cell) -> str:
    return "–" if cell is None else str(cell)


def _value(cell: Cell) -> Any:
    if not isinstance(cell, Number):
        return cell.text if isinstance(cell, Link) else cell
    numbers = {"mean": cell.mean, "deviation": cell.deviation}
    return {name: None if v is None or math.isnan(v) else v for name, v in numbers.items()} | {"count": cell.count}


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(_plain(cell) for cell in cells) + " |"


def _plain(text: str) -> str:
    """Escape the characters that Markdown interprets."""
    for mark in ("\\", "|", "<", ">", "*", "`", "[", "]"):
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())
