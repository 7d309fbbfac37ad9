import ast
from importlib.metadata import version
from pathlib import Path

import pytest

import inphase
from inphase.cli import main

NOUNS = {"Video", "Clip", "Embedding", "Alignment", "Run", "Playback"}


def test_every_public_name_is_there_and_no_other() -> None:
    assert set(inphase._HOME) == set(inphase.__all__)
    assert all(getattr(inphase, name).__name__ == name for name in inphase.__all__)
    assert not hasattr(inphase, "smoothDTW")


def test_names_are_found_where_type_checkers_look_for_them() -> None:
    tree = ast.parse(Path(inphase.__file__).read_text(encoding="utf-8"))
    (typed,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in typed.body if isinstance(node, ast.ImportFrom)]
    assert {alias.name: node.module for node in imports for alias in node.names} == inphase._HOME


def test_names_are_offered_and_described() -> None:
    assert set(inphase.__all__) <= set(dir(inphase))
    assert "import_module" not in dir(inphase)
    assert all(getattr(inphase, name).__doc__ for name in inphase.__all__)
    assert inphase.__doc__ is not None
    assert all(name in inphase.__doc__ for name in inphase.__all__)
    assert set(inphase.__all__) >= NOUNS


def test_the_version_is_that_of_the_package(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert version("inphase") == inphase.__version__
    monkeypatch.setattr("sys.argv", ["inphase", "--version"])
    main()
    assert capsys.readouterr().out == f"inphase {inphase.__version__}\n"
