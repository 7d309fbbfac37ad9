"""Costs of matching frames of two sequences, the period of one sequence, and the input checks of this package.

All costs take x [B, M, D] and y [B, N, D] and return a cost [B, M, N] in float32 (float64 for float64). Cells of padded
frames cost 0 and carry no gradient, whatever the padding holds.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import forward_ad

Lengths = Tensor | Sequence[int] | None

HALF = (torch.float16, torch.bfloat16)
FLOATING = (*HALF, torch.float32, torch.float64)
# A motion repeats if its autocorrelation has a peak this high, this far above the dip before it, at a shift of at least
# these seconds and at most this share of the recording. Longer recordings are thinned to this many frames.
PERIOD_PEAK, PERIOD_RISE, PERIOD_SECONDS, PERIOD_SHARE, PERIOD_FRAMES = 0.25, 0.15, 0.25, 0.6, 2000


def require_tensor(name: str, value: Tensor, shape: str) -> None:
    """Raise if a value is not a non-empty floating-point tensor of a shape written as `"[B, M, N]"`."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch tensor {shape}, got {type(value).__name__}; use torch.as_tensor")
    dimensions = shape.count(",") + 1
    if value.ndim != dimensions:
        batched = shape.startswith("[B") and value.ndim == dimensions - 1
        fix = f"; a single item needs {name}[None]" if batched else ""
        raise ValueError(f"{name} must be {shape}, got shape {list(value.shape)}{fix}")
    if 0 in value.shape:
        raise ValueError(f"{name} must be {shape} with no empty dimension, got shape {list(value.shape)}")
    if value.dtype not in FLOATING:
        raise TypeError(f"{name} must be float16, bfloat16, float32 or float64, got {value.dtype}; use {name}.float()")


def require_pair(x: Tensor, y: Tensor) -> None:
    """Refuse two sequences that cannot be compared: other batch, dimension, type or device."""
    require_tensor("x", x, "[B, M, D]")
    require_tensor("y", y, "[B, N, D]")
    require_alike("x", x, "y", y)
    if x.shape[0] != y.shape[0]:
        raise ValueError(f"x and y must have the same number of sequences, got {x.shape[0]} and {y.shape[0]}")
    if x.shape[2] != y.shape[2]:
        raise ValueError(f"x and y must have the same embedding dimension, got {x.shape[2]} and {y.shape[2]}")


def require_alike(first: str, a: Tensor, second: str, b: Tensor) -> None:
    """Raise if two tensors differ in device or type."""
    if a.device != b.device:
        raise ValueError(f"{first} is on {a.device} and {second} on {b.device}; move one with .to()")
    if a.dtype != b.dtype:
        raise TypeError(f"{first} is {a.dtype} and {second} {b.dtype}; convert one with .to()")


# A sequence [T] or [T, D], a batch [B, T, D] or a list of sequences of any lengths, as tensors, arrays or lists.
SequenceLike = Tensor | NDArray[Any] | Sequence[Any]


def as_batch(name: str, given: SequenceLike, lengths: Lengths = None) -> tuple[Tensor, Lengths, bool]:
    """Convert sequences to [B, T, D], their lengths, and whether a batch was given rather than one sequence.

    A list of arrays or tensors, or of lists of unequal lengths, is a batch, padded with 0. A tensor keeps its type,
    device and graph; arrays and lists of whole numbers become float32.
    """
    if isinstance(given, Tensor):
        value = given
    elif _is_list_of_sequences(given):
        if lengths is not None:
            raise ValueError(f"{name} is a list of sequences, which have their own lengths: leave {name}_lengths out")
        parts = [_as_tensor(f"{name}[{i}]", part) for i, part in enumerate(given)]
        parts = [part[:, None] if part.ndim == 1 else part for part in parts]
        if len({part.shape[1:] for part in parts}) != 1 or parts[0].ndim != 2:
            shapes = sorted({str(list(part.shape)) for part in parts})
            raise ValueError(f"{name} must be a list of sequences [T, D] of one D, got shapes {', '.join(shapes)}")
        padded = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)
        return padded, torch.tensor([len(part) for part in parts]), True
    else:
        value = _as_tensor(name, given)
    if value.ndim == 3:
        return value, lengths, True
    if value.ndim not in (1, 2):
        raise ValueError(f"{name} must be [T], [T, D] or [B, T, D], got shape {list(value.shape)}")
    return (value[:, None] if value.ndim == 1 else value)[None], lengths, False


