"""Tomasi–Kanade factorization with missing joints, and its metric upgrade.

Each of V videos sees the shape X [T, J, 3], the same for all, through one affine camera A_v [2, 3]:

    x[v, t, j] = A_v X[t, j] + b[v, t]

One camera per video and not one per frame: cameras hardly rotate during an action, and 2V equations of 13 joints at one
frame barely constrain 6V camera parameters. The position b in the image is free at every frame, so cameras may pan and
bodies may travel.

Tomasi, Kanade, "Shape and motion from image streams under orthography", IJCV 1992.

Orthographic views leave a depth reversal: from very far, a body and its mirror image turned the other way round project
alike in every view. Two cues distinguish them: knees bend forwards and elbows backwards, where left and up define
forwards; and an occluded joint is more often behind the body than before it.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Factors:
    """Affine `cameras` [V, 2, 3] and the `shape` [T, J, 3] they see, both up to one invertible 3 × 3 matrix."""

    cameras: Array
    shape: Array


@dataclass(frozen=True, eq=False)
class Bones:
    """Pairs of joints [N, 2] and their typical distances [N], in any unit."""

    pairs: NDArray[np.int64]
    lengths: Array
    gain: float = 1.0  # of proportions that are wrong by a factor of e against axes that are not orthonormal

    def log_proportions(self, shape: Array, root: Array) -> Array:
        """Return the log ratio of the proportions of root⁻¹·shape to the typical ones: [N]."""
        along = _undo(root, shape[:, self.pairs[:, 1]] - shape[:, self.pairs[:, 0]])
        found = np.log(np.maximum((along**2).sum(-1).mean(0), 1e-12)) / 2 - np.log(self.lengths)
        return self.gain * np.asarray(found - found.mean())


def factorize(
    points: Array, weights: Array, *, start: Factors | None = None, rounds: int = 300, tolerance: float = 1e-10
) -> Factors:
    """Find cameras and shape of least Σ w ‖x − A X − b‖² by alternating least squares.

    `points` [V, T, J, 2], `weights` [V, T, J], 0 where unseen. Given the shape, each camera is a separate linear
    problem; given the cameras, each frame is. The rounds stop when one lowers the error by less than the fraction
    `tolerance`. O(T (V J² + J³)) per round.
    """
    factors = start or _impute(points, weights)
    cameras, shape = factors.cameras, factors.shape
    centered = center(points, weights)
    # [T, V, J, J]: weights the joints and eliminates the position b, one for each view and frame.
    total = np.maximum(weights.sum(-1), 1e-12)
    projector = -weights[..., :, None] * weights[..., None, :] / total[..., None, None]
    projector[..., np.arange(points.shape[2]), np.arange(points.shape[2])] += weights
    before = np.inf
    for _ in range(rounds):
        cameras = fit_cameras(centered, shape, weights)
        shape = _fit_shape(points, cameras, projector, last=shape)
        # The error is the same for A·G and G⁻¹·X: keep the shape's axes of unit spread, or its scale drifts.
        cameras, shape = _whiten(cameras, shape)
        error = float(np.sum(weights[..., None] * residuals(points, weights, cameras, shape) ** 2))
        if error >= (1 - tolerance) * before:
            break
        before = error
    return Factors(cameras, shape)


def center(values: Array, weights: Array) -> Array:
    """Subtract the weighted mean over joints from values [V, T, J, C]."""
    total = np.maximum(weights.sum(-1), 1e-12)[..., None, None]
    return np.asarray(values - (weights[..., None] * values).sum(2, keepdims=True) / total)


def residuals(points: Array, weights: Array, cameras: Array, shape: Array) -> Array:
    """Return the residuals of points [V, T, J, 2] after cameras, shape and the best position of each frame."""
    return center(points - np.einsum("vca,tja->vtjc", cameras, shape), weights)


def _impute(points: Array, weights: Array, *, rounds: int = 10) -> Factors:
    """Initialize by iterative rank-3 imputation."""
    views, moments, joints, _ = points.shape
    seen = (weights > 0)[..., None]
    filled = np.where(seen, center(points, weights), 0.0)
    for _ in range(rounds):
        matrix = filled.transpose(0, 3, 1, 2).reshape(2 * views, -1)
        left, values, right = np.linalg.svd(matrix, full_matrices=False)
        guess = ((left[:, :3] * values[:3]) @ right[:3]).reshape(views, 2, moments, joints).transpose(0, 2, 3, 1)
        filled = np.where(seen, filled, guess)
    shape = right[:3].T.reshape(moments, joints, 3) * np.sqrt(moments * joints)
    return Factors((left[:, :3] * values[:3]).reshape(views, 2, 3) / np.sqrt(moments * joints), shape)


def fit_cameras(centered: Array, shape: Array, weights: Array) -> Array:
    """Solve for each camera with the shape given: [V, 2, 3]."""
    body = center(np.broadcast_to(shape, (len(centered), *shape.shape)), weights)
    weighted = weights[..., None] * body
    gram = np.einsum("vtja,vtjb->vab", weighted, body)
    right = np.einsum("vtja,vtjc->vac", weighted, centered)
    ridge = 1e-9 * np.trace(gram, axis1=1, axis2=2)[:, None, None] * np.eye(3) + 1e-12 * np.eye(3)
    return np.asarray(np.linalg.solve(gram + ridge, right).transpose(0, 2, 1))


def _fit_shape(points: Array, cameras: Array, projector: Array, *, last: Array) -> Array:
    """Solve for the shape of each frame given the cameras: [T, J, 3]; joints without an observation keep `last`."""
    moments, joints = last.shape[:2]
    grams = np.einsum("vca,vcb->vab", cameras, cameras)
    normal = np.tensordot(projector, grams, axes=(0, 0))  # [T, J, J, 3, 3]
    normal = normal.transpose(0, 1, 3, 2, 4).reshape(moments, 3 * joints, 3 * joints)
    seen = np.einsum("vtjk,vtkc->vtjc", projector, points)
    right = np.tensordot(seen, cameras, axes=((0, 3), (0, 1))).reshape(moments, 3 * joints, 1)
    ridge = 1e-9 * max(float(np.trace(normal, axis1=1, axis2=2).max()), 1e-9)
    damped = normal + ridge * np.eye(3 * joints)
    return np.asarray(np.linalg.solve(damped, right + ridge * last.reshape(moments, -1, 1)).reshape(last.shape))


def _whiten(cameras: Array, shape: Array) -> tuple[Array, Array]:
    """Whiten the shape: unit variance of joints about the mean of their frame, in every direction."""
    body = (shape - shape.mean(1, keepdims=True)).reshape(-1, 3)
    factor = np.linalg.cholesky(body.T @ body / len(body) + 1e-12 * np.eye(3))
    return cameras @ factor, _undo(factor, shape)


def _undo(matrix: Array, shape: Array) -> Array:
    """Apply the inverse of a change of the cameras to the shape: [T, J, 3]."""
    return np.asarray(np.linalg.solve(matrix, shape.reshape(-1, 3).T).T.reshape(shape.shape), np.float64)


def upgrade(factors: Factors, weights: Array | None = None, *, bones: Bones | None = None) -> tuple[Factors, bool]:
    """Find the 3 × 3 matrix that makes every camera a scaled orthographic one, and apply it.

    With B = A·G both rows of every B are equally long and perpendicular: linear in Q = G Gᵀ, two equations per
    camera. Where noise makes Q indefinite or nearly so, nonlinear least squares with a robust loss finds G itself, as a
    triangular matrix; `weights` [V] weight the cameras. Cameras on one
    side of the body barely constrain its depth (the bas-relief ambiguity); there `bones` of typical proportions decide.
    Returns the factors, up to a rotation and a reflection, and whether the linear solution was positive definite.
    """
    trust = np.ones(len(factors.cameras)) if weights is None else weights
    gram = _linear_gram(factors.cameras, trust)
    values, vectors = np.linalg.eigh(gram)
    definite = bool(values[0] > 1e-3 * values[2])
    floor = np.maximum(values, 0.05 * values[2])
    start = np.linalg.cholesky((vectors * floor) @ vectors.T)
    lower = np.tril_indices(3)

    def misfit(entries: Array) -> Array:
        root = np.zeros((3, 3))
        root[lower] = entries
        skewness = (np.sqrt(trust)[:, None] * _skewness(factors.cameras @ root)).ravel()
        return skewness if bones is None else np.concatenate([skewness, bones.log_proportions(factors.shape, root)])

    found = least_squares(misfit, start[lower], loss="soft_l1", f_scale=0.2, x_scale="jac").x
    root = np.zeros((3, 3))
    root[lower] = found
    # A matrix close to singular would flatten the body: the start is better than that.
    if np.linalg.cond(root) > 1e3:
        root = start
    cameras = factors.cameras @ root
    scale = float(np.median(np.sqrt((cameras**2).sum((1, 2)) / 2)))
    return Factors(cameras / scale, _undo(root, factors.shape) * scale), definite


def _linear_gram(cameras: Array, weights: Array) -> Array:
    """Solve a₁ᵀQa₁ = a₂ᵀQa₂ and a₁ᵀQa₂ = 0 of all cameras for a symmetric Q of positive trace."""

    def row(a: Array, b: Array) -> Array:
        product = a[:, :, None] * b[:, None, :]
        both = product + product.transpose(0, 2, 1)
        i, j = np.triu_indices(3, k=1)
        return np.concatenate([np.diagonal(product, axis1=1, axis2=2), both[:, i, j]], axis=1)

    size = np.maximum((cameras**2).sum((1, 2)), 1e-12)[:, None]
    first, second = cameras[:, 0], cameras[:, 1]
    rows = np.concatenate([(row(first, first) - row(second, second)) / size, 2 * row(first, second) / size])
    rows = rows * np.sqrt(np.tile(weights, 2))[:, None]
    q = np.linalg.svd(rows)[2][-1]
    gram = np.array([[q[0], q[3], q[4]], [q[3], q[1], q[5]], [q[4], q[5], q[2]]])
    return gram if np.trace(gram) > 0 else -gram


def _skewness(cameras: Array) -> Array:
    """Measure how far cameras [V, 2, 3] are from scaled orthographic ones: [V, 2], 0 where they are."""
    lengths = (cameras**2).sum(-1)
    total = np.maximum(lengths.sum(-1), 1e-12)
    across = 2 * (cameras[:, 0] * cameras[:, 1]).sum(-1)
    return np.stack([(lengths[:, 0] - lengths[:, 1]) / total, across / total], -1)


def orthonormalize(cameras: Array) -> tuple[Array, Array]:
    """Split cameras [V, 2, 3] into rotations [V, 3, 3], the nearest ones, and scales [V]."""
    left, values, right = np.linalg.svd(cameras, full_matrices=False)
    rows = left @ right
    return np.concatenate([rows, np.cross(rows[:, 0], rows[:, 1])[:, None]], axis=1), values.mean(-1)


def reflect(rotations: Array, joints: Array) -> tuple[Array, Array]:
    """Negate depth in the query's frame: return the cameras and the body that project alike."""
    other = np.diag([1.0, 1.0, -1.0])
    rows = rotations[:, :2] @ other
    return np.concatenate([rows, np.cross(rows[:, 0], rows[:, 1])[:, None]], axis=1), joints @ other


