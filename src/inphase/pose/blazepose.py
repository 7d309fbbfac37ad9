"""The pose estimator BlazePose: one network finds all people in an image, another reads the joints of one of them.

The detector marks each person by two points: the middle of the hips, and a point on the circle around the whole body
above the head. The landmark network reads 33 joints, and the same two points, from the square around that circle, a
quarter larger and turned so that the person is upright; its heat maps refine the joints.

Bazarevsky et al., "BlazePose: On-device Real-time Body Pose tracking", CVPR workshops 2020.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import count
from threading import Condition
from typing import Any, ClassVar

import numba
import numpy as np
import torch
import torch.nn.functional as F
from cachetools import cached
from numpy.typing import NDArray

from inphase.media.frames import Clip
from inphase.pose.networks import DETECTOR, LANDMARKS, find_model, open_network
from inphase.pose.pose import Body, Pose, Region
from inphase.pose.tracking import track_person
from inphase.storage.errors import MissingExtraError, import_extra

# The black margin on each side of an image in which people are searched, as a fraction of the longer side: the network
# needs the whole circle around a person inside the image.
MARGIN = 0.25

# An implausible figure is estimated again in a window that reaches this many torso lengths from its hips, enlarged
# by this factor, to at most this many pixels.
CLOSER_TORSOS, CLOSER_SCALE, MAX_CLOSER_PIXELS = 2.6, 2.0, 1024

# The detector: sides of its input and of its grids of anchors, with the number of anchors in a cell.
_SEARCH_SIDE = 224
_GRIDS = ((28, 2), (14, 2), (7, 6))
_MIN_SCORE, _MAX_OVERLAP = 0.5, 0.3

# The landmark network: side of its input, which is this many times the circle's radius.
_READ_SIDE, _READ_RADII = 256, 2.5
_CENTER, _RIM = 33, 34  # landmarks that are not joints
_MIN_PRESENCE = 0.5
# A joint is refined by the heat map in a window of this many cells where the map has at least this confidence.
_WINDOW, _MIN_HEAT = 9, 0.5
# Squares that numpy samples, at a millisecond more each, before numba compiles a sampler, which takes 0.8 s: two clips
# of 4 seconds need 280.
MAX_PLAIN_SQUARES = 512


class BlazePose:
    """The two networks for images of any size: a `PoseEstimator` and a `PersonDetector`."""

    joints: ClassVar[tuple[str, ...]] = (
        "nose",
        *(f"{side}_eye{part}" for side in ("left", "right") for part in ("_inner", "", "_outer")),
        *(f"{side}_ear" for side in ("left", "right")),
        *(f"{side}_mouth" for side in ("left", "right")),
        *(
            f"{side}_{joint}"
            for joint in (
                "shoulder",
                "elbow",
                "wrist",
                "pinky",
                "index",
                "thumb",
                "hip",
                "knee",
                "ankle",
                "heel",
                "foot",
            )
            for side in ("left", "right")
        ),
    )

    def __init__(self, *, complexity: int = 1, device: str = "cpu") -> None:
        """Load the networks; `complexity` 0, 1 or 2 is the size of the second, `device` one of torch's names."""
        if complexity not in range(len(LANDMARKS)):
            raise ValueError(f"complexity must be 0, 1 or 2, got {complexity}")
        self._detect = open_network(DETECTOR, device=device)
        self._landmarks = open_network(LANDMARKS[complexity], device=device)

    @staticmethod
    def require_installed() -> None:
        """Raise `MissingExtraError` without OpenVINO or without the files of the networks."""
        try:
            import_extra("openvino", extra="pose")
        except MissingExtraError as error:
            raise MissingExtraError("pose from video needs OpenVINO: pip install 'inphase[pose]'") from error
        for model in (DETECTOR, LANDMARKS[1]):
            find_model(model)

    def estimate(self, clips: Iterable[Clip]) -> Pose:
        """Estimate the pose of the person that consecutive clips are about."""
        return track_person(self, clips)

    def estimate_closer(self, clips: Iterable[Clip], pose: Pose) -> Pose:
        """Estimate the pose again in the surroundings of the figure, at twice the size."""
        left, top, right, bottom = _surroundings(pose)
        scale = min(CLOSER_SCALE, MAX_CLOSER_PIXELS / max(right - left, bottom - top))
        larger = (Clip(_resize(clip.frames[:, top:bottom, left:right], scale), clip.times) for clip in clips)
        found = track_person(self, larger)
        points = (found.keypoints + np.float32(0.5)) / np.float32(scale) - np.float32(0.5)
        return replace(found, keypoints=points + np.array([left, top], np.float32), size=pose.size)

    def shows_person(self, image: NDArray[np.uint8]) -> bool:
        """Report whether an image [H, W, 3] shows a person."""
        return bool(self.find(image))

    def find(self, image: NDArray[np.uint8], *, margin: float = MARGIN) -> list[Region]:
        """Find the people in an image [H, W, 3], the surest first."""
        height, width = image.shape[:2]
        edge = round(margin * max(height, width))
        side = max(height, width) + 2 * edge
        x, y = (side - width) // 2, (side - height) // 2  # the image in the middle of a black square
        square = Region(side / 2 - x, side / 2 - y, side / 2)
        boxes, logits = self._detect(crop_square(image, square, side=side, size=_SEARCH_SIDE, low=-1, extend=False))
        points = decode_people(boxes[0], logits[0, :, 0]) * side - [x, y]  # [N, 2, 2]
        return [_region(center, rim) for center, rim in points]

    def read(self, image: NDArray[np.uint8], region: Region) -> Body | None:
        """Read the joints of the person in a region; None if no person is there."""
        side = _READ_RADII * region.radius
        corner = Region(region.x + 0.5, region.y + 0.5, region.radius, region.angle)
        pixels = crop_square(image, corner, side=side, size=_READ_SIDE, low=0, extend=True)
        values, presence, heat, world = self._landmarks(pixels)
        if presence.item() < _MIN_PRESENCE:
            return None
        landmarks = values[0].reshape(-1, 5)
        places = refine_landmarks(landmarks[:, :2] / _READ_SIDE, heat[0])
        turn = _rotation(region.angle)
        points = (places - 0.5) * side @ turn.T + [region.x, region.y]
        joints = len(self.joints)
        space = world[0].reshape(-1, 3)[:joints].astype(np.float64)
        space[:, :2] = space[:, :2] @ turn.T
        return Body(
            points[:joints].astype(np.float32),
            space.astype(np.float32),
            _sigmoid(landmarks[:joints, 3]).astype(np.float32),
            _region(points[_CENTER], points[_RIM], corner=0.0),
        )


