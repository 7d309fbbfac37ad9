"""Which joints a camera can see, compiled: rays from the camera to each joint against every solid of the scene.

A joint lies inside its own limb, so only what is nearer than the joint by more than OWN metres hides it.
"""

import numba
import numpy as np

from inphase.data.stage.figure import CAPSULE, DISC

OWN = 0.13


@numba.njit(cache=True, nogil=True)
def see(seen, eye, joints, kinds, solids):
    """Mark in `seen` [T, J] the joints [T, J, 3] that no solid [T, S, 4, 3] hides from `eye` [3]."""
    way = np.empty(3)
    for f in range(joints.shape[0]):
        for j in range(joints.shape[1]):
            for axis in range(3):
                way[axis] = joints[f, j, axis] - eye[axis]
            distance = np.sqrt(_dot(way, way))
            way /= distance
            seen[f, j] = True
            for s in range(len(kinds)):
                shape = solids[f, s]
                if kinds[s] == CAPSULE:
                    hit = _meets_capsule(eye, way, shape)
                elif kinds[s] == DISC:
                    hit = _meets_plane(eye, way, shape[0], shape[1], shape[2], True)
                else:
                    middle = (shape[0] + shape[2]) / 2
                    hit = _meets_plane(eye, way, middle, (shape[3] - shape[0]) / 2, (shape[1] - shape[0]) / 2, False)
                if hit < distance - OWN:
                    seen[f, j] = False
                    break


@numba.njit(cache=True, nogil=True)
def _meets_capsule(eye, way, shape):
    """Find how far along a ray it comes nearest to a capsule's axis, infinity where it passes outside."""
    ux, uy, uz = shape[1, 0] - shape[0, 0], shape[1, 1] - shape[0, 1], shape[1, 2] - shape[0, 2]
    ox, oy, oz = eye[0] - shape[0, 0], eye[1] - shape[0, 1], eye[2] - shape[0, 2]
    a, b = ux * ux + uy * uy + uz * uz, ux * way[0] + uy * way[1] + uz * way[2]
    c, d = ux * ox + uy * oy + uz * oz, way[0] * ox + way[1] * oy + way[2] * oz
    det = a - b * b
    t = min(max((c - b * d) / det, 0.0), 1.0) if det > 1e-12 else 0.0
    along = b * t - d
    x, y, z = ox + along * way[0] - t * ux, oy + along * way[1] - t * uy, oz + along * way[2] - t * uz
    radius = shape[2, 0] + t * (shape[2, 1] - shape[2, 0])
    return along if x * x + y * y + z * z < radius * radius and along > 0 else np.inf


@numba.njit(cache=True, nogil=True)
def _meets_plane(eye, way, centre, u, v, is_round):
    """Find how far along a ray it meets a disc or a rectangle with half axes u and v, infinity where it does not."""
    nx, ny, nz = u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]
    slope = nx * way[0] + ny * way[1] + nz * way[2]
    if abs(slope) < 1e-9:
        return np.inf
    away = centre - eye
    along = (nx * away[0] + ny * away[1] + nz * away[2]) / slope
    point = eye + along * way - centre
    a, b = _dot(point, u) / _dot(u, u), _dot(point, v) / _dot(v, v)
    inside = a * a + b * b < 1.0 if is_round else abs(a) < 1.0 and abs(b) < 1.0
    return along if inside and along > 0 else np.inf


@numba.njit(cache=True, nogil=True)
def _dot(u, v):
    """Multiply two vectors of three."""
    return u[0] * v[0] + u[1] * v[1] + u[2] * v[2]
