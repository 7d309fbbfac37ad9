"""Scenes: the shapes of a take, its rendered images, the joints visible in them, and its sound track."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from inphase.media.audio import Sound
from inphase.media.frames import Clip
from inphase.stage.figure import (
    CAPSULE,
    Ball,
    Bar,
    Club,
    Crate,
    Points,
    Shapes,
    Slab,
    Solids,
    add_performer,
    follow_track,
    project_solids,
)
from inphase.stage.physique import JOINT, Color, Posture, normalize, paint_background
from inphase.stage.raster_numba import mark_visible, rasterize
from inphase.stage.take import FPS, GRID, Take, club_direction

# The background extends beyond the image by this many image widths, for the camera's shake.
SHAKE_MARGIN = 0.03
# Joints that cast a shadow on the floor, and its radius in meters.
_SHADOWS = (
    ("pelvis", 0.3),
    ("neck", 0.25),
    ("left_wrist", 0.1),
    ("right_wrist", 0.1),
    ("left_ankle", 0.14),
    ("right_ankle", 0.14),
)


def render(take: Take, *, size: int = 64, performer: bool = True) -> Clip:
    """Render the images of a take, [T, size, size, 3]; without the `performer`, only background and furniture."""
    if size < 8:
        raise ValueError(f"images need at least 8 pixels per side, got {size}")
    frames = len(take.progress)
    solids, shadows = static_solids(take), np.zeros((frames, 0, 5))
    if performer:
        solids, shadows = solids.join(moving_solids(take)), floor_shadows(take)
    shapes = _scale(project_solids(solids, take.camera, frames=frames), take.shake, size)
    shadows[..., :4] *= size
    shadows[..., :2] += size * take.shake[:, None]
    margin = int(np.ceil(SHAKE_MARGIN * size)) + 2
    images = np.empty((frames, size, size, 3), np.uint8)
    rasterize(
        images,
        paint_background(
            take.slate.rng("background"),
            take.camera,
            take.appearance,
            take.level,
            ground=take.grid_posture.joints[::20].reshape(-1, 3),
            size=size,
            margin=margin,
        ),
        margin,
        shapes.kinds,
        shapes.points,
        shapes.thickness,
        shapes.colors,
        shadows,
        size * take.shake,
        take.appearance.light,
        take.appearance.ambient,
        take.flicker,
        take.level.noise,
        np.uint64(take.slate.rng("noise").integers(2**63)),
    )
    return Clip(frames=images, times=np.arange(frames) / FPS)


def visible_joints(take: Take) -> NDArray[np.bool_]:
    """Mark the joints, [T, 17], that are inside the image and not hidden by a prop or by the performer's own body."""
    solids = static_solids(take).join(moving_solids(take))
    joints = take.posture.joints
    visible = np.empty(joints.shape[:2], np.bool_)
    mark_visible(visible, take.camera.position, joints, np.array(solids.kinds), solids.world)
    return np.asarray(visible & ((take.keypoints >= 0) & (take.keypoints < 1)).all(-1))


def _scale(shapes: Shapes, shake: NDArray[np.float64], size: int) -> Shapes:
    """Scale shapes from image widths to pixels and shift their points, not their radii, by the camera's shake."""
    points = shapes.points.copy()
    moved = points[..., :2] + shake[:, None, None]
    moved[:, shapes.kinds == CAPSULE, 2:] = points[:, shapes.kinds == CAPSULE, 2:, :2]
    points[..., :2] = size * moved
    return replace(shapes, points=points)


def static_solids(take: Take) -> Solids:
    """Build the shapes that do not move: furniture."""
    solids = Solids()
    slabs = [prop for prop in take.action.props if isinstance(prop, Slab)]
    places = find_places(take, take.grid_posture, GRID) if slabs else {}
    for slab in slabs:
        _add_slab(solids, take, slab, places)
    return solids


def moving_solids(take: Take) -> Solids:
    """Build the shapes that move: the performer and the props that are held, thrown or carried."""
    solids = Solids()
    add_performer(solids, take.body, take.posture, take.appearance)
    now = find_places(take, take.posture, take.progress)
    tracked = any(isinstance(prop, Ball | Crate) for prop in take.action.props)
    places = find_places(take, take.grid_posture, GRID) if tracked else {}
    color = take.appearance.prop
    for prop in take.action.props:
        if isinstance(prop, Club):
            _add_club(solids, prop, now, color)
        elif isinstance(prop, Bar):
            _add_bar(solids, prop, now, color)
        elif isinstance(prop, Ball):
            center = follow_track(prop.track, take.progress, now=now, grid=GRID, places=places)
            center[:, 2] = np.maximum(center[:, 2], prop.radius)
            solids.add_capsule(center, center, prop.radius, prop.radius, color)
        elif isinstance(prop, Crate):
            center = follow_track(prop.track, take.progress, now=now, grid=GRID, places=places)
            center[:, 2] = np.maximum(center[:, 2], prop.half_size[2])
            solids.add_box(center, prop.half_size, color)
    return solids


