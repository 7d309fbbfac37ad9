"""Measure pose estimation beside MediaPipe: processor time, parity of the joints, and the choice of the person.

python -m benchmarks.pose cost FOLDER [COUNT]      # CPU time a frame, in one run: MediaPipe's solution, and ours
python -m benchmarks.pose parity FOLDER [COUNT]    # distance of our joints from those of MediaPipe, in torso lengths
python -m benchmarks.pose choice FOLDER [COUNT]    # bystanders tracked instead of the person of the clip
python -m benchmarks.pose again GOLFDB [SPLIT]     # event errors with and without the second, closer estimate
python -m benchmarks.pose export FOLDER            # write the converted networks, for a machine without OpenVINO
python -m benchmarks.pose gpu FOLDER [DEVICE]      # frames/s of the converted networks on a GPU, read from FOLDER

FOLDER holds videos, COUNT of which are spread over the folder. Run with OMP_NUM_THREADS=1.
"""

import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray

from inphase.align.consensus import align_pairwise
from inphase.data import golfdb
from inphase.media.frames import Clip, read_clip
from inphase.models.modality import embed_pose
from inphase.models.weights import load_shipped
from inphase.pose.blazepose import BlazePose
from inphase.pose.networks import DETECTOR, LANDMARKS, convert, find_model, load_network, read_graph
from inphase.pose.pose import Body, Region
from inphase.pose.pose_store import cached_pose
from inphase.pose.tracking import track_person
from inphase.storage.cache import open_cache

HIPS = [BlazePose.joints.index("left_hip"), BlazePose.joints.index("right_hip")]
SHOULDERS = [BlazePose.joints.index("left_shoulder"), BlazePose.joints.index("right_shoulder")]
Follow = Callable[[Clip], NDArray[np.float32]]  # the hips' middle [T, 2] in pixels, NaN where no person is found


def solution(clip: Clip) -> NDArray[np.float32]:
    """Track a person as MediaPipe's documentation does."""
    from mediapipe.python.solutions.pose import Pose as Solution

    hips = np.full((len(clip), 2), np.nan, np.float32)
    height, width = clip.frames.shape[1:3]
    with Solution() as network:
        for row, image in zip(hips, clip.frames, strict=True):
            found = network.process(image).pose_landmarks
            if found:
                points = [(found.landmark[i].x * width - 0.5, found.landmark[i].y * height - 0.5) for i in HIPS]
                row[:] = np.mean(points, axis=0)
    return hips


def ours() -> Follow:
    detector = BlazePose()

    def follow(clip: Clip) -> NDArray[np.float32]:
        pose = track_person(detector, [clip])
        return np.where(pose.found[:, None], pose.keypoints[:, HIPS].mean(1), np.float32(np.nan))

    return follow


def measure_cost(clips: list[Clip]) -> None:
    """Print the CPU time a frame of each clip by both, one after the other, so that the machine's load is shared."""
    from tests.pose.mediapipe_blazepose import MediaPipeBlazePose

    reference = MediaPipeBlazePose()
    follow = ours()
    ways: dict[str, Callable[[Clip], NDArray[np.float32]]] = {
        "MediaPipe's solution, one person": solution,
        "MediaPipe's runtime, our tracker": lambda clip: track_person(reference, [clip]).keypoints[:, HIPS[0]],
        "inphase": follow,
    }
    for way in ways.values():
        way(Clip(clips[0].frames[:3], clips[0].times[:3]))
    spent: dict[str, list[float]] = {name: [] for name in ways}
    for clip in clips:
        for name, way in ways.items():
            begin = time.process_time()
            way(clip)
            spent[name].append(time.process_time() - begin)
    frames = sum(map(len, clips))
    print(f"| {frames} frames | ms of CPU a frame |\n|---|---|")
    for name, seconds in spent.items():
        print(f"| {name} | {sum(seconds) / frames * 1000:.1f} |")


def measure_parity(clips: list[Clip]) -> None:
    """Print how far the joints are apart where both runtimes read the same region, along our tracks.

    Tracks that each runtime continues from its own joints are not comparable: 0.001 pixels of the first region grow to
    some percent of a small torso within five frames, also between two runs of one runtime.
    """
    from tests.pose.mediapipe_blazepose import MediaPipeBlazePose

    theirs, distances = MediaPipeBlazePose(), []

    class Both(BlazePose):
        def read(self, image: NDArray[np.uint8], region: Region) -> Body | None:
            body, reference = super().read(image, region), theirs.read(image, region)
            assert (body is None) == (reference is None)
            if body is not None and reference is not None:
                torso = reference.points[SHOULDERS].mean(0) - reference.points[HIPS].mean(0)
                apart = np.linalg.norm(body.points - reference.points, axis=1)
                distances.append(apart / max(float(np.linalg.norm(torso)), 1.0))
            return body

    detector = Both()
    for clip in clips:
        track_person(detector, [Clip(clip.frames[:60], clip.times[:60])])
    median, high, most = np.quantile(np.concatenate(distances), [0.5, 0.95, 1])
    print(
        f"{len(distances)} bodies: joints {median:.4%} (median), {high:.4%} (95 %), {most:.3%} (all) of the torso apart"
    )


def with_bystander(clip: Clip, other: Clip, *, right: bool, scale: float) -> Clip:
    """Add a bystander beside a clip: the first image of another clip, scaled down."""
    height = clip.frames.shape[1]
    rows, columns = (np.arange(round(length * scale)) / scale for length in other.frames.shape[1:3])
    still = other.frames[0][rows.astype(int)][:, columns.astype(int)][:height]
    beside = np.full((len(clip), height, still.shape[1], 3), 118, np.uint8)
    beside[:, height - len(still) :] = still
    return Clip(np.concatenate([beside, clip.frames] if right else [clip.frames, beside], axis=2), clip.times)


