"""The base install, without any extra: it aligns two videos, and names the extra that anything else needs."""

import json
import subprocess
import sys
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

from inphase.media.render import write_mp4

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package without extras into an environment of its own; return its folder of commands.

    Its base dependencies, and theirs, are links to the packages of this environment: nothing is downloaded or unpacked.
    """
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder)]
    install = [*pip, "install", "--quiet", "--no-deps", str(ROOT)]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode and "connection" in done.stderr.lower():
        pytest.skip("no package registry can be reached")
    assert done.returncode == 0, done.stderr
    (site,) = folder.glob("lib/python*/site-packages")
    (installed,) = distributions(name="inphase", path=[str(site)])
    for needed in list_required(installed):
        for name in {file.parts[0] for file in needed.files or ()} - {"..", "__pycache__"}:
            if not (site / name).exists():
                (site / name).symlink_to(Path(str(needed.locate_file(name))))
    return folder / "bin"


def list_required(package: Distribution) -> list[Distribution]:
    """List the distributions that a package needs without its extras, and those that they need."""
    found: dict[str, Distribution] = {}
    waiting = [(package, frozenset({""}))]
    while waiting:
        needs, extras = waiting.pop()
        for requirement in map(Requirement, needs.requires or ()):
            wanted = requirement.marker is None or any(requirement.marker.evaluate({"extra": one}) for one in extras)
            if wanted and requirement.name not in found:
                found[requirement.name] = distribution(requirement.name)
                waiting.append((found[requirement.name], frozenset({"", *requirement.extras})))
    return list(found.values())


def write_clip(path: Path, *, frames: int) -> None:
    """Write a bright square that crosses a dark image once."""
    images = np.full((frames, 64, 96, 3), 30, np.uint8)
    for number, image in enumerate(images):
        left = round(72 * number / (frames - 1))
        image[20:44, left : left + 24] = 220
    write_mp4(path, images, fps=20)


def run(program: Path, *words: object, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a program of the bare environment; its cache and its kernels lie in the test's folder."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "COLUMNS": "200"}
    command = [str(program), *map(str, words)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_base_install_aligns_two_videos(bare: Path, tmp_path: Path) -> None:
    write_clip(tmp_path / "a.mp4", frames=20)
    write_clip(tmp_path / "b.mp4", frames=30)
    done = run(bare / "inphase", "align", "a.mp4", "b.mp4", "--modality", "image", "--out", "out", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len((tmp_path / "out" / "path.csv").read_text().splitlines()) == 21
    assert (tmp_path / "out" / "aligned.mp4").stat().st_size > 0


# Type commands in one process, which imports torch once; print each status and what was printed to stderr.
TYPE_ALL = """
import contextlib, io, json, sys
from inphase.cli import main

found = []
for words in json.loads(sys.argv[1]):
    sys.argv, status, err = ["inphase", *words], 0, io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as end:
            status = end.code
    found.append([status, err.getvalue()])
print(json.dumps(found))
"""
NEEDED = {  # the extra that a command needs
    "fit clips --modality image --out run": "train",
    "reproduce recognition --data stage --methods gta --out study": "train",
    "embed clips --out store": "corpus",
    "align clips --modality pose --out aligned": "pose",
    "data pose folder clips poses": "pose",
    "view .": "viewer",
}


@pytest.mark.slow
def test_a_missing_extra_is_named_in_one_line(bare: Path, tmp_path: Path) -> None:
    (tmp_path / "clips").mkdir()
    for name in ("a", "b"):
        write_clip(tmp_path / "clips" / f"{name}.mp4", frames=20)
    (tmp_path / "playback.json").write_text("{}")
    typed = json.dumps([command.split() for command in NEEDED])
    found = json.loads(run(bare / "python", "-c", TYPE_ALL, typed, folder=tmp_path).stdout)
    for (command, extra), (status, err) in zip(NEEDED.items(), found, strict=True):
        assert status == 1, command
        lines = [line for line in err.splitlines() if line.strip()]
        assert f"pip install 'inphase[{extra}]'" in lines[-1], (command, err)
        assert "Traceback" not in err
