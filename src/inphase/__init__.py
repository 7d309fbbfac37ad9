"""Temporal alignment of videos of the same action."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inphase.align import Alignment, dtw, smooth_dtw, soft_dtw
    from inphase.objectives import GTA

__all__ = ["GTA", "Alignment", "dtw", "smooth_dtw", "soft_dtw"]

# Loaded when first used: a command that only looks at files does not wait for torch.
_HOME = {
    "GTA": "inphase.objectives",
    "Alignment": "inphase.align",
    "dtw": "inphase.align",
    "smooth_dtw": "inphase.align",
    "soft_dtw": "inphase.align",
}


def __getattr__(name: str) -> object:
    """Fetch a public name from where it is defined."""
    if name not in _HOME:
        raise AttributeError(f"module 'inphase' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOME[name]), name)
