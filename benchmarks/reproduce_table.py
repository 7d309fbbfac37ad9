"""Insert the tables of reports into docs/lab/reproduce.md, so that no number is copied by hand.

    python -m benchmarks.reproduce_table reproduced/*/*/report.json [--page docs/lab/reproduce.md] [--suffix newer]

A report is identified by its study, data set, modality and budget, and a suffix where one is given: a new report
replaces the previous one of the same key and leaves the others unchanged.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs" / "lab" / "reproduce.md"
BEGIN, END = "<!-- report {key} -->", "<!-- end of report -->"
LAST = "<!-- reports end here -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("reports", type=Path, nargs="+")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--suffix", default="", help="keep these reports beside others of the same key")
    chosen = parser.parse_args()
    text = chosen.page.read_text(encoding="utf-8")
    for file in chosen.reports:
        text = insert(text, json.loads(file.read_text(encoding="utf-8")), suffix=chosen.suffix)
    chosen.page.write_text(text, encoding="utf-8")


def insert(page: str, report: dict[str, Any], *, suffix: str = "") -> str:
    """Insert a report into a page: replace the one of the same key, or append it."""
    key = f"{key_of(report['about']['command'])} {suffix}".rstrip()
    block = f"{BEGIN.format(key=key)}\n{lay_out(report)}\n{END}\n"
    own = re.compile(re.escape(BEGIN.format(key=key)) + r"\n.*?" + re.escape(END) + r"\n", re.DOTALL)
    if own.search(page):
        return own.sub(lambda _: block, page)
    if page.count(LAST) != 1:
        raise ValueError(f"the page has no single line {LAST}: add one where new reports go")
    return page.replace(LAST, f"{block}\n{LAST}")


def key_of(command: str) -> str:
    """Return the key of a report: its study, data set, modality and budget."""
    words = command.split()
    given = {word: words[place + 1] for place, word in enumerate(words[:-1]) if word.startswith("--")}
    parts = [given[name] for name in ("--data", "--modality", "--budget") if name in given]
    return " ".join([words[2], *parts])


def lay_out(report: dict[str, Any]) -> str:
    """Format a report: its command, its tables except the one of runs, and the caveat about the paper's numbers."""
    about, tables = report["about"], [table for table in report["tables"] if table["title"] != "Runs"]
    lines = [f"### {report['title']}", "", f"`{about['command']}`  "]
    if "trained on" in about:
        lines += [f"{about['trained on']}; training {about['training took']}.", ""]
        lines += [f"Not comparable with the paper: {about['not comparable']}."]
    for place, table in enumerate(tables):
        lines += ["", *([f"{table['title']}:", ""] if place else [])]
        lines += [_row(table["head"]), _row(["---", *["---:"] * (len(table["head"]) - 1)])]
        lines += [_row([_cell(cell) for cell in row]) for row in table["rows"]]
    return "\n".join([*lines, "", " ".join([tables[0]["note"], *report["notes"]])])


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _cell(cell: Any) -> str:
    """Format a cell, a mean and deviation with one or two decimals."""
    if not isinstance(cell, dict):
        return "–" if cell is None else str(cell)
    if cell["mean"] is None:
        return "undefined"
    spread = "" if cell["deviation"] is None else f" ± {_decimal(cell['deviation'])}"
    return f"{_decimal(cell['mean'])}{spread}"


def _decimal(number: float) -> str:
    return f"{number:.1f}" if abs(number) >= 10 else f"{number:.2f}"


if __name__ == "__main__":
    main()