def _surroundings(pose: Pose) -> tuple[int, int, int, int]:
    """Return the part of the image that a figure needs: left, top, right and bottom in pixels."""
    shoulders, hips = (
        pose.keypoints[:, [pose.joints.index(f"{side}_{joint}") for side in ("left", "right")]].mean(1)[pose.found]
        for joint in ("shoulder", "hip")
    )
    reach = CLOSER_TORSOS * float(np.median(np.linalg.norm(shoulders - hips, axis=1)))
    height, width = pose.size
    low, high = np.quantile(hips, 0.05, axis=0) - reach, np.quantile(hips, 0.95, axis=0) + reach
    left, right = (int(np.clip(x, 0, width)) for x in (np.floor(low[0]), np.ceil(high[0])))
    top, bottom = (int(np.clip(y, 0, height)) for y in (np.floor(low[1]), np.ceil(high[1])))
    # A figure outside of the image has the whole image as its surroundings.
    return (left, top, right, bottom) if right - left > 8 and bottom - top > 8 else (0, 0, width, height)


def _resize(frames: NDArray[np.uint8], scale: float) -> NDArray[np.uint8]:
    """Resize images [T, H, W, 3] by bicubic interpolation."""
    # Bytes with channels last take a twentieth of the time of floats, and differ from them by at most 1 of 255.
    planes = torch.from_numpy(np.ascontiguousarray(frames)).permute(0, 3, 1, 2)
    size = [max(round(length * scale), 1) for length in planes.shape[2:]]
    resized = F.interpolate(planes, size=size, mode="bicubic", align_corners=False)
    return np.ascontiguousarray(resized.permute(0, 2, 3, 1).numpy())


def _rotation(angle: float) -> NDArray[np.float64]:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def _sigmoid(values: NDArray[np.float32]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-np.clip(values.astype(np.float64), -100, 100)))


