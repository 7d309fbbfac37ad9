"""A report: tables, figures, the recipe and the versions, as Markdown, JSON and one HTML page without a server."""

import base64
import html
import io
import json
import math
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from inphase.storage.files import atomic_write, explain_os_errors

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

UNDEFINED = "undefined"


@dataclass(frozen=True)
class Number:
    """A measured number, and its deviation over `count` seeds where there are several. NaN is undefined."""

    mean: float
    deviation: float | None = None
    count: int = 1

    @classmethod
    def of(cls, values: Iterable[float]) -> "Number":
        """Average over seeds; undefined where any seed is: a mean over what happened to work would flatter."""
        listed = list(values)
        if not listed:
            raise ValueError("no values to average")
        deviation = float(np.std(listed, ddof=1)) if len(listed) > 1 else None
        return cls(float(np.mean(listed)), deviation, len(listed))

    def __str__(self) -> str:
        """Write a few decimals, as many of the deviation as of the mean, or say that it is undefined."""
        if math.isnan(self.mean):
            return UNDEFINED
        text = _decimal(self.mean)
        places = len(text.partition(".")[2])
        return text if self.deviation is None else f"{text} ± {self.deviation:.{places or 1}f}"


@dataclass(frozen=True)
class Link:
    """Text that leads to a file, whose path is relative to the page."""

    text: str
    to: str

    def __str__(self) -> str:
        """Give the text alone."""
        return self.text


Cell = Number | Link | str | None  # None: there is no such number


@dataclass(frozen=True)
class Table:
    """Rows of cells under a heading each; the first cell of a row names it.

    Columns named in `published` hold figures that others report, those in `texts` names and files, not numbers.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    published: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse rows of another length than the heading."""
        for row in self.rows:
            if len(row) != len(self.head):
                raise ValueError(f"table {self.title!r} has {len(self.head)} columns, a row has {len(row)}: {row}")


@dataclass(frozen=True)
class Figure:
    """A picture with words below it."""

    title: str
    png: bytes
    caption: str = ""


@dataclass(frozen=True)
class Report:
    """What was measured, of what, and with what."""

    title: str
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...] = ()
    details: tuple[Table, ...] = ()  # tables that follow the figures
    recipe: str = ""
    notes: tuple[str, ...] = ()
    about: dict[str, str] = field(default_factory=dict)  # command, data, machine, time …
    versions: dict[str, str] = field(default_factory=dict)


