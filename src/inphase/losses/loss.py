"""The contract of a method: the frames it wants of a video, and its loss on the embeddings of a group."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from inphase.align.inputs import Lengths
from inphase.losses.sequences import Pairs, Sequences, gather_pairs, require_choice

Frames = NDArray[np.int64]


class Draw(Protocol):
    """The plain draw: `count` frames of a video of `total`, sorted. `inphase.media.sampling.sample` is one."""

    def __call__(self, total: int, /, *, count: int, rng: np.random.Generator) -> Frames:
        """Choose the frames."""


def draw_distinct(total: int, /, *, count: int, rng: np.random.Generator) -> Frames:
    """Draw distinct frames, any of them equally likely; of a shorter video some repeat."""
    return np.sort(np.resize(rng.permutation(total), count)).astype(np.int64)


class Loss(nn.Module):
    """A method: says which frames it wants and scores the embeddings of K sequences of them.

    The frames of a video come as `blocks` blocks of one size that follow one another. Where `shares`, the first block
    is the plain draw, which methods used together have in common. What is left to chance inside `forward` is drawn
    from torch's default generator on the CPU, as dropout on the CPU is: seed it, save it, and a run repeats.
    """

    blocks: int = 1
    shares: bool = True

    def frames(self, total: int, *, count: int, rng: np.random.Generator, draw: Draw = draw_distinct) -> Frames:
        """Choose which of a video's `total` frames to embed, int64 [blocks · count].

        `draw` is the plain draw, the paper's unless another is given: the released code's is
        `functools.partial(inphase.media.sampling.sample, rule="released")`. Where a context leaves the ends of a video
        out, `total` is what remains and the caller adds the first frame that does.
        """
        return draw(total, count=count, rng=rng)

    def forward(self, sequences: Sequences) -> dict[str, Tensor]:
        """Score a group: `loss`, and the terms it is made of by their names."""
        raise NotImplementedError

    def mean_over(self, groups: Sequence[Sequences]) -> dict[str, Tensor]:
        """Score several groups: the mean over them of each term."""
        scores = [self(group) for group in groups]
        return {name: torch.stack([score[name] for score in scores]).mean() for name in scores[0]}

    def extra_repr(self) -> str:
        """Name the settings: the public attributes that are numbers, words or short sequences of them."""
        plain = (int, float, str, tuple)
        names = [name for name in vars(self) if not name.startswith("_") and name != "training"]
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names if isinstance(getattr(self, name), plain))


class PairObjective(Loss):
    """A method that scores pairs and averages over those of the group.

    `pairs` is "anchor", the first sequence with each other one, as the released code of GTA does, or "all".
    """

    def __init__(self, *, pairs: Pairs) -> None:
        """Keep which pairs of a group are scored."""
        super().__init__()
        require_choice("pairs", pairs, ("anchor", "all"))
        self.pairs: Pairs = pairs

    def forward(self, sequences: Sequences) -> dict[str, Tensor]:
        """Score the pairs of a group: means over them."""
        return self.pair(*gather_pairs(sequences, self.pairs))

    def mean_over(self, groups: Sequence[Sequences]) -> dict[str, Tensor]:
        """Score several groups, at once where they are of one size: few large calls cost less than many small ones."""
        if len({group.values.shape for group in groups}) > 1 or not all(group.even for group in groups):
            return super().mean_over(groups)
        x, y, _, _ = zip(*(gather_pairs(group, self.pairs) for group in groups), strict=True)
        return self.pair(torch.cat(x), torch.cat(y))

    def pair(self, x: Tensor, y: Tensor, x_lengths: Lengths = None, y_lengths: Lengths = None) -> dict[str, Tensor]:
        """Score x [B, M, D] against y [B, N, D], pair by pair: means over the batch."""
        raise NotImplementedError


def masked_mean(values: Tensor, real: Tensor) -> Tensor:
    """Average over what is real along the last axis; 0 where nothing is."""
    return values.where(real, 0).sum(-1) / real.sum(-1).clamp_min(1)


def normalise(values: Tensor) -> Tensor:
    """Bring embeddings to unit length; what is 0, as padding is, stays so."""
    return torch.nn.functional.normalize(values, dim=-1)
