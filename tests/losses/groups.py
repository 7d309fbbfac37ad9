"""Groups to score: random ones, and one motion shown at several speeds."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from inphase.losses.loss import Loss, Sequences


def make_group(
    sequences: Sequence[Tensor], *, frames: Sequence[Tensor] | None = None, filling: float = 0.0, **known: Any
) -> Sequences:
    """Pad sequences [T, D] into a group; frame numbers count from 0 in videos as long as they unless given."""
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    frames = frames or [torch.arange(size) for size in lengths]
    shape = (len(lengths), int(lengths.max()))
    values = torch.full((*shape, sequences[0].shape[1]), filling, dtype=sequences[0].dtype)
    numbers = torch.zeros(shape, dtype=torch.int64)
    for k, (sequence, number) in enumerate(zip(sequences, frames, strict=True)):
        values[k, : len(sequence)], numbers[k, : len(sequence)] = sequence, number
    totals = known.pop("totals", torch.stack([number.max() + 1 for number in frames]))
    return Sequences(values=values, lengths=lengths, frames=numbers, totals=totals, **known)


def random_group(lengths: Sequence[int], *, d: int = 4, seed: int = 0, filling: float = 0.0) -> Sequences:
    """Draw embeddings without meaning."""
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(size, d, dtype=torch.float64, generator=generator) for size in lengths]
    return make_group(drawn, filling=filling)


def curve(moments: Tensor, *, d: int = 16) -> Tensor:
    """Embed moments in [0, 1] as unit vectors, neighbors near each other: [T] → [T, d]."""
    centers = torch.linspace(0, 1, d, dtype=torch.float64)
    return torch.nn.functional.normalize(torch.exp(-(((moments[:, None] - centers) / 0.08) ** 2)), dim=1)


def aligned_group(*, k: int = 3, t: int = 20, d: int = 16, total: int = 100) -> Sequences:
    """Show one motion k times, each at a speed of its own that varies."""
    steps = torch.linspace(0, 1, t, dtype=torch.float64)
    frames = [(steps * (total - 1)).round().long() for _ in range(k)]
    return make_group([curve((frame / total) ** (1 + 0.3 * index), d=d) for index, frame in enumerate(frames)],
                      frames=frames)  # fmt: skip


def shuffled(group: Sequences, *, seed: int = 0) -> Sequences:
    """Show the same embeddings in another order, a different one for each sequence."""
    generator = torch.Generator().manual_seed(seed)
    order = [torch.randperm(group.values.shape[1], generator=generator) for _ in group.values]
    values = torch.stack([value[steps] for value, steps in zip(group.values, order, strict=True)])
    return Sequences(values=values, lengths=group.lengths, frames=group.frames, totals=group.totals)


def assert_padding_is_silent(criterion: Loss, lengths: Sequence[int], *, d: int = 4) -> None:
    """Check that NaN in the padding changes neither the terms nor the gradients, and gets none itself."""
    found = []
    for filling in (0.0, float("nan")):
        group = random_group(lengths, d=d, filling=filling)
        group.values.requires_grad_()
        criterion.double().zero_grad()
        torch.manual_seed(0)
        terms = criterion(group)
        assert terms["loss"].isfinite()
        terms["loss"].backward()
        assert group.values.grad is not None
        found.append((terms, group.values.grad, [p.grad for p in criterion.parameters()]))
    (terms, gradient, learned), (other_terms, other_gradient, other_learned) = found
    torch.testing.assert_close(dict(terms), dict(other_terms))
    torch.testing.assert_close(gradient, other_gradient)
    torch.testing.assert_close(learned, other_learned)
    assert gradient.isfinite().all()
    assert gradient.any()
    for k, size in enumerate(lengths):
        assert not gradient[k, size:].any()


def assert_descends(criterion: Loss, group: Sequences, *, steps: int = 60, rate: float = 0.01) -> None:
    """Check that what the criterion itself has to learn lowers its loss on embeddings that do not change."""
    criterion.double()
    optimizer = torch.optim.Adam(criterion.parameters(), lr=rate)
    losses = []
    torch.manual_seed(0)
    for _ in range(steps):
        loss = criterion(group)["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])
