"""Places where Windows differs, as far as they can be tried elsewhere."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import inphase
from inphase.storage import files
from inphase.storage.errors import explain_os_error
from inphase.storage.files import atomic_write

# Modules that Windows lacks; `resource` is imported where /proc exists.
POSIX_ONLY = {"fcntl", "grp", "pwd", "pty", "resource", "termios"}


def test_no_module_that_windows_lacks_is_imported_without_a_guard() -> None:
    package = Path(inphase.__file__).parent
    found = []
    for path in package.rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:  # the top level: not in a try, not in a function
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [f"{path.name}: {name}" for name in names if name.split(".")[0] in POSIX_ONLY]
    assert found == []


def test_text_is_written_and_read_as_utf8() -> None:
    package = Path(inphase.__file__).parent
    found = []
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr not in ("read_text", "write_text") or any(key.arg == "encoding" for key in node.keywords):
                continue
            if not (node.args and isinstance(node.args[0], ast.Constant)):  # `distribution.read_text("RECORD")`
                found.append(f"{path.name}:{node.lineno}")
    assert found == [], "name encoding='utf-8': the default of Windows is another"


def test_a_file_that_is_open_elsewhere_is_explained() -> None:
    error = PermissionError(13, "Access is denied")
    error.winerror = 32  # type: ignore[attr-defined]
    assert explain_os_error(error).startswith("another program has the file open")
    assert "check the folder and your rights" in explain_os_error(PermissionError(13, "Permission denied"))


def test_files_are_written_without_fcntl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "fcntl", None)
    for text in ("one", "two"):
        with atomic_write(tmp_path / "file.txt") as part:
            part.write_text(text, encoding="utf-8")
    assert (tmp_path / "file.txt").read_text(encoding="utf-8") == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["file.txt"]


def test_commands_print_utf8_into_a_pipe_of_another_encoding() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-m", "inphase", "--help"], env=environment, capture_output=True, check=True)
    assert "usage: inphase COMMAND …" in done.stdout.decode("utf-8")
