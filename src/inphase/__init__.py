"""Temporal alignment of videos of the same action."""

from inphase.align import Alignment, dtw, smooth_dtw, soft_dtw
from inphase.objectives import GTA

__all__ = ["GTA", "Alignment", "dtw", "smooth_dtw", "soft_dtw"]