def _region(center: NDArray[np.float64], rim: NDArray[np.float64], *, corner: float = 0.5) -> Region:
    """Make a region of the middle of the hips and the rim above the head; `corner` is where their origin lies."""
    along, down = (rim - center).tolist()
    x, y = (center - corner).tolist()
    return Region(x, y, float(np.hypot(along, down)), float(np.arctan2(along, -down)))


def crop_square(
    image: NDArray[np.uint8], region: Region, *, side: float, size: int, low: float, extend: bool
) -> NDArray[np.float32]:
    """Sample a turned square of `side` pixels around a region's center: [1, size, size, 3] from `low` to 1.

    Outside of the image its border is extended, or all is black.
    """
    turn = _rotation(region.angle) * side / size
    start = np.array([region.x, region.y]) - turn.sum(1) * size / 2
    pixels = np.empty((1, size, size, 3), np.float32)
    sample = sample_by_numpy if next(_squares) < MAX_PLAIN_SQUARES else compile_sampler()
    sample(np.ascontiguousarray(image), start, turn, np.float32((1 - low) / 255), np.float32(low), extend, pixels[0])
    return pixels


_squares = count()


def sample_by_numpy(
    image: NDArray[np.uint8],
    start: NDArray[np.float64],
    turn: NDArray[np.float64],
    scale: np.float32,
    shift: np.float32,
    extend: bool,
    pixels: NDArray[np.float32],
) -> None:
    """Interpolate like `sample_square`, to the same values."""
    (height, width), ticks = image.shape[:2], np.arange(len(pixels))
    levels = (np.arange(256) * scale + shift).astype(np.float32)
    for some in np.split(ticks, range(64, len(ticks), 64)):  # 64 rows fit a cache: 3.6 ms, all at once 5
        x, y = (
            np.floor(begin + along * ticks + (down * some)[:, None] + 0.5).astype(np.int32)
            for begin, (along, down) in zip(32 * start, 32 * turn, strict=True)
        )
        # Each sample lies between four pixels.
        columns, rows = (
            [np.clip((part >> 5) + k, 0, end - 1) for k in (0, 1)] for part, end in ((x, width), (y, height))
        )
        places = [((row * width + column) * 3).astype(np.intp) for row in rows for column in columns]
        masks = [] if extend else [row & column for row in _inside(y, height) for column in _inside(x, width)]
        across, down = (x & 31).astype(np.int16), y & 31
        for color in range(3):
            near = [image.reshape(-1)[color:].take(place, mode="clip").astype(np.int16) for place in places]
            if masks:
                near = [value * mask for value, mask in zip(near, masks, strict=True)]
            above, below = (32 * left + across * (right - left) for left, right in (near[:2], near[2:]))
            blended = np.int32(32) * above + down * (below - above)
            pixels[some[0] : some[-1] + 1, :, color] = levels.take((blended + 512) >> 10)


def _inside(part: NDArray[np.int32], length: int) -> list[NDArray[np.bool_]]:
    """Report whether the pixels before and after positions, in 1/32 of a pixel, are in an image of `length`."""
    return [(part >= -32 * k) & (part < 32 * (length - k)) for k in (0, 1)]


@numba.njit(inline="always")
def clamp(index, length):
    """Move an index into a range."""
    return 0 if index < 0 else length - 1 if index >= length else index


# One signature for all images, read-only ones included.
_IMAGE = numba.types.Array(numba.uint8, 3, "C", readonly=True)
_SAMPLE = numba.void(
    _IMAGE,
    numba.float64[::1],
    numba.float64[:, ::1],
    numba.float32,
    numba.float32,
    numba.boolean,
    numba.float32[:, :, ::1],
)


@cached({}, condition=Condition())  # threads wait for one of them to compile it
def compile_sampler() -> Any:
    """Compile `sample_square`, in a second; cache it on disk where numba finds a writable folder."""
    try:
        return numba.njit(_SAMPLE, cache=True, nogil=True, error_model="numpy")(sample_square)
    except RuntimeError:
        return numba.njit(_SAMPLE, nogil=True, error_model="numpy")(sample_square)


