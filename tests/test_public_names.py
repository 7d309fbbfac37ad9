import ast
import inspect
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import inphase
from inphase.cli import main

# What the commands of the command line do, as functions of the library.
FUNCTIONS = [
    "activation_maps",
    "align_corpus",
    "align_videos",
    "compare_videos",
    "embed_corpus",
    "evaluate",
    "export",
    "find_repetitions",
    "fit",
    "reconstruct_pose",
    "reproduce",
    "retrieve_sound",
    "search",
    "train",
    "transfer_labels",
]
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


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_reports_progress_and_returns_a_result_to_write(name: str) -> None:
    function = getattr(inphase, name)
    signature = inspect.signature(function)
    assert "progress" in signature.parameters
    result = signature.return_annotation
    if isinstance(result, str):
        result = getattr(sys.modules[function.__module__], result)
    assert all(callable(getattr(result, method)) for method in ("write", "to_dict", "summary"))


def test_the_version_is_that_of_the_package(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert version("inphase") == inphase.__version__
    monkeypatch.setattr("sys.argv", ["inphase", "--version"])
    main()
    assert capsys.readouterr().out == f"inphase {inphase.__version__}\n"
