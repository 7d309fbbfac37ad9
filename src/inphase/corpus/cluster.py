"""Do jobs on a Ray cluster: the same jobs as on one machine, as a Ray Data job with an encoder in every actor.

Machines see the corpus and the store under the same paths, as on a network file system. A job that a machine takes
with it when it dies is done again elsewhere, into the shard of the same name.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any

from inphase.corpus.embed_job import EmbedJob, EmbedJobResult, EmbedSettings, embed_job
from inphase.media.listing import ListedVideo
from inphase.storage.errors import MissingExtraError

if TYPE_CHECKING:
    from inphase.corpus.embed_corpus import Engine

# Jobs handed to Ray at a time: its scheduler keeps them all in memory.
WAVE = 2048


def on_cluster(address: str, *, actors: int | None = None) -> "Engine":
    """Do jobs on the Ray cluster at an address ("auto": the one this machine belongs to, "local": a new one here)."""

    def run(jobs: Iterable[EmbedJob], settings: EmbedSettings) -> Iterator[EmbedJobResult]:
        connect(address)
        source = iter(jobs)
        while wave := list(islice(source, WAVE)):
            items = [{"shard": job.shard, "videos": [asdict(video) for video in job.videos]} for job in wave]
            for result in map_in_actors(items, EmbeddingActor, settings, actors=actors):
                broken = dict(zip(result["broken"], result["reasons"], strict=True))
                yield EmbedJobResult(result["shard"], int(result["videos"]), int(result["frames"]), broken)

    return run


class EmbeddingActor:
    """An encoder, on a GPU where there is one, that does one job after another."""

    def __init__(self, settings: EmbedSettings) -> None:
        """Load the encoder from the store."""
        import torch

        from inphase.models import load_encoder

        torch.set_num_threads(settings.threads)
        self._settings = settings
        self._encoder = load_encoder(settings.encoder, device="cuda" if torch.cuda.is_available() else "cpu")

    def __call__(self, item: dict[str, Any]) -> dict[str, Any]:
        """Embed the videos of a job."""
        job = EmbedJob(item["shard"], tuple(ListedVideo(**video) for video in item["videos"]))
        done = embed_job(job, self._settings, self._encoder)
        return {
            "shard": done.shard,
            "videos": done.videos,
            "frames": done.frames,
            "broken": list(done.broken),
            "reasons": list(done.broken.values()),
        }


def connect(address: str) -> None:
    """Join a Ray cluster, unless this process belongs to one."""
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingExtraError("Ray is not installed: pip install 'inphase[cluster]'") from error
    if ray.is_initialized():
        return
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except ConnectionError as error:
        raise ValueError(
            f"there is no Ray cluster at {address!r} ({error}): start one with `ray start --head`"
        ) from error


def map_in_actors(
    items: list[dict[str, Any]], actor: Callable[..., Any], *given: Any, actors: int | None = None
) -> Iterator[dict[str, Any]]:
    """Give every item to one of several actors and yield what they make of them, as they get ready."""
    import ray.data  # sets up its logging, so that it is quietened afterwards: our own bar says how it stands

    logging.getLogger("ray.data").setLevel(logging.WARNING)
    logging.getLogger("ray.data._internal.progress").setLevel(logging.ERROR)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    gpus = int(ray.cluster_resources().get("GPU", 0))
    size = actors or gpus or max(1, int(ray.cluster_resources().get("CPU", 1)))
    size = min(size, len(items))
    data = ray.data.from_items(items, override_num_blocks=len(items)).map(
        actor,
        fn_constructor_args=given,
        num_cpus=1,
        num_gpus=1 if gpus else 0,
        # An actor for every GPU or core to begin with; machines may go, down to the last.
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=size, initial_size=size),
    )
    yield from data.iter_rows()