def find_places(take: Take, posture: Posture, progress: NDArray[np.float64]) -> dict[str, Points]:
    """Compute the places where props can be held, [T, 3] each.

    An action with a club also has its "tip" and the chest's directions "forward" and "leftward".
    """
    wrists = posture.joints[:, [JOINT["left_wrist"], JOINT["right_wrist"]]]
    left, right = np.moveaxis(0.4 * wrists + 0.6 * posture.hands, 1, 0)
    places = {
        "left": left,
        "right": right,
        "hands": (left + right) / 2,
        "fingers": right + np.array([0.05, 0.0, 0.12]),
        "foot": posture.toes[:, 1] + np.array([0.1, 0.0, 0.0]),
    }
    for prop in take.action.props:
        if isinstance(prop, Club):
            shaft = club_direction(take.times, take.poses, posture, progress)
            places["tip"] = places["right"] + prop.length * shaft
            places["tip"][:, 2] = np.maximum(places["tip"][:, 2], prop.head + 0.01)
            places["forward"], places["leftward"] = posture.heading[:, :, 0], posture.heading[:, :, 1]
    return places


def floor_shadows(take: Take) -> NDArray[np.float64]:
    """Compute soft shadows on the floor, [T, K, 5]: x, y, half width, half height in image widths, and strength."""
    joints = take.posture.joints
    casters = [(joints[:, JOINT[name]], radius) for name, radius in _SHADOWS]
    casters += [(take.posture.toes[:, i], 0.12) for i in (0, 1)]
    rows = []
    for point, radius in casters:
        strength = 0.55 * np.exp(-point[:, 2] / 0.45)
        ground = point * np.array([1.0, 1.0, 0.0])
        projected = take.camera.project(ground)
        width = take.camera.focal * (radius + 0.25 * point[:, 2]) / projected[:, 2]
        tilt = np.clip((take.camera.position[2]) / np.linalg.norm(take.camera.position - ground, axis=-1), 0.12, 1.0)
        rows.append(np.stack([projected[:, 0], projected[:, 1], width, width * tilt, strength], axis=-1))
    return np.stack(rows, axis=1)


def _add_club(solids: Solids, prop: Club, now: dict[str, Points], color: Color) -> None:
    """Add a rod from the hand to the tip, and an axe's blade, a racket's face or a club's head."""
    hand, tip = now["right"], now["tip"]
    along = normalize(tip - hand)
    if prop.face:
        neck = tip - 2 * prop.face * along
        solids.add_capsule(hand - 0.08 * along, neck, *prop.radius, 0.5 * color)
        side = normalize(np.cross(along, now["forward"]))
        solids.add_disc(tip - prop.face * along, prop.face * along, 0.8 * prop.face * side, color)
        return
    solids.add_capsule(hand - 0.08 * along, tip, *prop.radius, color)
    if prop.blade:
        edge = tip + prop.blade * normalize(np.cross(now["leftward"], along))
        solids.add_capsule(tip - 0.3 * prop.blade * normalize(edge - tip), edge, 0.03, 0.05, 0.7 * color)
    elif prop.head:
        solids.add_capsule(tip, tip, prop.head, prop.head, 0.7 * color)


def _add_bar(solids: Solids, prop: Bar, now: dict[str, Points], color: Color) -> None:
    """Add a bar through both hands, and its plates."""
    left, right = now["left"], now["right"]
    along = normalize(left - right)
    ends = left + prop.overhang * along, right - prop.overhang * along
    solids.add_capsule(*ends, 0.02, 0.02, 0.6 * color)
    up = normalize(np.cross(along, np.array([1.0, 0.0, 0.2])))
    across = np.cross(along, up)
    for end, sign in zip(ends, (-1.0, 1.0), strict=True):
        for inward, size in ((0.04, 1.0), (0.07, 1.0), (0.1, 0.8)):
            solids.add_disc(end + sign * inward * along, prop.plate * size * up, prop.plate * size * across, color)


def _add_slab(solids: Solids, take: Take, prop: Slab, places: dict[str, Points]) -> None:
    """Add furniture at its own position or under the end of a track."""
    frames = len(take.progress)
    color = 0.5 * take.appearance.prop + 0.5 * take.appearance.floor
    top = np.array([prop.center[0] * take.body.leg, prop.center[1] * take.body.leg, prop.height])
    if prop.under:
        end = follow_track(prop.under, GRID, now=places, grid=GRID, places=places)[-1]
        top = end - np.array([0.0, 0.0, prop.gap])
    thickness = top[2] if prop.thickness is None else prop.thickness
    middle = np.broadcast_to(top - np.array([0.0, 0.0, thickness / 2]), (frames, 3))
    solids.add_box(middle, (*prop.half_size, thickness / 2), color)
    if prop.thickness is not None:
        for side in (-1.0, 1.0):
            foot = middle + np.array([0.8 * prop.half_size[0], side * 0.9 * prop.half_size[1], 0.0])
            solids.add_capsule(foot * np.array([1.0, 1.0, 0.0]), foot, 0.03, 0.03, 0.8 * color)