def sample_square(image, start, turn, scale, shift, extend, pixels):
    """Interpolate an image at `start` + `turn` · (column, row) for each of `pixels`.

    As in OpenCV, by which the networks' own pipeline samples, positions are rounded to 1/32 and values to integers.
    """
    height, width = image.shape[:2]
    for row in range(pixels.shape[0]):
        for column in range(pixels.shape[1]):
            x = np.int64(np.floor((start[0] + turn[0, 0] * column + turn[0, 1] * row) * 32 + 0.5))
            y = np.int64(np.floor((start[1] + turn[1, 0] * column + turn[1, 1] * row) * 32 + 0.5))
            left, top, across, down = x >> 5, y >> 5, x & 31, y & 31
            right, bottom = left + 1, top + 1
            a, b, c, d = (32 - across) * (32 - down), across * (32 - down), (32 - across) * down, across * down
            if left < 0 or top < 0 or right >= width or bottom >= height:
                if not extend:
                    a *= (0 <= left < width) & (0 <= top < height)
                    b *= (0 <= right < width) & (0 <= top < height)
                    c *= (0 <= left < width) & (0 <= bottom < height)
                    d *= (0 <= right < width) & (0 <= bottom < height)
                left, right = clamp(left, width), clamp(right, width)
                top, bottom = clamp(top, height), clamp(bottom, height)
            for color in range(3):
                value = a * image[top, left, color] + b * image[top, right, color]
                value += c * image[bottom, left, color] + d * image[bottom, right, color]
                pixels[row, column, color] = ((value + 512) >> 10) * scale + shift


def decode_people(boxes: NDArray[np.float32], logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Decode the detector's outputs to the two points of each person [N, 2, 2], in fractions of the input.

    Overlapping detections are averaged with their scores as weights.
    """
    scores = _sigmoid(logits)
    chosen = np.flatnonzero(scores >= _MIN_SCORE)
    order = chosen[np.argsort(-scores[chosen], kind="stable")]
    values = boxes[order].astype(np.float64) / _SEARCH_SIDE
    centers = values[:, :2] + _ANCHORS[order]
    corners = np.concatenate([centers - values[:, 2:4] / 2, centers + values[:, 2:4] / 2], axis=1)
    points = values[:, 4:8].reshape(-1, 2, 2) + _ANCHORS[order][:, None]
    scores = scores[order]
    people = []
    left = np.arange(len(order))
    while len(left):
        overlap = _overlaps(corners[left[0]], corners[left])
        same = left[overlap > _MAX_OVERLAP] if (overlap > _MAX_OVERLAP).any() else left[:1]
        people.append(np.average(points[same], axis=0, weights=scores[same]))
        left = left[~np.isin(left, same)]
    return np.array(people).reshape(-1, 2, 2)


def _overlaps(box: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the intersection over union of a box with others, [N]."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    shared = np.maximum(high - low, 0).prod(1)
    return np.asarray(
        shared / np.maximum((box[2:] - box[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(1) - shared, 1e-12)
    )


def _anchors() -> NDArray[np.float64]:
    """Return the centers of the detector's anchors, [A, 2] in fractions of its input."""
    grids = []
    for side, number in _GRIDS:
        ticks = (np.arange(side) + 0.5) / side
        cells = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
        grids.append(np.repeat(cells, number, axis=0))
    return np.concatenate(grids)


_ANCHORS = _anchors()


def refine_landmarks(places: NDArray[np.float32], heat: NDArray[np.float32]) -> NDArray[np.float64]:
    """Move landmarks [N, 2], in fractions, to the weighted mean of their heat maps [S, S, N] around them."""
    side, half = heat.shape[0], _WINDOW // 2
    cells = np.floor(places * side).astype(int)
    inside = ((cells >= 0) & (cells < side)).all(1)
    around = np.clip(cells, 0, side - 1)[:, :, None] + np.arange(-half, half + 1)  # [N, 2, W] columns and rows
    columns, rows = around[:, 0, None, :], around[:, 1, :, None]
    exists = (columns >= 0) & (columns < side) & (rows >= 0) & (rows < side)
    numbers = np.arange(len(cells))[:, None, None]
    weights = _sigmoid(heat[np.clip(rows, 0, side - 1), np.clip(columns, 0, side - 1), numbers]) * exists
    sure = inside & (weights.max((1, 2)) >= _MIN_HEAT)
    total = np.maximum(weights.sum((1, 2)), 1e-12)
    means = np.stack([(weights * columns).sum((1, 2)), (weights * rows).sum((1, 2))], axis=1) / total[:, None] / side
    return np.where(sure[:, None], means, places)
