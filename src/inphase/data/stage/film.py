"""Filming a take: its pictures, and which joints the camera can see."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from inphase.data.stage.background import paint_background
from inphase.data.stage.draw_numba import paint
from inphase.data.stage.figure import CAPSULE, Shapes, Solids, view
from inphase.data.stage.scene import cast, furnish, shadows
from inphase.data.stage.sight_numba import see
from inphase.data.stage.take import RATE, Take
from inphase.media.frames import Clip

# Where the background is painted beyond the picture, for the camera's shake, in picture widths.
MARGIN = 0.03


def shoot(take: Take, *, size: int = 64, performer: bool = True) -> Clip:
    """Draw the pictures of a take, [T, size, size, 3]; without the `performer`, only what stands still behind."""
    if size < 8:
        raise ValueError(f"pictures need at least 8 pixels a side, got {size}")
    frames = len(take.progress)
    solids, spots = furnish(take), np.zeros((frames, 0, 5))
    if performer:
        solids, spots = solids.join(cast(take)), shadows(take)
    shapes = _fit(view(solids, take.camera, frames=frames), take.shake, size)
    spots[..., :4] *= size
    spots[..., :2] += size * take.shake[:, None]
    margin = int(np.ceil(MARGIN * size)) + 2
    pictures = np.empty((frames, size, size, 3), np.uint8)
    paint(
        pictures,
        paint_background(
            take.slate.rng("background"),
            take.camera,
            take.look,
            take.level,
            ground=take.course.joints[::20].reshape(-1, 3),
            size=size,
            margin=margin,
        ),
        margin,
        shapes.kinds,
        shapes.points,
        shapes.thick,
        shapes.colours,
        spots,
        size * take.shake,
        take.look.light,
        take.look.ambient,
        take.flicker,
        take.level.noise,
        np.uint64(take.slate.rng("noise").integers(2**63)),
    )
    return Clip(frames=pictures, times=np.arange(frames) / RATE)


def visible(take: Take) -> NDArray[np.bool_]:
    """Tell which joints, [T, 17], are inside the picture and hidden by nothing, be it the performer's own body."""
    solids: Solids = furnish(take).join(cast(take))
    joints = take.posture.joints
    seen = np.empty(joints.shape[:2], np.bool_)
    see(seen, take.camera.position, joints, np.array(solids.kinds), solids.world)
    return np.asarray(seen & ((take.pixels >= 0) & (take.pixels < 1)).all(-1))


def _fit(shapes: Shapes, shake: NDArray[np.float64], size: int) -> Shapes:
    """Scale shapes from picture widths to pixels and move them with the camera's shake; radii do not move."""
    points = shapes.points.copy()
    moved = points[..., :2] + shake[:, None, None]
    moved[:, shapes.kinds == CAPSULE, 2:] = points[:, shapes.kinds == CAPSULE, 2:, :2]
    points[..., :2] = size * moved
    return replace(shapes, points=points)
