"""Measure the error of 3-D poses from aligned videos, and the contribution of each part of the method.

    OMP_NUM_THREADS=1 python -m benchmarks.pose3d [--utd FOLDER] [--on bends | periodic | utd] [--queries N] [--steps N]

The stage (medium level; 16 people of the test split, one camera each) and, with its folder, UTD-MHAD projected by
synthetic cameras: people outside the training set, each query with the videos of other people. Distances are means over
joints, frames and queries in the query's torso lengths, after the best similarity transform: one for the sequence
("sequence") or one for each frame ("frame"). The method gets no hidden joints; the single-video rows do. The settings
of the method were chosen on other queries and cameras: seed 0, and the first video of each action.

--on bends measures UTD-MHAD's squats, sits and lunges instead, and of them the quarter of the frames in which the hips
are bent most, after the transform of the sequence; in a second column with limbs of constant length, since the
skeletons' thighs shrink by up to two thirds where they are bent. --on periodic measures jogging and walking.
"""

import argparse
import re
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.timing import lay_out, machine
from inphase.align.matching import match
from inphase.align.path import shortest_path
from inphase.apps.pose3d.adjustment import Priors
from inphase.apps.pose3d.factorization import factorize, orthonormalize, procrustes, upgrade
from inphase.apps.pose3d.reconstruct import reconstruct
from inphase.apps.pose3d.views import Performance, Reconstruction, Views, choose_partners, gather
from inphase.data import stage_videos, utd_mhad
from inphase.data.frame_source import select_joints
from inphase.data.stream import GroupStream
from inphase.data.video import Video, read_pose
from inphase.losses import GTA
from inphase.losses.loss import Sequences
from inphase.media.sampling import Context
from inphase.models import Embedding, PoseEncoder, embed
from inphase.pose.pose import JOINTS13, bones, project_joints, sample_camera

Array = NDArray[np.float64]
Maps = Callable[[Video, list[Video]], list[Array]]  # the seconds of the others for each frame of the query
BENDS, PERIODIC = ("squat", "sit2stand", "stand2sit", "lunge"), ("jog", "walk")
HIPS, SHOULDERS, KNEES = [7, 8], [1, 2], [9, 10]


class Errors(Protocol):
    """Measure a body against the truth, in two ways."""

    def __call__(self, body: Array, true: Array, *, reflection: bool = False) -> tuple[float, float]:
        """Return the two errors."""
        ...


def train(videos: list[Video], *, steps: int) -> PoseEncoder:
    """Train a pose encoder by GTA: 4 actions × 4 videos a step, 20 frames, Adam."""
    torch.manual_seed(0)
    offsets = (-8, -4, 0, 4, 8)
    encoder, criterion = PoseEncoder(joints=JOINTS13, context=offsets), GTA(variant="released", pairs="all")
    stream = GroupStream(videos, read=read_pose, actions=4, frames=20, context=Context(offsets, "mirror"))
    optimizer = torch.optim.Adam(encoder.parameters(), 1e-3)
    for step in range(steps):
        groups = stream[step].groups
        # One pass for all groups: a batch norm needs several actions in its batch.
        values = encoder(torch.cat([group.values for group in groups])).split([len(group.values) for group in groups])
        losses = [
            criterion(Sequences(found, group.lengths, group.frames, group.frames.max(1).values + 1))["loss"]
            for found, group in zip(values, groups, strict=True)
        ]
        optimizer.zero_grad()
        torch.autograd.backward(torch.stack(losses).mean())
        optimizer.step()
    return encoder


def seconds_of(video: Video) -> Array:
    return np.arange(video.length or 0) / (video.rate or 1.0)


def performance(video: Video) -> Performance:
    assert video.keypoints is not None
    assert video.visibility is not None
    return Performance(video.id, video.keypoints.astype(np.float64), video.visibility, seconds_of(video), video.joints)


