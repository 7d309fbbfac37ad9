"""The base class of all losses: which frames of a video to embed, and the loss of a group of embedded sequences."""

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
    """A frame sampler: chooses `count` of a video's `total` frames, sorted. `inphase.media.sampling.sample` is one."""

    def __call__(self, total: int, /, *, count: int, rng: np.random.Generator) -> Frames:
        """Choose the frames."""


def draw_distinct(total: int, /, *, count: int, rng: np.random.Generator) -> Frames:
    """Sample distinct frames uniformly; frames of a video shorter than `count` repeat."""
    return np.sort(np.resize(rng.permutation(total), count)).astype(np.int64)


class Loss(nn.Module):
    """Base class of a loss: `frames` chooses the frames to embed, `forward` scores the embeddings of K sequences.

    The frames of a video form `blocks` blocks of equal size, one after another. Where `shares` is True, the first block
    is the plain draw: one random sample of frames that losses used together have in common. Random choices inside
    `forward` use torch's default CPU generator, as dropout on the CPU does, so a saved RNG state repeats a run.
    """

    blocks: int = 1
    shares: bool = True

    def frames(self, total: int, *, count: int, rng: np.random.Generator, draw: Draw = draw_distinct) -> Frames:
        """Choose which of a video's `total` frames to embed, int64 [blocks · count].

        `draw` makes the plain draw, by default as in the paper; the sampler of the released code is
        `functools.partial(inphase.media.sampling.sample, rule="released")`. Where a context excludes the ends of a
        video, `total` counts the remaining frames and the caller adds the number of the first of them.
        """
        return draw(total, count=count, rng=rng)

    def forward(self, sequences: Sequences) -> dict[str, Tensor]:
        """Score a group: `loss`, and its terms by name."""
        raise NotImplementedError

    def mean_over(self, groups: Sequence[Sequences]) -> dict[str, Tensor]:
        """Score several groups: the mean of each term over them."""
        scores = [self(group) for group in groups]
        return {name: torch.stack([score[name] for score in scores]).mean() for name in scores[0]}

    def extra_repr(self) -> str:
        """List the settings: the public attributes that are numbers, strings or tuples of them."""
        plain = (int, float, str, tuple)
        names = [name for name in vars(self) if not name.startswith("_") and name != "training"]
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names if isinstance(getattr(self, name), plain))


class PairLoss(Loss):
    """Base class of a loss that scores pairs of sequences and averages over the pairs of the group.

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
        """Score several groups, in one call where their sizes agree: few large calls cost less than many small ones."""
        if len({group.values.shape for group in groups}) > 1 or not all(group.unpadded for group in groups):
            return super().mean_over(groups)
        x, y, _, _ = zip(*(gather_pairs(group, self.pairs) for group in groups), strict=True)
        return self.pair(torch.cat(x), torch.cat(y))

    def pair(self, x: Tensor, y: Tensor, x_lengths: Lengths = None, y_lengths: Lengths = None) -> dict[str, Tensor]:
        """Score x [B, M, D] against y [B, N, D], pair by pair: means over the batch."""
        raise NotImplementedError


def masked_mean(values: Tensor, real: Tensor) -> Tensor:
    """Average over the last axis where `real` is True; 0 where it is nowhere."""
    return values.where(real, 0).sum(-1) / real.sum(-1).clamp_min(1)


def normalize(values: Tensor) -> Tensor:
    """Normalize embeddings to unit length; zero vectors, such as padding, stay zero."""
    return torch.nn.functional.normalize(values, dim=-1)
