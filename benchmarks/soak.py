"""Soak test: embed, search and align for minutes in one process under a memory ceiling (Linux only).

Every turn replaces some videos of a corpus and embeds them again, which merges shards and indexes the merged ones. It
then searches the corpus for moments of a video, by index and exhaustively, and aligns its videos. A thread monitors the
memory of the process and exits where it exceeds the ceiling. `python -m benchmarks.scale soak` runs it.
"""

import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import torch

from inphase.corpus.align_corpus import align_action
from inphase.corpus.embed_corpus import embed_corpus
from inphase.corpus.embedding_store import EmbeddingStore
from inphase.corpus.engines import Threads
from inphase.corpus.store_search import find_moments
from inphase.corpus.vector_index import Index
from inphase.data import stage_videos
from inphase.models import ImageEncoder
from inphase.models.embed_videos import embed_video

# MB: twice the memory of the loaded libraries.
CEILING = 900.0
CHANGED, ROUNDS = 6, 4  # videos replaced in a turn, and turns until the first are replaced again
SETTLED = ROUNDS  # turns after which the corpus grows no more


def soak(minutes: float, *, ceiling: float = CEILING) -> str:
    """Embed and search for `minutes`; return a summary line."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = {"size": (64, 64), "convolutions": (16,), "hidden": (32,)}
    encoder = ImageEncoder(context=(0,), mode="scratch", weights=None, **sizes).eval()  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder, watched(ceiling):
        place = Path(folder)
        stage_videos.write(place / "films", split="train", actions=("squat", "kick"), videos=4, size=96)
        films = sorted((place / "films").rglob("*.mp4"))
        began, settled, embedded, searches = time.monotonic(), 0.0, 0, 0
        for turn in count(1):
            for number in range(CHANGED):
                target = place / "corpus" / f"action{number % 2}" / f"{turn % ROUNDS}-{number}.mp4"
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(films[(turn + number) % len(films)], target)
            embedded += embed_corpus(place / "corpus", place / "store", model=encoder, workers=0, shard_videos=2).done
            with EmbeddingStore(place / "store") as store:
                query = embed_video(encoder, films[turn % len(films)]).values[::8]
                for exact in (0, 10**12):
                    index = Index(store, exact=exact)
                    searches += len([find_moments(store, index, value, top=5) for value in query])
                align_action(
                    store, "action0", place / "aligned", engine=Threads(workers=1, device="cpu"), max_compared=8
                )
            print(f"# turn {turn}: {used_memory():.0f} MB", file=sys.stderr, flush=True)
            if turn == SETTLED:
                settled = used_memory()
            if time.monotonic() - began > 60 * minutes and turn > SETTLED:
                break
        taken = (time.monotonic() - began) / 60
        return (
            f"{taken:.1f} minutes, {turn} turns, {embedded:,} videos embedded, {searches:,} searches: never above "
            f"{ceiling:.0f} MB; {settled:.0f} MB held after turn {SETTLED}, {used_memory():.0f} MB at the end"
        )


def used_memory() -> float:
    """Return the resident memory of this process, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def watched(ceiling: float) -> Iterator[None]:
    """Exit the process where it holds more than `ceiling` MB."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            if (now := used_memory()) > ceiling:
                print(
                    f"the process holds {now:.0f} MB, more than the ceiling of {ceiling:.0f} MB",
                    file=sys.stderr,
                    flush=True,
                )
                os._exit(3)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
