"""Embed a corpus on a Ray cluster of two simulated nodes, of which one is killed once shards appear; then align all.

The codec never returns from the video hang.mp4, and ends its process at crash.mp4.

A program of its own: Ray's warnings are not ours, and it leaves threads behind. Writes the result as JSON.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import ray
from ray.cluster_utils import Cluster

from inphase.cli import main as inphase_command
from inphase.corpus import embed_corpus as embed_corpus_module
from inphase.corpus.embed_corpus import embed_corpus
from inphase.corpus.engines import RayCluster
from inphase.models.embed_videos import embed_video
from inphase.storage.processes import VideoLimits
from tests.processes import hang


def spoil(start: Any, device: str) -> Any:
    """Spoil the codec of this worker. A worker takes seconds to start: the second crash at a video is its last."""
    work, module = start(device), cast("Any", embed_corpus_module)
    module.MAX_CRASHES = 2

    def embed_or_fail(encoder: Any, file: Path, **rest: Any) -> Any:
        if file.name == "hang.mp4":
            hang()
        if file.name == "crash.mp4":
            os.abort()
        return embed_video(encoder, file, **rest)

    module.embed_video = embed_or_fail
    return work


@dataclass(frozen=True)
class FaultyCluster(RayCluster):
    """A cluster whose workers have a faulty codec."""

    def map(self, start: Any, items: Iterable[Any]) -> Iterator[Any]:
        return super().map(partial(spoil, start), items)


def with_actors() -> set[str]:
    """Name the nodes on which an encoder is at work."""
    actors = ray._private.state.actors().values()
    return {actor["Address"]["NodeID"] for actor in actors if actor["State"] == "ALIVE"}


def main() -> None:
    place = Path(sys.argv[1])
    head = {"num_cpus": 0, "object_store_memory": 80_000_000, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=80_000_000) for _ in range(2)]
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False)
    shards = place / "store" / "shards"
    killed: list[int] = []

    def kill() -> None:
        while len(list(shards.glob("*.parquet"))) < 2 or not (working := with_actors()):
            time.sleep(0.02)
        killed.append(len(list(shards.glob("*.parquet"))))
        cluster.remove_node(next(node for node in nodes if node.node_id in working), allow_graceful=False)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    embedded = embed_corpus(
        place / "gym",
        place / "store",
        model=place / "model.safetensors",
        engine=FaultyCluster(cluster.address, workers=2),
        limits=VideoLimits(seconds=5),
        shard_videos=1,
    )
    killer.join(timeout=5)
    alive = sum(node["Alive"] for node in ray.nodes())
    sys.argv = ["inphase", "align-all", str(place / "store"), "--action", "vault", "--out", str(place / "aligned")]
    sys.argv += ["--ray", cluster.address, "--device", "cpu"]
    inphase_command()
    result = {
        "done": embedded.done,
        "failed": embedded.failed,
        "broken": embedded.broken,
        "killed_at": killed,
        "alive": alive,
    }
    (place / "result.json").write_text(json.dumps(result))
    ray.shutdown()
    cluster.shutdown()
