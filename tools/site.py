"""Hooks of mkdocs: pages generated from the code, so that they are never out of date.

`make docs` calls `on_files`, which adds the reference of all public names, of all commands, written from the parser,
and of all shipped recipes, written from their files.
"""

import contextlib
import io
import os
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING
from unittest import mock

import griffe

import inphase
from inphase import align, cli, losses, playback, plot

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

RECIPES = Path(__file__).parents[1] / "src" / "inphase" / "recipes"


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add the generated pages to the site."""
    from mkdocs.structure.files import File

    for path, page in PAGES.items():
        files.append(File.generated(config, path, content=page()))
    return files


class FencedDoctests(griffe.Extension):  # type: ignore[misc]  # griffe may not be installed
    """Show the doctests of docstrings as code."""

    def on_object(self, *, obj: griffe.Object, loader: griffe.GriffeLoader, **_: object) -> None:
        """Fence the doctests of one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = fence_doctests(obj.docstring.value)


def fence_doctests(text: str) -> str:
    """Fence blocks of lines that begin with `>>>`, up to the next empty line.

    >>> print(fence_doctests(">" * 3 + " 1 + 1" + chr(10) + "2"))
    ```python
    >>> 1 + 1
    2
    ```
    """
    return re.sub(r"^( *)>>> (?:.*\S.*\n?)+", lambda block: _fence(block[0], block[1]), text, flags=re.MULTILINE)


def _fence(block: str, indent: str) -> str:
    return f"{indent}```python\n{block.rstrip()}\n{indent}```\n"


def library_page() -> str:
    """Return a page that names every public object; mkdocstrings adds signatures and docstrings."""
    functions = [name for name in inphase.__all__ if name[0].islower()]
    classes = [name for name in inphase.__all__ if not name[0].islower()]
    lines = ["# API", "", "The public names and their docstrings. *For engineers · Library* is the introduction.", ""]
    for title, names in (("Functions", functions), ("Results and nouns", classes)):
        lines += [f"## {title}", ""] + [_directive(inphase, name) for name in names] + [""]
    for module in (align, losses, playback, plot):
        names = [name for name in module.__all__ if name not in inphase.__all__]
        lines += [f"## {module.__name__}", ""] + [_directive(module, name) for name in names] + [""]
    return "\n".join(lines)


def _directive(module: ModuleType, name: str) -> str:
    """Name an object by the module that defines it; a table of a package by the package."""
    home = getattr(getattr(module, name), "__module__", None) or module.__name__
    return f"::: {home if home.startswith('inphase') else module.__name__}.{name}"


def commands_page() -> str:
    """Return a page with the help of every command."""
    lines = ["# Commands", "", "`inphase COMMAND --help` prints the same.", ""]
    for title, group in cli.GROUPS.items():
        lines += [f"## {title}", ""]
        for name in group:
            lines += [f"### inphase {name}", "", "```text", help_of(*name.split()), "```", ""]
    return "\n".join(lines)


def help_of(*command: str) -> str:
    """Return the help of a command as plain text."""
    out = io.StringIO()
    with (
        mock.patch.dict(os.environ, COLUMNS="96", NO_COLOR="1"),
        mock.patch.object(sys, "argv", ["inphase", *command, "--help"]),
        contextlib.redirect_stdout(out),
        contextlib.suppress(SystemExit),
    ):
        cli.main()
    lines = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()
    return "\n".join(line.rstrip() for line in lines).strip()


def recipes_page() -> str:
    """Return a page with every recipe file that ships."""
    lines = ["# Shipped recipes", "", "A name in a heading is an argument of `inphase train`.", ""]
    for path in sorted(RECIPES.glob("*.toml")):
        text = path.read_text(encoding="utf-8").rstrip()
        variants = tomllib.loads(text).get("variants", {})
        lines += [f"## {path.stem}", ""]
        if variants:
            lines += ["Names: " + ", ".join(f"`{path.stem}_{name}`" for name in sorted(variants)), ""]
        lines += ["```toml", text, "```", ""]
    return "\n".join(lines)


PAGES = {
    "reference/library.md": library_page,
    "reference/commands.md": commands_page,
    "reference/shipped_recipes.md": recipes_page,
}
