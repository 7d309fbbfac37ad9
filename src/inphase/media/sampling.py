"""Sample frames of a recording, and list the context frames that are embedded together with each of them.

Near the ends of a video some context frames do not exist, and their substitutes can leak the position in the video to
a network, whatever the action: on PennAction the bit "is my context clamped?" alone reaches a Kendall τ of .69
(docs/lab/reproduce.md). `Context.edges` chooses the substitutes:

- "clamp"   the nearest existing frame, as in GTA and TCC. A context frame equal to the frame itself marks the
            beginning. `clamped` marks these frames: an evaluation reports scores without them, and of them alone.
- "mirror"  the frame at the same distance on the other side of t. A still scene leaks nothing; only the direction of
            motion is reversed.
- "valid"   only frames with a full context are used: no leak, at the price of the video's ends.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Frames = NDArray[np.int64]
Edges = Literal["clamp", "mirror", "valid"]
Rule = Literal["random", "released", "strided", "all"]


@dataclass(frozen=True)
class Context:
    """The frames embedded together with frame t: t + offset for each offset. The default is GTA's {t − 15, t}."""

    offsets: tuple[int, ...] = (-15, 0)
    edges: Edges = "clamp"

    def __post_init__(self) -> None:
        """Raise if the context is empty or `edges` is unknown."""
        if not self.offsets:
            raise ValueError("a context needs at least one offset: (0,) is the frame alone")
        if self.edges not in ("clamp", "mirror", "valid"):
            raise ValueError(f"edges must be 'clamp', 'mirror' or 'valid', got {self.edges!r}")

    def stretched(self, factor: float) -> "Context":
        """Return the context that covers the same seconds at `factor` times the frame rate."""
        if not factor > 0:
            raise ValueError(f"a context is stretched by a factor above 0, got {factor}")
        return Context(tuple(round(offset * factor) for offset in self.offsets), self.edges)


def usable(length: int, *, context: Context) -> range:
    """Return the frames that may be sampled: all, or for "valid" edges those with a full context."""
    if length < 1:
        raise ValueError(f"a video needs at least one frame, got {length}")
    if context.edges != "valid":
        return range(length)
    kept = range(max(0, -min(context.offsets)), length - max(0, *context.offsets))
    if not kept:
        raise ValueError(
            f"no frame of a video of {length} has its full context {context.offsets}: shorten the stride, or set "
            "edges to 'mirror'"
        )
    return kept


def context_frames(frames: Frames, *, length: int, context: Context) -> Frames:
    """List the context of each frame: [T] → [T, C], in the order of the offsets."""
    offsets = np.array(context.offsets)
    wanted = frames[:, None] + offsets
    outside = _outside(wanted, length=length)
    if context.edges == "clamp":
        return np.asarray(np.clip(wanted, 0, length - 1))
    if context.edges == "valid" and outside.any():
        first = int(frames[outside.any(1)][0])
        raise ValueError(f"frame {first} of {length} has no full context: sample with this context, or see `usable`")
    return _fold(np.where(outside, frames[:, None] - offsets, wanted), length=length)


def clamped(frames: Frames, *, length: int, context: Context) -> NDArray[np.bool_]:
    """Mark the frames [T] with missing context frames: the control for a Kendall τ."""
    outside = _outside(frames[:, None] + np.array(context.offsets), length=length)
    return np.asarray(outside.any(axis=1))


def _outside(wanted: Frames, *, length: int) -> NDArray[np.bool_]:
    """Mark the indices outside of the video."""
    return (wanted < 0) | (wanted >= length)


def _fold(frames: Frames, *, length: int) -> Frames:
    """Reflect indices at both ends, repeatedly where the video is shorter than its context."""
    period = max(1, 2 * (length - 1))
    inside = np.mod(frames, period)
    return np.minimum(inside, period - inside) if length > 1 else np.zeros_like(frames)


def sample(
    length: int,
    *,
    rule: Rule = "random",
    count: int = 20,
    stride: int = 1,
    context: Context | None = None,
    within: range | None = None,
    rng: np.random.Generator | None = None,
) -> Frames:
    """Sample frames of a video of `length`, or of a stretch `within` it, in increasing order.

    "random"    the paper's: `count` distinct frames, any of them equally likely. Of a shorter video every frame, evenly
                repeated to make `count`.
    "released"  the released code's: `count` distinct frames of {1 … length − 1}, never frame 0, where there are that
                many; otherwise 0 … count − 1 with everything past the end replaced by the last frame.
    "strided"   every `stride`-th frame.
    "all"       every frame.

    For a context with "valid" edges, only frames with a full context count as the video.
    """
    kept = usable(length, context=context or Context((0,)))
    if within is not None:
        kept = range(max(kept.start, within.start), min(kept.stop, within.stop))
    size = len(kept)
    if size < 1:
        raise ValueError(f"no frame of {length} to sample within {within}: widen the stretch or shorten the context")
    match rule:
        case "random":
            chosen = (
                _generator(rng).choice(size, count, replace=False)
                if count <= size
                else np.arange(count) * size // count
            )
        case "released" if count <= size - 1:
            chosen = 1 + _generator(rng).choice(size - 1, count, replace=False)
        case "released":
            chosen = np.minimum(np.arange(count), size - 1)
        case "strided":
            chosen = np.arange(0, size, stride)
        case "all":
            chosen = np.arange(size)
        case _:
            raise ValueError(f"rule must be 'random', 'released', 'strided' or 'all', got {rule!r}")
    return kept.start + np.sort(chosen).astype(np.int64)