def truth(video: Video) -> Array:
    """Return the true joints about the middle of the hips in torso lengths."""
    assert video.joints3d is not None
    joints = video.joints3d.astype(np.float64)
    joints = joints - joints[:, HIPS].mean(1, keepdims=True)
    return np.asarray(joints / np.median(np.linalg.norm(joints[:, SHOULDERS].mean(1), axis=-1)))


def embed_all(videos: list[Video], encoder: PoseEncoder) -> dict[str, Embedding]:
    return {video.id: embed(encoder, read_pose(video, np.arange(video.length or 0)), batch=512) for video in videos}


def by_embedding(embedded: dict[str, Embedding]) -> Maps:
    def find(query: Video, other: Video) -> Array:
        found = match(embedded[query.id].values, embedded[other.id].values, keep_cost=False)
        return found.time_map(seconds_of(query), seconds_of(other))

    return for_each(find)


def by_votes(embedded: dict[str, Embedding]) -> Maps:
    """Align as `inphase pose3d` does: all videos vote."""

    def find(query: Video, others: list[Video]) -> list[Array]:
        sequences = [replace(embedded[video.id], times=seconds_of(video)) for video in (query, *others)]
        partners = choose_partners(sequences, seconds_of(query), count=len(others))
        seconds = {partner.index: partner.seconds for partner in partners}
        return [seconds[number] for number in range(len(others))]

    return find


def for_each(find: Callable[[Video, Video], Array]) -> Maps:
    return lambda query, others: [find(query, other) for other in others]


def by_truth(query: Video, other: Video) -> Array:
    """Use the true time where the data set has it, else align the true bodies, each turned to the front."""
    if query.progress is not None and other.progress is not None:
        return np.asarray(np.interp(query.progress, other.progress, seconds_of(other)))
    x, y = (torch.from_numpy(_to_the_front(truth(video)).reshape(video.length or 0, -1)) for video in (query, other))
    return shortest_path(torch.cdist(x, y)).time_map(seconds_of(query), seconds_of(other))


def _to_the_front(body: Array) -> Array:
    """Turn a body, whose y points up, so that its mean left is x."""
    left = (body[:, 1] - body[:, 2] + body[:, 7] - body[:, 8]).mean(0) * (1, 0, 1)
    left /= np.linalg.norm(left)
    return np.asarray(body @ np.stack([left, np.array([0.0, 1, 0]), np.cross(left, (0, 1, 0))], axis=1))


def by_stretch(query: Video, other: Video) -> Array:
    return np.linspace(0, seconds_of(other)[-1], query.length or 0)


def flat(query: Video) -> Array:
    """Use the 2-D joints with depth 0."""
    assert query.keypoints is not None
    points = query.keypoints.astype(np.float64)
    points = (points - points[:, HIPS].mean(1, keepdims=True)) / performance(query).torso()
    return np.concatenate([points, np.zeros_like(points[..., :1])], axis=-1)


def lifted(query: Video) -> Array:
    """Lift one view by the true lengths of the bones, away from the camera where their ends are hidden."""
    assert query.visibility is not None
    body, lengths = flat(query), {}
    for a, b in bones(JOINTS13):
        lengths[a, b] = np.linalg.norm(truth(query)[:, a] - truth(query)[:, b], axis=-1)
    for a, b in (((a, b) if a in known else (b, a)) for known in [{*HIPS}] for a, b in _outwards()):
        length = lengths[a, b] if (a, b) in lengths else lengths[b, a]
        gone = np.sqrt(np.maximum(length**2 - ((body[:, a, :2] - body[:, b, :2]) ** 2).sum(-1), 0))
        body[:, b, 2] = body[:, a, 2] + np.where(query.visibility[:, b], -gone, gone)
    return body


def _outwards() -> list[tuple[int, int]]:
    """List the bones from the hips outwards."""
    order, reached = [], [*HIPS]
    for joint in reached:
        for bone in bones(JOINTS13):
            if joint in bone and (end := sum(bone) - joint) not in reached:
                order.append((joint, end))
                reached.append(end)
    return order


