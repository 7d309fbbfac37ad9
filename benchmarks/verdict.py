"""Fit the two regressions of a verdict on right and wrong pairs of videos, and measure them on people left out.

python -m benchmarks.verdict --golfdb ROOT --signs ROOT --knots ROOT --penn ROOT --write --figure FILE

Right pairs: swings of GolfDB, signs of LSA64 by two signers, and actions of the stage, by pose; a right pair counts as
close if its median event is off by at most 0.1 s (of a swing, of the events between address and finish). Wrong pairs:
another action or sign, nobody in view (the hands of a robot), and the second video reversed, as a sequence of
embeddings and, for a few, filmed. Videos upside down or mirrored are pairs whose events are known, so that they are
right where the alignment is. Fitted on the players of GolfDB's splits 2 and 3 who are not in split 4, on half of the
signers and the stage's validation set; measured on split 4, the other signers and the stage's test set. PennAction has
no events: only how often its pairs are trusted is measured. The threshold of "do not trust" refuses a fixed share of
the wrong pairs of people left out of the fit. Embeddings without a pose have regressions of their own, without its
numbers. `--write` stores all of them, or those of `--modalities`.

Pairs are aligned and judged as `inphase align` does: at equal tempo, and by every rule of a verdict beside its
probability. One upside down is refused; one that repeats, or has improbable moments, is not good.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise, product
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.consensus import read_golf, read_signs
from inphase.align.matching import match
from inphase.apps import verdict
from inphase.data import penn_action, stage_videos
from inphase.data.frame_source import select_joints
from inphase.data.video import Video
from inphase.models.embed_videos import EmbeddedVideos, embed_each, load_joint_encoder
from inphase.models.embedding import Embedding
from inphase.models.encoder import Encoder
from inphase.models.joint_encoder import JointEncoder, add_motion_energy
from inphase.models.modality import embed_pose
from inphase.models.weights import load_shipped
from inphase.pose.body import MOTION_NUMBERS
from inphase.pose.pose import JOINTS13, Pose
from inphase.storage.cache import open_cache

FLIPPED, FILMED_BACKWARDS = 5, 3  # clips of a data set written upside down and mirrored, and in reverse
BINS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.01)
WRONG = ("another action", "nobody in view", "reversed", "reversed, filmed")
MODALITIES = {"pose_image": (0, 1, 2), "pose": (0,), "image": (1,)}
# Strength of the regularization; parts of the people that are left out in turn, how often; share of pairs to refuse.
STRENGTH, FOLDS, REPEATS, REFUSED = 0.3, 8, 3, 0.96
# Draws of pairs for the fit; first frames of the parts of videos without people, for the fit and for the test.
FIT_DRAWS, NOBODY = 2, {"fit": (60, 160, 260), "test": (60,)}
WEIGHTS = Path(verdict.__file__).with_suffix(".toml")


@dataclass(frozen=True, eq=False)
class Item:
    """An embedded clip: data set, action, person, frames of its events; `change` is what was done to its frames."""

    embedding: Embedding
    data: str
    action: str
    person: str
    events: NDArray[np.int64]
    change: str = ""


@dataclass(frozen=True, eq=False)
class Sample:
    """An aligned pair: its kind, its evidence, whether its events are close, and the errors at them in seconds."""

    data: str
    kind: str
    evidence: verdict.Evidence
    close: bool | None
    frames: NDArray[np.int64]
    right: NDArray[np.bool_]
    x: Embedding
    people: tuple[str, str] = ("", "")

    def numbers(self, count: int | None = None) -> NDArray[np.float64]:
        """Return the numbers of the whole, the first `count` of them."""
        return self.evidence.whole[:count]

    def judge(self, fitted: dict[str, dict[str, Any]], key: str | None) -> verdict.Verdict:
        """Judge by the weights of the pair's modalities, or by those of a key: without joints as if it had no pose."""
        evidence, weights = self.evidence, fitted[key or self.evidence.kind]
        count = len(weights["whole"]) - 1
        if count < len(evidence.whole):
            evidence = replace(evidence, whole=evidence.whole[:count], upside_down=False)
        return verdict.decide(self.x, evidence, weights)


