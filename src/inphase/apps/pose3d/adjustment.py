"""Bundle adjustment: cameras and bodies that explain the views best, with bones of constant length and smooth motion.

With Y = R_v X[t, j] and g = exp a[v, t], least over rotations R_v, scales s_v, positions b[v, t], approach a[v, t],
joints X[t, j] and lengths ℓ of

    Σ w ρ(‖(s_v g Y₁₂ + b[v, t]) / (1 + k g Y₃) − x[v, t, j]‖² / noise²)     reprojection; ρ is soft L1
    + Σ a[v, t]² / approach² + Σ (a[v, t] − a[v, t−1])² / travel²          a body's way to the camera
    + T (log k − log of the usual one)² / distance²                        distance of the cameras
    + Σ (‖X[t, a] − X[t, b]‖ − ℓ_ab)² / stretch²                           bones; left and right share their ℓ
    + Σ ‖X[t−1] − 2 X[t] + X[t+1]‖² / acceleration²                        motion from frame to frame
    + T Σ (log ℓ_ab − log of what is usual)² / build²                      typical proportions
    + Σ ‖X[t, j] − mirror image of X[t, j′]‖² / 4 deviation_j²               symmetry; j′ is j on the other side
    + Σ ‖middle of the hips at t‖²                                         position belongs to b alone

The query's camera is the frame of reference: its R is 1 and its s what it was. What is nearer to a camera looks larger:
k is one over the distance of the cameras, in torso lengths: one for all of them, near the usual one. One for each takes
up what is due to people's differences. A body that moves towards its camera grows by g. The origin of x is the point at
which the camera looks; what is nearer lies farther from it.
The Jacobian is sparse and analytic.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.sparse import csr_array
from scipy.spatial.transform import Rotation

Array = NDArray[np.float64]
Index = NDArray[np.int64]


# Maximum number of adjustment steps.
ROUNDS = 30
# Bound on the logarithm of a camera's scale, so that a bad trial step does not overflow.
MAX_LOG_SCALE = 20.0
# Bound on the logarithm of the ratio of nearness to its usual value.
MAX_LOG_NEARNESS = 0.8


@dataclass(frozen=True, eq=False)
class Bundle:
    """Cameras and the `joints` [T, J, 3] they observe.

    `rotations` [V, 3, 3], `scales` [V], `positions` [V, T, 2]; `approach` [V, T] is the logarithm of how much larger a
    body appears as it comes nearer; `nearness` is 0 for orthographic cameras.
    """

    rotations: Array
    scales: Array
    positions: Array
    joints: Array
    approach: Array = field(default_factory=lambda: np.zeros((1, 1)))
    nearness: float = 0.0

    def project(self) -> Array:
        """Project the joints into each camera: [V, T, J, 2]."""
        seen = np.einsum("vca,tja->vtjc", self.rotations, self.joints)
        size = self.scales[:, None] * np.exp(self.approach)
        flat = size[..., None, None] * seen[..., :2] + self.positions[:, :, None]
        return np.asarray(self.magnification()[..., None] * flat)

    def magnification(self) -> Array:
        """Return how much larger each joint appears than the hips: [V, T, J]."""
        depth = np.einsum("va,tja->vtj", self.rotations[:, 2], self.joints)
        return _magnify(self.nearness * np.exp(self.approach)[..., None], depth)


@dataclass(frozen=True, eq=False)
class Mirror:
    """The plane between left and right: it holds the middle of the hips.

    `normals` [T, 3] point from right to left; `deviations` [J] are those of the joints from symmetry.
    """

    normals: Array
    deviations: Array

    def asymmetry(self, joints: Array, sides: Index, hips: tuple[int, int]) -> Array:
        """Return half of the way from each joint's mirror image to the joint, [T, J, 3]."""
        other = joints[:, sides]
        away = np.einsum("ta,tja->tj", self.normals, other - joints[:, hips].mean(1, keepdims=True))
        return np.asarray((joints - other) / 2 + away[..., None] * self.normals[:, None])


