"""Measure the error of events carried within a folder of clips: by pose, by images, by both, and by consensus.

python -m benchmarks.consensus golfdb ROOT [--split test] [--model RUN] [--limit N]
python -m benchmarks.consensus signs ROOT [--people P001 P002 …]
python -m benchmarks.consensus strangers ROOT [--limit FOLDERS]

The last adds one to three clips of other actions to folders of six golf swings, and counts the swings whose verdict
changes: where all clips vote, and where only trusted ones do (`inphase.apps.align_videos.synchronize`). ROOT holds
golfdb, workout_reps and lsa64_signs.

Poses and images are embedded once and cached in the cache folder of the user. Events are carried between all pairs of
clips of different people; the clips between them are used without their labels. Errors are in frames.
"""

import argparse
import csv
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

from inphase.align.consensus import PairwiseMaps, agree_on_reference, align_pairwise, barycenter, transpose
from inphase.align.matching import match_many
from inphase.apps.align_videos import synchronize
from inphase.apps.verdict import judge
from inphase.data import golfdb
from inphase.models.embed_videos import Model, embed_each, load_joint_encoder, open_encoder
from inphase.models.embedding import Embedding
from inphase.models.joint_encoder import JointEncoder, add_motion_energy
from inphase.models.motion_encoder import PooledFeatures
from inphase.storage.cache import open_cache

NEIGHBORS = (5, 10, 20, 40)
REFERENCES = (1, 3, 5, 9)
PART_PAIRS = 1500  # pairs of clips that a part alone is measured on


@dataclass(frozen=True, eq=False)
class LabeledClip:
    """A clip, its action, its person, and the frames of its events."""

    path: Path
    action: str
    person: str
    events: NDArray[np.int64]


def read_golf(root: Path, split: str, limit: int | None, *, ends: bool = False) -> list[LabeledClip]:
    """Read the clips of a split with their six inner events, and with address and finish if `ends`."""
    videos = golfdb.load(root, split=split)[:limit]
    names = golfdb.EVENTS if ends else golfdb.EVENTS[1:-1]
    return [
        LabeledClip(
            root / "videos" / f"{each.id}.mp4",
            each.action,
            each.notes["player"],
            np.array([each.events[name] for name in names]),
        )
        for each in videos
    ]


def read_signs(root: Path, people: Sequence[str]) -> list[LabeledClip]:
    with (root / "index.csv").open(encoding="utf-8", newline="") as opened:
        rows = [row for row in csv.DictReader(opened) if not people or row["person"] in people]
    names = ("hand_onset", "hand_half", "hand_farthest")
    return [
        LabeledClip(root / row["file"], row["action"], row["person"], np.array([int(row[name]) for name in names]))
        for row in rows
    ]


def report(name: str, errors: Sequence[NDArray[np.float64]]) -> None:
    """Print a row of the table."""
    found = np.concatenate(errors)
    print(f"| {name} | {found.mean():.2f} | {np.median(found):.1f} | {np.mean(found <= 3.5):.1%} |", flush=True)


def measure(
    clips: Sequence[LabeledClip], plain: Sequence[Embedding], encoder: JointEncoder
) -> dict[str, list[NDArray[np.float64]]]:
    """Carry events within one action; return the errors by method."""
    found: dict[str, list[NDArray[np.float64]]] = {}
    pairs = [(a, b) for a in range(len(clips)) for b in range(len(clips)) if clips[a].person != clips[b].person]

    def add(name: str, places: NDArray[np.float64], b: int) -> None:
        found.setdefault(name, []).append(np.abs(places - clips[b].events))

    rng = np.random.default_rng(0)
    some = [pairs[k] for k in rng.choice(len(pairs), min(PART_PAIRS, len(pairs)), replace=False)]
    embeddings = add_motion_energy(encoder, plain)
    for number, (part, own) in enumerate(encoder.parts.items()):
        sides = [_part(each, number) for each in plain]
        sides = add_motion_energy(own, sides) if isinstance(own, PooledFeatures) else sides
        for (a, b), each in zip(some, match_many([(sides[a], sides[b]) for a, b in some]), strict=True):
            add(f"{part} alone", each.frame_map()[clips[a].events], b)
    began = time.process_time()
    maps = align_pairwise(embeddings)
    print(f"{len(clips)} clips, {len(maps.maps) // 2} pairs in {time.process_time() - began:.0f} s of processor time")
    template = _through_template(embeddings, start=int(maps.distances.sum(1).argmin()))
    for a, b in pairs:
        frames = clips[a].events.astype(np.float64)
        add("linear stretch", frames * len(embeddings[b]) / len(embeddings[a]), b)
        add("both", maps.at(a, b, frames), b)
        votes = maps.votes(a, b, frames, neighbors=max(NEIGHBORS))
        for neighbors in NEIGHBORS:
            add(f"both, {neighbors} clips vote", np.median(votes[: 1 + neighbors], axis=0), b)
        add("both, through the template", np.interp(template[0][a][clips[a].events], *template[1][b]), b)
    for count in REFERENCES:
        for b in range(len(clips)):
            others = [a for a in range(len(clips)) if clips[a].person != clips[b].person]
            for _ in range(3):
                chosen = rng.permutation(others)[:count]
                direct = [maps.at(a, b, clips[a].events.astype(np.float64)) for a in chosen]
                add(f"both, {count} labeled clips", np.median(direct, axis=0), b)
                voted = [_votes(maps, clips, a, b) for a in chosen]
                add(f"both, {count} labeled clips, 20 clips vote", np.median(np.concatenate(voted), axis=0), b)
    return found