def frame_by_frame(views: Views) -> Array:
    """Factorize every frame alone, with its own cameras, and rotate it onto the previous one."""
    bodies: list[Array] = []
    for moment in range(len(views.times)):
        weights = views.seen[:, moment : moment + 1].astype(np.float64)
        factors, _ = upgrade(factorize(views.points[:, moment : moment + 1], weights, tolerance=1e-4))
        body = factors.shape[0] @ orthonormalize(factors.cameras)[0][0].T
        bodies.append(procrustes(body, bodies[-1], reflection=True) if bodies else body)
    return np.stack(bodies)


def errors(body: Array, true: Array, *, reflection: bool = False) -> tuple[float, float]:
    """Return the error of a body [T, J, 3] by sequence and by frame."""
    whole = procrustes(body.reshape(-1, 3), true.reshape(-1, 3), reflection=reflection).reshape(true.shape)
    frames = np.stack([procrustes(one, other, reflection=reflection) for one, other in zip(body, true, strict=True)])
    return tuple(float(np.linalg.norm(found - true, axis=-1).mean()) for found in (whole, frames))  # type: ignore[return-value]


def bent_errors(body: Array, true: Array, *, reflection: bool = False) -> tuple[float, float]:
    """Return the error of a body by sequence: of all frames, and of the quarter with the smallest angle at the hips."""
    whole = procrustes(body.reshape(-1, 3), true.reshape(-1, 3), reflection=reflection).reshape(true.shape)
    error = np.linalg.norm(whole - true, axis=-1).mean(-1)
    trunk, thigh = true[:, SHOULDERS].mean(1), true[:, KNEES].mean(1)
    cosine = (trunk * thigh).sum(-1) / np.linalg.norm(trunk, axis=-1) / np.linalg.norm(thigh, axis=-1)
    return float(error.mean()), float(error[cosine >= np.percentile(cosine, 75)].mean())


def with_rigid_limbs(videos: list[Video], seed: int) -> list[Video]:
    """Give every bone its median length, from the trunk outwards, and film the bodies again."""
    found = []
    for video in videos:
        assert video.joints3d is not None
        joints = video.joints3d.astype(np.float64)
        rigid = joints.copy()
        for a, b in _outwards():
            along = joints[:, b] - joints[:, a]
            lengths = np.linalg.norm(along, axis=-1, keepdims=True)
            rigid[:, b] = rigid[:, a] + along / np.maximum(lengths, 1e-6) * np.median(lengths)
        body = rigid.astype(np.float32)
        numbers = [int(number) for number in re.findall(r"\d+", video.id)]
        camera = sample_camera(body, rng=np.random.default_rng([seed, *numbers]), size=utd_mhad.SIZE)
        keypoints, visibility = project_joints(camera, body, joints=video.joints)
        found.append(replace(video, joints3d=body, keypoints=keypoints, visibility=visibility))
    return found


