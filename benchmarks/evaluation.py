"""Time the evaluation tasks beside loops over scipy and scikit-learn, after checking that the scores are equal.

python -m benchmarks.evaluation [tau] [svm] [events]

Seconds are CPU time, summed over threads: load from other programs does not change them.
"""

import sys
import time
from collections.abc import Callable
from itertools import permutations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.stats import kendalltau
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from benchmarks.timing import lay_out, machine
from inphase.data.video import Video
from inphase.evaluation import TASKS, EmbeddedVideo
from inphase.evaluation.tasks.phases import fit_linear
from inphase.evaluation.tasks.unlabeled import pairwise_tau
from inphase.models import Embedding

Videos = list[NDArray[np.float32]]


def perform(count: int, *, seed: int = 0) -> Videos:
    """Draw embeddings of videos of 60 to 140 frames, 128 dimensions: one action with noise and repeated frames."""
    rng = np.random.default_rng(seed)
    videos = []
    for _ in range(count):
        times = np.linspace(0, 1, rng.integers(60, 140))[:, None] ** rng.uniform(0.5, 2)
        waves = times * np.arange(1, 65)
        values = np.concatenate([np.sin(waves), np.cos(waves)], 1) / 8 + 0.06 * rng.normal(size=(len(times), 128))
        values = np.repeat(values, rng.integers(1, 3, len(times)), axis=0)[: len(times)]
        videos.append((values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32))
    return videos


def timed(work: Callable[[], NDArray[np.float64]], *, runs: int = 1) -> tuple[float, NDArray[np.float64]]:
    """Return the least seconds of `runs` runs, and the result."""
    best = float("inf")
    for _ in range(runs):
        start = time.process_time()
        result = work()
        best = min(best, time.process_time() - start)
    return best, result


def loop(videos: Videos) -> NDArray[np.float64]:
    """Compute τ of every pair as the released script does."""
    found = [kendalltau(np.arange(len(x)), cdist(x, y, "sqeuclidean").argmin(1)) for x, y in permutations(videos, 2)]
    return np.array([result.correlation for result in found])


def measure_tau() -> None:
    rows = []
    for stride, setting in ((5, "released"), (2, "tcc"), (1, "every_frame")):
        videos = [video[::stride].copy() for video in perform(100)]
        pairwise_tau(videos[:3])
        ours, taus = timed(lambda videos=videos: pairwise_tau(videos), runs=5)  # type: ignore[misc]
        theirs, expected = timed(lambda videos=videos: loop(videos))  # type: ignore[misc]
        difference = np.abs(taus - expected).max()
        assert difference <= 1e-12
        rows.append([setting, f"{theirs:.1f}", f"{ours:.3f}", f"{theirs / ours:.0f}×", f"{difference:.0e}"])
    print("\nKendall's τ, 100 videos of 60–140 frames, 9,900 ordered pairs")
    print(lay_out(["setting", "loop over scipy, s", "inphase, s", "", "largest difference"], rows))


def clouds(frames: int, classes: int, *, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(99).normal(size=(classes, 128))
    labels = rng.integers(0, classes, frames)
    values = centers[labels] + 2.5 * rng.normal(size=(frames, 128))
    return (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32), labels


def measure_svm() -> None:
    rows = []
    for frames, classes, both in ((5_000, 101, True), (50_000, 101, False)):
        (x, labels), (targets, truth) = clouds(frames, classes, seed=0), clouds(5_000, classes, seed=1)
        for features in ("raw", "standardized"):
            if features == "standardized":
                x, targets = (x - x.mean(0)) / x.std(0), (targets - x.mean(0)) / x.std(0)
            start = time.process_time()
            found = fit_linear(x, labels).predict(targets)
            row = [f"{frames:,}", str(classes), features, f"{time.process_time() - start:.1f}"]
            row.append(f"{(found == truth).mean():.4f}")
            if both:
                start = time.process_time()
                expected = LinearSVC(dual=False, max_iter=10_000).fit(x, labels).predict(targets)
                agree = (found == expected).mean()
                assert agree > 0.995
                row += [f"{time.process_time() - start:.1f}", f"{(expected == truth).mean():.4f}", f"{agree:.4f}"]
            rows.append(row + [""] * (8 - len(row)))
    print("\nLinear support vector machine, 128 dimensions")
    head = [
        "frames",
        "classes",
        "features",
        "inphase, s",
        "accuracy",
        "LinearSVC, frames not sorted, s",
        "accuracy",
        "predictions that agree",
    ]
    print(lay_out(head, rows))


def measure_events() -> None:
    test = []
    for number, values in enumerate(perform(101)):
        times = np.arange(len(values)) / 30
        events = {f"event {k}": int(k * len(values) / 8) for k in range(8)}
        video = Video(str(number), "throw", "test", length=len(values), events=events, progress=times / times[-1])
        test.append(EmbeddedVideo(video, Embedding(values, times), length=len(values)))
    rows = []
    for task in ("event_error", "alignment_error", "cycle_error"):
        TASKS[task]([], test[:3])
        start = time.process_time()
        TASKS[task]([], test, pairs=10_000)
        rows.append([task, f"{time.process_time() - start:.1f}"])
    print("\n10,000 pairs of videos of 60–140 frames, 128 dimensions")
    print(lay_out(["task", "s"], rows))


if __name__ == "__main__":
    parts = {"tau": measure_tau, "svm": measure_svm, "events": measure_events}
    print(machine("cpu"))
    torch.set_num_threads(1)
    with threadpool_limits(1):
        for name in sys.argv[1:] or parts:
            parts[name]()