def _votes(maps: PairwiseMaps, clips: Sequence[LabeledClip], a: int, b: int) -> NDArray[np.float64]:
    return maps.votes(a, b, clips[a].events.astype(np.float64), neighbors=20)


def _part(embedding: Embedding, number: int) -> Embedding:
    """Keep one route of a joint embedding."""
    begin = sum(route.width for route in embedding.routes[:number])
    kept = embedding.values[:, begin : begin + embedding.routes[number].width]
    lengths = np.maximum(np.linalg.norm(kept, axis=1, keepdims=True), 1e-9)
    return Embedding(kept / lengths, embedding.times, routes=(embedding.routes[number],))


def _through_template(
    embeddings: Sequence[Embedding], *, start: int
) -> tuple[list[NDArray[np.float64]], list[tuple[NDArray[np.float64], NDArray[np.float64]]]]:
    """Map every clip to the average of all of them, and back."""
    template = barycenter(embeddings, start=start)
    found = list(match_many([(template, each) for each in embeddings]))
    clock = np.arange(len(template), dtype=np.float64)
    return [transpose(each).frame_map() for each in found], [(clock, each.frame_map()) for each in found]


def add_strangers(root: Path, encoder: JointEncoder, folders: int, *, swings: int = 6) -> None:
    """Print how many swings of golf folders get another verdict where clips of other actions are among them."""
    strangers = [root / "workout_reps/videos/squat_14.mp4", root / "workout_reps/videos/push-up_9.mp4"]
    strangers += sorted((root / "lsa64_signs").rglob("*.mp4"))[3:4]
    rng, clips = np.random.default_rng(0), golfdb.load(root / "golfdb", split="train")
    changed = {(way, number): [0, 0] for way in ("all clips", "trusted clips") for number in (1, 2, 3)}
    for folder in range(folders):
        view = ("face-on", "down-the-line")[folder % 2]
        ids = rng.choice([each.id for each in clips if each.notes["view"] == view], swings, replace=False)
        paths = [root / "golfdb/videos" / f"{each}.mp4" for each in ids]
        embedded, _ = embed_each([*paths, *strangers], encoder=encoder, cache=open_cache(None))
        found = add_motion_energy(encoder, list(embedded.values()))
        for way, number in changed:
            agree = _let_all_vote if way == "all clips" else agree_on_reference
            with patch("inphase.apps.align_videos.agree_on_reference", agree):
                alone, beside = (synchronize(found[:count]) for count in (swings, swings + number))
            pairs = [
                [judge(found[0], found[k], each.matches[k]).judgment for each in (alone, beside)]
                for k in range(1, swings)
            ]
            changed[way, number][0] += sum(a != b for a, b in pairs)
            changed[way, number][1] += len(pairs)
    print("| votes | clips of other actions | swings with another verdict |\n|---|---|---|")
    for (way, number), (count, total) in changed.items():
        print(f"| {way} | {number} | {count} of {total} |")


def _let_all_vote(*arguments: Any, voters: object, **options: Any) -> Any:
    return agree_on_reference(*arguments, **options)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("data", choices=("golfdb", "signs", "strangers"))
    arguments.add_argument("root", type=Path)
    arguments.add_argument("--split", default="test")
    arguments.add_argument("--people", nargs="*", default=())
    arguments.add_argument("--model", type=Path)
    arguments.add_argument("--limit", type=int)
    given = arguments.parse_args()
    torch.set_num_threads(1)
    model: Model = given.model
    encoder = load_joint_encoder() if model is None else open_encoder(model)
    if not isinstance(encoder, JointEncoder):
        arguments.error(f"{model} is not a run that trained both parts")
    if given.data == "strangers":
        add_strangers(given.root, encoder, given.limit or 10)
        return
    read = read_golf(given.root, given.split, given.limit) if given.data == "golfdb" else None
    clips = read_signs(given.root, given.people) if read is None else read
    embedded, failed = embed_each([each.path for each in clips], encoder=encoder, cache=open_cache(None))
    for path, reason in failed.items():
        print(f"left out: {path}: {reason}")
    total: dict[str, list[NDArray[np.float64]]] = {}
    for action in sorted({each.action for each in clips}):
        of_action = [each for each in clips if each.action == action and each.path in embedded]
        for name, errors in measure(of_action, [embedded[each.path] for each in of_action], encoder).items():
            total.setdefault(name, []).extend(errors)
    print("\n| | mean | median | within 0.1 s |\n|---|---|---|---|")
    for name, errors in total.items():
        report(name, errors)


if __name__ == "__main__":
    main()