def measure_choice(name: str, follow: Follow, clips: list[Clip], *, scale: float) -> None:
    """Count the clips in which the bystander is tracked instead of the person of the clip."""
    wrong, found = 0, []
    for number, clip in enumerate(clips):
        right, width = bool(number % 2), clip.frames.shape[2]
        mixed = with_bystander(clip, clips[(number + 1) % len(clips)], right=right, scale=scale)
        x = follow(mixed)[:, 0]
        edge = mixed.frames.shape[2] - width
        astray = x < edge if right else x > width
        found.append(np.isfinite(x).mean())
        wrong += bool(astray[np.isfinite(x)].mean() > 0.1) if np.isfinite(x).any() else 0
    print(f"{name:<22}bystander of {scale} times the size tracked in {wrong} of {len(clips)} clips", flush=True)
    print(f"{'':<22}{np.mean(found):.1%} of the frames found")


def measure_again(root: Path, split: str) -> None:
    """Print event errors by pose alone: with the first estimate only, and with the second of implausible tracks."""
    videos, names = golfdb.load(root, split=split), golfdb.EVENTS[1:-1]
    events = [np.array([video.events[name] for name in names], float) for video in videos]
    with tempfile.TemporaryDirectory() as folder, patch("inphase.pose.estimator.MIN_PLAUSIBILITY", 0.0):
        once = [cached_pose(str(video.path), cache=open_cache(Path(folder))) for video in videos]
    again = [cached_pose(str(video.path), cache=open_cache(None)) for video in videos]
    shapes = [(a.keypoints.shape, b.keypoints.shape) for a, b in zip(once, again, strict=True)]
    replaced = [
        m != n or bool(np.abs(a.keypoints - b.keypoints).max() > 1)
        for (m, n), a, b in zip(shapes, once, again, strict=True)
    ]
    named = ", ".join(video.id for video, new in zip(videos, replaced, strict=True) if new)
    print(f"{len(videos)} clips, {sum(replaced)} poses replaced ({named})")
    print("| poses | mean | median | within 0.1 s | mean to replaced clips |\n|---|---|---|---|---|")
    encoder = load_shipped("pose")
    for name, poses in (("first estimate only", once), ("with the second estimate", again)):
        maps = align_pairwise([embed_pose(encoder, pose) for pose in poses])
        players = [video.notes["player"] for video in videos]
        pairs = [(a, b) for a, b in permutations(range(len(videos)), 2) if players[a] != players[b]]
        errors = np.array([np.abs(maps.at(a, b, events[a]) - events[b]) for a, b in pairs])
        some = errors[[replaced[b] for _, b in pairs]].mean() if any(replaced) else np.nan
        print(f"| {name} | {errors.mean():.2f} | {np.median(errors):.1f} | {np.mean(errors <= 3.5):.1%} | {some:.2f} |")


def export(folder: Path) -> None:
    import openvino

    folder.mkdir(parents=True, exist_ok=True)
    for model in (DETECTOR, LANDMARKS[1]):
        graph = read_graph(openvino, find_model(model), outputs=model.outputs)
        convert(graph).save(folder / f"{Path(model.name).stem}.safetensors")


def measure_gpu(folder: Path, device: str) -> None:
    """Print frames/s by batch size, in single and half precision, eager and by CUDA graphs of `torch.compile`."""
    for name, side in (("pose_detection", 224), ("pose_landmark_full", 256)):
        for dtype in (torch.float32, torch.float16):
            network = load_network(folder / f"{name}.safetensors").to(device, dtype).eval()
            compiled = torch.compile(network, mode="reduce-overhead")
            for batch in (1, 16, 64, 256):
                images = torch.rand(batch, side, side, 3, device=device, dtype=dtype)
                speeds = [frames_per_second(way, images) for way in (network, compiled)]
                print(f"{name:<20}{str(dtype)[6:]:<9}batch {batch:<5}" + "".join(f"{x:>12,.0f}" for x in speeds))


def frames_per_second(network: Callable[[torch.Tensor], object], images: torch.Tensor, seconds: float = 1.0) -> float:
    with torch.inference_mode():
        for _ in range(5):
            network(images)
        torch.cuda.synchronize()
        begin, runs = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            network(images)
            torch.cuda.synchronize()
            runs += 1
    return runs * len(images) / (time.perf_counter() - begin)


def read_some(folder: Path, count: int) -> list[Clip]:
    files = sorted(folder.rglob("*.mp4"))
    chosen = [files[i] for i in np.linspace(0, len(files) - 1, min(count, len(files))).astype(int)]
    return [Clip(clip.frames[:200], clip.times[:200]) for clip in map(read_clip, chosen)]


def main(what: str, folder: Path, rest: list[str]) -> None:
    warnings.filterwarnings("ignore", message=r"SymbolDatabase\.GetPrototype")
    torch.set_num_threads(1)
    if what == "export":
        export(folder)
    elif what == "gpu":
        measure_gpu(folder, rest[0] if rest else "cuda")
    elif what == "cost":
        measure_cost(read_some(folder, int(rest[0]) if rest else 12))
    elif what == "parity":
        measure_parity(read_some(folder, int(rest[0]) if rest else 12))
    elif what == "again":
        measure_again(folder, rest[0] if rest else "val")
    elif what == "choice":
        clips = read_some(folder, int(rest[0]) if rest else 20)
        for name, follow in (("MediaPipe's solution", solution), ("inphase", ours())):
            for scale in (1.0, 0.7):
                measure_choice(name, follow, clips, scale=scale)
    else:
        raise SystemExit(f"unknown measurement {what!r}: cost, parity, choice, again, export or gpu")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
