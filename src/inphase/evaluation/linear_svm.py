"""A linear support vector machine for many frames and many classes: all classes at once, by Newton's method.

One against the rest, squared hinge, the intercept among the weights: for class c, with y = ±1 and a coordinate 1 in x,

    min over w of  ½ ‖w‖² + C Σ max(0, 1 − y w·x)²

which is what scikit-learn's LinearSVC minimises. Its solver goes through the classes one by one; here the products
with the data, which are all the work, serve all classes at once: [N, D] by [D, K]. The second derivative I + 2C Xᵀ A X,
where A keeps the frames within the margin, is solved by conjugate gradients, whose products are taken in float32;
objective and gradient are in float64. A step is halved until it descends. Classes that have converged drop out.
Memory: N K bytes for A, and blocks.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK = 2**20  # decisions at a time
STEPS, CONJUGATE_STEPS, HALVINGS = 50, 100, 30

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LinearSVM:
    """Classes [K], and the weights [D + 1, K] of their decisions, the last row the intercepts."""

    classes: NDArray[np.int64]
    weights: Floats

    def predict(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """Give the class of the largest decision for each row, [N]."""
        rows = _with_one(x)
        parts = [(rows[at] @ self.weights).argmax(1) for at in _blocks(len(rows), len(self.classes))]
        return np.asarray(self.classes[np.concatenate(parts)])


def fit_linear_svm(
    x: NDArray[Any],
    labels: NDArray[np.int64],
    *,
    penalty: float = 1.0,
    tolerance: float = 1e-4,
    progress: Callable[[float], None] | None = None,
) -> LinearSVM:
    """Fit x [N, D] to labels [N].

    A class has converged when its gradient is below `tolerance` times the first one's, scaled as liblinear's is by how
    rare it is. `progress` is told the fraction of the classes that have.
    """
    classes, index = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"a classifier needs two classes, got {classes.tolist()}")
    problem = _Problem(_with_one(x), index, penalty)
    weights = np.zeros((problem.x.shape[1], len(classes)))
    left = np.arange(len(classes))
    value, gradient, active = problem.evaluate(weights, left)
    count = np.bincount(index)
    bound = tolerance * np.minimum(count, len(x) - count) / len(x) * np.linalg.norm(gradient, axis=0)
    for _ in range(STEPS):
        far = np.linalg.norm(gradient, axis=0) > bound[left]
        left, value, gradient, active = left[far], value[far], gradient[:, far], active[:, far]
        if progress is not None:
            progress(1 - len(left) / len(classes))
        if not len(left):
            break
        direction = problem.solve(active, -gradient)
        slope = (direction * gradient).sum(0)
        start, size, before = weights[:, left], np.ones(len(left)), value.copy()
        long = np.arange(len(left))  # the classes whose step is still too long
        for _ in range(HALVINGS):
            weights[:, left[long]] = start[:, long] + size[long] * direction[:, long]
            value[long], gradient[:, long], active[:, long] = problem.evaluate(weights[:, left[long]], left[long])
            # Enough of a descent (Armijo); near the end what is left of it is rounding.
            enough = before + 1e-4 * size * slope + 1e-12 * before
            long = long[value[long] > enough[long]]
            if not len(long):
                break
            size[long] /= 2
    return LinearSVM(classes, weights)


class _Problem:
    """The objective of some classes, its gradient, and steps against it."""

    def __init__(self, x: NDArray[np.float32], index: NDArray[np.int64], penalty: float) -> None:
        self.x, self._index, self._penalty = x, index, penalty

    def evaluate(self, weights: Floats, classes: NDArray[np.int64]) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Give the objective [K], its gradient [D, K] and which frames lie within the margin [N, K]."""
        value, gradient = 0.5 * np.square(weights).sum(0), weights.copy()
        active = np.empty((len(self.x), len(classes)), np.bool_)
        for at in _blocks(len(self.x), len(classes)):
            rows = self.x[at].astype(np.float64)
            sign = np.where(self._index[at, None] == classes, 1.0, -1.0)
            short = np.maximum(1 - sign * (rows @ weights), 0)
            active[at] = short > 0
            value += self._penalty * np.square(short).sum(0)
            gradient -= 2 * self._penalty * rows.T @ (sign * short)
        return value, gradient, active

    def solve(self, active: NDArray[np.bool_], right: Floats) -> Floats:
        """Solve (I + 2C Xᵀ A X) d = right for each class by conjugate gradients, to a tenth of its size."""
        found, rest = np.zeros_like(right), right.copy()
        direction, size = right.copy(), np.square(right).sum(0)
        goal = 0.01 * size
        for _ in range(CONJUGATE_STEPS):
            product, seen = direction.copy(), direction.astype(np.float32)
            for at in _blocks(len(self.x), active.shape[1]):
                product += 2 * self._penalty * self.x[at].T @ ((self.x[at] @ seen) * active[at])
            # A class that has reached its goal takes no further step.
            step = np.where(size > goal, size / (direction * product).sum(0), 0)
            found += step * direction
            rest -= step * product
            new = np.square(rest).sum(0)
            if (new <= goal).all():
                break
            direction = rest + new / size * direction
            size = new
        return found


def _with_one(x: NDArray[Any]) -> NDArray[np.float32]:
    return np.concatenate([x, np.ones((len(x), 1))], axis=1, dtype=np.float32)


def _blocks(rows: int, columns: int) -> Iterator[slice]:
    size = max(1, BLOCK // columns)
    return (slice(begin, min(begin + size, rows)) for begin in range(0, rows, size))
