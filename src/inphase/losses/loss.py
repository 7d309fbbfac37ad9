"""The base class of all losses and its input, embeddings of K sequences of one action and the pairs of them.

`Weighted` is a weighted sum of losses on one set of embeddings, L = Σ_n w_n L_n.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from inphase.align.cost import (
    Lengths,
    SequenceLike,
    as_pair,
    require_finite,
    require_temperature,
    require_tensor,
    single_precision,
    valid,
)

Pairs = Literal["anchor", "all"]


@dataclass(frozen=True, eq=False)
class Sequences:
    """Embeddings of K sequences of one action, padded to the longest; padding may hold anything, NaN included.

    `inphase.data.stream.Group` has the same fields for the frames before they are embedded. Lengths are moved to the
    CPU, so that reading them never synchronizes with a GPU; all other tensors are on the device of the values. Of a
    sequence of audio, a "frame" is a segment and the total the number of segments.
    """

    values: Tensor  # [K, T, D]
    lengths: Tensor  # [K] int64, on the CPU
    frames: Tensor  # [K, T] int64, which frame of its video
    totals: Tensor  # [K] int64, frames in the whole video
    labels: Tensor | None = None  # [K, T] int64 phase of each frame, negative where unknown
    progress: Tensor | None = None  # [K, T, E] time since each of E key events over the total, NaN where unknown

    def __post_init__(self) -> None:
        """Raise if shapes contradict each other or lengths exceed them."""
        require_tensor("values", self.values, "[K, T, D]")
        k, t, _ = self.values.shape
        shapes = {"lengths": (k,), "frames": (k, t), "totals": (k,), "labels": (k, t)}
        for name, shape in shapes.items():
            given = getattr(self, name)
            if given is not None and (tuple(given.shape) != shape or given.is_floating_point()):
                raise ValueError(f"{name} must be {list(shape)} integers, got {given.dtype} {list(given.shape)}")
        if self.progress is not None and (self.progress.ndim != 3 or self.progress.shape[:2] != (k, t)):
            raise ValueError(f"progress must be [{k}, {t}, E], got {list(self.progress.shape)}")
        object.__setattr__(self, "lengths", self.lengths.cpu())
        low, high = int(self.lengths.min()), int(self.lengths.max())
        if low < 1 or high > t:
            raise ValueError(f"lengths must lie between 1 and the padded length {t}, got {low} to {high}")

    @property
    def unpadded(self) -> bool:
        """Test whether all sequences have the full length."""
        return bool((self.lengths == self.values.shape[1]).all())

    @property
    def mask(self) -> Tensor:
        """Mark the steps that are not padding, bool [K, T]."""
        steps = torch.arange(self.values.shape[1], device=self.values.device)
        return steps < self.lengths.to(self.values.device, non_blocking=True)[:, None]

    @property
    def clean(self) -> Tensor:
        """Return the embeddings in float32 or float64 with padding set to 0, [K, T, D]."""
        (values,) = single_precision(self.values)
        return values if self.unpadded else values.where(self.mask[:, :, None], 0)

    @property
    def positions(self) -> Tensor:
        """Return the relative position of each frame in its video, frame / total, [K, T]; 0 in the padding."""
        positions = self.frames / self.totals[:, None]
        return positions.to(self.clean.dtype).where(self.mask, 0)

    def blocks(self, number: int) -> tuple["Sequences", ...]:
        """Split each sequence into `number` blocks of equal length, one after another."""
        if number == 1:
            return (self,)
        if (self.lengths % number).any():
            raise ValueError(f"lengths must be multiples of {number}, one for each block; got {self.lengths.tolist()}")
        size = self.lengths // number
        return tuple(self._cut(size * index, size) for index in range(number))

    def _cut(self, first: Tensor, size: Tensor) -> "Sequences":
        """Keep `size` [K] steps of each sequence from its step `first` [K] on."""
        steps = first[:, None] + torch.arange(int(size.max()))
        steps = steps.clamp(max=self.values.shape[1] - 1).to(self.values.device)
        rows = torch.arange(len(steps), device=steps.device)[:, None]
        return replace(
            self,
            values=self.values[rows, steps],
            lengths=size,
            frames=self.frames[rows, steps],
            labels=None if self.labels is None else self.labels[rows, steps],
            progress=None if self.progress is None else self.progress[rows, steps],
        )

    def join(self, other: "Sequences") -> "Sequences":
        """Append to each sequence the steps of the same sequence of `other`."""
        size = self.lengths + other.lengths
        steps = torch.arange(int(size.max())).expand(len(size), -1)
        mine = self.values.shape[1]
        source = torch.where(steps < self.lengths[:, None], steps, mine + steps - self.lengths[:, None])
        source = source.clamp(max=mine + other.values.shape[1] - 1)
        both = {
            name: torch.cat([getattr(self, name), getattr(other, name)], 1)
            for name in ("values", "frames", "labels", "progress")
            if getattr(self, name) is not None
        }
        whole = replace(self, **both, lengths=size)
        rows = torch.arange(len(size), device=self.values.device)[:, None]
        source = source.to(self.values.device)
        return replace(whole, **{name: value[rows, source] for name, value in both.items()})


def _cut(values: Tensor, lengths: Lengths) -> list[Tensor]:
    """Cut a batch [B, T, D] into its sequences without padding."""
    if lengths is None:
        return list(values)
    valid(lengths, name="lengths", batch=len(values), size=values.shape[1], device=values.device)
    return [value[: int(length)] for value, length in zip(values, lengths, strict=True)]


def group_pair(x: Tensor, y: Tensor) -> Sequences:
    """Make a group of two whole sequences x [M, D] and y [N, D]."""
    lengths = torch.tensor([len(x), len(y)])
    values = torch.nn.utils.rnn.pad_sequence([x, y], batch_first=True)
    frames = torch.arange(values.shape[1], device=values.device).expand(2, -1)
    return Sequences(values, lengths, frames, totals=lengths.to(values.device))


def pair_up(sequences: Sequences, pairs: Pairs, *, ordered: bool = False) -> tuple[list[int], list[int]]:
    """List the pairs (i, j) of a group: the first with each other one ("anchor", K − 1) or "all" K (K − 1) / 2.

    Where the order within a pair matters, `ordered` adds (j, i) to every (i, j).
    """
    require_choice("pairs", pairs, ("anchor", "all"))
    k = len(sequences.values)
    if k < 2:
        raise ValueError(f"a group needs two sequences to form a pair, got {k}")
    found = [(i, j) for i in range(1 if pairs == "anchor" else k) for j in range(i + 1, k)]
    if ordered:
        found += [(j, i) for i, j in found]
    return [i for i, _ in found], [j for _, j in found]


def gather_pairs(sequences: Sequences, pairs: Pairs) -> tuple[Tensor, Tensor, Lengths, Lengths]:
    """Return both sides of every pair, x and y [P, T, D], and their lengths [P], None without padding."""
    first, second = pair_up(sequences, pairs)
    values = sequences.values
    if pairs == "anchor":  # without an index: copying one to the GPU would synchronize
        x, y = values[:1].expand(len(values) - 1, -1, -1), values[1:]
    else:
        x, y = values[first], values[second]
    if sequences.unpadded:
        return x, y, None, None
    return x, y, sequences.lengths[first], sequences.lengths[second]


def require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise if a value is not one of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}")


def require_count(name: str, value: object, *, at_least: int = 1, at_most: int = 65_536) -> None:
    """Raise if a value is not a whole number in a range; the range bounds what is allocated."""
    if isinstance(value, bool) or not isinstance(value, int) or not at_least <= value <= at_most:
        raise ValueError(f"{name} must be a whole number from {at_least} to {at_most:,}, got {value!r:.60}")


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
    is the plain draw: one random sample of frames that losses used together have in common. A video is augmented once
    for each of `views` equal parts of its frames. Random choices inside `forward` use torch's default CPU generator, as
    dropout on the CPU does, so a saved RNG state repeats a run. A loss without random choices that never waits for the
    GPU is `fixed`: a CUDA graph can hold it.
    """

    blocks: int = 1
    shares: bool = True
    fixed: bool = False
    views: int = 1

    def frames(self, total: int, *, count: int, rng: np.random.Generator, draw: Draw = draw_distinct) -> Frames:
        """Choose which of a video's `total` frames to embed, int64 [blocks · count].

        `draw` makes the plain draw, by default as in the paper; the sampler of the released code is
        `functools.partial(inphase.media.sampling.sample, rule="released")`. Where a context excludes the ends of a
        video, `total` counts the remaining frames and the caller adds the number of the first of them.
        """
        return draw(total, count=count, rng=rng)

    def __call__(
        self,
        x: Sequences | SequenceLike,
        y: SequenceLike | None = None,
        *,
        x_lengths: Lengths = None,
        y_lengths: Lengths = None,
        check: bool = False,
    ) -> Any:
        """Score a group of sequences, or two sequences [T, D], or two batches [B, T, D] pair by pair.

        A pair stands for two whole videos, of which every frame is given. With `check` the first NaN in the embeddings
        is an error that names its sequence and frame.

        >>> from inphase.losses import GTA
        >>> GTA()(torch.rand(20, 8), torch.rand(24, 8))["loss"].shape
        torch.Size([])
        """
        if isinstance(x, Sequences):
            if y is not None or x_lengths is not None or y_lengths is not None:
                raise ValueError("a group of Sequences holds all sequences and their lengths: give nothing else")
            if check:
                require_finite("sequences", x.values, x.lengths)
            return super().__call__(x)
        if y is None:
            raise ValueError("give a second sequence y to align x with, or a group of Sequences")
        first, second, x_lengths, y_lengths, _ = as_pair(x, y, x_lengths, y_lengths)
        if check:
            require_finite("x", first, x_lengths)
            require_finite("y", second, y_lengths)
        return self.score_pairs(first, second, x_lengths, y_lengths)

    def score_pairs(self, x: Tensor, y: Tensor, x_lengths: Lengths, y_lengths: Lengths) -> dict[str, Tensor]:
        """Score pairs x [B, M, D] and y [B, N, D], each as a group of two: means over them."""
        if self.blocks != 1 or not self.shares:
            raise ValueError(
                f"{type(self).__name__} scores frames that it samples itself, by its method `frames`: "
                "embed those and give them as Sequences"
            )
        pairs = zip(_cut(x, x_lengths), _cut(y, y_lengths), strict=True)
        return self.mean_over([group_pair(first, second) for first, second in pairs])

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

    def score_pairs(self, x: Tensor, y: Tensor, x_lengths: Lengths, y_lengths: Lengths) -> dict[str, Tensor]:
        """Score pairs x [B, M, D] and y [B, N, D] in one call: means over them."""
        return self.pair(x, y, x_lengths, y_lengths)

    def pair(self, x: Tensor, y: Tensor, x_lengths: Lengths = None, y_lengths: Lengths = None) -> dict[str, Tensor]:
        """Score x [B, M, D] against y [B, N, D], pair by pair: means over the batch."""
        raise NotImplementedError