def uprightness_votes(joints: Array, names: tuple[str, ...]) -> Array:
    """Measure how far knees bend forwards and elbows backwards: [2] mean torso lengths, above 0 for a human body."""
    at = {name: joints[:, index] for index, name in enumerate(names)}
    left = at["left_shoulder"] - at["right_shoulder"] + at["left_hip"] - at["right_hip"]
    up = at["left_shoulder"] + at["right_shoulder"] - at["left_hip"] - at["right_hip"]
    forward = np.cross(left, up)
    forward /= np.maximum(np.linalg.norm(forward, axis=-1, keepdims=True), 1e-9)
    votes = np.zeros(2)
    for number, (limb, sign) in enumerate(((("hip", "knee", "ankle"), 1.0), (("shoulder", "elbow", "wrist"), -1.0))):
        for side in ("left", "right"):
            if all(f"{side}_{part}" in at for part in limb):
                start, middle, end = (at[f"{side}_{part}"] for part in limb)
                votes[number] += sign * float(np.mean(((middle - (start + end) / 2) * forward).sum(-1))) / 2
    return votes


def occlusion_vote(rotations: Array, joints: Array, seen: NDArray[np.bool_], trust: Array) -> float:
    """Measure how far unseen joints lie behind seen ones, in torso lengths, mean over views and frames."""
    depth = np.einsum("va,tja->vtj", rotations[:, 2], joints)
    hidden = ~seen
    both = seen.any(-1) & hidden.any(-1)
    if not both.any():
        return 0.0
    behind, before = ((depth * which).sum(-1) / np.maximum(which.sum(-1), 1) for which in (hidden, seen))
    weights = trust * both
    return float((weights * (behind - before)).sum() / max(weights.sum(), 1e-9))


def procrustes(points: Array, target: Array, *, reflection: bool = False) -> Array:
    """Rotate, scale and translate points [N, 3] to minimize the distance to the target [N, 3]; reflect if allowed."""
    middle, goal = points.mean(0), target.mean(0)
    left, values, right = np.linalg.svd((points - middle).T @ (target - goal))
    signs = np.ones(3)
    if not reflection and np.linalg.det(left @ right) < 0:
        signs[2] = -1
    scale = (values * signs).sum() / max(float(((points - middle) ** 2).sum()), 1e-12)
    return np.asarray(scale * (points - middle) @ (left * signs) @ right + goal)


# Bone lengths in torso lengths.
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
    """Return the typical length of each bone, NaN where none is listed."""
    names = [tuple(sorted(joints[end].removeprefix("left_").removeprefix("right_") for end in bone)) for bone in bones]
    return np.array([_TYPICAL.get((name[0], name[1]), np.nan) for name in names])
