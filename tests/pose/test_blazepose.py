"""BlazePose without MediaPipe's runtime: crops, decoding, and the same people and joints as MediaPipe finds."""

import importlib.util
import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.ndimage import map_coordinates

from inphase.media.frames import Clip, read_clip
from inphase.pose import blazepose
from inphase.pose.blazepose import BlazePose, crop_square, decode_people, refine_landmarks
from inphase.pose.pose import Pose, Region, assemble
from tests.pose.people import JOINTS, make_body, needs_networks
from tests.real_data import needs_real, real_folder

needs_mediapipe = pytest.mark.skipif(importlib.util.find_spec("mediapipe") is None, reason="no mediapipe to compare")
ANCHORS = 28 * 28 * 2 + 14 * 14 * 2 + 7 * 7 * 6


@pytest.mark.parametrize("extend", [False, True])
def test_a_square_is_turned_about_its_center(extend: bool) -> None:
    image = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
    region = Region(50.3, 20.8, 1.0, 0.4)
    pixels = crop_square(image, region, side=48.0, size=64, low=0, extend=extend)
    columns, rows = np.meshgrid((np.arange(64) / 64 - 0.5) * 48, (np.arange(64) / 64 - 0.5) * 48)
    x = region.x + np.cos(0.4) * columns - np.sin(0.4) * rows
    y = region.y + np.sin(0.4) * columns + np.cos(0.4) * rows
    padded = image if extend else np.pad(image, ((2, 2), (2, 2), (0, 0)))
    shift, mode = (0, "nearest") if extend else (2, "constant")
    for color in range(3):
        plane = padded[..., color].astype(float)
        expected = map_coordinates(plane, [y + shift, x + shift], order=1, mode=mode)
        # Positions are rounded to 1/32 of a pixel: at most 1/64 of the steepest steps between pixels, twice.
        assert np.abs(pixels[0, ..., color] * 255 - expected).max() < 0.5 + 2 * 255 / 64
        assert np.abs(pixels[0, ..., color] * 255 - expected).mean() < 1
    signed = crop_square(image, region, side=48.0, size=64, low=-1, extend=extend)
    np.testing.assert_allclose(signed, pixels * 2 - 1, atol=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_numpy_and_numba_sample_the_same_square(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = np.random.default_rng(seed)
    height, width = rng.integers(1, 90, 2).tolist()
    image = rng.integers(0, 256, (height, width, 3), np.uint8)[:, : rng.integers(1, width + 1)]
    region = Region(rng.uniform(-20, width + 20), rng.uniform(-20, height + 20), 1.0, rng.uniform(-4, 4))
    side, low, extend = float(rng.uniform(1, 200)), -float(rng.integers(2)), bool(seed % 2)
    found = []
    for most in (0, 10**9):
        monkeypatch.setattr(blazepose, "MAX_PLAIN_SQUARES", most)
        found.append(crop_square(image, region, side=side, size=64, low=low, extend=extend))
    np.testing.assert_array_equal(found[0], found[1])


def test_overlapping_detections_are_one_person() -> None:
    boxes, logits = np.zeros((ANCHORS, 12), np.float32), np.full(ANCHORS, -50, np.float32)
    # Anchors 2 and 4 are the second and third cell of the first row of 28; 1567 is the last of its grid.
    for anchor, logit in ((2, 2.0), (4, 0.5), (1567, 5.0), (900, -0.1)):
        boxes[anchor, 2:4] = 60
        boxes[anchor, 4:8] = 0, 8, 0, -30
        logits[anchor] = logit
    people = decode_people(boxes, logits)
    assert len(people) == 2, "below a score of one half is nobody"
    np.testing.assert_allclose(
        people[0], [[27.5 / 28, 27.5 / 28 + 8 / 224], [27.5 / 28, 27.5 / 28 - 30 / 224]], atol=1e-6
    )
    weights = 1 / (1 + np.exp([-2.0, -0.5]))
    x = np.average([1.5 / 28, 2.5 / 28], weights=weights)
    np.testing.assert_allclose(people[1], [[x, 0.5 / 28 + 8 / 224], [x, 0.5 / 28 - 30 / 224]], atol=1e-6)
    assert decode_people(boxes, np.full(ANCHORS, -50, np.float32)).shape == (0, 2, 2)


def test_a_heat_map_refines_only_where_it_is_sure() -> None:
    heat = np.full((64, 64, 4), -30, np.float32)
    heat[20, 33, 0] = 10  # column 33, row 20
    heat[20, 40, 1] = 10  # outside of the window
    heat[20, 31, 2] = -0.5  # not sure
    heat[0, 1, 3] = 10
    places = np.array([[31.5, 19.5], [31.5, 19.5], [31.5, 19.5], [0.2, 0.4]]).astype(np.float32) / np.float32(64)
    refined = refine_landmarks(places, heat) * 64
    np.testing.assert_allclose(refined, np.array([[33, 20], [31.5, 19.5], [31.5, 19.5], [1, 0]]), atol=1e-4)
    outside = np.array([[-0.1, 0.5], [0.5, 1.2], [2.0, 0.5], [0.5, -3]], np.float32)
    np.testing.assert_array_equal(refine_landmarks(outside, heat + 40), outside)


def test_the_closer_look_is_at_twice_the_size_and_in_the_places_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bright point in the enlarged surroundings of a figure is where it is in the whole image."""
    frames = np.zeros((4, 90, 200, 3), np.uint8)
    frames[:, 41, 152] = 255
    sizes = []

    def track_brightest(_: object, clips: Iterable[Clip]) -> Pose:
        (clip,) = clips
        sizes.append(clip.frames.shape[1:3])
        rows, columns = np.indices(clip.frames.shape[1:3])
        weights = clip.frames[0, ..., 0].astype(np.float64)
        place = [(weights * axis).sum() / weights.sum() for axis in (columns, rows)]
        return replace(
            pose, keypoints=np.tile(np.array(place, np.float32), (4, len(JOINTS), 1)), size=clip.frames.shape[1:3]
        )

    monkeypatch.setattr("inphase.pose.blazepose.track_person", track_brightest)
    body = make_body(Region(150, 40, 20))
    times = np.arange(4) / 30
    pose = assemble(dict.fromkeys(range(4), body), joints=JOINTS, times=times, size=(90, 200))
    found = BlazePose.estimate_closer(BlazePose.__new__(BlazePose), [Clip(frames, times)], pose)
    np.testing.assert_allclose(found.keypoints[:, 0], np.tile([152.0, 41.0], (4, 1)), atol=0.1)
    assert found.size == (90, 200)
    # The torso has 10 pixels: 26 to each side of the hips, twice.
    assert sizes == [(104, 104)]


def clips() -> list[Path]:
    golf = sorted((real_folder("golfdb") / "videos").glob("*.mp4"))[::150]
    signs = sorted(real_folder("lsa64_signs").rglob("*.mp4"))[::40]
    return [*golf, *signs, *sorted(real_folder("workout_reps").rglob("*.mp4"))[::11]]


@pytest.mark.slow
@needs_networks
@needs_mediapipe
@needs_real("golfdb")
@needs_real("lsa64_signs")
@needs_real("workout_reps")
def test_people_and_joints_are_those_of_mediapipe() -> None:
    from tests.pose.mediapipe_blazepose import MediaPipeBlazePose

    ours, theirs = BlazePose(), MediaPipeBlazePose()
    shoulders, hips = ([JOINTS.index(f"{side}_{joint}") for side in ("left", "right")] for joint in ("shoulder", "hip"))
    compared = 0
    for path in clips():
        image = read_clip(path, indices=np.array([5])).frames[0]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=r"SymbolDatabase\.GetPrototype")
            found, expected = ours.find(image), theirs.find(image)
            bodies = [(ours.read(image, region), theirs.read(image, region)) for region in expected]
        assert len(found) == len(expected)
        for region, right in zip(found, expected, strict=True):
            distance = np.hypot(region.x - right.x, region.y - right.y) + abs(region.radius - right.radius)
            assert distance < 0.01 * right.radius
            assert abs(region.angle - right.angle) < 0.01
        for body, reference in bodies:
            assert (body is None) == (reference is None)
            if body is None or reference is None:
                continue
            torso = float(np.linalg.norm(reference.points[shoulders].mean(0) - reference.points[hips].mean(0)))
            assert np.linalg.norm(body.points - reference.points, axis=1).max() < 0.01 * torso
            np.testing.assert_allclose(body.world, reference.world, atol=0.005)
            np.testing.assert_allclose(body.visibility, reference.visibility, atol=0.01)
            compared += 1
    assert compared >= 6
