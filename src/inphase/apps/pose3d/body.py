"""How people are built: the lengths of bones, in torso lengths.

From the segment lengths of Drillis and Contini (1966) as fractions of the height, a torso being 0.288 of it, widths
between the centres of the joints.
"""

import numpy as np
from numpy.typing import NDArray

_TYPICAL = {
    ("shoulder", "shoulder"): 0.75,
    ("hip", "hip"): 0.45,
    ("hip", "shoulder"): 1.02,
    ("elbow", "shoulder"): 0.65,
    ("elbow", "wrist"): 0.51,
    ("hip", "knee"): 0.85,
    ("ankle", "knee"): 0.85,
    ("head", "shoulder"): 0.6,
}


def typical_lengths(joints: tuple[str, ...], bones: list[tuple[int, int]]) -> NDArray[np.float64]:
    """Give the usual length of each bone, NaN where none is known."""
    names = [tuple(sorted(joints[end].removeprefix("left_").removeprefix("right_") for end in bone)) for bone in bones]
    return np.array([_TYPICAL.get((name[0], name[1]), np.nan) for name in names])
