"""Measure how well repetitions are found in workout_reps and quva_repetition, beside autocorrelation.

python -m benchmarks.repetitions ROOT [--cache DIR] [--details]
python -m benchmarks.repetitions ROOT --people
python -m benchmarks.repetitions ROOT --periods

ROOT holds both folders, and for --periods those of GolfDB, LSA64 and PennAction. Settings were chosen on every other
video of each index.csv, the first included ("chosen on"); the others are the "other half". It is no clean test set:
settings that tied on the first half were decided by it.
Features: EfficientNet-Lite0, nothing trained. Per group: videos whose count is within one of the truth;
the median distance from a true boundary to the nearest found one, in seconds; precision and recall at an
overlap (intersection over union) of 0.5.

  autocorrelation   the highest peak of the autocorrelation of eight principal components; cycles from the first frame
  repetitions       `inphase cut SESSION`
  like              `inphase cut SESSION --like CLIP`, where the clip is the first true cycle; videos of three or more

With --people, the clip is the first true cycle of another person: all pairs of workout videos of one action with two
or more repetitions, by images and, where both videos show a person, by body pose (`inphase align … --session`).

With --periods: how many videos a verdict calls repeating (`inphase.align.cost.find_period`), and in how many the
period is within a quarter of the truth: videos of two or more repetitions, single repetitions cut out of them, golf
swings and signs, and PennAction's clips by their labeled joints. Chosen on the first half of each: every other video,
GolfDB's splits 2 and 3, half of the signers, PennAction's training videos.

In workout_reps a mark is the start position; the last repetition ends a median period later, or with the video. In
quva_repetition a mark is the end of a cycle, and the first begins with the video.
"""

import argparse
import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np

from benchmarks.consensus import read_golf, read_signs
from benchmarks.verdict import embed_labels
from inphase.align.cost import find_period
from inphase.apps.sessions import Repetition, cut_embedding, find_spans, principal_basis, shared_part
from inphase.data import penn_action
from inphase.models import Embedding, Encoder, load_shipped
from inphase.models.embed_videos import embed_each, embed_video, load_joint_encoder
from inphase.models.embedding import rate_of
from inphase.models.joint_encoder import has_route
from inphase.models.motion_encoder import PooledFeatures
from inphase.storage.cache import open_cache

PACKS = ("workout_reps", "quva_repetition")
Span = tuple[float, float]
MIN_FRAMES = 12  # of a single repetition


@dataclass(frozen=True)
class Session:
    id: str
    pack: str
    chosen_on: bool
    embedding: Embedding
    count: int
    boundaries: list[float]
    spans: list[Span]


