"""Every example runs as it stands, in a folder of its own, and draws what it says."""

import contextlib
import io
import runpy
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import matplotlib.image
import pytest

pytestmark = pytest.mark.slow

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
each_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)


@cache
def run(example: Path) -> tuple[Path, str]:
    """Run an example once; give the folder it ran in and what it printed."""
    folder, printed = Path(mkdtemp()), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        runpy.run_path(str(example), run_name="__main__")
    return folder, printed.getvalue()


@each_example
def test_example_draws_an_image(example: Path) -> None:
    images = list(run(example)[0].glob("out/**/*.png"))
    assert images, f"{example.name} wrote no image under out/"
    for image in images:
        pixels = matplotlib.image.imread(image)[:, :, :3]
        assert min(pixels.shape[:2]) > 200
        assert pixels.std() > 0.05, f"{image.name} is blank"


@each_example
def test_example_is_short(example: Path) -> None:
    assert len(example.read_text(encoding="utf-8").splitlines()) <= 40


def test_toy_training_beats_no_training() -> None:
    printed = run(EXAMPLES[0].parent / "train_toy.py")[1]
    error = {
        name: float(value.rstrip(" %")) for name, _, value in (s.partition(": off by ") for s in printed.splitlines())
    }
    assert error["trained"] < error["untrained"] / 2 < error["linear stretch"]


def test_smooth_minima_states_the_supplement() -> None:
    printed = run(EXAMPLES[0].parent / "smooth_minima.py")[1]
    assert "0.4631 γ, at Δ = 1.46 γ" in printed
    assert "0.2785 γ, at Δ = 1.28 γ" in printed
