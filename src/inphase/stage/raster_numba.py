"""Compiled kernels: rasterize shapes into images, and test which joints are visible to a camera.

Rasterization of a frame: shapes are sorted by depth and blended back to front into a transparent layer of 2H × 2W with
soft edges and a depth per pixel, so that crossing limbs occlude each other correctly. The layer is downsampled by two
and blended over the background, which is shifted by the camera's shake and darkened by the shadows on the floor. The
sensor noise is a hash of seed, frame and pixel.

Visibility: a ray from the camera to each joint is intersected with every solid. A joint lies inside its own limb, so
only a hit more than OCCLUSION_MARGIN meters before the joint hides it.
"""

import numba
import numpy as np

from inphase.stage.figure import CAPSULE, DISC, QUAD

OCCLUSION_MARGIN = 0.13  # meters


@numba.njit(cache=True, nogil=True)
def rasterize(
    images, background, margin, kinds, points, thickness, colors, shadows, shifts, light, ambient, gains, noise, seed
):
    """Draw shapes [F, S, 4, 3], in pixels, into `images` [F, H, W, 3] uint8."""
    frames, height, width = images.shape[:3]
    layer = np.empty((2 * height, 2 * width, 4), np.float32)
    depth = np.empty((2 * height, 2 * width), np.float32)
    shade = np.empty((height, width), np.float32)
    distance = np.empty(len(kinds))
    for f in range(frames):
        layer[:] = 0.0
        depth[:] = 1e9
        shade[:] = 1.0
        for k in range(shadows.shape[1]):
            _draw_shadow(shade, shadows[f, k])
        for s in range(len(kinds)):
            corners = 4 if kinds[s] == QUAD else 2 if kinds[s] == CAPSULE else 1
            distance[s] = 0.0
            for c in range(corners):
                distance[s] -= points[f, s, c, 2] / corners
        for s in np.argsort(distance):
            if kinds[s] == CAPSULE:
                _draw_capsule(layer, depth, points[f, s], thickness[s], colors[s], light, ambient)
            elif kinds[s] == DISC:
                _draw_disc(layer, depth, points[f, s], colors[s])
            else:
                _draw_quad(layer, depth, points[f, s], colors[s])
        _compose(images[f], layer, shade, background, margin, shifts[f], gains[f], noise, seed, f)


@numba.njit(cache=True, nogil=True)
def _blend(layer, depth, row, column, z, cover, red, green, blue):
    """Blend a color over a pixel unless the pixel holds something nearer."""
    if z >= depth[row, column]:
        return
    rest = np.float32(1.0 - cover)
    layer[row, column, 0] = layer[row, column, 0] * rest + red * cover
    layer[row, column, 1] = layer[row, column, 1] * rest + green * cover
    layer[row, column, 2] = layer[row, column, 2] * rest + blue * cover
    layer[row, column, 3] = layer[row, column, 3] * rest + cover
    if cover > 0.5:
        depth[row, column] = z


@numba.njit(cache=True, nogil=True)
def _draw_capsule(layer, depth, p, thickness, color, light, ambient):
    """Draw a tapered rod with round ends, shaded as a round solid."""
    height, width = depth.shape
    ax, ay, bx, by = 2 * p[0, 0], 2 * p[0, 1], 2 * p[1, 0], 2 * p[1, 1]
    r0, r1 = max(2 * p[2, 0], 0.7), max(2 * p[2, 1], 0.7)
    reach = max(r0, r1) + 1.0
    top, bottom = max(int(min(ay, by) - reach), 0), min(int(max(ay, by) + reach) + 1, height)
    left, right = max(int(min(ax, bx) - reach), 0), min(int(max(ax, bx) + reach) + 1, width)
    dx, dy = bx - ax, by - ay
    length = dx * dx + dy * dy
    scale = 1.0 / max(length, 1e-9)
    for row in range(top, bottom):
        for column in range(left, right):
            x, y = column + 0.5 - ax, row + 0.5 - ay
            t = min(max((x * dx + y * dy) * scale, 0.0), 1.0)
            radius = r0 + t * (r1 - r0)
            x -= t * dx
            y -= t * dy
            square = x * x + y * y
            if square >= (radius + 0.5) * (radius + 0.5):
                continue
            across = np.sqrt(square)
            cover = min(radius + 0.5 - across, 1.0)
            inside = min(square / (radius * radius), 1.0)
            bulge = np.sqrt(1.0 - inside)
            facing = (x * light[0] + y * light[1]) / radius - bulge * light[2]
            bright = ambient + (1.0 - ambient) * max(facing, 0.0)
            bright *= 1.0 - 0.3 * inside * inside * inside
            z = p[0, 2] + t * (p[1, 2] - p[0, 2]) - thickness * bulge
            _blend(layer, depth, row, column, z, cover, color[0] * bright, color[1] * bright, color[2] * bright)


