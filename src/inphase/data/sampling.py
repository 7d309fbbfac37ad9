"""Which frames of a video are shown. Which frames accompany each is `inphase.media.context`."""

from typing import Literal

import numpy as np

from inphase.media.context import Context, Frames, clamped, context_frames, usable

__all__ = ["Context", "Frames", "Rule", "clamped", "context_frames", "sample", "usable"]

Rule = Literal["random", "released", "strided", "all"]


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
    """Choose the frames of a video of `length`, or of a stretch `within` it, in increasing order.

    "random"    the paper's: `count` distinct frames, any of them equally likely. Of a shorter video every frame, evenly
                repeated to make `count`.
    "released"  the released code's: `count` distinct frames of {1 … length − 1}, never frame 0, where there are that
                many; otherwise 0 … count − 1 with everything past the end replaced by the last frame.
    "strided"   every `stride`-th frame.
    "all"       every frame.

    Where the context's edges are "valid", the video is what remains between its ends.
    """
    kept = usable(length, context=context or Context((0,)))
    if within is not None:
        kept = range(max(kept.start, within.start), min(kept.stop, within.stop))
    size = len(kept)
    if size < 1:
        raise ValueError(f"no frame of {length} to choose within {within}: widen the stretch or shorten the context")
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
    """Insist on a generator where chance is involved: a run has to be repeatable."""
    if rng is None:
        raise ValueError("this rule draws at random: pass rng=np.random.default_rng(seed)")
    return rng
