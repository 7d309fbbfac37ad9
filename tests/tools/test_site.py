"""The documentation: its generated pages are complete, and the site builds without a broken link."""

import subprocess
import sys
from pathlib import Path

import pytest

import inphase
from inphase import cli

ROOT = Path(__file__).parents[2]
pytest.importorskip("mkdocs", reason="needs the extra docs: make docs")
site = pytest.importorskip("tools.site")


def test_every_command_is_documented() -> None:
    page = site.commands_page()
    assert all(f"\n### inphase {name}\n" in page for name in cli.COMMANDS)
    assert "--subsequence" in page
    assert "\x1b" not in page


def test_every_public_name_is_documented() -> None:
    lines = site.library_page().splitlines()
    documented = {line.rpartition(".")[2] for line in lines if line.startswith("::: ")}
    assert set(inphase.__all__) <= documented
    assert "::: inphase.reproduction.reproduce.reproduce" in lines


def test_every_recipe_file_is_shown() -> None:
    page = site.recipes_page()
    assert all(f"## {path.stem}\n" in page for path in site.RECIPES.glob("*.toml"))
    assert "`golf_pose_tcc`" in page


def test_doctests_are_fenced_up_to_the_empty_line() -> None:
    text = "Add.\n\n    >>> 1 + 1\n    2\n\n    More words.\n"
    assert site.fence_doctests(text) == "Add.\n\n    ```python\n    >>> 1 + 1\n    2\n    ```\n\n    More words.\n"


@pytest.mark.slow
def test_the_site_builds_offline_and_every_link_leads_somewhere(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path / "site")]
    subprocess.run(build, cwd=ROOT, check=True)
    pages = {path.relative_to(tmp_path / "site").as_posix() for path in (tmp_path / "site").rglob("*.html")}
    assert {"index.html", "guides/align.html", "reference/commands.html", "reference/library.html"} <= pages
    for page in ("index.html", "reference/library.html"):
        text = (tmp_path / "site" / page).read_text(encoding="utf-8")
        assert 'src="http' not in text
        assert 'rel="stylesheet" href="http' not in text