@dataclass(frozen=True)
class Priors:
    """Standard deviations of the residuals, and the inverse distance of cameras, in torso lengths."""

    noise: float = 0.05  # of a joint in a view, beyond which the error counts linearly
    stretch: float = 0.03  # of a bone
    acceleration: float = 0.1  # of a joint, per frame squared
    build: float = 0.2  # of the logarithm of a bone's length
    approach: float = 0.1  # of the logarithm of a body's size in a view, as it comes nearer
    travel: float = 0.01  # of its change from frame to frame
    symmetry: float = 0.02  # of half of the way between a joint and its mirror image, in symmetric postures
    distance: float = 0.15  # of the logarithm of the distance of the cameras
    nearness: float = 0.11  # one over the usual distance of the cameras: 4.5 meters for a torso of half a meter

    def __post_init__(self) -> None:
        """Raise if a deviation is not positive or nearness is out of range."""
        deviations = (
            self.noise,
            self.stretch,
            self.acceleration,
            self.build,
            self.approach,
            self.travel,
            self.symmetry,
            self.distance,
        )
        if not min(deviations) > 0 or not 0 <= self.nearness < 0.3:
            raise ValueError(f"deviations must be above 0 and nearness between 0 and 0.3; got {self}")


def adjust(
    bundle: Bundle,
    points: Array,
    weights: Array,
    *,
    bones: list[tuple[int, int]],
    usual: Array,
    sides: Index,
    hips: tuple[int, int],
    priors: Priors,
    mirror: Mirror | None = None,
    rounds: int = ROUNDS,
    progress: Callable[[int], None] | None = None,
) -> Bundle:
    """Improve a bundle on points [V, T, J, 2] with weights [V, T, J].

    `usual` are the typical lengths of the bones, NaN where unknown; `sides` [J] the joints' mirror images; bodies are
    nearly symmetric about a `mirror`. `progress` receives the number of steps done. O(V T J) memory and time for each
    of at most `rounds` steps.
    """
    nowhere = Mirror(np.zeros((len(bundle.joints), 3)), np.full(len(sides), np.inf))
    problem = _Problem(
        bundle,
        points,
        weights,
        bones=bones,
        usual=usual,
        sides=sides,
        hips=hips,
        priors=priors,
        mirror=mirror or nowhere,
    )
    steps = 0

    def jacobian(values: Array) -> csr_array:
        nonlocal steps
        steps += 1
        if progress is not None:
            progress(steps)
        return problem.jacobian(values)

    found = least_squares(
        problem.residuals,
        problem.start,
        jac=jacobian,
        method="trf",
        tr_solver="lsmr",
        loss=problem.loss,
        x_scale="jac",
        max_nfev=rounds,
        ftol=1e-5,
        xtol=1e-6,
        tr_options={"regularize": True, "maxiter": 200},
    )
    return problem.read(found.x)


