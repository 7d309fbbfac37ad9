import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from inphase.corpus.store import Store
from tests.corpus.made import small_corpus, small_encoder

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'inphase[cluster]'")
def test_a_node_that_dies_loses_nothing_and_nothing_is_there_twice(tmp_path: Path) -> None:
    """Three simulated nodes, one killed in the middle."""
    small_encoder(tmp_path / "model.safetensors")
    small_corpus(tmp_path / "gym", actions={"vault": 12, "beam": 12})
    (tmp_path / "gym" / "beam" / "broken.mp4").write_bytes(b"no video at all")
    command = [sys.executable, "-m", "tests.corpus.ray_cluster", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=480)
    assert done.returncode == 0, done.stderr[-3000:]
    came = json.loads((tmp_path / "result.json").read_text())
    assert came["alive"] == 3  # of four with the head
    assert came["killed_at"][0] < 25
    assert (came["done"], came["failed"]) == (25, 1)
    with Store(tmp_path / "store") as store:
        names = [fact.id for fact in store.catalogue.current(embedded=False)]
        assert len(names) == len(set(names)) == 25
        assert sum(store.catalogue.length(shard) for shard in store.catalogue.shards()) == 25
        assert store.catalogue.totals()[0] == 24
