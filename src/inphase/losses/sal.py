"""SaL: shuffle and learn, classifying three frames as in order or shuffled (Misra et al., ECCV 2016).

Of five steps a < b < c < d < e of a video, (b, c, d) is in order and (b, a, d) and (b, e, d) are not. A classifier
takes the three embeddings concatenated:

    L = mean cross entropy of head([u, v, w]) with "in order" (0) or "shuffled" (1)
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from inphase.align.cost import single_precision
from inphase.losses.loss import Loss, Sequences, require_count


class SaL(Loss):
    """Classify by a small head on top of the embeddings whether three frames are in order.

    Constants of TCC's released code, the source of the published numbers: 8 triplets a video, ⌊0.75 · all⌋ of a group's
    triplets shuffled, each of the two ways equally likely, all five-tuples of a group played backwards half of the
    time, head 3 D → 128 → 64 → 2 with ReLU between, no dropout, no label smoothing.

    Frames: the plain draw, of which the steps are chosen inside the loss. Pairs: none. Open: videos of fewer than five
    frames, which are left out here; a group of only such videos raises an error.
    """

    def __init__(
        self,
        *,
        dimension: int = 128,
        triplets: int = 8,
        fraction: float = 0.75,
        hidden: tuple[int, ...] = (128, 64),
    ) -> None:
        """Make the head for embeddings of `dimension`."""
        super().__init__()
        require_count("triplets", triplets, at_most=10_000)
        for width in (dimension, *hidden):
            require_count("dimension and hidden", width)
        if not 0 <= fraction <= 1:
            raise ValueError(f"need 0 ≤ fraction ≤ 1, got {fraction}")
        self.dimension, self.triplets, self.fraction, self.hidden = dimension, triplets, fraction, tuple(hidden)
        layers: list[nn.Module] = []
        width = 3 * dimension
        for size in hidden:
            layers += [nn.Linear(width, size), nn.ReLU()]
            width = size
        self.head = nn.Sequential(*layers, nn.Linear(width, 2))

    def forward(self, sequences: Sequences) -> dict[str, Tensor]:
        """Score a group: `loss`, and the fraction of triplets classified correctly, `accuracy`."""
        values = sequences.clean
        if values.shape[2] != self.dimension:
            raise ValueError(f"the head takes embeddings of dimension {self.dimension}, got {values.shape[2]}")
        videos, steps, labels = (part.to(values.device) for part in self.choose(sequences.lengths))
        (logits,) = single_precision(self.head(values[videos[:, None], steps].flatten(1)))
        accuracy = (logits.argmax(1) == labels).float().mean()
        return {"loss": F.cross_entropy(logits, labels), "accuracy": accuracy}

    def choose(self, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Draw triplets of videos of lengths [K]: which video [S], three steps of it [S, 3], shuffled or not [S]."""
        videos = torch.nonzero(lengths >= 5)[:, 0].repeat_interleave(self.triplets)
        if not len(videos):
            raise ValueError(f"shuffling needs a sequence of five frames at least, got {lengths.tolist()}")
        # The smallest five of random numbers, one for each step of the video, are five distinct steps.
        random = torch.rand(len(videos), int(lengths.max()))
        random[torch.arange(random.shape[1]) >= lengths[videos][:, None]] = 2.0
        five = random.argsort(1)[:, :5].sort(1).values
        if torch.rand(()) < 0.5:
            five = five.flip(1)
        labels = torch.zeros(len(videos), dtype=torch.int64)
        labels[torch.randperm(len(videos))[: int(self.fraction * len(videos))]] = 1
        middle = torch.where(torch.rand(len(videos)) < 0.5, 0, 4).where(labels == 1, 2)
        columns = torch.stack([torch.ones_like(middle), middle, torch.full_like(middle, 3)], 1)
        return videos, five.gather(1, columns), labels
