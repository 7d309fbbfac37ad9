"""Cached features of a frozen network: computed once per frame, so that training runs the embedder alone."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import NDArray

from inphase.data.frame_source import FrameSource
from inphase.data.video import Video
from inphase.media.sampling import Frames
from inphase.models.encoder import Encoder
from inphase.models.weights import fingerprint
from inphase.storage.files import atomic_write


class CachedFeatures:
    """A `Read` of half-precision features, memory-mapped from one file per video.

    The file name is a hash of the network's weights, the video's id and its number of frames, so other weights or
    another cut of a video never match a cached file.
    """

    def __init__(self, encoder: Encoder, source: FrameSource, *, folder: Path, batch: int = 32) -> None:
        """Cache the features of a source's videos in `folder`."""
        self._encoder, self._source, self._folder, self._batch = encoder, source, folder, batch
        self._network = fingerprint(encoder, head=False)
        self._open: dict[str, tuple[NDArray[np.float16], NDArray[np.float64]]] = {}

    @property
    def source(self) -> FrameSource:
        """The same videos, read as features."""
        return replace(self._source, read=self, source=f"{self._source.source} as features", precomputed=True)

    def __call__(self, video: Video, frames: Frames) -> tuple[NDArray[np.float16], NDArray[np.float64]]:
        """Return the features of some frames, and their times in seconds."""
        if video.id not in self._open:
            self.load(video)
        values, times = self._open[video.id]
        return values[frames], times[frames]

    def compute_all(self, report: Callable[[int, int], None] | None = None) -> None:
        """Compute all missing features; a video that cannot be read is skipped, and training reports it.

        `report` is called with (done, total) videos. A lock serializes runs that share the folder: one computes and the
        others wait.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        videos = self._source.videos
        with FileLock(self._folder / "lock"):
            for done, video in enumerate(videos, start=1):
                try:
                    self.load(video)
                # Training skips a video that cannot be read and reports the reason when it is drawn.
                except Exception:
                    continue
                finally:
                    if report is not None:
                        report(done, len(videos))

    def load(self, video: Video) -> None:
        """Map the features of one video, computing them first where they are not cached."""
        length = self._source.frame_count(video)
        file = self._folder / feature_file_name(self._network, video, length)
        times_file = file.with_suffix(".times.npy")
        if not (file.exists() and times_file.exists()):
            self._folder.mkdir(parents=True, exist_ok=True)
            features, times = self._compute(video, length=length)
            for path, array in ((file, features), (times_file, times)):
                with atomic_write(path) as part:
                    np.save(part, array, allow_pickle=False)
        self._open[video.id] = np.load(file, mmap_mode="r", allow_pickle=False), np.load(times_file, allow_pickle=False)

    def _compute(self, video: Video, *, length: int) -> tuple[NDArray[np.float16], NDArray[np.float64]]:
        parts, seconds = [], []
        device = next(self._encoder.parameters()).device
        for begin in range(0, length, self._batch):
            frames, times = self._source.read(video, np.arange(begin, min(length, begin + self._batch)))
            self._encoder.check(frames.shape[1:])
            with torch.inference_mode():
                features = self._encoder.features(
                    self._encoder.prepare(torch.from_numpy(np.ascontiguousarray(frames)).to(device))
                )
            parts.append(features.to(torch.float16).cpu().numpy())
            seconds.append(times)
        return np.concatenate(parts), np.concatenate(seconds)


def cache_features(encoder: Encoder, source: FrameSource, *, folder: Path) -> FrameSource:
    """Read the cached features of a frozen encoder in place of frames; missing ones are computed when they are read."""
    return CachedFeatures(encoder, source, folder=folder).source


def feature_file_name(network: str, video: Video, length: int) -> str:
    """Name the file of a video's features, by the fingerprint of the network and the number of frames."""
    return hashlib.sha256(f"{network} {video.id} {length}".encode(errors="surrogatepass")).hexdigest()[:24] + ".npy"
