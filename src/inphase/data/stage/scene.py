"""Everything that stands before the camera in a take: the dressed performer, the props, their shadows."""

import numpy as np
from numpy.typing import NDArray

from inphase.data.stage.body import J, Posture, unit
from inphase.data.stage.figure import Solids, dress
from inphase.data.stage.props import Ball, Bar, Club, Crate, Slab, follow
from inphase.data.stage.take import GRID, Take, club_direction

Points = NDArray[np.float64]  # [T, 3]


def furnish(take: Take) -> Solids:
    """Gather what stands still: furniture."""
    solids = Solids()
    slabs = [prop for prop in take.action.props if isinstance(prop, Slab)]
    course = places(take, take.course, GRID) if slabs else {}
    for slab in slabs:
        _slab(take, slab, solids, course)
    return solids


def cast(take: Take) -> Solids:
    """Gather what moves: the performer and what is held, thrown or carried."""
    solids = Solids()
    dress(take.body, take.posture, take.look, solids)
    now = places(take, take.posture, take.progress)
    tracked = any(isinstance(prop, Ball | Crate) for prop in take.action.props)
    course = places(take, take.course, GRID) if tracked else {}
    look = take.look
    for prop in take.action.props:
        if isinstance(prop, Club):
            _club(prop, solids, now, look.prop)
        elif isinstance(prop, Bar):
            _bar(prop, solids, now, look.prop)
        elif isinstance(prop, Ball):
            where = follow(prop.track, take.progress, now=now, grid=GRID, places=course)
            where[:, 2] = np.maximum(where[:, 2], prop.radius)
            solids.capsule(where, where, prop.radius, prop.radius, look.prop)
        elif isinstance(prop, Crate):
            where = follow(prop.track, take.progress, now=now, grid=GRID, places=course)
            where[:, 2] = np.maximum(where[:, 2], prop.half[2])
            solids.box(where, prop.half, look.prop)
    return solids


def places(take: Take, posture: Posture, progress: NDArray[np.float64]) -> dict[str, Points]:
    """Find where things can be held, [T, 3] each: hands, the kicking foot, the end of a club."""
    wrists = posture.joints[:, [J["left_wrist"], J["right_wrist"]]]
    left, right = np.moveaxis(0.4 * wrists + 0.6 * posture.hands, 1, 0)
    found = {
        "left": left,
        "right": right,
        "hands": (left + right) / 2,
        "fingers": right + np.array([0.05, 0.0, 0.12]),
        "foot": posture.toes[:, 1] + np.array([0.1, 0.0, 0.0]),
    }
    for prop in take.action.props:
        if isinstance(prop, Club):
            shaft = club_direction(take.times, take.poses, posture, progress)
            found["tip"] = found["right"] + prop.length * shaft
            found["tip"][:, 2] = np.maximum(found["tip"][:, 2], prop.head + 0.01)
            found["face"], found["left_of"] = posture.heading[:, :, 0], posture.heading[:, :, 1]
    return found


def shadows(take: Take) -> NDArray[np.float64]:
    """Find the soft spots on the floor, [T, K, 5]: x, y, half width, half height in picture widths, and strength."""
    joints = take.posture.joints
    spots = [(joints[:, J[name]], radius) for name, radius in _CASTERS]
    spots += [(take.posture.toes[:, i], 0.12) for i in (0, 1)]
    rows = []
    for point, radius in spots:
        strength = 0.55 * np.exp(-point[:, 2] / 0.45)
        ground = point * np.array([1.0, 1.0, 0.0])
        seen = take.camera.project(ground)
        wide = take.camera.focal * (radius + 0.25 * point[:, 2]) / seen[:, 2]
        tilt = np.clip((take.camera.position[2]) / np.linalg.norm(take.camera.position - ground, axis=-1), 0.12, 1.0)
        rows.append(np.stack([seen[:, 0], seen[:, 1], wide, wide * tilt, strength], axis=-1))
    return np.stack(rows, axis=1)


_CASTERS = (
    ("pelvis", 0.3),
    ("neck", 0.25),
    ("left_wrist", 0.1),
    ("right_wrist", 0.1),
    ("left_ankle", 0.14),
    ("right_ankle", 0.14),
)


def _club(prop: Club, solids: Solids, now: dict[str, Points], colour: NDArray[np.float64]) -> None:
    """Add a rod from the hand to the tip, and the head of an axe or a racket's face."""
    hand, tip = now["right"], now["tip"]
    along = unit(tip - hand)
    if prop.face:
        neck = tip - 2 * prop.face * along
        solids.capsule(hand - 0.08 * along, neck, *prop.radius, 0.5 * colour)
        side = unit(np.cross(along, now["face"]))
        solids.disc(tip - prop.face * along, prop.face * along, 0.8 * prop.face * side, colour)
        return
    solids.capsule(hand - 0.08 * along, tip, *prop.radius, colour)
    if prop.blade:
        edge = tip + prop.blade * unit(np.cross(now["left_of"], along))
        solids.capsule(tip - 0.3 * prop.blade * unit(edge - tip), edge, 0.03, 0.05, 0.7 * colour)
    elif prop.head:
        solids.capsule(tip, tip, prop.head, prop.head, 0.7 * colour)


def _bar(prop: Bar, solids: Solids, now: dict[str, Points], colour: NDArray[np.float64]) -> None:
    """Add a bar through both hands and its plates."""
    left, right = now["left"], now["right"]
    along = unit(left - right)
    ends = left + prop.overhang * along, right - prop.overhang * along
    solids.capsule(*ends, 0.02, 0.02, 0.6 * colour)
    up = unit(np.cross(along, np.array([1.0, 0.0, 0.2])))
    across = np.cross(along, up)
    for end, sign in zip(ends, (-1.0, 1.0), strict=True):
        for inward, size in ((0.04, 1.0), (0.07, 1.0), (0.1, 0.8)):
            solids.disc(end + sign * inward * along, prop.plate * size * up, prop.plate * size * across, colour)


def _slab(take: Take, prop: Slab, solids: Solids, course: dict[str, Points]) -> None:
    """Add furniture: at its place, or under where a thing is put down."""
    frames = len(take.progress)
    colour = 0.5 * take.look.prop + 0.5 * take.look.floor
    top = np.array([prop.centre[0] * take.body.leg, prop.centre[1] * take.body.leg, prop.high])
    if prop.under:
        top = follow(prop.under, GRID, now=course, grid=GRID, places=course)[-1] - np.array([0.0, 0.0, prop.gap])
    thickness = top[2] if prop.thickness is None else prop.thickness
    middle = np.broadcast_to(top - np.array([0.0, 0.0, thickness / 2]), (frames, 3))
    solids.box(middle, (*prop.half, thickness / 2), colour)
    if prop.thickness is not None:
        for side in (-1.0, 1.0):
            foot = middle + np.array([0.8 * prop.half[0], side * 0.9 * prop.half[1], 0.0])
            solids.capsule(foot * np.array([1.0, 1.0, 0.0]), foot, 0.03, 0.03, 0.8 * colour)