SAMPLE_RATE = 16_000  # hertz


@dataclass(frozen=True)
class Timbre:
    """Parameters of a short sound made of decaying tones and decaying noise."""

    tones: tuple[float, ...]  # hertz
    decay: float  # seconds in which the sound falls to 1/e
    noise: float  # fraction of noise, 0 … 1
    smooth: int = 1  # samples over which the noise is averaged: 1 hisses, 40 rumbles


SOUNDS: dict[str, Timbre] = {
    "click": Timbre(tones=(3100.0, 4700.0), decay=0.008, noise=0.4),
    "crack": Timbre(tones=(1250.0, 2600.0), decay=0.015, noise=0.7),
    "pop": Timbre(tones=(520.0, 880.0), decay=0.02, noise=0.3, smooth=3),
    "thud": Timbre(tones=(95.0, 140.0), decay=0.04, noise=0.5, smooth=16),
    "thump": Timbre(tones=(70.0, 110.0), decay=0.05, noise=0.4, smooth=24),
    "knock": Timbre(tones=(310.0, 470.0), decay=0.025, noise=0.4, smooth=6),
    "clang": Timbre(tones=(740.0, 1130.0, 1890.0, 2770.0), decay=0.06, noise=0.2),
    "whip": Timbre(tones=(2200.0,), decay=0.02, noise=0.9, smooth=2),
    "grunt": Timbre(tones=(150.0, 300.0, 450.0), decay=0.05, noise=0.4, smooth=8),
}
DISTRACTORS: dict[str, Timbre] = {
    "beep": Timbre(tones=(1000.0,), decay=0.05, noise=0.0),
    "clap": Timbre(tones=(1500.0,), decay=0.01, noise=0.95, smooth=2),
    "chirp": Timbre(tones=(3800.0, 4100.0), decay=0.03, noise=0.0),
    "door": Timbre(tones=(60.0, 200.0), decay=0.05, noise=0.6, smooth=20),
}


def synthesize_track(take: Take) -> Sound:
    """Synthesize the sound track of a take: the first event loudest, quieter distractors, and background noise."""
    rng = take.slate.rng("sound")
    track = 0.002 * rng.standard_normal(round(len(take.progress) / FPS * SAMPLE_RATE))
    event = next(iter(take.events.values())) / FPS
    taken = [event]
    _mix(track, event, rng.uniform(0.85, 1.0) * synthesize(rng, SOUNDS[take.action.sound]))
    others = [timbre for name, timbre in SOUNDS.items() if name != take.action.sound] + list(DISTRACTORS.values())
    for _ in range(rng.integers(1, 6)):
        time = rng.uniform(0.0, len(track) / SAMPLE_RATE)
        timbre, loudness = others[rng.integers(len(others))], rng.uniform(0.15, 0.5)
        if min(abs(time - other) for other in taken) > 0.2:
            _mix(track, time, loudness * synthesize(rng, timbre))
            taken.append(time)
    return Sound(np.asarray(0.9 * track / np.abs(track).max(), dtype=np.float32), SAMPLE_RATE)


def synthesize(rng: np.random.Generator, timbre: Timbre) -> NDArray[np.float64]:
    """Synthesize one short sound; its samples within the first video frame have unit energy."""
    clock = np.arange(int(6 * timbre.decay * SAMPLE_RATE)) / SAMPLE_RATE
    detune = rng.uniform(0.92, 1.08)
    tones = sum(np.sin(2 * np.pi * detune * tone * clock + rng.uniform(0, 2 * np.pi)) for tone in timbre.tones)
    hiss = rng.standard_normal(len(clock) + timbre.smooth - 1)
    hiss = np.convolve(hiss, np.ones(timbre.smooth) / np.sqrt(timbre.smooth), mode="valid")
    envelope = np.minimum(clock / 0.001, 1.0) * np.exp(-clock / timbre.decay)
    wave = envelope * ((1 - timbre.noise) * tones + timbre.noise * hiss)
    return np.asarray(wave / np.linalg.norm(wave[: int(SAMPLE_RATE / FPS)]))


def _mix(track: NDArray[np.float64], time: float, wave: NDArray[np.float64]) -> None:
    """Add a sound to a track at `time` seconds; samples past the end are dropped."""
    start = round(time * SAMPLE_RATE)
    part = wave[: max(len(track) - start, 0)]
    track[start : start + len(part)] += part
