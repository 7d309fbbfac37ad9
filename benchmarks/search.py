"""Measure how many of the first ten hits of a search for a moment lie within three frames of it.

python -m benchmarks.search ROOT [--split test] [--model RUN] [--windows 0 0.5 1 2]

ROOT is GolfDB. Every clip asks for its toe-up, its top and its impact among the clips of all other players. A hit is
right if it is at most three frames (0.1 s) from the event of that name. The store's search is measured on the same
queries with `--store FOLDER`, which `inphase embed` wrote.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from benchmarks.consensus import LabeledClip, read_golf
from inphase.apps.search import context_of, nearest_moments
from inphase.corpus.embedding_store import EmbeddingStore
from inphase.corpus.store_search import find_moments
from inphase.corpus.vector_index import Index
from inphase.data import golfdb
from inphase.models.embed_videos import embed_each, load_joint_encoder, open_encoder
from inphase.models.embedding import Embedding, rate_of
from inphase.storage.cache import open_cache

EVENTS = ("toe_up", "top", "impact")
TOP, NEAR_FRAMES = 10, 3


def precision(
    clips: Sequence[LabeledClip], embedded: dict[Path, Embedding], event: int, *, window: float, store: Path | None
) -> float:
    """Take the mean share of right hits among the first ten, over all clips as queries."""
    rate = rate_of(next(iter(embedded.values())).times) or 30.0
    places = {str(each.path): (each.person, each.events[event] / rate) for each in clips}
    shares = []
    opened = None if store is None else EmbeddingStore(store)
    index = None if opened is None else Index(opened)
    for clip in clips:
        embedding = embedded[clip.path]
        context = context_of(embedding, float(embedding.times[clip.events[event]]), window=window)
        if opened is None or index is None:
            others = {str(each.path): embedded[each.path] for each in clips if each.person != clip.person}
            found = [(hit.name, hit.second) for hit in nearest_moments(context, others, top=TOP)]
        else:
            hits = find_moments(opened, index, context, top=3 * TOP, file=clip.path.resolve())
            known = [(str(Path(hit.entry.path)), hit.second) for hit in hits]
            found = [(n, s) for n, s in known if n in places and places[n][0] != clip.person][:TOP]
        shares.append(np.mean([abs(second - places[name][1]) <= (NEAR_FRAMES + 0.5) / rate for name, second in found]))
    return float(np.mean(shares))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("root", type=Path)
    arguments.add_argument("--split", default="test")
    arguments.add_argument("--model", type=Path)
    arguments.add_argument("--windows", type=float, nargs="*", default=(0.0, 0.5, 1.0, 2.0))
    arguments.add_argument("--store", type=Path)
    arguments.add_argument("--limit", type=int)
    given = arguments.parse_args()
    torch.set_num_threads(1)
    encoder = load_joint_encoder() if given.model is None else open_encoder(given.model)
    assert encoder is not None
    clips = read_golf(given.root, given.split, given.limit)
    embedded, failed = embed_each([each.path for each in clips], encoder=encoder, cache=open_cache(None))
    clips = [each for each in clips if each.path in embedded]
    names = golfdb.EVENTS[1:-1]
    print(
        f"{len(clips)} clips, {len(failed)} left out\n\n| window | {' | '.join(EVENTS)} | mean |\n|---|---|---|---|---|"
    )
    for window in given.windows:
        found = [precision(clips, embedded, names.index(name), window=window, store=given.store) for name in EVENTS]
        print(f"| {window:g} s | {' | '.join(f'{each:.3f}' for each in found)} | {np.mean(found):.3f} |", flush=True)


if __name__ == "__main__":
    main()
