"""Reconstruct a 3-D body at every frame of the query from aligned views: factorization, then bundle adjustment."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from inphase.apps.pose3d.adjustment import ROUNDS, Bundle, Mirror, Priors, adjust
from inphase.apps.pose3d.factorization import (
    Bones,
    Factors,
    center,
    factorize,
    fit_cameras,
    occlusion_vote,
    orthonormalize,
    reflect,
    residuals,
    typical_lengths,
    upgrade,
    uprightness_votes,
)
from inphase.apps.pose3d.views import HIPS, SHOULDERS, Reconstruction, Views
from inphase.pose.pose import bones, fill_hidden, mirrored

Array = NDArray[np.float64]

# A view whose error is this many times the median of all views has a quarter of the weight.
ERROR_TOLERANCE = 2.0
# A view with less trust than this does not count as used.
MIN_TRUST = 0.25
# In the second round bones may be this many times stiffer, and the query may count this many times more.
MAX_STIFFENING, MAX_QUERY_GAIN = 3.0, 5.0
# Joints this far from symmetry, in torso lengths, are held near it half as strongly, and those twice as far hardly.
# This share of their mean over time does not count: errors of depth are often constant, and a gait alternates.
MAX_ASYMMETRY, CONSTANT_SHARE = 0.09, 0.7
# The unit of a view differs at most this many times from that of the others.
MAX_UNIT_RATIO = 4.0
# A torso this many times longer than in the query is implausible: the search ended in a wrong minimum.
MAX_FORESHORTENING = 3.0
# Views that are farther off than this in the middle, in torso lengths, are not explained at all.
MAX_ERROR = 0.5
# Typical depth of joints before (−) or behind the body, in torso lengths: the initial bend of a flat body.
INITIAL_DEPTHS = {"elbow": 0.1, "wrist": -0.3, "knee": -0.1, "ankle": 0.1, "head": -0.1}


def reconstruct(
    views: Views,
    *,
    adjusts: bool = True,
    priors: Priors | None = None,
    query_weight: float = 10.0,
    flips: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Reconstruction:
    """Reconstruct the body at every frame of the query.

    The steps: factorization with one camera per video, metric upgrade, the choice between the two mirror bodies, flips
    of views that fit better as mirror images, then, if `adjusts`, bundle adjustment with `priors`. If factorization is
    implausible, it is repeated with a query that weighs no more than the others; if that is implausible too, bundle
    adjustment also runs from cameras that all face as the query's does, and the better result is taken. Views that
    disagree with the others are down-weighted frame by frame. The query has weight `query_weight`: it shows the person
    and the moment themselves, the other views contribute depth. `progress(done, total)` reports percent.
    """

    def report(fraction: float) -> None:
        if progress is not None:
            progress(round(100 * fraction), 100)

    start = _start(views, query_weight=query_weight, flips=flips)
    report(0.5)
    if not adjusts:
        return _collect(start.views, start.bundle, start.trust, start.flipped)
    if start.implausible:
        # A heavy query may explain its own deviations by a third dimension that no other view has.
        equal = _start(views, query_weight=1.0, flips=flips)
        start = start if equal.implausible else equal
    best = _adjust(start, query_weight=query_weight, priors=priors, report=report)
    if start.implausible:
        facing = replace(start, views=views, bundle=_facing(views), flipped=np.zeros_like(start.flipped))
        other = _adjust(facing, query_weight=query_weight, priors=priors, report=report)
        best = min(best, other, key=_doubt)
    report(1.0)
    return best.found


@dataclass(frozen=True, eq=False)
class _Start:
    """The initialization of bundle adjustment; the `flipped` views already have left and right exchanged."""

    views: Views
    bundle: Bundle
    trust: Array
    flipped: NDArray[np.bool_]

    @property
    def implausible(self) -> bool:
        """Whether the torso is much longer than in the query."""
        return bool(self.bundle.scales[0] > MAX_FORESHORTENING)


def _start(views: Views, *, query_weight: float, flips: bool) -> _Start:
    """Factorize the views; again if some fit better as mirror images."""
    bundle, trust = _factorize(views, query_weight=query_weight)
    flipped = _flips(views, bundle) if flips else np.zeros(len(views.names), np.bool_)
    if flipped.any():
        views = _flip(views, flipped)
        bundle, trust = _factorize(views, query_weight=query_weight)
    return _Start(views, bundle, trust, flipped)


@dataclass(frozen=True, eq=False)
class _Adjusted:
    """An adjusted reconstruction, and whether its torso is implausibly longer than in the query."""

    found: Reconstruction
    implausible: bool


def _doubt(each: _Adjusted) -> tuple[bool, float]:
    """Return the key by which the best of several is found: first whether it is to be doubted, then its error."""
    error = float(np.nanmedian(each.found.error))
    return each.implausible or error > MAX_ERROR, error


def _adjust(start: _Start, *, query_weight: float, priors: Priors | None, report: Callable[[float], None]) -> _Adjusted:
    """Run bundle adjustment twice, updating the trust of views, the query and rigid bones in between."""
    views, bundle, middle = start.views, start.bundle, _middles(start.views)
    # The scale of a view that factorization could not fit is no unit.
    typical = float(np.median(bundle.scales))
    unit = np.clip(bundle.scales, typical / MAX_UNIT_RATIO, typical * MAX_UNIT_RATIO)
    views, bundle = _in_camera_units(views, bundle, middle, unit)
    trust, settings = _trust(views, views.points - bundle.project()), priors or Priors()
    mirror: Mirror | None = None
    for part in range(2):
        if part:
            settings, query_weight = _sharpen(views, bundle, settings, query_weight=query_weight)
            mirror = _mirror(views, bundle.joints, settings)
        bundle = adjust(
            bundle,
            views.points,
            _weights(views, trust, query_weight=query_weight),
            bones=bones(views.joints),
            usual=typical_lengths(views.joints, bones(views.joints)),
            sides=mirrored(views.joints),
            hips=(views.joints.index(HIPS[0]), views.joints.index(HIPS[1])),
            priors=settings,
            mirror=mirror,
            progress=partial(_report_steps, report, 0.5 + 0.25 * part),
        )
        trust = _trust(views, views.points - bundle.project())
    found = _collect(views, bundle, trust, start.flipped)
    found = replace(found, travel=found.travel + middle[0] / unit[0] / bundle.scales[0])
    return _Adjusted(found, start.implausible)


def _middles(views: Views) -> Array:
    """Return the middle of the joints that each view shows, [V, 2]: about where its camera looks."""
    shown = [
        points[seen] if seen.any() else np.zeros((1, 2)) for points, seen in zip(views.points, views.seen, strict=True)
    ]
    return np.stack([(points.min(0) + points.max(0)) / 2 for points in shown])


def _in_camera_units(views: Views, bundle: Bundle, middle: Array, unit: Array) -> tuple[Views, Bundle]:
    """Express each view in torso lengths of its camera about its middle: foreshortened torsos count no less."""
    points = (views.points - middle[:, None, None]) / unit[:, None, None, None]
    positions = (bundle.positions - middle[:, None]) / unit[:, None, None]
    scaled = replace(bundle, scales=bundle.scales / unit, positions=positions)
    return replace(views, points=points), scaled


def _sharpen(views: Views, bundle: Bundle, priors: Priors, *, query_weight: float) -> tuple[Priors, float]:
    """Stiffen bones that hardly stretched, and trust a query that hardly jitters, up to five times more.

    The jitter is the median second difference of the query's joints. Bones that do stretch show that its joints are
    not exact, however steady they are.
    """
    pairs = np.array(bones(views.joints))
    lengths = np.linalg.norm(bundle.joints[:, pairs[:, 1]] - bundle.joints[:, pairs[:, 0]], axis=-1)
    stretched = float(((lengths - np.median(lengths, axis=0)) ** 2).mean())
    stretch = float(np.clip(1.5 * stretched / priors.stretch, priors.stretch / MAX_STIFFENING, priors.stretch))
    points, seen = views.points[0], views.seen[0]
    steps = np.abs(np.diff(points, n=2, axis=0))[seen[:-2] & seen[1:-1] & seen[2:]]
    # Second differences of noise have √6 times its deviation, whose median is 0.67 deviations.
    jitter = float(np.median(steps)) / 0.67 / np.sqrt(6) if len(steps) else np.inf
    steady = min((priors.noise / max(2 * jitter, 1e-9)) ** 2, MAX_QUERY_GAIN * query_weight)
    rigid = (priors.stretch / MAX_STIFFENING / stretch) ** 2
    return replace(priors, stretch=stretch), max(steady * rigid, query_weight)


def _mirror(views: Views, joints: Array, priors: Priors) -> Mirror:
    """Find the plane between left and right at every frame, and how symmetric each joint is over all frames."""
    ends = [[views.joints.index(pair[side]) for pair in (HIPS, SHOULDERS)] for side in (0, 1)]
    across = joints[:, ends[0]].sum(1) - joints[:, ends[1]].sum(1)
    normals = across / np.maximum(np.linalg.norm(across, axis=-1, keepdims=True), 1e-9)
    mirror = Mirror(normals, np.full(len(views.joints), priors.symmetry))
    hips = (views.joints.index(HIPS[0]), views.joints.index(HIPS[1]))
    away = mirror.asymmetry(joints, mirrored(views.joints), hips)
    found = np.sqrt(((away - CONSTANT_SHARE * away.mean(0)) ** 2).sum(-1).mean(0))
    return replace(mirror, deviations=priors.symmetry * (1 + (found / MAX_ASYMMETRY) ** 4))


def _facing(views: Views) -> Bundle:
    """Initialize with all cameras facing as the query's does and a nearly flat body.

    If the cameras do look along one line, the third dimension of the views is noise, and factorization turns it into a
    body that lies along the line of sight.
    """
    count, moments, joints, _ = views.points.shape
    body = np.zeros((moments, joints, 3))
    body[..., :2] = fill_hidden(views.points[0], views.seen[0])
    for joint, name in enumerate(views.joints):
        body[:, joint, 2] = next((depth for part, depth in INITIAL_DEPTHS.items() if part in name), 0.0)
    weights = views.seen.astype(np.float64)
    seen, flat = center(views.points, weights), center(np.tile(body[..., :2], (count, 1, 1, 1)), weights)
    scales = (weights[..., None] * seen * flat).sum((1, 2, 3)) / (weights[..., None] * flat**2).sum((1, 2, 3))
    rotations, positions = np.tile(np.eye(3), (count, 1, 1)), np.zeros((count, moments, 2))
    bundle = Bundle(rotations, np.maximum(scales, 0.1), positions, body)
    return _centered(views, bundle, np.ones((count, moments)))


def _report_steps(report: Callable[[float], None], before: float, steps: int) -> None:
    report(before + 0.25 * min(steps / ROUNDS, 1))


def _factorize(views: Views, *, query_weight: float, rounds: int = 4) -> tuple[Bundle, Array]:
    """Factorize by iteratively reweighted least squares, then upgrade to metric cameras."""
    trust = np.ones(views.points.shape[:2])
    factors: Factors | None = None
    for _ in range(rounds):
        weights = _weights(views, trust, query_weight=query_weight)
        factors = factorize(views.points, weights, start=factors, rounds=60, tolerance=1e-4)
        trust = _trust(views, residuals(views.points, weights, factors.cameras, factors.shape))
    assert factors is not None
    metric, _ = upgrade(factors, trust.mean(1), bones=_known_bones(views.joints))
    rotations, scales = orthonormalize(metric.cameras)
    joints = metric.shape @ rotations[0].T
    rotations = rotations @ rotations[0].T
    return _centered(views, _resolve_depth_reversal(views, rotations, scales, joints, trust), trust), trust


def _known_bones(joints: tuple[str, ...]) -> Bones | None:
    """Return the bones that have a typical length."""
    pairs, lengths = np.array(bones(joints)), typical_lengths(joints, bones(joints))
    known = np.isfinite(lengths)
    return Bones(pairs[known], lengths[known]) if known.any() else None


def _resolve_depth_reversal(views: Views, rotations: Array, scales: Array, joints: Array, trust: Array) -> Bundle:
    """Choose between the body and its depth reversal, which project alike."""
    votes = float(uprightness_votes(joints, views.joints).sum())
    votes += occlusion_vote(rotations, joints, views.seen, trust)
    if votes < 0:
        rotations, joints = reflect(rotations, joints)
    return Bundle(rotations, scales, np.zeros((*views.points.shape[:2], 2)), joints)


def _centered(views: Views, bundle: Bundle, trust: Array) -> Bundle:
    """Center the hips at the origin, scale the torso to unit length, and fit the positions."""
    hips, shoulders = (_middle(bundle.joints, views.joints, pair) for pair in (HIPS, SHOULDERS))
    size = float(np.median(np.linalg.norm(shoulders - hips, axis=-1)))
    nowhere = np.zeros_like(bundle.positions)
    joints, scales = (bundle.joints - hips[:, None]) / size, bundle.scales * size
    nearness = bundle.nearness * size
    bundle = replace(bundle, joints=joints, scales=scales, positions=nowhere, nearness=nearness)
    larger = bundle.magnification()[..., None]
    weights = _weights(views, np.ones_like(trust), query_weight=1.0)[..., None] * larger
    left = (weights * (views.points - bundle.project())).sum(2) / np.maximum((weights * larger).sum(2), 1e-12)
    return replace(bundle, positions=left)


def _middle(joints: Array, names: tuple[str, ...], pair: tuple[str, ...]) -> Array:
    return np.asarray(joints[:, [names.index(name) for name in pair]].mean(1))


def _weights(views: Views, trust: Array, *, query_weight: float) -> Array:
    """Weight observations by view trust; upweight the query view."""
    weights = trust.copy()
    weights[0] = query_weight
    return np.asarray(views.seen * weights[..., None])


def _trust(views: Views, left: Array) -> Array:
    """Compute the trust of each view at each frame, [V, T], from the residuals [V, T, J, 2] of its joints."""
    count = np.maximum(views.seen.sum(-1), 1)
    error = np.sqrt((views.seen * (left**2).sum(-1)).sum(-1) / count)
    shown = views.seen.sum(-1) >= 3
    typical = max(float(np.median(error[1:][shown[1:]])) if shown[1:].any() else 0.0, 1e-6)
    return np.asarray(shown / (1 + (error / (ERROR_TOLERANCE * typical)) ** 2) ** 2)


def _flips(views: Views, bundle: Bundle, *, clearly: float = 0.8) -> NDArray[np.bool_]:
    """Find views that fit clearly better with left and right exchanged: people of the opposite handedness."""
    order = mirrored(views.joints)
    errors = []
    for points, seen in ((views.points, views.seen), (views.points[:, :, order], views.seen[:, :, order])):
        weights = seen.astype(np.float64)
        cameras = _orthographic(fit_cameras(center(points, weights), bundle.joints, weights))
        left = residuals(points, weights, cameras, bundle.joints)
        errors.append(np.sqrt((weights[..., None] * left**2).sum((1, 2, 3)) / np.maximum(weights.sum((1, 2)), 1)))
    flipped = errors[1] < clearly * errors[0]
    flipped[0] = False
    return np.asarray(flipped)


def _orthographic(cameras: Array) -> Array:
    """Project affine cameras [V, 2, 3] to scaled orthographic ones, which cannot squeeze a body."""
    rotations, scales = orthonormalize(cameras)
    return np.asarray(scales[:, None, None] * rotations[:, :2])


def _flip(views: Views, flipped: NDArray[np.bool_]) -> Views:
    """Exchange left and right joints in some views."""
    order = mirrored(views.joints)
    points = np.where(flipped[:, None, None, None], views.points[:, :, order], views.points)
    return replace(views, points=points, seen=np.where(flipped[:, None, None], views.seen[:, :, order], views.seen))


def _collect(views: Views, bundle: Bundle, trust: Array, flipped: NDArray[np.bool_]) -> Reconstruction:
    """Collect the joints, their errors and their confidence."""
    bundle = _centered(views, bundle, trust)
    weights = views.seen * trust[..., None]
    squares = ((views.points - bundle.project()) ** 2).sum(-1) / bundle.scales[:, None, None] ** 2
    total = weights.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.sqrt((weights * squares).sum(0) / total)
    return Reconstruction(
        names=views.names,
        joints=views.joints,
        times=views.times,
        joints3d=bundle.joints,
        travel=bundle.positions[0] / bundle.scales[0],
        error=error,
        confidence=total / len(views.names),
        views=(trust >= MIN_TRUST).sum(0),
        trust=trust,
        flipped=flipped,
        rotations=bundle.rotations,
    )