class _Problem:
    """The residuals of a bundle as a function of one vector.

    Its parts are rotations, log scales, positions, approach, joints and log lengths.
    """

    def __init__(
        self,
        bundle: Bundle,
        points: Array,
        weights: Array,
        *,
        bones: list[tuple[int, int]],
        usual: Array,
        sides: Index,
        hips: tuple[int, int],
        priors: Priors,
        mirror: Mirror,
    ) -> None:
        self._bundle, self._priors, self._hips, self._mirror = bundle, priors, np.array(hips), mirror
        # One joint of each pair; those in the middle are their own mirror images.
        self._left = np.flatnonzero((np.arange(len(sides)) <= sides) & np.isfinite(mirror.deviations))
        self._sides = sides
        self._view, self._moment, self._joint = np.nonzero(weights > 0)
        self._points = points[self._view, self._moment, self._joint]
        self._weight = weights[self._view, self._moment, self._joint]
        self._gain = np.sqrt(self._weight) / priors.noise
        self._bones = np.array(bones, dtype=np.int64).reshape(-1, 2)
        self._kind, lengths = _lengths(bundle.joints, self._bones, sides)
        # Each length once, by its first bone.
        build = np.log(usual[[self._kind.tolist().index(kind) for kind in range(len(lengths))]])
        self._built = np.flatnonzero(np.isfinite(build))
        self._build = build[self._built]
        self._build_gain = np.sqrt(points.shape[1]) / priors.build
        views, moments, joints, _ = points.shape
        sizes = [3 * (views - 1), views, 2 * views * moments, views * moments, 3 * moments * joints, len(lengths)]
        self._cuts = np.cumsum(sizes)[:-1]
        self.start = np.concatenate(
            [
                np.zeros(sizes[0]),
                np.log(bundle.scales[1:] / bundle.scales[0]),
                np.log([bundle.nearness / priors.nearness]) if bundle.nearness and priors.nearness else np.zeros(1),
                bundle.positions.ravel(),
                np.broadcast_to(bundle.approach, (views, moments)).ravel(),
                bundle.joints.ravel(),
                np.log(lengths),
            ]
        )
        self._rows, self._columns, self._shape = self._pattern()

    def read(self, values: Array) -> Bundle:
        """Turn the vector back into a bundle."""
        turns, scales, positions, approach, joints, _ = np.split(values, self._cuts)
        bundle = self._bundle
        return Bundle(
            Rotation.from_rotvec(_with_query(turns)).as_matrix() @ bundle.rotations,
            bundle.scales[0]
            * np.exp(np.clip(np.concatenate([np.zeros(1), scales[:-1]]), -MAX_LOG_SCALE, MAX_LOG_SCALE)),
            positions.reshape(bundle.positions.shape),
            joints.reshape(bundle.joints.shape),
            approach.reshape(bundle.positions.shape[:2]),
            self._priors.nearness * float(np.exp(np.clip(scales[-1], -MAX_LOG_NEARNESS, MAX_LOG_NEARNESS))),
        )

    def residuals(self, values: Array) -> Array:
        """Return all residuals, reprojection errors first."""
        seen = self.read(values)
        joints, lengths = seen.joints, np.exp(values[self._cuts[-1] :])
        body = np.einsum("nca,na->nc", seen.rotations[self._view], joints[self._moment, self._joint])
        larger = np.exp(seen.approach[self._view, self._moment])
        size = seen.scales[self._view] * larger
        places = size[:, None] * body[:, :2] + seen.positions[self._view, self._moment]
        places = places * _magnify(seen.nearness * larger, body[:, 2])[:, None]
        stretched = np.linalg.norm(self._along(joints), axis=-1) - lengths[self._kind]
        bent = joints[:-2] - 2 * joints[1:-1] + joints[2:]
        asymmetry = self._mirror.asymmetry(joints, self._sides, (self._hips[0], self._hips[1]))
        parts = [
            self._gain[:, None] * (places - self._points),
            stretched / self._priors.stretch,
            bent / self._priors.acceleration,
            joints[:, self._hips].mean(1),
            self._build_gain * (np.log(lengths)[self._built] - self._build),
            seen.approach / self._priors.approach,
            np.diff(seen.approach, axis=1) / self._priors.travel,
            values[self._cuts[1] - 1 : self._cuts[1]] * np.sqrt(len(joints)) / self._priors.distance,
            asymmetry[:, self._left] / self._mirror.deviations[self._left, None],
        ]
        return np.concatenate([part.ravel() for part in parts])

    def loss(self, squares: Array) -> Array:
        """Apply soft L1 to reprojection errors and squares to the rest: ρ, ρ′ and ρ″, [3, N]."""
        seen = 2 * len(self._points)
        rho = np.stack([squares, np.ones_like(squares), np.zeros_like(squares)])
        weight = np.repeat(self._weight, 2)
        root = np.sqrt(1 + squares[:seen] / weight)
        rho[:, :seen] = 2 * weight * (root - 1), 1 / root, -0.5 / weight / root**3
        return rho

    def _along(self, joints: Array) -> Array:
        return np.asarray(joints[:, self._bones[:, 1]] - joints[:, self._bones[:, 0]])  # [T, bones, 3]

    def jacobian(self, values: Array) -> csr_array:
        """Fill the sparse matrix of derivatives."""
        seen = self.read(values)
        joints, lengths, turns = seen.joints, np.exp(values[self._cuts[-1] :]), _with_query(values[: self._cuts[0]])
        rotation = seen.rotations[self._view]
        body = np.einsum("nca,na->nc", rotation, joints[self._moment, self._joint])
        near = seen.nearness * np.exp(seen.approach[self._view, self._moment])
        larger = _magnify(near, body[:, 2])
        by_position = self._gain * larger
        size = by_position * seen.scales[self._view] * np.exp(seen.approach[self._view, self._moment])
        places = size[:, None] * body[:, :2] + by_position[:, None] * seen.positions[self._view, self._moment]
        # Derivative of the image position by the body in camera coordinates, [N, 2, 3].
        by_body = np.zeros((len(body), 2, 3))
        by_body[:, 0, 0] = by_body[:, 1, 1] = size
        by_body[:, :, 2] = -(larger * near)[:, None] * places
        by_approach = size[:, None] * body[:, :2] + by_body[:, :, 2] * body[:, 2:]
        by_turn = -by_body @ _cross(body) @ _left_jacobian(turns)[self._view]
        by_joint = by_body @ rotation
        by_scale = size[:, None] * body[:, :2]
        moving = self._view > 0
        along = self._along(joints)
        unit = along / np.maximum(np.linalg.norm(along, axis=-1, keepdims=True), 1e-9) / self._priors.stretch
        ones = np.ones(joints[2:].size) / self._priors.acceleration
        normals = self._mirror.normals
        away = (normals[:, None] * normals[..., None])[:, None] / self._mirror.deviations[self._left, None, None]
        half = np.broadcast_to(0.5 * np.eye(3) / self._mirror.deviations[self._left, None, None], away.shape)
        values_in_order = [
            by_turn[moving], by_scale[moving], by_body[:, :, 2] * body[:, 2:],
            np.repeat(by_position, 2), by_approach, by_joint,
            unit, -unit, np.broadcast_to(-lengths[self._kind] / self._priors.stretch, along.shape[:2]),
            ones, -2 * ones, ones,
            np.full(2 * 3 * len(joints), 0.5),
            np.full(len(self._built), self._build_gain),
            np.full(seen.approach.size, 1 / self._priors.approach),
            np.full(seen.approach[:, 1:].size, 1 / self._priors.travel),
            np.full(seen.approach[:, 1:].size, -1 / self._priors.travel),
            np.full(1, np.sqrt(len(joints)) / self._priors.distance),
            half, away - half, -away / 2, -away / 2,
        ]  # fmt: skip
        data = np.concatenate([part.ravel() for part in values_in_order])
        return csr_array((data, (self._rows, self._columns)), shape=self._shape)

    def _pattern(self) -> tuple[Index, Index, tuple[int, int]]:
        """Return the sparsity pattern, in the order in which `jacobian` lists its values."""
        moments, joints, _ = self._bundle.joints.shape
        turn, (scale, position, approach, joint, length) = 0, self._cuts
        place = joint + np.arange(moments * joints * 3).reshape(moments, joints, 3)
        seen = np.arange(2 * len(self._points)).reshape(-1, 2)
        moving = self._view > 0
        camera = self._view[moving] - 1
        at_bone = seen.size + np.arange(moments * len(self._bones)).reshape(moments, -1)
        at_bend = seen.size + at_bone.size + np.arange(place[2:].size).reshape(place[2:].shape)
        at_hips = seen.size + at_bone.size + at_bend.size + np.arange(3 * moments).reshape(moments, 3)
        at_build = at_hips.max() + 1 + np.arange(len(self._built))
        views = len(self._bundle.scales)
        size = approach + np.arange(views * moments).reshape(views, moments)
        at_size = at_hips.max() + 1 + len(self._built) + np.arange(views * moments).reshape(views, moments)
        at_step = at_size.max() + 1 + np.arange(views * (moments - 1)).reshape(views, moments - 1)
        at_mirror = at_step.max() + 2 + np.arange(3 * moments * len(self._left)).reshape(moments, -1, 3, 1)
        hips = place[:, self._hips][:, :, None, None]
        where_position = position + 2 * (self._view * moments + self._moment)
        blocks = [
            (seen[moving][..., None], turn + 3 * camera[:, None, None] + np.arange(3)),
            (seen[moving], scale + camera[:, None]),
            (seen, np.full((len(seen), 1), position - 1)),
            (seen, where_position[:, None] + np.arange(2)),
            (seen, size[self._view, self._moment][:, None]),
            (seen[..., None], place[self._moment, self._joint][:, None]),
            (at_bone[..., None], place[:, self._bones[:, 1]]),
            (at_bone[..., None], place[:, self._bones[:, 0]]),
            (at_bone, length + self._kind),
            (at_bend, place[:-2]),
            (at_bend, place[1:-1]),
            (at_bend, place[2:]),
            (at_hips[:, None], place[:, self._hips]),
            (at_build, length + self._built),
            (at_size, size),
            (at_step, size[:, 1:]),
            (at_step, size[:, :-1]),
            (np.full(1, at_step.max() + 1), np.full(1, position - 1)),
            (at_mirror, place[:, self._left][:, :, None]),
            (at_mirror, place[:, self._sides[self._left]][:, :, None]),
            (at_mirror, hips[:, 0]),
            (at_mirror, hips[:, 1]),
        ]  # fmt: skip
        pairs = [np.broadcast_arrays(row, column) for row, column in blocks]
        rows, columns = (np.concatenate([pair[side].ravel() for pair in pairs]) for side in (0, 1))
        return rows, columns, (int(at_step.max()) + 2 + at_mirror.size, len(self.start))