def read_sessions(
    root: Path, cache: Path | None, *, encoder: Encoder | None = None, packs: Sequence[str] = PACKS
) -> Iterator[Session]:
    encoder, kept = encoder or PooledFeatures(), open_cache(cache)
    for pack in packs:
        with (root / pack / "index.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        for number, row in enumerate(rows):
            embedding = embed_video(encoder, root / pack / row["file"], cache=kept)
            times, workout = embedding.times, pack == "workout_reps"
            frames = [int(mark) for mark in row["rep_marks" if workout else "cycle_ends"].split()]
            marks = np.interp(frames, np.arange(len(times)), times).tolist()
            if workout:
                period = float(np.median(np.diff(marks))) if len(marks) > 1 else np.inf
                ends = [*marks, min(float(times[-1]), marks[-1] + period)]
            else:
                marks = ends = [0.0, *marks]
            count = int(row["reps" if workout else "cycles"])
            spans = list(pairwise(ends))
            yield Session(row["id"], pack, number % 2 == 0, embedding, count, marks, spans)


def autocorrelate(embedding: Embedding) -> list[Span]:
    basis, mean = principal_basis(embedding.values, number=8)
    x, times = (embedding.values - mean) @ basis, embedding.times
    length = len(x)
    power = np.abs(np.fft.rfft(x, 2 * length, axis=0)) ** 2
    correlation = np.fft.irfft(power.sum(1))[:length] / np.arange(length, 0, -1)
    least = max(4, int(0.2 * (length - 1) / (times[-1] - times[0])))
    lags = range(least, length // 2 + 1)
    peaks = [k for k in lags if correlation[k - 1] < correlation[k] >= correlation[k + 1]]
    if not peaks:
        return [(float(times[0]), float(times[-1]))]
    period = max(peaks, key=lambda k: correlation[k])
    number = max(1, round(length / period))
    marks = np.interp(np.arange(number + 1) * period, np.arange(length), times).tolist()
    return list(pairwise(marks))


def overlap(a: Span, b: Span) -> float:
    return max(0.0, min(a[1], b[1]) - max(a[0], b[0])) / (max(a[1], b[1]) - min(a[0], b[0]))


def count_hits(truth: list[Span], found: list[Span]) -> int:
    left, hits = list(found), 0
    for span in truth:
        best = max(left, key=lambda each: overlap(span, each), default=None)
        if best is not None and overlap(span, best) >= 0.5:
            left.remove(best)
            hits += 1
    return hits


def find(session: Session, method: str) -> list[Span]:
    if method == "autocorrelation":
        return autocorrelate(session.embedding)
    like = cut_embedding(session.embedding, Repetition(*session.spans[0], 1.0)) if method == "like" else None
    return [(each.start, each.end) for each in find_spans(session.embedding, like)]


def print_group(name: str, method: str, results: list[tuple[Session, list[Span]]]) -> None:
    within = sum(abs(len(found) - session.count) <= 1 for session, found in results)
    errors = [
        min(abs(mark - edge) for span in found for edge in span)
        for session, found in results
        for mark in session.boundaries
        if found
    ]
    hits = sum(count_hits(session.spans, found) for session, found in results)
    found_in_all, true_in_all = sum(len(found) for _, found in results), sum(len(s.spans) for s, _ in results)
    print(
        f"| {name} | {method} | {within} of {len(results)} | {np.median(errors):.3f} s | {hits / found_in_all:.2f} | "
        f"{hits / true_in_all:.2f} |"
    )


def find_by_others(sessions: Sequence[Session]) -> Iterator[tuple[str, Session, list[Span]]]:
    """Find the repetitions of each person by the clip of each other: modality, session, spans."""
    several = [each for each in sessions if len(each.boundaries) > 1]
    for session, other in permutations(several, 2):
        if session.id.split("_")[0] != other.id.split("_")[0]:
            continue
        clip = other.embedding.part(*other.spans[0])
        begin, end = np.cumsum([route.width for route in clip.routes])[:2]
        images = [Embedding(each.values[:, begin:end], each.times) for each in (session.embedding, clip)]
        ways = {"image": images, "pose": shared_part(session.embedding, clip)}
        if not (has_route(session.embedding, 0) and has_route(clip, 0)):
            del ways["pose"]
        for name, (whole, like) in ways.items():
            if len(like) <= len(whole):
                yield name, session, [(each.start, each.end) for each in find_spans(whole, like)]


def list_groups(root: Path, cache: Path | None) -> Iterator[tuple[str, bool, Embedding, float | None]]:
    """Embed the videos of --periods: group, whether constants were chosen on it, and the true period in seconds."""
    encoder, kept = load_joint_encoder(), open_cache(cache)
    for session in read_sessions(root, cache, encoder=encoder):
        lengths = [end - start for start, end in session.spans if np.isfinite(end)]
        if len(session.boundaries) > 1:
            yield f"{session.pack}, whole", session.chosen_on, session.embedding, float(np.mean(lengths))
            for start, end in session.spans:
                part = session.embedding.part(start, end)
                if len(part) >= MIN_FRAMES:
                    yield f"{session.pack}, one repetition", session.chosen_on, part, None
    signs = read_signs(root / "lsa64_signs", ())
    signers = sorted({each.person for each in signs})
    clips = [("signs", signers.index(each.person) % 2 == 0, each.path) for each in signs]
    for split in ("train", "val", "test"):
        clips += [("golf", split != "test", each.path) for each in read_golf(root / "golfdb", split, None)]
    embedded, _ = embed_each([path for _, _, path in clips], encoder=encoder, cache=kept)
    yield from ((name, chosen_on, embedded[path], None) for name, chosen_on, path in clips if path in embedded)
    for split in penn_action.SPLITS:
        videos = penn_action.load(root / "penn_action", split=split, actions=penn_action.ALL_ACTIONS)
        for action in penn_action.ALL_ACTIONS:
            of_action = [each for each in videos if each.action == action]
            for item in embed_labels(of_action, "PennAction", load_shipped("pose")):
                yield f"PennAction {action}", split == "train", item.embedding, None


def print_periods(root: Path, cache: Path | None) -> None:
    """Print how many videos of each group are called repeating, and in how many the period is right."""
    groups: dict[tuple[str, bool], list[tuple[float | None, float | None]]] = {}
    for name, chosen_on, embedding, truth in list_groups(root, cache):
        groups.setdefault((name, chosen_on), []).append(
            (find_period(embedding.values, rate=rate_of(embedding.times) or 1.0), truth)
        )
    print("| videos | half | called repeating | period right |\n|---|---|---|---|")
    for (name, chosen_on), rows in groups.items():
        found = sum(period is not None for period, _ in rows)
        known = [abs(period / truth - 1) < 0.25 for period, truth in rows if period and truth]
        right = f"{sum(known)} of {len(rows)}" if rows[0][1] else ""
        print(f"| {name} | {'chosen on' if chosen_on else 'other half'} | {found} of {len(rows)} | {right} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--details", action="store_true")
    parser.add_argument("--people", action="store_true")
    parser.add_argument("--periods", action="store_true")
    given = parser.parse_args()
    if given.periods:
        print_periods(given.root, given.cache)
        return
    if given.people:
        sessions = list(read_sessions(given.root, given.cache, encoder=load_joint_encoder(), packs=PACKS[:1]))
        ways = list(find_by_others(sessions))
        print("| videos | modality | count within one | boundary | precision | recall |\n|---|---|---|---|---|---|")
        for action in ("push-up", "pull-up", "squat"):
            for way in ("image", "pose"):
                rows = [(each, spans) for name, each, spans in ways if name == way and each.id.startswith(action)]
                print_group(f"{action}s by another's clip", way, rows)
        return
    sessions = list(read_sessions(given.root, given.cache))
    print("| videos | method | count within one | boundary | precision | recall |\n|---|---|---|---|---|---|")
    for method in ("autocorrelation", "repetitions", "like"):
        results = [(each, find(each, method)) for each in sessions if method != "like" or len(each.spans) > 2]
        for pack in PACKS:
            print_group(pack, method, [each for each in results if each[0].pack == pack])
        for name, chosen_on in (("chosen on", True), ("other half", False)):
            print_group(name, method, [each for each in results if each[0].chosen_on == chosen_on])
        print_group("all", method, results)
        for session, found in results if given.details else ():
            print(f"{method} {session.id}: {len(found)} of {session.count}")


if __name__ == "__main__":
    main()