@numba.njit(cache=True, nogil=True)
def _draw_disc(layer, depth, p, color):
    """Draw a flat disc: the ellipse of two half axes."""
    height, width = depth.shape
    cx, cy = 2 * p[0, 0], 2 * p[0, 1]
    ux, uy, vx, vy = 2 * p[1, 0] - cx, 2 * p[1, 1] - cy, 2 * p[2, 0] - cx, 2 * p[2, 1] - cy
    det = ux * vy - uy * vx
    if abs(det) < 0.5:
        return
    reach_x, reach_y = np.sqrt(ux * ux + vx * vx) + 1.0, np.sqrt(uy * uy + vy * vy) + 1.0
    for row in range(max(int(cy - reach_y), 0), min(int(cy + reach_y) + 1, height)):
        for column in range(max(int(cx - reach_x), 0), min(int(cx + reach_x) + 1, width)):
            x, y = column + 0.5 - cx, row + 0.5 - cy
            a, b = (x * vy - y * vx) / det, (y * ux - x * uy) / det
            rho = np.sqrt(a * a + b * b)
            gx, gy = (a * vy - b * uy) / det, (b * ux - a * vx) / det
            slope = np.sqrt(gx * gx + gy * gy) / max(rho, 1e-6)
            cover = min((1.0 - rho) / max(slope, 1e-6) + 0.5, 1.0)
            if cover > 0.0:
                z = p[0, 2] + a * (p[1, 2] - p[0, 2]) + b * (p[2, 2] - p[0, 2])
                rim = 1.0 if rho < 0.8 else 0.6
                _blend(layer, depth, row, column, z, cover, color[0] * rim, color[1] * rim, color[2] * rim)


@numba.njit(cache=True, nogil=True)
def _draw_quad(layer, depth, p, color):
    """Draw a convex quadrilateral; 1/depth is linear across it."""
    height, width = depth.shape
    area = 0.0
    for i in range(4):
        j = (i + 1) % 4
        area += 2.0 * (p[i, 0] * p[j, 1] - p[j, 0] * p[i, 1])
    if abs(area) < 0.5:
        return
    sign = 1.0 if area > 0 else -1.0
    ux, uy, vx, vy = p[1, 0] - p[0, 0], p[1, 1] - p[0, 1], p[3, 0] - p[0, 0], p[3, 1] - p[0, 1]
    det = ux * vy - uy * vx
    near, along, across = 1.0 / p[0, 2], 1.0 / p[1, 2] - 1.0 / p[0, 2], 1.0 / p[3, 2] - 1.0 / p[0, 2]
    top, bottom = max(int(2 * p[:, 1].min()) - 1, 0), min(int(2 * p[:, 1].max()) + 2, height)
    left, right = max(int(2 * p[:, 0].min()) - 1, 0), min(int(2 * p[:, 0].max()) + 2, width)
    for row in range(top, bottom):
        for column in range(left, right):
            x, y = (column + 0.5) / 2, (row + 0.5) / 2
            cover = 1.0
            for i in range(4):
                j = (i + 1) % 4
                ex, ey = p[j, 0] - p[i, 0], p[j, 1] - p[i, 1]
                inside = sign * (ex * (y - p[i, 1]) - ey * (x - p[i, 0])) / max(np.sqrt(ex * ex + ey * ey), 1e-9)
                cover = min(cover, 2 * inside + 0.5)
            if cover > 0.0:
                x, y = x - p[0, 0], y - p[0, 1]
                a, b = (x * vy - y * vx) / det, (y * ux - x * uy) / det
                z = 1.0 / max(near + a * along + b * across, 1e-3)
                _blend(layer, depth, row, column, z, cover, color[0], color[1], color[2])


@numba.njit(cache=True, nogil=True)
def _draw_shadow(shade, spot):
    """Darken a soft ellipse (x, y, half width, half height, strength) of the floor."""
    height, width = shade.shape
    x, y, rx, ry, strength = spot[0], spot[1], max(spot[2], 0.5), max(spot[3], 0.5), spot[4]
    for row in range(max(int(y - ry), 0), min(int(y + ry) + 2, height)):
        for column in range(max(int(x - rx), 0), min(int(x + rx) + 2, width)):
            a, b = (column + 0.5 - x) / rx, (row + 0.5 - y) / ry
            inside = 1.0 - a * a - b * b
            if inside > 0.0:
                shade[row, column] *= 1.0 - strength * inside * min(2.0 * inside, 1.0)