def as_pair(
    x: SequenceLike, y: SequenceLike, x_lengths: Lengths = None, y_lengths: Lengths = None
) -> tuple[Tensor, Tensor, Lengths, Lengths, bool]:
    """Convert both sides of a pair, or of a batch of pairs, by `as_batch`, and check that they can be compared."""
    first, x_lengths, batched = as_batch("x", x, x_lengths)
    second, y_lengths, also = as_batch("y", y, y_lengths)
    if batched != also:
        raise ValueError(
            f"x is {'a batch' if batched else 'one sequence'} and y {'a batch' if also else 'one sequence'}: "
            "give two sequences [T, D] or two batches [B, T, D]"
        )
    # An array or a list takes the type and the device of the tensor it is compared with.
    if isinstance(x, Tensor) and not isinstance(y, Tensor):
        second = second.to(first)
    elif isinstance(y, Tensor) and not isinstance(x, Tensor):
        first = first.to(second)
    require_pair(first, second)
    return first, second, x_lengths, y_lengths, batched


def _is_list_of_sequences(given: object) -> bool:
    if not isinstance(given, list | tuple) or not given:
        return False
    if isinstance(given[0], Tensor | np.ndarray):
        return given[0].ndim > 0
    lists = isinstance(given[0], list | tuple) and all(isinstance(part, list | tuple) for part in given)
    return lists and len({len(part) for part in given}) > 1


def _as_tensor(name: str, given: object) -> Tensor:
    if isinstance(given, Tensor):
        return given
    try:
        value = torch.from_numpy(np.array(given))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be numbers of shape [T], [T, D] or [B, T, D] ({error})") from error
    return value if value.is_floating_point() or value.is_complex() else value.float()


def require_directions(cost: str, x: Tensor) -> None:
    """Raise if a cost of directions is asked of one-dimensional sequences, whose unit vectors are all 1 or −1."""
    if x.shape[2] == 1:
        raise ValueError(
            f"the {cost} cost compares directions, and sequences of dimension 1 have only a sign: "
            "use squared_euclidean, or embed them in two dimensions or more"
        )


def require_finite(name: str, values: Tensor, lengths: Lengths = None) -> None:
    """Raise if values [B, T, D] are not finite, naming the first sequence and frame; padding does not count."""
    bad = ~values.detach().isfinite().all(2)
    real = valid(lengths, name=f"{name}_lengths", batch=len(values), size=values.shape[1], device=values.device)
    bad = bad if real is None else bad & real
    if bad.any():
        b, t = bad.nonzero()[0].tolist()
        kind = "NaN" if values[b, t].isnan().any() else "infinite"
        raise ValueError(f"{name}[{b}] is {kind} at frame {t}: check the input of its encoder and its weights")


def refuse_forward_mode(value: Tensor) -> None:
    """Raise inside `torch.autograd.forward_ad` if a value has a tangent, which the kernels would lose."""
    if forward_ad._current_level < 0:
        return
    if forward_ad.unpack_dual(value).tangent is not None:  # type: ignore[no-untyped-call]
        raise RuntimeError(
            "forward-mode derivatives of the DTW recursion are not available: use reverse mode, such as "
            "torch.autograd.grad in place of forward_ad, jvp or jacfwd"
        )


def require_temperature(name: str, value: float, *, zero: bool = False) -> None:
    """Raise if a temperature is negative or not finite, or is 0 and `zero` is False."""
    if not (0 < value < float("inf") or (zero and value == 0)):
        raise ValueError(f"{name} must be {'at least 0' if zero else 'positive'} and finite, got {value}")


def valid(lengths: Lengths, *, name: str, batch: int, size: int, device: torch.device) -> Tensor | None:
    """Mark the frames that are not padding, bool [B, size]; None without padding.

    Lengths on the CPU (a list or a CPU tensor) are checked without synchronizing with the GPU.
    """
    if lengths is None:
        return None
    given = torch.as_tensor(lengths)
    if given.shape != (batch,) or given.dtype.is_floating_point or given.dtype == torch.bool:
        raise ValueError(f"{name} must be {batch} integers, got {given.dtype} of shape {list(given.shape)}")
    if torch.compiler.is_compiling():  # values are not known while torch.compile traces
        return torch.arange(size, device=device) < given.to(device, non_blocking=True)[:, None]
    low, high = int(given.min()), int(given.max())
    if low < 1:
        raise ValueError(f"{name} must be at least 1, got {low}; drop empty sequences before the call")
    if high > size:
        raise ValueError(f"{name} must be at most the padded length {size}, got {high}")
    if low == size:
        return None
    return torch.arange(size, device=device) < given.to(device, non_blocking=True)[:, None]


def last_frame(lengths: Lengths, *, batch: int, size: int, device: torch.device) -> Tensor:
    """Index the last frame of each sequence, int64 [B]."""
    if lengths is None:
        return torch.full((batch,), size - 1, device=device)
    return torch.as_tensor(lengths).to(device, torch.int64, non_blocking=True) - 1


