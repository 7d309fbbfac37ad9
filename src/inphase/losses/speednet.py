"""SpeedNet: classifying a clip as played at normal speed or sped up (Benaim et al., CVPR 2020).

    L = ½ (−log p(normal | clip at normal speed) − log p(fast | clip at about twice the speed))

where p is the sigmoid of a score of the clip's embeddings, averaged over time.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from inphase.align.cost import single_precision
from inphase.losses.loss import Draw, Frames, Loss, Sequences, draw_distinct, masked_mean, require_count

MAX_SPEED = 1000


class SpeedNet(Loss):
    """Classify by a small head on top of the embeddings at which speed a clip is played.

    From the source, as remembered and not checked: binary cross entropy, normal speed drawn from 1 to 1.2 and fast from
    1.7 to 2.2, both versions of a clip in one batch, a maximum of the features over space and then a mean over time.

    Open, as GTA names none of its settings for this baseline: the encoder is the one of the other methods, so the
    maximum over space is the encoder's own; it embeds each frame with a context at fixed distances, whatever the
    distance of the frames of a clip, so the head begins with a convolution over `width` steps (`hidden` channels, ReLU)
    before the mean over time and one linear score; both clips start at the same frame; speed 1 is `stride` frames a
    step; in a video too short for the fast clip both are slowed down alike, by repeating frames.

    Frames: two blocks of `count`, the clip at normal speed and the fast one; never the plain draw. Pairs: none.
    """

    blocks = 2
    shares = False

    def __init__(
        self,
        *,
        dimension: int = 128,
        normal: tuple[float, float] = (1.0, 1.2),
        fast: tuple[float, float] = (1.7, 2.2),
        stride: float = 1.0,
        hidden: int = 64,
        width: int = 3,
    ) -> None:
        """Make the head for embeddings of `dimension`."""
        super().__init__()
        if not 0 < normal[0] <= normal[1] < fast[0] <= fast[1] or not 0 < stride <= MAX_SPEED or fast[1] > MAX_SPEED:
            raise ValueError(
                f"speeds must be positive, at most {MAX_SPEED:,}, and fast ones above normal ones; "
                f"got {normal=}, {fast=}, {stride=}"
            )
        require_count("dimension", dimension)
        require_count("hidden", hidden)
        require_count("width", width, at_least=2, at_most=1024)  # one step has no motion to judge
        self.dimension, self.normal, self.fast = dimension, (normal[0], normal[1]), (fast[0], fast[1])
        self.stride, self.hidden, self.width = stride, hidden, width
        self.motion = nn.Conv1d(dimension, hidden, width)
        self.score = nn.Linear(hidden, 1)

    def frames(self, total: int, *, count: int, rng: np.random.Generator, draw: Draw = draw_distinct) -> Frames:
        """Choose a clip at normal speed and after it a fast one from the same start, int64 [2 · count]."""
        speeds = self.stride * np.array([rng.uniform(low, high) for low, high in (self.normal, self.fast)])
        steps = np.arange(count)
        span = speeds[1] * max(count - 1, 1)
        speeds *= min(1.0, (total - 1) / span)
        start = rng.uniform(0, max(total - span, 1.0))
        clips = np.floor(start + speeds[:, None] * steps).astype(np.int64)
        return np.asarray(np.minimum(clips, total - 1).ravel())

    def forward(self, sequences: Sequences) -> dict[str, Tensor]:
        """Score a group of clips at normal speed followed by fast ones: `loss`, and `accuracy`."""
        normal, fast = (self._judge(clip) for clip in sequences.blocks(2))
        loss = (F.softplus(normal).mean() + F.softplus(-fast).mean()) / 2
        accuracy = torch.cat([normal <= 0, fast > 0]).float().mean()
        return {"loss": loss, "accuracy": accuracy}

    def _judge(self, clip: Sequences) -> Tensor:
        """Score the speed of each clip, [K]."""
        values = clip.clean
        if values.shape[2] != self.dimension:
            raise ValueError(f"the head takes embeddings of dimension {self.dimension}, got {values.shape[2]}")
        if int(clip.lengths.min()) < self.width:
            raise ValueError(f"a clip needs {self.width} frames for the head, got {int(clip.lengths.min())}")
        motion = self.motion(values.mT).relu()  # [K, hidden, T − width + 1]
        whole = clip.mask[:, None, self.width - 1 :]  # a window counts where its last step does
        (score,) = single_precision(self.score(masked_mean(motion, whole)))
        return score[:, 0]
