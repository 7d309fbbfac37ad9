"""Pictures on their own clock."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Clip:
    """Decoded pictures and the second at which each is shown.

    `frames` [T, H, W, 3] uint8 RGB; `times` [T] float64 seconds, strictly increasing, from presentation timestamps.
    """

    frames: NDArray[np.uint8]
    times: NDArray[np.float64]

    def __post_init__(self) -> None:
        """Refuse frames and times that do not belong together."""
        if self.frames.ndim != 4 or self.frames.shape[-1] != 3 or self.frames.dtype != np.uint8:
            raise ValueError(f"frames must be [T, H, W, 3] uint8, got {list(self.frames.shape)} {self.frames.dtype}")
        if self.times.shape != self.frames.shape[:1]:
            raise ValueError(f"{len(self.frames)} frames need as many times, got shape {self.times.shape}")

    def __len__(self) -> int:
        """Count the frames."""
        return len(self.frames)
