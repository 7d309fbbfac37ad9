"""README and docs: their Python blocks run, their links resolve, and their commands, flags and recipes exist."""

import re
import shutil
from pathlib import Path

import pytest
from PIL import Image

from inphase.data import stage_videos
from inphase.losses import LOSSES
from inphase.media.recording import probe
from inphase.media.render import write_mp4
from inphase.training.recipe import list_recipes
from tests.commands import type_command
from tests.pose.people import skip_without_networks

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [Path("README.md"), *sorted(path.relative_to(ROOT) for path in ROOT.glob("docs/**/*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page}-{number}")
    for page in PAGES
    for number, block in enumerate(
        re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    )
]


def test_the_readme_has_an_example() -> None:
    assert "```python" in README


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Draw three people at the same action, a small file each, ten frames a second."""
    root = tmp_path_factory.mktemp("stage")
    drawn = stage_videos.load(split="train", actions=["kick"], videos=3, level="plain", size=64)
    files = [root / f"{number}.mp4" for number in range(len(drawn))]
    for file, video in zip(files, drawn, strict=True):
        assert video.render is not None
        write_mp4(file, video.render().frames[::3], fps=10)
    return files


@pytest.mark.parametrize("block", BLOCKS)
def test_python_block_runs(
    block: str, films: list[Path], tmp_path: Path, shared_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run a block where the videos that it names lie."""
    for name, film in zip(dict.fromkeys(re.findall(r'"(\w+\.mp4)"', block)), films, strict=False):
        shutil.copy(film, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared_cache))
    monkeypatch.setattr("inphase.losses.LOSSES", dict(LOSSES))  # a block may add a method of its own
    with skip_without_networks():
        exec(compile(block, "page", "exec"), {})


def test_five_lines_do_what_the_align_command_does(
    films: list[Path], tmp_path: Path, shared_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "engineering" / "api.md").read_text(encoding="utf-8")
    block = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0]
    assert len(block.splitlines()) <= 5
    for name, film in zip(("student.mp4", "pro.mp4"), films, strict=False):
        shutil.copy(film, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared_cache))
    exec(compile(block, "page", "exec"), {})
    assert type_command(monkeypatch, "align", "student.mp4", "pro.mp4", "--out", "typed") == 0
    for name in ("path.csv", "alignment.png", "playback.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "typed" / name).read_bytes()
    assert probe(tmp_path / "out" / "aligned.mp4") == probe(tmp_path / "typed" / "aligned.mp4")


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if not link.startswith("http")]
    missing = [link for link in links if not (ROOT / page).parent.joinpath(link).exists()]
    assert missing == []


def commands_of(page: Path) -> list[str]:
    """List the commands in code blocks and in inline code, without comments."""
    text = (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ")
    inline = [code.replace("\n", " ") for code in re.findall(r"`(inphase [^`]+)`", text)]
    blocks = re.findall(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [
        part.strip() for block in blocks for line in block.splitlines() for part in line.split(" #")[0].split("&&")
    ]
    lines = [line.partition("-m ")[2] if line.startswith("torchrun") else line for line in lines]
    return [line for line in (*inline, *lines) if line.startswith("inphase ")]


def test_commands_flags_and_recipes_exist(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    helps: dict[tuple[str, ...], str] = {}
    wrong = []
    lines = [(page, line) for page in PAGES for line in commands_of(page)]
    assert len(lines) > 50
    for page, line in lines:
        words = line.split()[1:]
        command = tuple(words[: 2 if words[0] == "data" else 1])
        if command not in helps:
            status = type_command(monkeypatch, *command, "--help")
            helps[command] = capsys.readouterr().out if status == 0 else ""
        flags = [word for word in words if word.startswith("--")]
        known = bool(helps[command]) and all(re.search(rf"{flag}(?![\w-])", helps[command]) for flag in flags)
        if (recipe := re.match(r"inphase train ([a-z0-9_]+)(?![\w.])", line)) is not None:
            known = known and recipe[1] in list_recipes()
        if not known:
            wrong.append(f"{page}: {line}")
    assert wrong == []


def test_the_first_lines_are_those_that_a_test_runs() -> None:
    start = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    first = [re.search(r"^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL) for text in (README, start)]
    assert first[0] is not None
    assert first[1] is not None
    assert first[0][1] == first[1][1]  # tests/test_guides.py runs the lines of docs/index.md


def test_the_picture_is_small_and_moves() -> None:
    (picture,) = re.findall(r"!\[[^\]]+\]\((docs/images/\w+\.webp)\)", README)
    assert (ROOT / picture).stat().st_size <= 2_000_000
    with Image.open(ROOT / picture) as image:
        assert getattr(image, "n_frames", 1) > 20


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"\bmake (\w+)", README)) <= targets


def test_bench_blocks_can_be_written() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for block in ("cpu", "cuda", "end-to-end-cpu", "end-to-end-cuda"):
        assert page.count(f"<!-- bench:{block} -->") == 1
    assert page.count("<!-- end -->") == 4
