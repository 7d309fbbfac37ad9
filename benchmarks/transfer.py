"""Measure the error of labels transferred from one video to another, and whether their confidence predicts it.

python -m benchmarks.transfer MODEL --golfdb ROOT --store STORE     # GolfDB, poses from a store (`inphase data pose`)
python -m benchmarks.transfer MODEL --stage                         # the procedural set, its own keypoints
python -m benchmarks.transfer features --golfdb ROOT [--limit N]    # images, by features of a frozen network
python -m benchmarks.transfer both --golfdb ROOT --slow 1 2 3 4     # slow motion: the shipped encoders, with pose

MODEL is a run folder or an encoder file; an image encoder needs no store.

Every test video is labeled three times, each from a video of another person: in GolfDB of the same view, on the stage
of the same action. Errors are in frames. Linear stretch is the baseline without an embedding.

Slow motion is imitated: joints, and vectors of images, are interpolated between frames. Errors are in frames of the
original, with and without `equalize_tempo`, over pairs of the split (`--split val` for the choice of its threshold).
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.consensus import read_golf
from inphase.align.matching import match
from inphase.apps.labels import Event, Labels
from inphase.apps.transfer_labels import carry_labels
from inphase.apps.verdict import TOLERANCE_SECONDS, equalize_tempo
from inphase.data import golfdb, stage_videos
from inphase.data.frame_source import add_poses, select_joints
from inphase.data.video import Video
from inphase.models import Embedding, Encoder, embed, load_encoder
from inphase.models.embed_videos import EmbeddedVideos, embed_each, embed_video, load_joint_encoder
from inphase.models.embedding import resample
from inphase.models.joint_encoder import JointEncoder, add_motion_energy
from inphase.models.modality import embed_pose
from inphase.models.motion_encoder import PooledFeatures
from inphase.pose.pose_store import PoseStore
from inphase.storage.cache import open_cache

SOURCES = 3


def embed_labeled(encoder: Encoder, video: Video, *, rate: float) -> Embedding:
    if encoder.modality == "image":
        assert video.path is not None
        return embed_video(encoder, video.path)
    assert video.keypoints is not None
    visible = np.ones(video.keypoints.shape[:2]) if video.visibility is None else video.visibility
    poses = np.concatenate([video.keypoints, visible[..., None]], axis=-1).astype(np.float32)
    return embed(encoder, (poses, np.arange(len(poses)) / rate), batch=512)


def pairs(videos: Sequence[Video], *, alike: str, rng: np.random.Generator) -> Iterator[tuple[Video, Video]]:
    """Pair each target video with three sources, of the same kind and of other people."""
    groups = defaultdict(list)
    for video in videos:
        groups[video.action, video.notes.get(alike, "")].append(video)
    for target in videos:
        group = groups[target.action, target.notes.get(alike, "")]
        others = [each for each in group if each.id != target.id]
        others = [each for each in others if each.notes.get("player", each.id) != target.notes.get("player", "")]
        yield from ((others[k], target) for k in rng.permutation(len(others))[:SOURCES])


def shared_events(
    source: Video, target: Video, names: Sequence[str]
) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64]]:
    """Return the events that both videos have, restricted to `names` if any, and their frames in either video."""
    events = [name for name in names or source.events if name in source.events and name in target.events]
    frames, truth = (np.array([video.events[name] for name in events]) for video in (source, target))
    return events, frames, truth


def measure(
    encoder: Encoder, videos: Sequence[Video], names: Sequence[str], *, alike: str, rate: float
) -> dict[str, NDArray[np.float64]]:
    """Transfer events; return errors in frames by method, and the confidences."""
    embedded = {video.id: embed_labeled(encoder, video, rate=rate) for video in videos}
    found: dict[str, list[float]] = defaultdict(list)
    for source, target in pairs(videos, alike=alike, rng=np.random.default_rng(0)):
        x, y = embedded[source.id], embedded[target.id]
        events, frames, truth = shared_events(source, target, names)
        labels = Labels(events=tuple(Event(frame / rate, name) for frame, name in zip(frames, events, strict=True)))
        carried = carry_labels(labels, x, y, y_end=len(y) / rate).events
        found["linear stretch"] += np.abs(frames * (len(y) - 1) / (len(x) - 1) - truth).tolist()
        found["cheapest path"] += np.abs(
            match(x.values, y.values).time_map(x.times, y.times)[frames] * rate - truth
        ).tolist()
        found["inphase transfer"] += [abs(each.second * rate - true) for each, true in zip(carried, truth, strict=True)]
        found["confidence"] += [each.confidence or 0.0 for each in carried]
    return {name: np.array(values) for name, values in found.items()}


def report(title: str, found: dict[str, NDArray[np.float64]], *, rate: float) -> None:
    confidence, errors = found.pop("confidence"), found["inphase transfer"]
    print(f"\n{title}: {len(errors)} events\n")
    print("| | mean | median | frame, rounded: median | within 0.1 s |\n|---|---|---|---|---|")
    order = np.argsort(-confidence, kind="stable")
    halves = {"… its more confident half": order[: len(order) // 2], "… its other half": order[len(order) // 2 :]}
    rows = found | {name: errors[part] for name, part in halves.items()}
    for name, values in rows.items():
        near = np.mean(values <= TOLERANCE_SECONDS * rate + 0.5)
        rounded = np.median(np.round(values))
        print(f"| {name} | {values.mean():.2f} | {np.median(values):.2f} | {rounded:.0f} | {near:.1%} |")
    right = errors <= TOLERANCE_SECONDS * rate + 0.5
    print(f"\nmean confidence {confidence.mean():.3f}, Brier's score {np.mean((confidence - right) ** 2):.3f}")


def slow_down(encoder: JointEncoder, embedding: Embedding, factor: int) -> Embedding:
    """Embed the same video filmed `factor` times slower, at the same frame rate."""
    gap = float(np.median(np.diff(embedding.times)))
    times = np.arange(factor * (len(embedding) - 1) + 1, dtype=np.float64) * gap
    values = resample(encoder.image_columns(embedding.values), factor)
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    image, pose = replace(embedding, values=values / lengths, times=times, routes=()), embedding.pose
    if pose is None:
        return encoder.join(image, None)
    points, shown, found = (resample(each, factor) for each in (pose.keypoints, pose.visibility, pose.found))
    slow = replace(pose, keypoints=points, visibility=shown, found=found, times=times, world=None)
    return encoder.join(image, embed_pose(encoder.pose, slow), visible=slow.joints13()[1])


def measure_slow(root: Path, split: str, factors: Sequence[int], *, pairs: int, limit: int | None) -> None:
    """Print the error of events carried to and from videos in slow motion, with and without equal tempo."""
    encoder = load_joint_encoder()
    clips = read_golf(root, split, limit)
    embedded, _ = embed_each([each.path for each in clips], encoder=encoder, cache=open_cache(None))
    clips = [each for each in clips if each.path in embedded and embedded[each.path].pose is not None]
    rng = np.random.default_rng(0)
    listed = [(a, b) for a in clips for b in clips if a.person != b.person]
    chosen = [listed[k] for k in rng.permutation(len(listed))[:pairs]]
    print("| slow | times | recognized | direct | at equal tempo |\n|---|---|---|---|---|")
    for factor in factors:
        for side in ("video", "reference"):
            found: dict[str, list[NDArray[np.float64]]] = defaultdict(list)
            recognized = 0
            for a, b in chosen:
                scale = (1, factor) if side == "video" else (factor, 1)
                x, y = (slow_down(encoder, embedded[c.path], n) for c, n in zip((a, b), scale, strict=True))
                given = EmbeddedVideos([x, y], encoder, "")
                equal = equalize_tempo(given, ["x", "y"], reference=0)
                recognized += equal is not given
                for name, each in (("direct", given), ("equal", equal)):
                    to = match(*add_motion_energy(encoder, each.embeddings)).time_map(x.times, each.embeddings[1].times)
                    rate = golfdb.RATE / scale[1]
                    found[name].append(np.abs(to[a.events * scale[0]] * rate - b.events))
            errors = [f"{np.mean(found[name]):.2f} / {np.median(found[name]):.2f}" for name in ("direct", "equal")]
            print(f"| {side} | {factor} | {recognized / len(chosen):.0%} | {' | '.join(errors)} |", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model")
    arguments.add_argument("--golfdb", type=Path)
    arguments.add_argument("--store", type=Path)
    arguments.add_argument("--stage", action="store_true")
    arguments.add_argument("--limit", type=int)
    arguments.add_argument("--slow", type=int, nargs="*", help="factors of slow motion")
    arguments.add_argument("--split", default="test")
    arguments.add_argument("--pairs", type=int, default=300)
    given = arguments.parse_args()
    torch.set_num_threads(1)
    if given.slow:
        measure_slow(given.golfdb, given.split, given.slow, pairs=given.pairs, limit=given.limit)
        return
    encoder = PooledFeatures() if given.model == "features" else load_encoder(given.model)
    if given.golfdb:
        test = golfdb.load(given.golfdb, split="test")[: given.limit]
        if encoder.modality == "pose":
            store = PoseStore(given.store)
            test = add_poses([video for video in test if video.id in store], store=store)
        found = measure(encoder, test, golfdb.EVENTS[1:-1], alike="view", rate=golfdb.RATE)
        report("GolfDB, split 4, six inner events from a swing of the same view", found, rate=golfdb.RATE)
    if given.stage:
        takes = [select_joints(video) for video in stage_videos.load(split="test")]
        report("stage, test, all events", measure(encoder, takes, (), alike="", rate=30.0), rate=30.0)


if __name__ == "__main__":
    main()
