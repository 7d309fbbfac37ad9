"""Measure whether the confidence of `inphase transfer`, as installed, is the probability of an error within 0.1 s.

python -m benchmarks.confidence golfdb ROOT [--split val] [--limit N]
python -m benchmarks.confidence golfdb ROOT --events [--limit N]
python -m benchmarks.confidence signs ROOT

An error counts as within 0.1 s up to half a frame more. *One target*: events are carried over 200 random pairs of clips
of different people. *A folder*: events are carried from one clip to clips of the same action by other people, which
vote: to 2 and to 8 clips, 60 random folders each, and from every seventh clip of an action to all. Each folder has two
rows: the confidence by votes alone, and with the verdict. The columns are the mean confidence, the share of labels
within 0.1 s, Brier's score, the expected calibration error of ten bins, and the mean errors in frames of the more
confident half and of the other. `--events` prints a row for each event of single golf targets, address and finish among
them.
"""

import argparse
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.consensus import LabeledClip, read_golf, read_signs
from inphase.align.consensus import NEIGHBORS, align_from
from inphase.align.matching import match
from inphase.apps.labels import Event, Labels
from inphase.apps.transfer_labels import carry_by_votes, carry_labels
from inphase.apps.verdict import TOLERANCE_SECONDS, judge
from inphase.data import golfdb
from inphase.models import Embedding
from inphase.models.embed_videos import embed_each, load_joint_encoder
from inphase.models.joint_encoder import add_motion_energy
from inphase.storage.cache import open_cache

PAIRS, FOLDERS, EVERY, BINS, RATE = 200, 60, 7, 10, 30.0
Found = list[tuple[float, float]]  # the confidence and the error in seconds of each label


def labels_of(clip: LabeledClip, x: Embedding) -> Labels:
    return Labels(events=tuple(Event(float(x.times[frame]), f"{k}") for k, frame in enumerate(clip.events)))


def compare(labels: Labels, clip: LabeledClip, y: Embedding) -> Found:
    """Return the confidence and the error of each label; a path without others or a verdict agrees with itself."""
    errors = [abs(each.second - float(y.times[clip.events[int(each.label)]])) for each in labels.events]
    sure = [1.0 if each.confidence is None else each.confidence for each in labels.events]
    return list(zip(sure, errors, strict=True))


def report(name: str, found: Found) -> None:
    """Print a row of the table."""
    confidence, error = np.array(found).T
    right = error <= TOLERANCE_SECONDS + 0.5 / RATE
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [abs(float((confidence - right)[bins == k].sum())) for k in range(BINS)]
    order = np.argsort(-confidence, kind="stable")
    halves = [RATE * float(error[part].mean()) for part in np.array_split(order, 2)]
    numbers = f"{confidence.mean():.2f} | {right.mean():.2f} | {np.mean((confidence - right) ** 2):.3f}"
    print(f"| {name} | {numbers} | {sum(gaps) / len(found):.3f} | {halves[0]:.2f} / {halves[1]:.2f} |", flush=True)


def measure_pairs(clips: Sequence[LabeledClip], embedded: dict[Path, Embedding]) -> None:
    """Print the row of single targets: events are carried over random pairs of clips."""
    report("one target: the verdict", [each for found in carry_over_pairs(clips, embedded) for each in found])


def measure_events(clips: Sequence[LabeledClip], embedded: dict[Path, Embedding]) -> None:
    """Print a row for each event, carried over random pairs of clips."""
    for name, found in zip(golfdb.EVENTS, zip(*carry_over_pairs(clips, embedded), strict=True), strict=True):
        report(name.replace("_", " "), list(found))


def carry_over_pairs(clips: Sequence[LabeledClip], embedded: dict[Path, Embedding]) -> Iterator[Found]:
    """Carry the events of random pairs of clips of one action by two people."""
    listed = [(a, b) for a in clips for b in clips if a.action == b.action and a.person != b.person]
    for k in np.random.default_rng(0).permutation(len(listed))[:PAIRS]:
        (a, b), end = listed[k], 1 / RATE
        x, y = embedded[a.path], embedded[b.path]
        yield compare(carry_labels(labels_of(a, x), x, y, y_end=float(y.times[-1]) + end), b, y)


def draw_folders(clips: Sequence[LabeledClip], size: int) -> Iterator[list[LabeledClip]]:
    """Yield folders: a labeled clip, then `size` clips of other people to carry its labels to; all of them for 0."""
    rng = np.random.default_rng(0)
    actions = sorted({each.action for each in clips})
    every = [each for action in actions for each in [c for c in clips if c.action == action][::EVERY]]
    drawn = [clips[k] for k in rng.integers(len(clips), size=FOLDERS)] if size else every
    for first in drawn:
        pool = [each for each in clips if each.action == first.action and each.person != first.person]
        yield [first, *(pool[k] for k in rng.permutation(len(pool))[: size or None])]


def measure_folders(clips: Sequence[LabeledClip], embedded: dict[Path, Embedding], size: int) -> None:
    """Print two rows for folders of `size` targets (0: all clips), by votes alone and with the verdict."""
    votes: Found = []
    both: Found = []
    for order in draw_folders(clips, size):
        vectors = [embedded[each.path] for each in order]
        labels, x = labels_of(order[0], vectors[0]), vectors[0]
        verdicts = [judge(x, y, match(x, y)) for y in vectors[1:]]
        trusted = {0, *(k for k, each in enumerate(verdicts, 1) if each.judgment != "do_not_trust")}
        votes_of = partial(align_from(vectors, range(1)).votes, neighbors=NEIGHBORS, voters=trusted)
        for target, verdict in enumerate(verdicts, 1):
            y = vectors[target]
            carry = partial(carry_by_votes, [labels], vectors, votes_of, target=target, y_end=float(y.times[-1]))
            votes += compare(carry(), order[target], y)
            both += compare(carry(verdict=verdict), order[target], y)
    report(f"a folder of {size or 'all'}: votes alone", votes)
    report(f"a folder of {size or 'all'}: with the verdict", both)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("data", choices=("golfdb", "signs"))
    arguments.add_argument("root", type=Path)
    arguments.add_argument("--split", default="test")
    arguments.add_argument("--limit", type=int)
    arguments.add_argument("--events", action="store_true", help="a row for each of the eight events of GolfDB")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    golf = given.data == "golfdb"
    read = partial(read_golf, given.root, given.split, given.limit, ends=given.events)
    clips = read() if golf else read_signs(given.root, ())
    encoder = load_joint_encoder()
    plain, _ = embed_each([each.path for each in clips], encoder=encoder, cache=open_cache(None))
    embedded = dict(zip(plain, add_motion_energy(encoder, list(plain.values())), strict=True))
    clips = [each for each in clips if each.path in embedded]
    print("| | confidence | within 0.1 s | Brier | calibration error | more confident half / other |")
    print("|---|---|---|---|---|---|")
    if given.events:
        measure_events(clips, embedded)
        return
    measure_pairs(clips, embedded)
    for size in (2, 8, 0):
        measure_folders(clips, embedded, size)


if __name__ == "__main__":
    main()