@numba.njit(cache=True, nogil=True)
def _compose(image, layer, shade, background, margin, shift, gain, noise, seed, number):
    """Downsample the layer by two, blend it over the shifted background and add sensor noise."""
    height, width = shade.shape
    x, y = margin - shift[0], margin - shift[1]
    left, top = int(np.floor(x)), int(np.floor(y))
    fx, fy = x - left, y - top
    w00, w01, w10, w11 = (1 - fx) * (1 - fy), fx * (1 - fy), (1 - fx) * fy, fx * fy
    for row in range(height):
        for column in range(width):
            r, c = 2 * row, 2 * column
            cover = 0.25 * (layer[r, c, 3] + layer[r, c + 1, 3] + layer[r + 1, c, 3] + layer[r + 1, c + 1, 3])
            through = (1.0 - cover) * shade[row, column]
            key = _hash(
                seed ^ (np.uint64(number) << np.uint64(40)) ^ (np.uint64(row) << np.uint64(20)) ^ np.uint64(column)
            )
            for k in range(3):
                i, j = top + row, left + column
                behind = background[i, j, k] * w00 + background[i, j + 1, k] * w01
                behind += background[i + 1, j, k] * w10 + background[i + 1, j + 1, k] * w11
                ahead = 0.25 * (layer[r, c, k] + layer[r, c + 1, k] + layer[r + 1, c, k] + layer[r + 1, c + 1, k])
                # The sum of three 7-bit parts of the hash is nearly normal with mean 190.5 and standard deviation 64.
                bits = key >> np.uint64(21 * k)
                sum_of_three = (
                    (bits & np.uint64(127))
                    + ((bits >> np.uint64(7)) & np.uint64(127))
                    + ((bits >> np.uint64(14)) & np.uint64(127))
                )
                grain = (np.float64(sum_of_three) - 190.5) / 64.0
                value = 255.0 * (gain * (behind * through + ahead) + noise * grain) + 0.5
                image[row, column, k] = np.uint8(min(max(value, 0.0), 255.0))


@numba.njit(cache=True, nogil=True)
def _hash(key):
    """Mix 64 bits (the finalizer of splitmix64)."""
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return key ^ (key >> np.uint64(31))


@numba.njit(cache=True, nogil=True)
def mark_visible(visible, eye, joints, kinds, solids):
    """Mark in `visible` [T, J] the joints [T, J, 3] that no solid [T, S, 4, 3] hides from `eye` [3]."""
    direction = np.empty(3)
    for f in range(joints.shape[0]):
        for j in range(joints.shape[1]):
            for axis in range(3):
                direction[axis] = joints[f, j, axis] - eye[axis]
            distance = np.sqrt(_dot(direction, direction))
            direction /= distance
            visible[f, j] = True
            for s in range(len(kinds)):
                shape = solids[f, s]
                if kinds[s] == CAPSULE:
                    hit = _hit_capsule(eye, direction, shape)
                elif kinds[s] == DISC:
                    hit = _hit_plane(eye, direction, shape[0], shape[1], shape[2], True)
                else:
                    middle = (shape[0] + shape[2]) / 2
                    hit = _hit_plane(
                        eye, direction, middle, (shape[3] - shape[0]) / 2, (shape[1] - shape[0]) / 2, False
                    )
                if hit < distance - OCCLUSION_MARGIN:
                    visible[f, j] = False
                    break


@numba.njit(cache=True, nogil=True)
def _hit_capsule(eye, direction, shape):
    """Return the distance along a ray to its nearest point to a capsule's axis, infinity if the ray misses."""
    ux, uy, uz = shape[1, 0] - shape[0, 0], shape[1, 1] - shape[0, 1], shape[1, 2] - shape[0, 2]
    ox, oy, oz = eye[0] - shape[0, 0], eye[1] - shape[0, 1], eye[2] - shape[0, 2]
    a, b = ux * ux + uy * uy + uz * uz, ux * direction[0] + uy * direction[1] + uz * direction[2]
    c, d = ux * ox + uy * oy + uz * oz, direction[0] * ox + direction[1] * oy + direction[2] * oz
    det = a - b * b
    t = min(max((c - b * d) / det, 0.0), 1.0) if det > 1e-12 else 0.0
    along = b * t - d
    x, y, z = ox + along * direction[0] - t * ux, oy + along * direction[1] - t * uy, oz + along * direction[2] - t * uz
    radius = shape[2, 0] + t * (shape[2, 1] - shape[2, 0])
    return along if x * x + y * y + z * z < radius * radius and along > 0 else np.inf


@numba.njit(cache=True, nogil=True)
def _hit_plane(eye, direction, center, u, v, is_round):
    """Return the distance along a ray to a disc or rectangle of half axes u and v, infinity if the ray misses."""
    nx, ny, nz = u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]
    slope = nx * direction[0] + ny * direction[1] + nz * direction[2]
    if abs(slope) < 1e-9:
        return np.inf
    away = center - eye
    along = (nx * away[0] + ny * away[1] + nz * away[2]) / slope
    point = eye + along * direction - center
    a, b = _dot(point, u) / _dot(u, u), _dot(point, v) / _dot(v, v)
    inside = a * a + b * b < 1.0 if is_round else abs(a) < 1.0 and abs(b) < 1.0
    return along if inside and along > 0 else np.inf


@numba.njit(cache=True, nogil=True)
def _dot(u, v):
    """Return the dot product of two 3-vectors."""
    return u[0] * v[0] + u[1] * v[1] + u[2] * v[2]
