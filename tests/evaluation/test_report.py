import json
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure as Drawing

from inphase.evaluation.report import (
    Link,
    Number,
    Report,
    Table,
    render_figure,
    to_html,
    to_json,
    to_markdown,
    versions,
    write_report,
)
from inphase.storage.errors import MissingExtraError

NASTY = '<script>alert("x")</script> | [a](b) `c` \\ *d*'


def report() -> Report:
    drawing = Drawing(figsize=(1, 1))
    drawing.add_subplot().plot([0, 1])
    table = Table(
        "Kendall's τ",
        ("method", "ours", "paper"),
        (("gta", Number.of([0.7, 0.8]), "74.84"), (NASTY, Number(float("nan")), None)),
        note="over 2 seeds",
        published=("paper",),
    )
    figures = (render_figure(drawing, title=NASTY, caption="a caption"),)
    return Report(
        NASTY, (table,), figures, recipe="a = '<b>'\n```\n", notes=("said & done",), versions=versions("numpy")
    )


class Reader(HTMLParser):
    """List the tags, their attributes, and the cells."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_number_is_its_mean_and_deviation_or_undefined() -> None:
    assert str(Number(0.74839)) == "0.7484"
    assert str(Number.of([1, 2, 3])) == "2.0000 ± 1.0000"
    assert Number.of([1, 2, 4]).deviation == pytest.approx(np.std([1, 2, 4], ddof=1))
    assert [str(Number(value)) for value in (12.3456, 22650, -0.5)] == ["12.35", "22,650", "-0.5000"]
    assert str(Number.of([0.9, float("nan")])) == "undefined"
    with pytest.raises(ValueError, match="no values"):
        Number.of([])
    with pytest.raises(ValueError, match="has 2 columns, a row has 1"):
        Table("t", ("a", "b"), (("x",),))


def test_the_page_is_text_only_where_text_was_given_and_fetches_nothing() -> None:
    reader = Reader()
    page = to_html(report())
    reader.feed(page)
    assert "script" not in reader.tags
    assert NASTY in reader.text
    assert len(reader.links) == 1
    assert reader.links[0].startswith("data:image/png;base64,")
    assert "http://" not in page
    assert "https://" not in page
    assert "undefined" in reader.text
    assert "0.7500 ± 0.0707" in reader.text


def test_markdown_keeps_its_columns_whatever_the_names() -> None:
    lines = to_markdown(report(), image_files=["figure_1.png"]).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert rows[0] == "| method | ours | paper (published) |"
    assert rows[2] == "| gta | 0.7500 ± 0.0707 | 74.84 |"
    assert rows[3].replace("\\|", "").count("|") == 4
    assert rows[3].endswith("| undefined | – |")
    assert "````toml" in lines


def test_files_hold_the_same_numbers(tmp_path: Path) -> None:
    files = write_report(report(), tmp_path / "new" / "folder")
    assert sorted(file.name for file in files) == ["figure_1.png", "report.html", "report.json", "report.md"]
    written = sorted(file.name for file in (tmp_path / "new" / "folder").iterdir())
    assert written == sorted(["SHA256SUMS", *(file.name for file in files)])
    content = json.loads((tmp_path / "new" / "folder" / "report.json").read_text(encoding="utf-8"))
    assert content["title"] == NASTY
    assert content["tables"][0]["rows"][0][1] == pytest.approx(
        {"mean": 0.75, "deviation": np.std([0.7, 0.8], ddof=1), "count": 2}
    )
    assert content["tables"][0]["rows"][1][1]["mean"] is None
    assert (tmp_path / "new" / "folder" / "figure_1.png").read_bytes().startswith(b"\x89PNG")


def test_a_cell_leads_to_another_page() -> None:
    table = Table("actions", ("action", "file"), ((Link("a & <b>", 'a "b"/report.html'), "x"),), texts=("file",))
    page = to_html(Report("all", (table,)))
    assert '<a href="a%20%22b%22/report.html">a &amp; &lt;b&gt;</a>' in page
    assert '<th class="text">file' in page
    assert "a & " in to_markdown(Report("all", (table,)))
    assert json.loads(to_json(Report("all", (table,))))["tables"][0]["rows"] == [["a & <b>", "x"]]


def test_a_missing_jinja_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=r"^HTML reports need Jinja2: pip install 'inphase\[eval\]'$"):
        to_html(report())