def measure(
    queries: list[tuple[Video, list[Video]]],
    maps: dict[str, Maps],
    method: Callable[[Views], Reconstruction],
    *,
    errors: Errors,
    parts: bool,
) -> tuple[dict[str, list[tuple[float, float]]], float]:
    """Reconstruct every query by every method; return errors by row and seconds per query."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    begin, count = 0.0, 0
    for query, others in queries:
        true = truth(query)
        found["one video, depth 0"].append(errors(flat(query), true, reflection=True))
        found["one video, lifted by true bone lengths"].append(errors(lifted(query), true))
        for how, find in maps.items():
            views = gather(performance(query), list(map(performance, others)), find(query, others))
            start = time.perf_counter()
            found[f"{how}, full method"].append(errors(method(views).joints3d, true))
            begin, count = begin + time.perf_counter() - start, count + 1
            if parts and how in ("learned alignment", "true alignment"):
                alone = reconstruct(views, adjusts=False).joints3d
                found[f"{how}, factorization alone"].append(errors(alone, true))
            if parts and how == "learned alignment":
                moments = errors(frame_by_frame(views), true, reflection=True)
                found[f"{how}, one camera per frame, no adjustment"].append(moments)
    return found, begin / count


def load_data_sets(utd: Path | None, kind: str, seed: int) -> dict[str, tuple[list[Video], list[Video]]]:
    """Load training and test videos, in the joints of PennAction."""

    def select(videos: list[Video]) -> list[Video]:
        return [select_joints(video) for video in videos]

    loaded: dict[str, tuple[list[Video], list[Video]]] = {}
    if kind == "all":
        training = stage_videos.load(split="train", videos=20)
        loaded["stage"] = select(training), select(stage_videos.load(split="test", videos=16, seed=seed))
    if utd is not None:
        training = select(utd_mhad.load(utd, split="train"))
        actions = {"bends": BENDS, "periodic": PERIODIC}.get(kind, ())
        test = select(utd_mhad.load(utd, split="test", seed=seed, actions=actions))
        loaded["utd_mhad" if kind in ("all", "utd") else f"utd_mhad, {kind}"] = training, test
        if kind == "bends":
            loaded["bends, rigid limbs"] = training, with_rigid_limbs(test, seed)
    return loaded


def choose_queries(videos: list[Video], *, count: int) -> list[tuple[Video, list[Video]]]:
    """Take the last `count` videos of each action, each with the videos of other people."""
    chosen = []
    for action in sorted({video.action for video in videos}):
        some = [video for video in videos if video.action == action]
        for query in some[-count:]:
            person = query.notes.get("subject", query.id)
            chosen.append((query, [video for video in some if video.notes.get("subject", video.id) != person]))
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--utd", type=Path, help="the folder of UTD-MHAD")
    parser.add_argument("--queries", type=int, default=2, help="of each action")
    parser.add_argument("--steps", type=int, default=1000, help="of training")
    parser.add_argument("--seed", type=int, default=1, help="of the cameras")
    parser.add_argument("--on", dest="kind", choices=("all", "utd", "bends", "periodic"), default="all")
    parser.add_argument("--only", help="one of the alignments, and its full method alone")
    parser.add_argument("--query-weight", type=float, default=10.0)
    parser.add_argument("--prior", action="append", default=[], help="a setting of `Priors`, NAME=VALUE")
    settings = parser.parse_args()
    if settings.kind != "all" and settings.utd is None:
        parser.error(f"--on {settings.kind} needs --utd")
    priors = Priors(**{name: float(value) for name, value in (each.split("=") for each in settings.prior)})
    columns: dict[str, dict[str, list[tuple[float, float]]]] = {}
    encoders: dict[int, PoseEncoder] = {}
    for name, (training, test) in load_data_sets(settings.utd, settings.kind, settings.seed).items():
        if id(training) not in encoders:
            encoders[id(training)] = train(training, steps=settings.steps)
        queries = choose_queries(test, count=settings.queries)
        embedded = embed_all(test, encoders[id(training)])
        maps = {
            "linear stretch": for_each(by_stretch),
            "learned alignment": by_embedding(embedded),
            "learned alignment, videos vote": by_votes(embedded),
            "true alignment": for_each(by_truth),
        }
        bent = settings.kind == "bends"
        maps = {how: find for how, find in maps.items() if settings.only in (None, how)}
        method = partial(reconstruct, priors=priors, query_weight=settings.query_weight)
        measured = bent_errors if bent else errors
        columns[name], seconds = measure(queries, maps, method, errors=measured, parts=settings.only is None)
        views = np.mean([len(others) + 1 for _, others in queries])
        print(f"{name}: {len(queries)} queries, {views:.1f} views each, {seconds:.1f} s each for the full method")
    parts = ("sequence", "bent") if settings.kind == "bends" else ("sequence", "frame")
    head = ["", *(f"{name}, {what}" for name in columns for what in parts)]
    rows = [
        [row, *(f"{value:.3f}" for found in columns.values() for value in np.mean(found[row], 0))]
        for row in next(iter(columns.values()))
    ]
    print(lay_out(head, rows))
    print(machine("cpu"))


if __name__ == "__main__":
    main()
