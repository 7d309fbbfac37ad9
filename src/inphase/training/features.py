"""What a frozen network sees in every frame, computed once and kept: training then touches the embedder alone."""

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
    """A `Read` of features in half precision, from a file per video, mapped into memory.

    A file is named by the network that looked, the video, and how many frames of which size it has: other weights or
    another cut of a video never find it.
    """

    def __init__(self, encoder: Encoder, sight: FrameSource, *, folder: Path, batch: int = 32) -> None:
        """Keep features in `folder`."""
        self._encoder, self._sight, self._folder, self._batch = encoder, sight, folder, batch
        self._network = fingerprint(encoder, head=False)
        self._open: dict[str, tuple[NDArray[np.float16], NDArray[np.float64]]] = {}

    @property
    def sight(self) -> FrameSource:
        """Give the same videos, seen as features."""
        return replace(self._sight, read=self, source=f"{self._sight.source} as features", precomputed=True)

    def __call__(self, video: Video, frames: Frames) -> tuple[NDArray[np.float16], NDArray[np.float64]]:
        """Give the features of some frames, and their seconds."""
        if video.id not in self._open:
            self.look(video)
        values, times = self._open[video.id]
        return values[frames], times[frames]

    def look_at_all(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Compute what is missing; a video that cannot be read is left for training to report.

        Where several runs share the folder one of them looks, and the others wait for it.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self._folder / "lock"):
            for done, video in enumerate(self._sight.videos):
                if progress is not None:
                    progress(done, len(self._sight.videos))
                try:
                    self.look(video)
                # Whatever is wrong with one video, the run skips it and says so when it is drawn.
                except Exception:
                    continue

    def look(self, video: Video) -> None:
        """Compute the features of one video, or find them."""
        length = self._sight.frame_count(video)
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
            frames, times = self._sight.read(video, np.arange(begin, min(length, begin + self._batch)))
            self._encoder.check(frames.shape[1:])
            with torch.inference_mode():
                looked = self._encoder.features(
                    self._encoder.prepare(torch.from_numpy(np.ascontiguousarray(frames)).to(device))
                )
            parts.append(looked.to(torch.float16).cpu().numpy())
            seconds.append(times)
        return np.concatenate(parts), np.concatenate(seconds)


def cache_features(encoder: Encoder, sight: FrameSource, *, folder: Path) -> FrameSource:
    """Show what a frozen encoder sees in place of the frames; what was never looked at is when it is asked for."""
    return CachedFeatures(encoder, sight, folder=folder).sight


def feature_file_name(network: str, video: Video, length: int) -> str:
    """Name the file of what a network, by its fingerprint, sees of a video of `length` frames."""
    return hashlib.sha256(f"{network} {video.id} {length}".encode(errors="surrogatepass")).hexdigest()[:24] + ".npy"
