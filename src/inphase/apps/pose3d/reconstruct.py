"""From aligned views to a body in space for every frame of the query."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from inphase.apps.pose3d.adjustment import ROUNDS, Bundle, Priors, adjust
from inphase.apps.pose3d.factorization import (
    Bones,
    Factors,
    centre,
    factorise,
    fit_cameras,
    orthonormalise,
    residuals,
    upgrade,
)
from inphase.apps.pose3d.orientation import occlusion_vote, reflect, typical_lengths, uprightness_votes
from inphase.apps.pose3d.views import HIPS, SHOULDERS, Views
from inphase.pose.skeleton import bones, mirrored

Array = NDArray[np.float64]

# A view whose typical error is this many times that of all views has a quarter of the say.
TOLERANCE = 2.0
# A view with less say than this does not count as used.
COUNTS = 0.25
# A body whose torso is so many times longer than the query shows it is none: the search ended in the wrong place.
SHORTENED = 3.0
# Views that are so many torso lengths from the body do not agree on one.
UNEXPLAINED = 0.2
# Where joints usually are before (−) or behind the body, torso lengths: which way to begin to bend a flat one.
DEPTHS = {"elbow": 0.1, "wrist": -0.3, "knee": -0.1, "ankle": 0.1, "head": -0.1}
# Cameras less far apart than this, in degrees, leave depth to the usual proportions of a body.
NARROW = 15.0


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """A body in space for each of T moments of the query, and how far it can be relied on.

    `joints3d` [T, J, 3] in torso lengths about the middle of the hips, as the query's camera stands: x to the right, y
    down, z away from it. `travel` [T, 2] where the middle of the hips is in the query's picture, in the same unit.
    `error` [T, J] the root mean square distance, in torso lengths, between where the views show a joint and where the
    body is; NaN where no view shows it. `confidence` [T, J] from 0 to 1: the share of views that show it and agree.
    `views` [T] how many views had a say at each moment; `trust` [V, T] the say of each; `flipped` [V] those that fit
    better with left and right exchanged. `rotations` [V, 3, 3] turn the body before each camera.
    """

    names: tuple[str, ...]
    joints: tuple[str, ...]
    times: NDArray[np.float64]
    joints3d: Array
    travel: Array
    error: Array
    confidence: Array
    views: NDArray[np.int64]
    trust: Array
    flipped: NDArray[np.bool_]
    rotations: Array

    @property
    def spread(self) -> float:
        """Say in degrees how far apart the cameras look, 0 where all do along one line: front and back are the same."""
        directions = self.rotations[:, 2]
        weights = self.trust.mean(1)
        together = np.linalg.eigvalsh(np.einsum("v,va,vb->ab", weights, directions, directions) / weights.sum())[-1]
        return float(np.degrees(np.arccos(np.sqrt(min(together, 1.0)))))


def reconstruct(
    views: Views,
    *,
    adjusts: bool = True,
    priors: Priors | None = None,
    query_weight: float = 10.0,
    flips: bool = True,
    progress: Callable[[float], None] | None = None,
) -> Reconstruction:
    """Reconstruct the body at every moment of the query.

    Factorisation with one camera a video, metric upgrade, the choice between the two bodies that look alike, views
    that fit better as mirror images turned round, then, where it `adjusts`, bundle adjustment with `priors`; where what
    comes out is no body, once more from cameras that all look from the query's side. Views that
    disagree with the others lose their say, moment by moment. The query counts `query_weight` times: it shows the
    very person and moment, the others know about depth. `progress` is told the fraction that is done.
    """
    tell = progress or (lambda _: None)
    given = views
    bundle, trust = _factorise(views, query_weight=query_weight)
    tell(0.3)
    flipped = np.zeros(len(views.names), np.bool_)
    if flips:
        flipped = _flips(views, bundle)
        if flipped.any():
            views = _flip(views, flipped)
            bundle, trust = _factorise(views, query_weight=query_weight)
    tell(0.5)
    if not adjusts:
        return _report(views, bundle, trust, flipped)
    best = _adjust(views, bundle, trust, flipped, query_weight=query_weight, priors=priors, tell=tell)
    if best.shortened:
        bundle = _facing(given)
        trust, straight = _trust(given, given.points - bundle.project()), np.zeros_like(flipped)
        other = _adjust(given, bundle, trust, straight, query_weight=query_weight, priors=priors, tell=tell)
        best = min(best, other, key=lambda each: (each.shortened, float(np.nanmedian(each.found.error))))
    tell(1.0)
    return best.found


@dataclass(frozen=True, eq=False)
class _Adjusted:
    """What an adjustment found, and whether it is no body: its torso is far longer than the query shows it."""

    found: Reconstruction
    shortened: bool


def _adjust(
    views: Views,
    bundle: Bundle,
    trust: Array,
    flipped: NDArray[np.bool_],
    *,
    query_weight: float,
    priors: Priors | None,
    tell: Callable[[float], None],
) -> _Adjusted:
    """Adjust a bundle, twice."""
    for part in range(2):
        bundle = adjust(
            bundle,
            views.points,
            _weights(views, trust, query_weight=query_weight),
            bones=bones(views.joints),
            usual=typical_lengths(views.joints, bones(views.joints)),
            sides=mirrored(views.joints),
            hips=(views.joints.index(HIPS[0]), views.joints.index(HIPS[1])),
            priors=priors or Priors(),
            progress=partial(_tell_steps, tell, 0.5 + 0.25 * part),
        )
        trust = _trust(views, views.points - bundle.project())
    found = _report(views, bundle, trust, flipped)
    return _Adjusted(found, bool(bundle.scales[0] > SHORTENED))


def _facing(views: Views) -> Bundle:
    """Begin with cameras that all look as the query's does, and a body nearly as flat as the query shows it.

    Where this is how they look, a third dimension of the views is noise, and factorisation makes a body of it that lies
    along the line of sight.
    """
    count, moments, joints, _ = views.points.shape
    body = np.zeros((moments, joints, 3))
    for joint, name in enumerate(views.joints):
        when = np.flatnonzero(views.seen[0, :, joint])
        for axis in range(2 if len(when) else 0):
            body[:, joint, axis] = np.interp(np.arange(moments), when, views.points[0, when, joint, axis])
        body[:, joint, 2] = next((depth for part, depth in DEPTHS.items() if part in name), 0.0)
    weights = views.seen.astype(np.float64)
    seen, flat = centre(views.points, weights), centre(np.tile(body[..., :2], (count, 1, 1, 1)), weights)
    scales = (weights[..., None] * seen * flat).sum((1, 2, 3)) / (weights[..., None] * flat**2).sum((1, 2, 3))
    rotations, positions = np.tile(np.eye(3), (count, 1, 1)), np.zeros((count, moments, 2))
    bundle = Bundle(rotations, np.maximum(scales, 0.1), positions, body)
    return _centred(views, bundle, np.ones((count, moments)))


def _tell_steps(tell: Callable[[float], None], before: float, steps: int) -> None:
    tell(before + 0.25 * min(steps / ROUNDS, 1))


def _factorise(views: Views, *, query_weight: float, rounds: int = 4) -> tuple[Bundle, Array]:
    """Factorise, again and again with less weight on views that disagree, and find the metric cameras."""
    trust = np.ones(views.points.shape[:2])
    factors: Factors | None = None
    for _ in range(rounds):
        weights = _weights(views, trust, query_weight=query_weight)
        factors = factorise(views.points, weights, start=factors, rounds=60, tolerance=1e-4)
        trust = _trust(views, residuals(views.points, weights, factors.cameras, factors.shape))
    assert factors is not None
    metric, _ = upgrade(factors, trust.mean(1), bones=_known_bones(views.joints))
    rotations, scales = orthonormalise(metric.cameras)
    joints = metric.shape @ rotations[0].T
    rotations = rotations @ rotations[0].T
    return _centred(views, _right_way_round(views, rotations, scales, joints, trust), trust), trust


def _known_bones(joints: tuple[str, ...]) -> Bones | None:
    """List the bones whose usual length is known."""
    pairs, lengths = np.array(bones(joints)), typical_lengths(joints, bones(joints))
    known = np.isfinite(lengths)
    return Bones(pairs[known], lengths[known]) if known.any() else None


def _right_way_round(views: Views, rotations: Array, scales: Array, joints: Array, trust: Array) -> Bundle:
    """Choose between the two bodies that look alike in every view."""
    votes = float(uprightness_votes(joints, views.joints).sum())
    votes += occlusion_vote(rotations, joints, views.seen, trust)
    if votes < 0:
        rotations, joints = reflect(rotations, joints)
    return Bundle(rotations, scales, np.zeros((*views.points.shape[:2], 2)), joints)


def _centred(views: Views, bundle: Bundle, trust: Array) -> Bundle:
    """Put the middle of the hips at the origin, give the torso unit length, and find the positions that fit."""
    hips, shoulders = (_middle(bundle.joints, views.joints, pair) for pair in (HIPS, SHOULDERS))
    size = float(np.median(np.linalg.norm(shoulders - hips, axis=-1)))
    nowhere = np.zeros_like(bundle.positions)
    joints, scales = (bundle.joints - hips[:, None]) / size, bundle.scales * size
    bundle = replace(bundle, joints=joints, scales=scales, positions=nowhere)
    weights = _weights(views, np.ones_like(trust), query_weight=1.0)[..., None]
    left = (weights * (views.points - bundle.project())).sum(2) / np.maximum(weights.sum(2), 1e-12)
    return replace(bundle, positions=left)


def _middle(joints: Array, names: tuple[str, ...], pair: tuple[str, ...]) -> Array:
    return np.asarray(joints[:, [names.index(name) for name in pair]].mean(1))


def _weights(views: Views, trust: Array, *, query_weight: float) -> Array:
    """Weigh what is seen: by the view's say, and more where it is the query's."""
    say = trust.copy()
    say[0] = query_weight
    return np.asarray(views.seen * say[..., None])


def _trust(views: Views, left: Array) -> Array:
    """Give each view at each moment its say, [V, T], from what is left unexplained of its joints [V, T, J, 2]."""
    count = np.maximum(views.seen.sum(-1), 1)
    error = np.sqrt((views.seen * (left**2).sum(-1)).sum(-1) / count)
    shown = views.seen.sum(-1) >= 3
    typical = max(float(np.median(error[1:][shown[1:]])) if shown[1:].any() else 0.0, 1e-6)
    return np.asarray(shown / (1 + (error / (TOLERANCE * typical)) ** 2) ** 2)


def _flips(views: Views, bundle: Bundle, *, clearly: float = 0.8) -> NDArray[np.bool_]:
    """Find the views that fit clearly better with left and right exchanged: people of the other hand."""
    order = mirrored(views.joints)
    errors = []
    for points, seen in ((views.points, views.seen), (views.points[:, :, order], views.seen[:, :, order])):
        weights = seen.astype(np.float64)
        cameras = _orthographic(fit_cameras(centre(points, weights), bundle.joints, weights))
        left = residuals(points, weights, cameras, bundle.joints)
        errors.append(np.sqrt((weights[..., None] * left**2).sum((1, 2, 3)) / np.maximum(weights.sum((1, 2)), 1)))
    flipped = errors[1] < clearly * errors[0]
    flipped[0] = False
    return np.asarray(flipped)


def _orthographic(cameras: Array) -> Array:
    """Make affine cameras [V, 2, 3] scaled orthographic ones: others could squeeze a body into its mirror image."""
    rotations, scales = orthonormalise(cameras)
    return np.asarray(scales[:, None, None] * rotations[:, :2])


def _flip(views: Views, flipped: NDArray[np.bool_]) -> Views:
    """Exchange left and right in some views; the camera takes care of the picture's sides."""
    order = mirrored(views.joints)
    points = np.where(flipped[:, None, None, None], views.points[:, :, order], views.points)
    return replace(views, points=points, seen=np.where(flipped[:, None, None], views.seen[:, :, order], views.seen))


def _report(views: Views, bundle: Bundle, trust: Array, flipped: NDArray[np.bool_]) -> Reconstruction:
    """Say where the joints are and how much there is to be said for it."""
    bundle = _centred(views, bundle, trust)
    say = views.seen * trust[..., None]
    squares = ((views.points - bundle.project()) ** 2).sum(-1) / bundle.scales[:, None, None] ** 2
    total = say.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.sqrt((say * squares).sum(0) / total)
    return Reconstruction(
        names=views.names,
        joints=views.joints,
        times=views.times,
        joints3d=bundle.joints,
        travel=bundle.positions[0] / bundle.scales[0],
        error=error,
        confidence=total / len(views.names),
        views=(trust >= COUNTS).sum(0),
        trust=trust,
        flipped=flipped,
        rotations=bundle.rotations,
    )
