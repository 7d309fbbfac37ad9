"""What a command holds does not grow with the corpus: its peak at ten times the videos stays where it was."""

from pathlib import Path

import pytest

from benchmarks.scale import measure_alone

# All 400 videos would take 51 MB in half precision, and twice that as they are computed with.
FRAMES, FEW, MANY = 500, 40, 400
CEILING = 60.0  # MB


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    return {videos: tmp_path_factory.mktemp(f"place{videos}") for videos in (FEW, MANY)}


@pytest.mark.parametrize("stage", ["embed", "embed again", "search, all compared"])
def test_memory_does_not_grow_with_the_corpus(places: dict[int, Path], stage: str) -> None:
    few, many = (measure_alone(stage, places[videos], videos, FRAMES)["memory"] for videos in (FEW, MANY))
    assert many - few < CEILING, f"{stage}: {few:.0f} MB with {FEW} videos, {many:.0f} MB with {MANY}"