def versions(*packages: str) -> dict[str, str]:
    """Say which versions made the numbers."""
    found = {"Python": platform.python_version()}
    for name in packages or ("inphase", "torch", "numpy", "scipy", "scikit-learn", "numba"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def picture(drawing: "Drawing", *, title: str, caption: str = "") -> Figure:
    """Keep what matplotlib drew."""
    kept = io.BytesIO()
    drawing.savefig(kept, format="png", dpi=150)
    return Figure(title, kept.getvalue(), caption)


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write report.md with its pictures, report.json and report.html into a folder; give the files."""
    with explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    names = [f"figure_{number}.png" for number in range(1, len(report.figures) + 1)]
    contents = {
        **{name: figure.png for name, figure in zip(names, report.figures, strict=True)},
        "report.md": to_markdown(report, pictures=names).encode(),
        "report.json": to_json(report).encode(),
        "report.html": to_html(report).encode(),
    }
    for name, content in contents.items():
        with atomic_write(folder / name) as part:
            part.write_bytes(content)
    return [folder / name for name in contents]


def to_markdown(report: Report, *, pictures: Sequence[str] = ()) -> str:
    """Write the report as Markdown; `pictures` are the figures' files, beside it."""
    parts = [f"# {_plain(report.title)}", *map(_plain, report.notes)]
    parts.append("\n".join(f"- {_plain(name)}: {_plain(text)}" for name, text in report.about.items()))
    parts += [_markdown_table(table) for table in report.tables]
    for figure, name in zip(report.figures, pictures, strict=False):
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
    """Write the report as JSON: an undefined number has the mean null; figures are left to their files."""
    content = {
        "title": report.title,
        "about": report.about,
        "notes": report.notes,
        "tables": [
            {
                "title": table.title,
                "head": table.head,
                "published": table.published,
                "rows": [[_value(cell) for cell in row] for row in table.rows],
                "note": table.note,
            }
            for table in (*report.tables, *report.details)
        ],
        "figures": [{"title": figure.title, "caption": figure.caption} for figure in report.figures],
        "recipe": report.recipe,
        "versions": report.versions,
    }
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def to_html(report: Report) -> str:
    """Write the report as one page that asks nobody for anything: style and pictures are in it."""
    parts = [f"<h1>{html.escape(report.title)}</h1>", *(f"<p>{html.escape(note)}</p>" for note in report.notes)]
    about = "".join(f"<dt>{html.escape(name)}<dd>{html.escape(text)}" for name, text in report.about.items())
    parts.append(f"<dl>{about}</dl>" if about else "")
    parts += [_html_table(table) for table in report.tables]
    for figure in report.figures:
        data, title = base64.b64encode(figure.png).decode(), html.escape(figure.title)
        parts.append(f'<h2>{title}</h2><figure><img alt="{title}" src="data:image/png;base64,{data}">')
        parts.append(f"<figcaption>{html.escape(figure.caption)}</figcaption></figure>")
    parts += [_html_table(table) for table in report.details]
    if report.recipe:
        parts.append(f"<h2>Recipe</h2><pre>{html.escape(report.recipe)}</pre>")
    made = ", ".join(f"{html.escape(name)} {html.escape(v)}" for name, v in report.versions.items())
    parts.append(f"<p class=note>Made with {made}</p>" if made else "")
    return _PAGE.format(title=html.escape(report.title), body="\n".join(part for part in parts if part))


def _html_table(table: Table) -> str:
    kinds = [
        [kind for kind, names in (("published", table.published), ("text", table.texts)) if name in names]
        for name in table.head
    ]
    marked = [f' class="{" ".join(kind)}"' if kind else "" for kind in kinds]
    head = "".join(f"<th{mark}>{html.escape(name)}" for name, mark in zip(table.head, marked, strict=True))
    rows = "".join(
        "<tr>" + "".join(f"<td{mark}>{_cell(cell)}" for cell, mark in zip(row, marked, strict=True))
        for row in table.rows
    )
    shown = f"<div class=wide><table><thead><tr>{head}</thead><tbody>{rows}</tbody></table></div>"
    note = f"<p class=note>{html.escape(table.note)}</p>" if table.note else ""
    return f"<h2>{html.escape(table.title)}</h2>\n{shown}\n{note}"


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 82rem; margin: 2rem auto; padding: 0 1rem }}
h2 {{ margin: 2.2rem 0 .5rem; font-size: 1.15rem }}
.wide {{ overflow-x: auto }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums }}
th, td {{ padding: .25rem .9rem .25rem 0; text-align: right; white-space: nowrap }}
th:first-child, td:first-child, .text {{ text-align: left }}
@media (max-width: 40rem) {{ td:first-child {{ min-width: 9rem; white-space: normal; overflow-wrap: anywhere }} }}
thead th {{ border-bottom: 1px solid; font-weight: 600; white-space: normal; vertical-align: bottom; max-width: 8rem }}
tbody tr:nth-child(even) {{ background: color-mix(in srgb, currentColor 5%, transparent) }}
.published, .undefined, .note {{ opacity: .65 }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; font-size: .93em }}
dt {{ opacity: .65 }}
dd {{ margin: 0; overflow-wrap: anywhere }}
.undefined {{ font-style: italic }}
figure {{ margin: 0 }}
img {{ max-width: min(100%, 56rem); background: #fff }}
pre {{ overflow-x: auto; padding: .8rem; background: color-mix(in srgb, currentColor 6%, transparent) }}
</style>
{body}
</html>
"""


def _decimal(number: float) -> str:
    """Write a number so that a table reads: four decimals below 10, two below 1,000, none where it is whole."""
    size = abs(number)
    if size >= 1000 or (size >= 10 and number == round(number)):
        return f"{number:,.0f}"
    return f"{number:.4f}" if size < 10 else f"{number:.2f}"


def _text(cell: Cell) -> str:
    return "–" if cell is None else str(cell)


def _cell(cell: Cell) -> str:
    text = html.escape(_text(cell))
    if isinstance(cell, Link):
        return f'<a href="{html.escape(quote(cell.to))}">{text}</a>'
    return f"<span class=undefined>{text}</span>" if isinstance(cell, Number) and text == UNDEFINED else text


def _value(cell: Cell) -> Any:
    if not isinstance(cell, Number):
        return cell.text if isinstance(cell, Link) else cell
    numbers = {"mean": cell.mean, "deviation": cell.deviation}
    return {name: None if v is None or math.isnan(v) else v for name, v in numbers.items()} | {"count": cell.count}


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(_plain(cell) for cell in cells) + " |"


def _plain(text: str) -> str:
    """Keep Markdown from reading more than text into names."""
    for mark in ("\\", "|", "<", ">", "*", "`", "[", "]"):
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())