def _generator(rng: np.random.Generator | None) -> np.random.Generator:
    """Raise without a generator: random rules must be repeatable."""
    if rng is None:
        raise ValueError("this rule draws at random: pass rng=np.random.default_rng(seed)")
    return rng


# Containers round timestamps, Matroska to a millisecond: a frame counts as shown from half of one before its time.
ROUNDING = 0.0005


def choose(
    times: NDArray[np.float64],
    *,
    indices: ArrayLike | None = None,
    seconds: ArrayLike | None = None,
    span: tuple[float, float] | None = None,
    fps: float | None = None,
) -> NDArray[np.int64] | None:
    """Turn a request into positions among `times`; None stands for all of them."""
    if sum(request is not None for request in (indices, seconds)) + (span is not None or fps is not None) > 1:
        raise ValueError("give indices, or seconds, or span and fps: not two of these")
    if indices is not None:
        return _checked_indices(np.atleast_1d(np.asarray(indices)), len(times))
    if seconds is not None:
        asked = np.atleast_1d(np.asarray(seconds, dtype=np.float64))
        if asked.ndim != 1 or not len(asked):
            raise ValueError(f"seconds must be a list of at least one number, got {seconds!r}")
        end = times[-1] + (times[-1] - times[0]) / max(len(times) - 1, 1)
        outside = asked[~((asked >= 0) & (asked <= end + ROUNDING))]
        if len(outside):
            raise ValueError(f"second {outside[0]} lies outside the recording, which runs from 0 to {end:.3f}")
        return np.unique(shown_at(times, asked))
    inside = None if span is None else _inside(times, span)
    if fps is None:
        return inside
    return _at_fps(times if inside is None else times[inside], fps) + (0 if inside is None else inside[0])


def _checked_indices(indices: NDArray[np.generic], count: int) -> NDArray[np.int64]:
    if indices.ndim != 1 or not np.issubdtype(indices.dtype, np.integer) or not len(indices):
        raise ValueError(f"indices must be a list of at least one whole number, got {indices!r}")
    positions = indices.astype(np.int64)
    outside = positions[(positions < 0) | (positions >= count)]
    if len(outside):
        raise ValueError(f"frame {outside[0]} does not exist: the recording has frames 0 to {count - 1}")
    if np.any(np.diff(positions) <= 0):
        raise ValueError("indices must increase: pass np.unique(indices) and pick repeats from the clip")
    return positions


def _inside(times: NDArray[np.float64], span: tuple[float, float]) -> NDArray[np.int64]:
    start, end = span
    if not start < end:
        raise ValueError(f"span must run from an earlier to a later second, got {span}")
    inside = np.flatnonzero((times >= start - ROUNDING) & (times < end - ROUNDING))
    if not len(inside):
        raise ValueError(
            f"no frame lies in span {span}: the recording has frames from {times[0]:.3f} to {times[-1]:.3f} s"
        )
    return inside


def _at_fps(times: NDArray[np.float64], fps: float) -> NDArray[np.int64]:
    if not 0 < fps < np.inf:
        raise ValueError(f"fps must be a positive number of frames per second, got {fps}")
    ticks = times[0] + np.arange(int((times[-1] - times[0]) * fps + 1e-6) + 1) / fps
    after = np.clip(np.searchsorted(times, ticks), 1, max(len(times) - 1, 1))
    before = after - 1
    nearest = np.where(ticks - times[before] <= times[np.minimum(after, len(times) - 1)] - ticks, before, after)
    return np.unique(np.minimum(nearest, len(times) - 1)).astype(np.int64)


def shown_at(times: ArrayLike, seconds: ArrayLike) -> NDArray[np.int64]:
    """Find the frame a player shows at each second: the last one that has begun, or the first."""
    begun = np.searchsorted(np.asarray(times), np.asarray(seconds, dtype=np.float64) + ROUNDING, side="right")
    return np.maximum(begun - 1, 0).astype(np.int64)