def rewrite(source: Path, target: Path, change: str, *, first: int = 0, count: int | None = None) -> Path:
    """Write some frames of a video, upside down, mirrored or in reverse."""
    if target.exists():
        return target
    with av.open(str(source)) as opened:
        rate = opened.streams.video[0].average_rate
        frames: list[Any] = [frame.to_ndarray(format="rgb24") for frame in opened.decode(video=0)]
    frames = frames[first : None if count is None else first + count]
    if change == "upside down":
        frames = [frame[::-1] for frame in frames]
    elif change == "mirrored":
        frames = [frame[:, ::-1] for frame in frames]
    elif change == "reversed, filmed":
        frames = frames[::-1]
    with av.open(str(target), "w") as made:
        stream = made.add_stream("libx264", rate=rate, options={"crf": "12", "preset": "veryfast"})
        stream.height, stream.width = frames[0].shape[:2]
        stream.pix_fmt, stream.thread_count = "yuv420p", 1
        for frame in frames:
            made.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")))
        made.mux(stream.encode())
    return target


def list_clips(given: argparse.Namespace, part: str) -> Iterator[tuple[Path, str, str, str, NDArray[np.int64], str]]:
    """List the clips to fit or to test on: the originals, and copies upside down, mirrored or reversed."""
    golf, more = read_golf(given.golfdb, "val" if part == "fit" else "test", None, ends=True), []
    if part == "fit":
        testers = {each.person for each in read_golf(given.golfdb, "test", None)}
        golf = [each for each in golf if each.person not in testers]
        more = [each for each in read_golf(given.golfdb, "train", None, ends=True) if each.person not in testers]
    signs = read_signs(given.signs, ())
    people = sorted({each.person for each in signs})
    signs = [each for each in signs if (people.index(each.person) % 2 == 0) == (part == "fit")]
    knots = sorted((given.knots / "videos").glob("*.mp4"))[part != "fit" :: 2]
    for data, clips, others in (("golf", golf, more), ("signs", signs, [])):
        for each in [*clips, *others]:
            yield each.path, data, each.action, each.person, each.events, ""
        chosen = np.random.default_rng(0).choice(len(clips), min(FLIPPED, len(clips)), replace=False)
        for number, k in enumerate(chosen.tolist()):
            each = clips[k]
            for change in ("upside down", "mirrored", "reversed, filmed"):
                if change == "reversed, filmed" and (number >= FILMED_BACKWARDS or data != "golf"):
                    continue
                target = given.work / f"{data}-{change.replace(', ', '-').replace(' ', '-')}-{each.path.name}"
                yield rewrite(each.path, target, change), data, each.action, each.person, each.events, change
    for path, first in product(knots, NOBODY[part]):
        target = rewrite(path, given.work / f"nobody-{first}-{path.name}", "", first=first, count=100)
        yield target, "knots", "knot", path.stem, np.empty(0, np.int64), "nobody in view"


def embed_clips(given: argparse.Namespace, part: str, encoder: JointEncoder) -> list[Item]:
    clips = list(list_clips(given, part))
    embedded, failed = embed_each([each[0] for each in clips], encoder=encoder, cache=open_cache(None))
    for path, reason in failed.items():
        print(f"left out: {path}: {reason}")
    return [Item(embedded[each[0]], *each[1:]) for each in clips if each[0] in embedded]


def embed_labels(videos: Sequence[Video], data: str, encoder: Encoder) -> list[Item]:
    """Embed labeled poses; the person is the video itself."""
    found = []
    for video in videos:
        each = select_joints(video)
        assert each.keypoints is not None
        assert each.visibility is not None
        values = np.concatenate([each.keypoints, each.visibility[..., None]], axis=2).astype(np.float32)
        times = np.arange(len(values)) / (each.rate or 30.0)
        events = np.array(sorted(each.events.values()), np.int64)
        shown, seen = values[..., 2], np.ones(len(values), bool)
        pose = Pose(JOINTS13, values[..., :2], shown, seen, times, each.size or (1, 1))
        found.append(Item(embed_pose(encoder, pose), data, each.action, each.id, events))
    return found


def keep_routes(item: Item, numbers: Sequence[int]) -> Item | None:
    """Keep some routes of a joint embedding; None where the clip does not support all of them."""
    embedding = item.embedding
    if not embedding.routes:
        return item if tuple(numbers) == (0,) else None
    ends = np.cumsum([0, *(route.width for route in embedding.routes)])
    parts = [embedding.values[:, ends[k] : ends[k + 1]] for k in numbers]
    if not all(part.any() for part in parts):
        return None
    if len(numbers) == len(embedding.routes):
        return item
    unit = parts[0] / np.maximum(np.linalg.norm(parts[0], axis=1, keepdims=True), 1e-9)
    modality = ("pose", "image")[numbers[0]]
    pose = embedding.pose if modality == "pose" else None
    single = Embedding(unit, embedding.times, modality, pose, routes=(embedding.routes[numbers[0]],))
    return replace(item, embedding=replace(single, routes=()) if modality == "pose" else single)


