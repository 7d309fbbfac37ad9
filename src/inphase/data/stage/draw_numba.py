"""The rasteriser, compiled: shapes into pictures, back to front, at twice the size.

Every frame: shapes are sorted by depth and laid over each other on a transparent sheet of 2H × 2W, with soft edges and
a depth for every pixel so that limbs cross properly; the sheet is halved, laid over the background (shifted by the
camera's shake, darkened by the shadows on the floor), and exposed with the sensor's noise, a hash of seed, frame and
place.
"""

import numba
import numpy as np

from inphase.data.stage.figure import CAPSULE, DISC, QUAD


@numba.njit(cache=True, nogil=True)
def paint(
    pictures, background, margin, kinds, points, thick, colours, shadows, shifts, light, ambient, gains, noise, seed
):
    """Draw frames [F, H, W, 3] uint8 of shapes [F, S, 4, 3] given in pixels."""
    frames, height, width = pictures.shape[:3]
    sheet = np.empty((2 * height, 2 * width, 4), np.float32)
    depth = np.empty((2 * height, 2 * width), np.float32)
    shade = np.empty((height, width), np.float32)
    distance = np.empty(len(kinds))
    for f in range(frames):
        sheet[:] = 0.0
        depth[:] = 1e9
        shade[:] = 1.0
        for k in range(shadows.shape[1]):
            _shadow(shade, shadows[f, k])
        for s in range(len(kinds)):
            corners = 4 if kinds[s] == QUAD else 2 if kinds[s] == CAPSULE else 1
            distance[s] = 0.0
            for c in range(corners):
                distance[s] -= points[f, s, c, 2] / corners
        for s in np.argsort(distance):
            if kinds[s] == CAPSULE:
                _capsule(sheet, depth, points[f, s], thick[s], colours[s], light, ambient)
            elif kinds[s] == DISC:
                _disc(sheet, depth, points[f, s], colours[s])
            else:
                _quad(sheet, depth, points[f, s], colours[s])
        _expose(pictures[f], sheet, shade, background, margin, shifts[f], gains[f], noise, seed, f)


@numba.njit(cache=True, nogil=True)
def _lay(sheet, depth, row, column, z, cover, red, green, blue):
    """Lay a colour over a pixel unless something nearer is there."""
    if z >= depth[row, column]:
        return
    rest = np.float32(1.0 - cover)
    sheet[row, column, 0] = sheet[row, column, 0] * rest + red * cover
    sheet[row, column, 1] = sheet[row, column, 1] * rest + green * cover
    sheet[row, column, 2] = sheet[row, column, 2] * rest + blue * cover
    sheet[row, column, 3] = sheet[row, column, 3] * rest + cover
    if cover > 0.5:
        depth[row, column] = z


@numba.njit(cache=True, nogil=True)
def _capsule(sheet, depth, p, thick, colour, light, ambient):
    """Draw a tapered rod with round ends, lit as if it were round."""
    height, width = depth.shape
    ax, ay, bx, by = 2 * p[0, 0], 2 * p[0, 1], 2 * p[1, 0], 2 * p[1, 1]
    r0, r1 = max(2 * p[2, 0], 0.7), max(2 * p[2, 1], 0.7)
    most = max(r0, r1) + 1.0
    top, bottom = max(int(min(ay, by) - most), 0), min(int(max(ay, by) + most) + 1, height)
    left, right = max(int(min(ax, bx) - most), 0), min(int(max(ax, bx) + most) + 1, width)
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
            z = p[0, 2] + t * (p[1, 2] - p[0, 2]) - thick * bulge
            _lay(sheet, depth, row, column, z, cover, colour[0] * bright, colour[1] * bright, colour[2] * bright)


@numba.njit(cache=True, nogil=True)
def _disc(sheet, depth, p, colour):
    """Draw a flat disc: the ellipse spanned by two half axes."""
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
                _lay(sheet, depth, row, column, z, cover, colour[0] * rim, colour[1] * rim, colour[2] * rim)


@numba.njit(cache=True, nogil=True)
def _quad(sheet, depth, p, colour):
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
                _lay(sheet, depth, row, column, z, cover, colour[0], colour[1], colour[2])


@numba.njit(cache=True, nogil=True)
def _shadow(shade, spot):
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
def _expose(picture, sheet, shade, background, margin, shift, gain, noise, seed, number):
    """Halve the sheet, lay it over the shifted background and add the sensor's noise."""
    height, width = shade.shape
    x, y = margin - shift[0], margin - shift[1]
    left, top = int(np.floor(x)), int(np.floor(y))
    fx, fy = x - left, y - top
    w00, w01, w10, w11 = (1 - fx) * (1 - fy), fx * (1 - fy), (1 - fx) * fy, fx * fy
    for row in range(height):
        for column in range(width):
            r, c = 2 * row, 2 * column
            cover = 0.25 * (sheet[r, c, 3] + sheet[r, c + 1, 3] + sheet[r + 1, c, 3] + sheet[r + 1, c + 1, 3])
            through = (1.0 - cover) * shade[row, column]
            key = _hash(
                seed ^ (np.uint64(number) << np.uint64(40)) ^ (np.uint64(row) << np.uint64(20)) ^ np.uint64(column)
            )
            for k in range(3):
                i, j = top + row, left + column
                behind = background[i, j, k] * w00 + background[i, j + 1, k] * w01
                behind += background[i + 1, j, k] * w10 + background[i + 1, j + 1, k] * w11
                ahead = 0.25 * (sheet[r, c, k] + sheet[r, c + 1, k] + sheet[r + 1, c, k] + sheet[r + 1, c + 1, k])
                # The sum of three 7-bit parts of the hash is nearly normal, of mean 190.5 and deviation 64.
                bits = key >> np.uint64(21 * k)
                sum_of_three = (
                    (bits & np.uint64(127))
                    + ((bits >> np.uint64(7)) & np.uint64(127))
                    + ((bits >> np.uint64(14)) & np.uint64(127))
                )
                grain = (np.float64(sum_of_three) - 190.5) / 64.0
                value = 255.0 * (gain * (behind * through + ahead) + noise * grain) + 0.5
                picture[row, column, k] = np.uint8(min(max(value, 0.0), 255.0))


@numba.njit(cache=True, nogil=True)
def _hash(key):
    """Mix 64 bits (the finaliser of splitmix64)."""
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return key ^ (key >> np.uint64(31))
