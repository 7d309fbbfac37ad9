"""Mathematics: differentiable dynamic time warping, global cycle consistency, and matching of embedded sequences.

From "Representation Learning via Global Temporal Alignment and Cycle-Consistency" (Hadji, Derpanis, Jepson, CVPR 2021).

    paper                 here                          where
    X, Y  (D×M, D×N)      x [B, M, D], y [B, N, D]      embeddings, one row per frame
    c(i, j), C            cost [B, M, N]                `cost.py`        eq. (8)
    smoothMin, min^γ      smooth_min, min_gamma         `minimum.py`     eq. (5), (6)
    R(i, j)               table [B, M, N]               `recursion.py`   eq. (1), (4)
    L_smoothDTW           smooth_dtw(x, y).cost [B]     `dtw.py`         eq. (9)
    L_GCC                 cycle_consistency(…) [B]      `recursion.py`   eq. (10)–(13)
    γ, β, α               gamma, beta, alpha            temperatures of minimum, cost and cycle

`drop_dtw` and `accumulate_with_drops` align sequences of which parts have no counterpart.
`match(x, y)` and `match_many(pairs)` in `matching.py` align embeddings; they and `dtw` return an `Alignment`.
"""

from inphase.align.cost import contrastive_cost, cosine_cost, squared_euclidean_cost
from inphase.align.matching import match, match_many
from inphase.align.path import (
    Alignment,
    Warping,
    drop_dtw,
    dtw,
    expected_path,
    shortest_path,
    shortest_path_with_drops,
    smooth_dtw,
    soft_dtw,
)
from inphase.align.recursion import (
    accumulate,
    accumulate_with_drops,
    cycle_consistency,
    min_gamma,
    min_gamma_penalty,
    smooth_min,
    smooth_min_penalty,
)

__all__ = [
    "Alignment",
    "Warping",
    "accumulate",
    "accumulate_with_drops",
    "contrastive_cost",
    "cosine_cost",
    "cycle_consistency",
    "drop_dtw",
    "dtw",
    "expected_path",
    "match",
    "match_many",
    "min_gamma",
    "min_gamma_penalty",
    "shortest_path",
    "shortest_path_with_drops",
    "smooth_dtw",
    "smooth_min",
    "smooth_min_penalty",
    "soft_dtw",
    "squared_euclidean_cost",
]
