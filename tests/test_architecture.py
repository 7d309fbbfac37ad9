"""The house rules that a reader cannot see by looking at one file: who may import whom."""

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median

import pytest

import inphase

PACKAGE = Path(inphase.__file__).parent

# Each part of the package and the parts it may import; all may import `progress`, and the command line everything.
MAY_IMPORT: dict[str, set[str]] = {
    "progress": set(),
    "storage": set(),
    "align": set(),
    "playback": {"storage"},
    "media": {"storage"},
    "pose": {"media", "storage"},
    "models": {"pose", "media", "storage"},
    "losses": {"align"},
    "stage": {"media", "pose", "storage"},
    "data": {"stage", "pose", "media", "storage"},
    "runs": {"data", "models", "media", "storage"},
    "training": {"data", "models", "losses", "runs", "pose", "media", "storage"},
    "evaluation": {"data", "models", "align", "runs", "pose", "media", "storage"},
    # data and evaluation: only to search a named data set as the evaluation of a run embeds it
    "apps": {"evaluation", "data", "models", "align", "runs", "pose", "media", "playback", "storage"},
    "corpus": {"evaluation", "apps", "data", "models", "align", "runs", "pose", "media", "storage"},
    "reproduction": {
        "apps",
        "stage",
        "viewer",  # the demo ends with a page
        "training",
        "runs",
        "evaluation",
        "data",
        "models",
        "losses",
        "align",
        "pose",
        "media",
        "storage",
    },
    "viewer": {"playback", "storage"},
    "plot": {"apps", "evaluation", "align", "playback"},
}
WITHOUT_TORCH = {"playback", "viewer"}
# Parts of torch's surroundings that do not load beside every build of torch: nothing may need them.
BANNED = {"torchvision", "torchaudio", "timm", "pickle"}
DRAWERS = {"utils", "util", "common", "misc", "helpers", "core"}

# Lines of the command line in all: applications belong into the library.
COMMAND_LINES = 1200

SOURCES = sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    """Name the part of the package a source file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def parse(path: Path) -> ast.Module:
    """Parse a source file once for all tests."""
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(path: Path, *, at_import_time: bool = False) -> Iterator[str]:
    """List every module a file imports; only those outside functions where `at_import_time`."""
    skipped: set[ast.AST] = set()
    for node in ast.walk(parse(path)):
        if at_import_time and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            skipped.update(ast.walk(node))
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import on line {node.lineno}"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def check_directions(path: Path) -> list[str]:
    """Name the imports of `path` that point the wrong way."""
    part = part_of(path)
    if part in {"cli", "__init__", "__main__"}:
        return []
    allowed = MAY_IMPORT[part] | {part, "progress"}
    ours = [name.split(".") for name in imports(path) if name.startswith("inphase.")]
    return [".".join(name) for name in ours if name[1] not in allowed]


def test_imports_point_one_way() -> None:
    assert [(str(path), wrong) for path in SOURCES if (wrong := check_directions(path))] == []


def test_nothing_heavy_or_unsafe_is_needed_to_import() -> None:
    for path in SOURCES:
        roots = {name.split(".")[0] for name in imports(path, at_import_time=True)}
        assert not roots & BANNED, path
        if part_of(path) in WITHOUT_TORCH:
            assert "torch" not in roots, path
        if not path.stem.endswith("_triton"):
            assert "triton" not in roots, f"{path}: triton is imported only by kernels, which load on CUDA alone"
        assert not {"mediapipe", "openvino"} & roots, f"{path}: extras are imported where they are used"


def test_nothing_imports_the_command_line() -> None:
    others = [path for path in SOURCES if part_of(path) not in {"cli", "__main__"}]
    assert not [str(path) for path in others for name in imports(path) if name.startswith("inphase.cli")]


def test_only_the_command_line_prints() -> None:
    others = [path for path in SOURCES if part_of(path) != "cli"]
    calls = [(path, node.func) for path in others for node in ast.walk(parse(path)) if isinstance(node, ast.Call)]
    assert not [str(path) for path, call in calls if isinstance(call, ast.Name) and call.id == "print"]


def test_the_command_line_only_parses_and_prints() -> None:
    files = [path for path in SOURCES if part_of(path) == "cli"]
    assert len(files) <= 9
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) <= COMMAND_LINES


def test_no_drawers() -> None:
    assert not [path for path in SOURCES if path.stem in DRAWERS]


def test_no_class_and_no_module_has_the_name_of_another() -> None:
    classes = Counter(node.name for path in SOURCES for node in ast.walk(parse(path)) if isinstance(node, ast.ClassDef))
    assert not [name for name, count in classes.items() if count > 1]
    stems = Counter(path.stem for path in SOURCES if path.stem != "__init__")
    assert not [stem for stem, count in stems.items() if count > 1]


def test_files_are_few_and_of_readable_length() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert len(lengths) <= 170
    assert not [str(path) for path, length in lengths.items() if length > 400]
    assert 110 <= median(lengths.values()) <= 220


def test_the_package_ships_code_recipes_pages_and_small_models() -> None:
    made = {".pyc", ".nbi", ".nbc"}  # by interpreter and compiler, and ignored by git
    files = [path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in made]
    kinds = {".py", ".typed", ".toml", ".html", ".j2", ".css", ".js", ".svg", ".safetensors"}
    assert {path.suffix for path in files} <= kinds
    models = [path for path in files if path.suffix == ".safetensors"]
    assert {path.parent for path in models} == {PACKAGE / "models" / "shipped"}
    assert sum(path.stat().st_size for path in models) <= 10 * 2**20


def test_a_wrong_direction_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.PACKAGE", tmp_path)
    wrong = tmp_path / "align" / "cost.py"
    wrong.parent.mkdir()
    wrong.write_text("from inphase.models import embed\n")
    assert check_directions(wrong) == ["inphase.models.embed"]