def single_precision(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Convert half precision to float32: costs and tables are sums too long for fewer bits."""
    return tuple([t.float() if t.dtype in HALF else t for t in tensors])


def no_autocast(tensor: Tensor) -> AbstractContextManager[object]:
    """Disable autocast, where it is enabled, for computations on the device of `tensor`."""
    kind = tensor.device.type
    if torch.compiler.is_compiling():
        return torch.autocast(kind, enabled=False)
    lowers = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if lowers else nullcontext()


SECOND = (
    "second derivatives of the DTW recursion are not available: compute the gradient without create_graph=True, "
    "or use inphase.align.recursion.accumulate_reference, which can be differentiated any number of times"
)


def first_order_only(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Raise where a second derivative is prepared, that is, where gradients are enabled in a backward pass.

    `once_differentiable` of torch raises only where the incoming gradient has a graph: a loss that is linear in the
    table would leave out its part of the second derivative without an error.
    """

    @wraps(backward)
    def checked(ctx: Any, *grads: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(SECOND)
        return backward(ctx, *grads)

    return checked


Cost = Literal["contrastive", "cosine", "squared_euclidean"]


def default_cost(cost: Cost | None, x: Tensor, *, otherwise: Cost) -> Cost:
    """Return the cost asked for; by default `otherwise`, or squared_euclidean of one-dimensional sequences."""
    return cost or ("squared_euclidean" if x.shape[2] == 1 else otherwise)


# The temperature of the contrastive cost, as in the paper.
BETA = 0.1
# Columns of each encoder in joint vectors, in their order, and the temperature of their cost.
Routes = Sequence[tuple[int, float]]


def contrastive_cost(
    x: Tensor, y: Tensor, *, beta: float = BETA, x_lengths: Lengths = None, y_lengths: Lengths = None
) -> Tensor:
    """Take the negative log probability that x_i matches y_j among all of y, eq. (8).

    c(i, j) = −log softmax_j(x̃_i · ỹ_j / β), with x̃ = x/‖x‖. O(MND) time, O(MN) memory.

    >>> frames = torch.eye(2)[None]
    >>> (-contrastive_cost(frames, frames, beta=1.0)).exp()
    tensor([[[0.7311, 0.2689],
             [0.2689, 0.7311]]])
    """
    require_temperature("beta", beta)
    x, y, real = _prepare(x, y, x_lengths, y_lengths)
    require_directions("contrastive", x)
    with no_autocast(x):
        similarity = _mask(_cosine(x, y) / beta, real, float("-inf"), rows=False)
        return _mask(-torch.log_softmax(similarity, 2), real, 0.0)


def contrastive_costs(
    x: Tensor, y: Tensor, *, beta: float = BETA, x_lengths: Lengths = None, y_lengths: Lengths = None
) -> Tensor:
    """Take the contrastive cost of x to y and of y to x from one product, [2, B, M, N].

    The second lies on the grid of the first, its axes swapped. The recursion is symmetric, so both accumulate in
    one call.
    """
    require_temperature("beta", beta)
    x, y, real = _prepare(x, y, x_lengths, y_lengths)
    require_directions("contrastive", x)
    with no_autocast(x):
        similarity = _cosine(x, y) / beta
        there = _mask(similarity, real, float("-inf"), rows=False).log_softmax(2)
        back = _mask(similarity, real, float("-inf"), columns=False).log_softmax(1)
        return _mask(-torch.stack([there, back]), real, 0.0)


def cosine_cost(x: Tensor, y: Tensor, *, x_lengths: Lengths = None, y_lengths: Lengths = None) -> Tensor:
    """Take the cosine distance, c(i, j) = 1 − x̃_i · ỹ_j: the paper's ablation without the contrastive cost."""
    x, y, real = _prepare(x, y, x_lengths, y_lengths)
    require_directions("cosine", x)
    with no_autocast(x):
        return _mask(1 - _cosine(x, y), real, 0.0)


def squared_euclidean_cost(x: Tensor, y: Tensor, *, x_lengths: Lengths = None, y_lengths: Lengths = None) -> Tensor:
    """Take the squared distance, c(i, j) = ‖x_i − y_j‖², as soft-DTW and LAV do. No normalization."""
    x, y, real = _prepare(x, y, x_lengths, y_lengths)
    with no_autocast(x):
        # Centering leaves distances alone and keeps the expanded square from canceling. Padding, 0, does not count.
        _, y_real = real
        count = y.shape[1] if y_real is None else y_real.sum(1)[:, None, None]
        center = y.detach().sum(1, keepdim=True) / count
        x, y = x - center, y - center
        squares = x.square().sum(2)[:, :, None] + y.square().sum(2)[:, None, :]
        return _mask((squares - 2 * x @ y.mT).clamp_min(0), real, 0.0)


def pairwise_cost(
    x: Tensor, y: Tensor, *, cost: Cost, beta: float = BETA, x_lengths: Lengths = None, y_lengths: Lengths = None
) -> Tensor:
    """Take the cost of the given name; `beta` is the temperature of the contrastive cost."""
    if cost == "contrastive":
        return contrastive_cost(x, y, beta=beta, x_lengths=x_lengths, y_lengths=y_lengths)
    if cost == "cosine":
        return cosine_cost(x, y, x_lengths=x_lengths, y_lengths=y_lengths)
    if cost == "squared_euclidean":
        return squared_euclidean_cost(x, y, x_lengths=x_lengths, y_lengths=y_lengths)
    raise ValueError(f"cost must be 'contrastive', 'cosine' or 'squared_euclidean', got {cost!r}")


def route_costs(
    x: Tensor, y: Tensor, routes: Routes, *, x_lengths: Lengths = None, y_lengths: Lengths = None
) -> Tensor:
    """Add up the contrastive costs of routes, the mean of both directions, each weighted by its support, [B, M, N]."""
    widths = [width for width, _ in routes]
    weights = support_of(x, routes, x_lengths) * support_of(y, routes, y_lengths)  # [B, R]
    total = x.new_zeros(len(x), x.shape[1], y.shape[1])
    for k, (a, b) in enumerate(zip(torch.split(x, widths, 2), torch.split(y, widths, 2), strict=True)):
        if bool((weights[:, k] > 0).any()):
            found = contrastive_costs(a, b, beta=routes[k][1], x_lengths=x_lengths, y_lengths=y_lengths).mean(0)
            total += weights[:, k, None, None] * found
    return total


def support_of(values: Tensor, routes: Routes, lengths: Lengths = None) -> Tensor:
    """Measure how far sequences [B, T, D] support each route, from 0 to 1, [B, R]."""
    parts = torch.split(values, [width for width, _ in routes], 2)
    # A joint row scales its parts by 1/√β, so that its cosine weighs routes as the costs do.
    squares = torch.stack([part.square().sum(2) * beta for part, (_, beta) in zip(parts, routes, strict=True)], 2)
    share = squares / squares.amax(2, keepdim=True).clamp_min(1e-12)  # [B, T, R]
    if lengths is None:
        return share.mean(1)
    count = torch.as_tensor(lengths, device=values.device)
    real = torch.arange(values.shape[1], device=values.device) < count[:, None]
    return (share * real[:, :, None]).sum(1) / count[:, None]


Real = tuple[Tensor | None, Tensor | None]  # which frames of x [B, M] and of y [B, N] are not padding; None: all


def _prepare(x: Tensor, y: Tensor, x_lengths: Lengths, y_lengths: Lengths) -> tuple[Tensor, Tensor, Real]:
    require_pair(x, y)
    x, y = single_precision(x, y)
    x_real = valid(x_lengths, name="x_lengths", batch=len(x), size=x.shape[1], device=x.device)
    y_real = valid(y_lengths, name="y_lengths", batch=len(y), size=y.shape[1], device=y.device)
    # Padding may hold NaN, which would spread through sums and gradients.
    if x_real is not None:
        x = x.where(x_real[:, :, None], 0)
    if y_real is not None:
        y = y.where(y_real[:, :, None], 0)
    return x, y, (x_real, y_real)


def _cosine(x: Tensor, y: Tensor) -> Tensor:
    return F.normalize(x, dim=2) @ F.normalize(y, dim=2).mT


def _mask(cost: Tensor, real: Real, value: float, *, rows: bool = True, columns: bool = True) -> Tensor:
    x_real, y_real = real
    if rows and x_real is not None:
        cost = cost.where(x_real[:, :, None], value)
    if columns and y_real is not None:
        cost = cost.where(y_real[:, None, :], value)
    return cost


def find_period(frames: NDArray[Any], *, rate: float) -> float | None:
    """Find the period of a motion that repeats, in seconds: the first peak of the autocorrelation after a dip.

    `frames` [T, D] are vectors at `rate` frames per second.
    """
    step = -(-len(frames) // PERIOD_FRAMES)
    rows = frames[::step].astype(np.float64)
    rows -= rows.mean(0)
    length, rate = len(rows), rate / step
    products = rows @ rows.T
    energy = np.concatenate([[0.0], np.cumsum(np.diag(products))])
    shifts = np.arange(int(PERIOD_SHARE * length) + 2)
    norms = np.sqrt((energy[-1] - energy[shifts]) * energy[length - shifts])
    found = np.array([np.trace(products, shift) for shift in shifts]) / np.maximum(norms, 1e-12)
    inner = found[1:-1]
    high = (inner >= found[:-2]) & (inner >= found[2:]) & (inner >= PERIOD_PEAK)
    high &= (inner - np.minimum.accumulate(inner) >= PERIOD_RISE) & (shifts[1:-1] >= PERIOD_SECONDS * rate)
    return float(shifts[1:-1][high][0] / rate) if high.any() else None