def _lengths(joints: Array, bones: Index, sides: Index) -> tuple[Index, Array]:
    """Number the lengths of bones, shared by left and right, and initialize them with the median over time."""
    names = [min(sorted(bone), sorted(sides[bone].tolist())) for bone in bones.tolist()]
    kind = np.array([names.index(name) for name in names], dtype=np.int64)
    kind = np.unique(kind, return_inverse=True)[1]
    measured = np.median(np.linalg.norm(joints[:, bones[:, 0]] - joints[:, bones[:, 1]], axis=-1), axis=0)
    lengths = [float(measured[kind == number].mean()) for number in range(kind.max() + 1 if len(kind) else 0)]
    return kind, np.maximum(np.array(lengths), 1e-3)


def _with_query(turns: Array) -> Array:
    """Prepend the query's camera, which does not rotate: [V, 3]."""
    return np.concatenate([np.zeros((1, 3)), turns.reshape(-1, 3)])


def _magnify(nearness: float | Array, depth: Array) -> Array:
    """Return the perspective magnification at a depth relative to the hips, bounded near the camera."""
    return np.asarray(1 / np.maximum(1 + nearness * depth, 0.2))


def _cross(vectors: Array) -> Array:
    """Return the cross-product matrices [N, 3, 3] of vectors [N, 3]."""
    matrix = np.zeros((len(vectors), 3, 3))
    for a, b, c in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        matrix[:, a, b], matrix[:, b, a] = -vectors[:, c], vectors[:, c]
    return matrix


def _left_jacobian(turns: Array) -> Array:
    """Return the left Jacobian J of rotation vectors [V, 3]: exp(ω + δ) ≈ exp(J δ) exp(ω)."""
    angle = np.maximum(np.linalg.norm(turns, axis=-1), 1e-12)[:, None, None]
    axis = turns / angle[:, :, 0]
    small = np.sin(angle) / angle
    outer = axis[:, :, None] * axis[:, None, :]
    return np.asarray(small * np.eye(3) + (1 - small) * outer + (1 - np.cos(angle)) / angle * _cross(axis))