def draw_samples(items: Sequence[Item], encoder: Encoder, *, pairs: int, seed: int) -> list[Sample]:
    """Align pairs of every kind, `pairs` of each in each data set."""
    rng = np.random.default_rng(seed)
    plain = [each for each in items if not each.change]
    samples = []
    for data in dict.fromkeys(each.data for each in plain):
        own = [each for each in plain if each.data == data]
        for _ in range(pairs):
            a = own[rng.integers(len(own))]
            same = [each for each in own if each.action == a.action and each.person != a.person]
            other = [each for each in plain if each.action != a.action]
            if same:
                b = same[rng.integers(len(same))]
                samples.append(measure("right", a, b, rng, encoder))
                samples.append(measure("reversed", a, b, rng, encoder))
            if other:
                samples.append(measure("another action", a, other[rng.integers(len(other))], rng, encoder))
        for change in dict.fromkeys(each.change for each in items if each.change):
            changed = [each for each in items if each.change == change and each.data in (data, "knots")]
            for _ in range(pairs // 2 if changed else 0):
                b = changed[rng.integers(len(changed))]
                fits = [a for a in own if a.person != b.person and (a.action == b.action or b.data != data)]
                samples.append(measure(change, fits[rng.integers(len(fits))], b, rng, encoder))
    return [each for each in samples if each is not None]


def measure(kind: str, a: Item, b: Item, rng: np.random.Generator, encoder: Encoder) -> Sample | None:
    x, y = a.embedding, b.embedding
    if kind == "reversed":
        y = replace(y, values=np.ascontiguousarray(y.values[::-1]), pose=None if y.pose is None else reverse(y.pose))
    times = y.times
    y = verdict.equalize_tempo(EmbeddedVideos([x, y], encoder, ""), ("", ""), reference=0).embeddings[1]
    x, y = add_motion_energy(encoder, [x, y])
    found = match(x, y)
    evidence = verdict.gather(x, y, found)
    if evidence is None:
        return None
    if kind in WRONG:
        frames = np.sort(rng.choice(len(x), min(6, len(x)), replace=False))
        return Sample(a.data, kind, evidence, False, frames, np.zeros(len(frames), bool), x, (a.person, b.person))
    seconds = found.time_map(x.times, y.times)[a.events]
    gap = float(np.median(np.diff(times)))
    right = np.abs(seconds - times[b.events]) <= verdict.TOLERANCE_SECONDS + gap / 2
    inner = right[1:-1] if a.data == "golf" else right  # address and finish are hard to place
    close = None if not len(inner) else bool(inner.mean() >= 0.5)
    return Sample(a.data, kind, evidence, close, a.events, right, x, (a.person, b.person))


def reverse(pose: Pose) -> Pose:
    """Play a pose backwards."""
    return replace(
        pose, keypoints=pose.keypoints[::-1], visibility=pose.visibility[::-1], found=pose.found[::-1], world=None
    )


def fit(rows: NDArray[np.float64], targets: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Fit a logistic regression; return its constant and weights, in the units of the columns."""
    model: Pipeline = make_pipeline(StandardScaler(), LogisticRegression(C=STRENGTH, max_iter=5000)).fit(rows, targets)
    scale, regression = model[0], model[1]
    weights = regression.coef_[0] / scale.scale_
    return np.concatenate([regression.intercept_ - weights @ scale.mean_, weights])


def find_doubtful(samples: Sequence[Sample], count: int | None) -> float:
    """Find the probability below which `REFUSED` of the wrong pairs lie, of people that the fit leaves out."""
    rng, found = np.random.default_rng(0), list[float]()
    people = sorted({person for each in samples for person in each.people})
    for _ in range(REPEATS):
        folds = dict(zip(people, rng.integers(FOLDS, size=len(people)).tolist(), strict=True))
        for fold in range(FOLDS):
            out = [any(folds[person] == fold for person in each.people) for each in samples]
            inside = [each for each, left in zip(samples, out, strict=True) if not left]
            wrong = [e.numbers(count) for e, left in zip(samples, out, strict=True) if left and e.kind in WRONG]
            weights = fit(np.stack([each.numbers(count) for each in inside]), np.array([e.close for e in inside]))
            found += chances_of(np.stack(wrong), weights).tolist() if wrong else []
    return float(np.quantile(found, REFUSED).round(2))


def moment_rows(samples: Sequence[Sample], whole: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    bound = verdict.MAX_SCORE
    scores = [np.clip(whole[0] + each.numbers(len(whole) - 1) @ whole[1:], -bound, bound) for each in samples]
    rows = [
        np.column_stack([s.evidence.moments[s.frames], np.full(len(s.frames), score)])
        for s, score in zip(samples, scores, strict=True)
    ]
    return np.concatenate(rows), np.concatenate([each.right for each in samples])


def chances_of(rows: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(1 / (1 + np.exp(-(weights[0] + rows @ weights[1:]))))


def report(
    samples: Sequence[Sample], fitted: dict[str, dict[str, Any]], title: str, *, key: str | None = None
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Print how each kind is judged, and how probabilities relate to shares; return those of the moments."""
    verdicts = [each.judge(fitted, key) for each in samples]
    chances = np.array([each.probability for each in verdicts])
    judged = np.array([each.judgment for each in verdicts])
    close = np.array([each.close is True for each in samples])
    wrong = np.array([each.kind in (*WRONG, "upside down") for each in samples])
    groups = {
        f"{d}: {k}": np.array([(each.data, each.kind) == (d, k) for each in samples])
        for d, k in dict.fromkeys((e.data, e.kind) for e in samples)
    }
    groups |= {"all wrong": wrong, "all right": np.array([each.kind == "right" for each in samples])}
    groups["right and close"] = groups["all right"] & close
    print(f"\n{title}\n\n| pairs | number | close | do not trust | check | good |\n|---|---|---|---|---|---|")
    for name, inside in groups.items():
        if inside.any():
            named = ("do_not_trust", "check", "good")
            shares = " | ".join(f"{np.mean(judged[inside] == judgment):.1%}" for judgment in named)
            print(f"| {name} | {inside.sum()} | {close[inside].mean():.0%} | {shares} |")
    known = np.array([each.close is not None for each in samples])
    print_bins("the whole", chances[known], close[known])
    having = [(each, found) for each, found in zip(samples, verdicts, strict=True) if len(each.frames)]
    moments = np.concatenate([found.moments[each.frames] for each, found in having])
    right = np.concatenate([each.right for each, _ in having])
    print_bins("a moment", moments, right)
    return moments, right


def print_bins(name: str, chances: NDArray[np.float64], right: NDArray[np.bool_]) -> None:
    print(f"\n| probability of {name} | number | mean | share |\n|---|---|---|---|")
    for low, high in pairwise(BINS):
        inside = (chances >= low) & (chances < high)
        if inside.any():
            found = f"{inside.sum()} | {chances[inside].mean():.2f} | {right[inside].mean():.2f}"
            print(f"| {low:.1f} to {min(high, 1):.1f} | {found} |")


def draw_reliability(file: Path, found: dict[str, tuple[NDArray[np.float64], NDArray[np.bool_]]]) -> None:
    """Draw the share of right moments over their mean probability, a panel for each modality."""
    size, margin = 340, 46
    span = size - 2 * margin
    sheet = Image.new("RGB", (size * len(found), size), "white")
    for number, (name, (chances, right)) in enumerate(found.items()):
        image = Image.new("RGB", (size, size), "white")
        draw = ImageDraw.Draw(image)
        draw.rectangle((margin, margin, size - margin, size - margin), outline="#888888")
        draw.line((margin, size - margin, size - margin, margin), fill="#bbbbbb")
        places = []
        for low, high in pairwise(np.linspace(0, 1.0001, 11)):
            inside = (chances >= low) & (chances < high)
            if inside.sum() >= 10:
                places.append((margin + span * chances[inside].mean(), size - margin - span * right[inside].mean()))
        draw.line(places, fill="#2f6bff", width=2)
        for x, y in places:
            draw.ellipse((x - 4, y - 4, x + 4, y + 4), fill="#2f6bff")
        for value in (0.0, 0.5, 1.0):
            draw.text((margin + span * value, size - margin + 4), f"{value:g}", fill="#444444", anchor="ma")
            draw.text((margin - 6, size - margin - span * value), f"{value:g}", fill="#444444", anchor="rm")
        draw.text((size / 2, size - 22), "probability of a moment", fill="black", anchor="ma")
        draw.text((size / 2, 16), f"{name}: share within 0.1 s", fill="black", anchor="ma")
        sheet.paste(image, (size * number, 0))
    sheet.save(file)


def write_weights(fitted: dict[str, dict[str, Any]]) -> None:
    """Write the weights that the package judges by."""
    lines = [
        "# Weights of the two regressions of a verdict by modality, the constant first; the probability below which",
        "# an alignment is not to be trusted: written by `python -m benchmarks.verdict` (docs/lab/verdict.md).",
    ]
    for key, found in fitted.items():
        whole, moment = (np.round(found[name], 3).tolist() for name in ("whole", "moment"))
        lines += ["", f"[{key}]", f"whole = {whole}", f"moment = {moment}", f"doubtful = {found['doubtful']}"]
    WEIGHTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def fit_modality(
    kind: str, parts: dict[str, tuple[list[Item], int]], penn: list[Item], encoder: JointEncoder, *, pairs: int
) -> tuple[dict[str, dict[str, Any]], tuple[NDArray[np.float64], NDArray[np.bool_]]]:
    """Fit the regressions of some modalities, with and without joints, and print how they judge.

    Return the weights by name, and the probabilities and the outcomes of the moments.
    """
    samples = {}
    part: Encoder = {"pose_image": encoder, "pose": load_shipped("pose"), "image": encoder.image}[kind]
    for name, (items, seed) in parts.items():
        kept = [one for each in items if (one := keep_routes(each, MODALITIES[kind])) is not None]
        draws = [
            draw_samples(kept, part, pairs=pairs, seed=seed + 10 * k) for k in range(FIT_DRAWS if name == "fit" else 1)
        ]
        samples[name] = list(chain.from_iterable(draws))
    known = [each for each in samples["fit"] if each.close is not None]
    counts = {kind: None if kind == "image" else len(known[0].numbers()) - len(MOTION_NUMBERS)}
    counts |= {} if kind == "image" else {f"{kind}_joints": None}
    if kind == "pose":
        samples["test"] += draw_samples(penn, part, pairs=pairs, seed=2)
    fitted = {}
    for key, count in counts.items():
        rows = np.stack([each.numbers(count) for each in known])
        whole = fit(rows, np.array([each.close for each in known]))
        local = fit(*moment_rows([each for each in known if len(each.frames)], whole))
        doubtful = find_doubtful(known, count)
        fitted[key] = {"whole": whole, "moment": local, "doubtful": doubtful}
        title = f"## {key.replace('_', ' and ')}, not to be trusted below {doubtful:.2f}"
        drawn = report(samples["test"], fitted, title, key=key)
    return fitted, drawn


def report_all(items: Sequence[Item], encoder: JointEncoder, fitted: dict[str, dict[str, Any]], *, pairs: int) -> None:
    """Print how videos are judged by the modalities that each pair of them supports, as `inphase align` does."""
    samples = draw_samples([each for each in items if each.embedding.routes], encoder, pairs=pairs, seed=3)
    kinds = [each.evidence.kind for each in samples]
    title = ", ".join(f"{kinds.count(kind)} by {kind.replace('_', ' and ')}" for kind in dict.fromkeys(kinds))
    report(samples, fitted, f"## As `inphase align` judges: {title}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("golfdb", "signs", "knots", "penn"):
        arguments.add_argument(f"--{name}", type=Path, required=True)
    arguments.add_argument("--work", type=Path, default=Path("out/verdict"), help="folder of the changed videos")
    arguments.add_argument("--figure", type=Path)
    arguments.add_argument("--write", action="store_true", help="store the weights in the package")
    arguments.add_argument("--pairs", type=int, default=150)
    arguments.add_argument("--modalities", nargs="*", choices=tuple(MODALITIES), default=tuple(MODALITIES))
    given = arguments.parse_args()
    torch.set_num_threads(1)
    given.work.mkdir(parents=True, exist_ok=True)
    encoder, pose = load_joint_encoder(), load_shipped("pose")
    drawn, parts, fitted = {}, {}, dict[str, dict[str, Any]]()
    for part, split, seed in (("fit", "val", 0), ("test", "test", 1)):
        stage = embed_labels(stage_videos.load(split=split, videos=6), "stage", pose)
        parts[part] = [*embed_clips(given, part, encoder), *stage], seed
    penn = embed_labels(penn_action.load(given.penn, split="test")[::4], "PennAction", pose)
    for kind in given.modalities:
        found, drawn[kind.replace("_", " and ")] = fit_modality(kind, parts, penn, encoder, pairs=given.pairs)
        fitted |= found
    fitted = {**verdict.FITTED, **fitted}
    report_all(parts["test"][0], encoder, fitted, pairs=given.pairs)
    if given.write:
        write_weights(fitted)
    if given.figure:
        draw_reliability(given.figure, drawn)


if __name__ == "__main__":
    main()