def masked_mean(values: Tensor, real: Tensor) -> Tensor:
    """Average over the last axis where `real` is True; 0 where it is nowhere."""
    return values.where(real, 0).sum(-1) / real.sum(-1).clamp_min(1)


def normalize(values: Tensor) -> Tensor:
    """Normalize embeddings to unit length; zero vectors, such as padding, stay zero."""
    return torch.nn.functional.normalize(values, dim=-1)


class Weighted(Loss):
    """Add up the losses named in `weights` (names of `LOSSES`), each constructed with its own `settings`.

    The default is the combination of TCC's released code, 0.33 of TCC, 0.33 of SaL and 0.34 of TCN. There TCC and SaL
    take TCN's anchors or its positives at random for each video; here always the anchors, which are the plain draw.

    Frames: the plain draw once for all losses that share it, then the other blocks of each loss. No frame is embedded
    twice: TCC + SaL + TCN takes as many as TCN alone.
    """

    def __init__(
        self,
        *,
        weights: Mapping[str, float] | None = None,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Construct the losses."""
        from inphase.losses import LOSSES

        super().__init__()
        weights = weights if weights is not None else {"tcc": 0.33, "sal": 0.33, "tcn": 0.34}
        settings = settings or {}
        known = sorted(set(LOSSES) - {"weighted"})
        unknown = [name for name in weights if name not in known]
        if unknown or not weights:
            raise ValueError(f"weights must name some of {', '.join(known)}; got {', '.join(unknown) or 'nothing'}")
        unweighted = [name for name in settings if name not in weights]
        if unweighted:
            raise ValueError(f"settings are given for {', '.join(unweighted)}, which are not in weights")
        for name, weight in weights.items():
            require_temperature(f"the weight of {name}", weight)
        self.weights = dict(weights)
        self.parts = nn.ModuleDict({name: LOSSES[name](**settings.get(name, {})) for name in weights})
        parts = self._parts().values()
        self.shares = any(part.shares for part in parts)
        self.blocks = self.shares + sum(part.blocks - part.shares for part in parts)
        if any(part.views > 1 for part in parts) and self.blocks > 1:
            self.views = self.blocks

    def frames(self, total: int, *, count: int, rng: np.random.Generator, draw: Draw = draw_distinct) -> Frames:
        """Choose the plain draw and then the other blocks of each loss, int64 [blocks · count]."""
        plain = draw(total, count=count, rng=rng)
        chosen = [plain] if self.shares else []
        for part in self._parts().values():
            wanted = part.frames(total, count=count, rng=rng, draw=lambda *_, **__: plain)
            chosen.append(wanted[len(plain) :] if part.shares else wanted)
        return np.concatenate(chosen)

    def forward(self, sequences: Sequences) -> dict[str, Tensor]:
        """Score a group: `loss`, each loss by its name, and its terms as `name.term`."""
        terms = {}
        for name, view in self._views(sequences).items():
            scored = self.parts[name](view)
            terms[name] = scored.pop("loss")
            terms |= {f"{name}.{term}": value for term, value in scored.items()}
        loss = torch.stack([weight * terms[name] for name, weight in self.weights.items()]).sum()
        return {"loss": loss, **terms}

    def _views(self, sequences: Sequences) -> dict[str, Sequences]:
        """Assign each loss its own blocks of frames."""
        parts = self._parts()
        own = {name: part.blocks - part.shares for name, part in parts.items()}
        blocks = list(sequences.blocks(self.blocks))
        shared = blocks[:1] if self.shares else []
        views, taken = {}, len(shared)
        for name, part in parts.items():
            mine = (shared if part.shares else []) + blocks[taken : taken + own[name]]
            views[name] = reduce(Sequences.join, mine)
            taken += own[name]
        return views

    def _parts(self) -> dict[str, Loss]:
        return {name: part for name, part in self.parts.items() if isinstance(part, Loss)}

    def extra_repr(self) -> str:
        """List the weights."""
        return f"weights={self.weights}"
