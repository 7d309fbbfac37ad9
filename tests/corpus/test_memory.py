"""What a command holds does not grow with the corpus: its peak at sixteen times the videos stays where it was."""

from pathlib import Path

import pytest

from benchmarks.scale import STAGES, Measured, Size, run_stages
from tests.processes import call_in_process, start_command

pytestmark = pytest.mark.slow

# All videos of the larger corpus would take 82 MB as they are computed with; batches are small, so that both corpora
# have several: shards of 1 MB, 4 MB of vectors to train centroids on, all pairs of 20 videos.
FRAMES, FEW_VIDEOS, MANY_VIDEOS = 100, 100, 1600
CEILING = 60.0  # MB, for the distances of all pairs as well: 10 MB of a file that is mapped


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Measured]]:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("memory is measured on Linux only")

    def size(videos: int) -> Size:
        place = str(tmp_path_factory.mktemp(f"place{videos}"))
        return Size(place, videos, FRAMES, merged=2**20, sample=2**13, most=20)

    return {videos: call_in_process(run_stages, size(videos)) for videos in (FEW_VIDEOS, MANY_VIDEOS)}


@pytest.mark.parametrize("stage", list(STAGES))
def test_memory_does_not_grow_with_the_corpus(measured: dict[int, dict[str, Measured]], stage: str) -> None:
    few, many = (measured[videos][stage]["memory"] for videos in (FEW_VIDEOS, MANY_VIDEOS))
    assert many - few < CEILING, f"{stage}: {few:.0f} MB with {FEW_VIDEOS} videos, {many:.0f} MB with {MANY_VIDEOS}"


@pytest.mark.parametrize(("ceiling", "status"), [("900", 0), ("150", 3)])
def test_embedding_and_searching_stay_below_a_ceiling(ceiling: str, status: int, tmp_path: Path) -> None:
    """A few turns of what `python -m benchmarks.scale soak` does for minutes; a ceiling too low is noticed."""
    log = tmp_path / "log"
    process = start_command("soak", "--minutes", "0", "--ceiling", ceiling, program="benchmarks.scale", log=log)
    process.join()
    assert process.exitcode == status, log.read_text()[-2000:]
    assert ("never above 900 MB" in log.read_text()) == (status == 0)
