"""What a matrix of distances says: which videos belong together, which is in the middle, which fit nowhere."""

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, leaves_list, linkage
from scipy.spatial.distance import squareform

# Beyond so many deviations of the median a video does not fit; below so many videos nothing can be said.
DEVIATIONS, FEW = 3.5, 4
# Turning branches so that neighbours are alike takes n³ in the worst case.
TURNED = 500

Distances = NDArray[np.float32]


def medoid(distances: Distances) -> int:
    """Give the video that is nearest to all others."""
    return int(np.asarray(distances.sum(1)).argmin())


def typical(distances: Distances) -> NDArray[np.float64]:
    """Give the median distance of every video to the others, [n]: a few that are alike do not hide each other."""
    count = len(distances)
    if count < 2:
        return np.zeros(count)
    return np.array([np.median(np.delete(row, k)) for k, row in enumerate(distances)])


def limit(scores: NDArray[np.float64]) -> float:
    """Give the score beyond which one does not fit: 3.5 robust deviations above the median of all."""
    if len(scores) < FEW:
        return float("inf")
    middle = float(np.median(scores))
    deviation = 1.4826 * float(np.median(np.abs(scores - middle)))
    # Videos that are all the same differ by rounding.
    return middle + DEVIATIONS * max(deviation, 0.02 * middle, 1e-4)


def arrange(distances: Distances, *, apart: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Order videos so that those alike are neighbours, [n], and number the clusters farther `apart` than that, [n]."""
    count = len(distances)
    if count < 2:
        return np.arange(count), np.zeros(count, np.int64)
    tree = linkage(squareform(np.asarray(distances), checks=False), "average", optimal_ordering=count <= TURNED)
    order = np.asarray(leaves_list(tree), np.int64)
    labels = fcluster(tree, apart, "distance") if np.isfinite(apart) else np.ones(count)
    # Numbered in the order in which the page shows them.
    _, first = np.unique(labels[order], return_index=True)
    rank = {label: number for number, label in enumerate(labels[order][np.sort(first)])}
    return order, np.array([rank[label] for label in labels], np.int64)
