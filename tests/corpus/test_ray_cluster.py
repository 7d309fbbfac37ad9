import json
import os
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from inphase.corpus.align_corpus import align_action
from inphase.corpus.embedding_store import EmbeddingStore
from inphase.corpus.engines import Threads
from inphase.storage.processes import FATAL
from tests.corpus.made import small_corpus, small_encoder
from tests.processes import kill_group, start_command

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path]),  # workers import what this process can
    # Ray's workers give way to everything else on a machine by default, and would wait for a busy one for ever.
    "RAY_worker_niceness": "0",
    # A node that is gone is noticed in seconds; one that is busy still has as long to answer.
    "RAY_health_check_period_ms": "1000",
    "RAY_USAGE_STATS_ENABLED": "0",
}
FILE = "alignments.parquet"


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'inphase[cluster]'")
def test_nodes_and_videos_that_fail_lose_nothing_and_nothing_is_there_twice(tmp_path: Path) -> None:
    """Two simulated nodes, one killed in the middle; a video that hangs and one that crashes its process."""
    small_encoder(tmp_path / "model.safetensors")
    small_corpus(tmp_path / "gym", actions={"vault": 6, "beam": 6})
    (tmp_path / "gym" / "beam" / "broken.mp4").write_bytes(b"no video at all")
    for name in ("hang", "crash"):
        shutil.copy(tmp_path / "gym" / "beam" / "00.mp4", tmp_path / "gym" / "beam" / f"{name}.mp4")
    log = tmp_path / "log"
    process = start_command(tmp_path, program="tests.corpus.ray_cluster", environment=ENVIRONMENT, log=log)
    process.join(timeout=1500)
    kill_group(process)
    printed = log.read_text(encoding="utf-8", errors="replace")
    assert process.exitcode == 0, printed[-3000:]
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["alive"] == 2  # of three with the head
    assert result["killed_at"][0] < 15
    assert (result["done"], result["failed"]) == (15, 3)
    assert "took longer than 5 s" in result["broken"]["gym/beam/hang.mp4"]
    assert result["broken"]["gym/beam/crash.mp4"] == FATAL
    with EmbeddingStore(tmp_path / "store") as store:
        names = [fact.id for fact in store.catalog.current(embedded=False)]
        assert len(names) == len(set(names)) == 15
        assert sum(store.catalog.length(shard) for shard in store.catalog.shards()) == 15
        assert store.catalog.totals()[0] == 12
        same = align_action(store, "vault", tmp_path / "here", engine=Threads(workers=1, device="cpu"))
    _require_equal_alignments(tmp_path / "here", tmp_path / "aligned" / "vault")
    assert same.reference.id in (tmp_path / "aligned" / "report.html").read_text(encoding="utf-8")
    assert re.search(r"vault: 6 videos, reference .*; 15 pairs in .* pairs/s", printed), printed


def _require_equal_alignments(here: Path, there: Path) -> None:
    """What a node aligned, all pairs and all videos with the reference, is what this process aligns."""
    np.testing.assert_allclose(np.load(there / "distances.npy"), np.load(here / "distances.npy"), atol=1e-5)
    assert (there / "videos.csv").read_text() == (here / "videos.csv").read_text()
    one, other = ({row["id"]: row for row in pq.read_table(at / FILE).to_pylist()} for at in (here, there))
    assert len(one) == 6
    assert one.keys() == other.keys()
    for id, row in one.items():
        assert other[id]["distance"] == pytest.approx(row["distance"], abs=1e-5)
        np.testing.assert_allclose(other[id]["seconds"], row["seconds"])
