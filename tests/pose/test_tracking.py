"""Everybody in view is tracked, lost and found again; the person chosen is the largest and most moving."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from inphase.pose.pose import Body, Region
from inphase.pose.tracking import (
    SEARCH_FRAMES,
    PeopleTracker,
    PersonTrack,
    choose_person,
    crops,
    prominence,
)
from tests.pose.people import JOINTS, Actor, Stage, make_body, make_film


def watch(stage: Stage, length: int = 40) -> list[PersonTrack]:
    tracker = PeopleTracker(stage)
    for frame, image in enumerate(make_film(length).frames):
        tracker.update(image, frame / 30)
    return tracker.tracks


def test_two_people_who_cross_the_image_are_two_tracks() -> None:
    left = Actor(lambda frame: Region(20 + frame, 40, 15))
    right = Actor(lambda frame: Region(100, 40 + frame / 2, 18))
    stage = Stage(left, right)
    tracks = watch(stage)
    by_size = sorted(tracks, key=lambda track: track.size)
    assert [track.frames for track in by_size] == [list(range(37)), list(range(40))], "one in four reads, and all"
    assert [round(track.region.x) for track in by_size] == [56, 100]
    assert [round(body.region.x) for body in by_size[0].bodies] == list(range(20, 57)), "skipped frames are between"
    assert stage.glances == 1 + 2 * 2, "those who are followed are not looked for all the time"


def test_somebody_who_comes_later_is_noticed() -> None:
    late = Actor(lambda frame: Region(90, 40, 20) if frame >= 11 else None)
    tracks = watch(Stage(Actor(lambda frame: Region(30, 40, 20)), late))
    assert [track.frames[0] for track in tracks] == [0, 3 * SEARCH_FRAMES]


def test_somebody_lost_for_a_few_frames_is_the_same_person_also_when_they_moved() -> None:
    moving = Actor(lambda frame: Region(20 + 2 * frame, 40, 20), hidden=range(10, 16))
    (track,) = watch(Stage(moving))
    assert track.frames == [*range(10), *range(16, 40)]


def test_images_that_are_far_apart_are_searched_more_often() -> None:
    late = Actor(lambda frame: Region(90, 40, 20) if frame >= 3 else None)
    tracker = PeopleTracker(Stage(Actor(lambda frame: Region(30, 40, 20)), late))
    for frame, image in enumerate(make_film(6).frames):
        tracker.update(image, frame / 10)
    assert [track.frames[0] for track in tracker.tracks] == [0, 3]


def test_a_jump_is_somebody_else() -> None:
    def place(frame: int) -> Region:
        return Region(20, 40, 15) if frame < 20 else Region(100, 40, 15)

    one, other = watch(Stage(Actor(place)))
    assert (one.frames[-1], other.frames[0]) == (19, 20)
    grown = Actor(lambda frame: Region(60, 40, 12 if frame < 20 else 30))
    assert len(watch(Stage(grown))) == 2


def test_a_slow_drift_to_another_size_ends_a_track() -> None:
    shrinking = Actor(lambda frame: Region(60, 40, 40 * 0.95 ** max(frame - 10, 0)))
    tracks = watch(Stage(shrinking))
    assert len(tracks) > 1
    assert tracks[0].region.radius > 40 / 1.5


def test_a_body_misread_at_another_size_is_dropped_when_the_person_is_found_in_it() -> None:
    class Doubled(Stage):
        def read(self, image: NDArray[np.uint8], region: Region) -> Body | None:
            return make_body(Region(60, 30, 40)) if region.radius > 30 else super().read(image, region)

    class Mistaken(Doubled):
        def find(self, image: NDArray[np.uint8], *, margin: float = 0.25) -> list[Region]:
            first = [Region(60, 30, 40)] if image[0, 0, 0] == 0 else []
            return first + super().find(image, margin=margin)

    tracks = watch(Mistaken(Actor(lambda frame: Region(60, 45, 20))))
    assert [(round(track.region.radius), len(track.frames)) for track in tracks] == [
        (40, 2 * SEARCH_FRAMES + 1),
        (20, 40),
    ]


def test_the_much_smaller_are_left_alone() -> None:
    large, small = Actor(lambda frame: Region(40, 45, 40)), Actor(lambda frame: Region(100, 60, 10))
    assert [track.region.radius for track in watch(Stage(large)) if len(track.frames) > 8] == [40]
    lasting = [track for track in watch(Stage(large, small)) if len(track.frames) > 8]
    assert [track.region.radius for track in lasting] == [40]


def test_parts_cover_the_image_and_overlap() -> None:
    for shape in ((90, 120), (128, 128), (100, 400), (7, 3)):
        covered: NDArray[np.int64] = np.zeros(shape, np.int64)
        for top, left, part in crops(np.zeros((*shape, 3), np.uint8)):
            assert part.shape[0] == part.shape[1]
            covered[top : top + part.shape[0], left : left + part.shape[1]] += 1
        assert covered.min() >= 1


def test_people_are_detected_where_something_moves() -> None:
    class Crowded(Stage):
        """Sees somebody at column 100 in parts of the image only, and only when they move."""

        def find(self, image: NDArray[np.uint8], *, margin: float = 0.25) -> list[Region]:
            whole, frame, left = image.shape[1] == 120, int(image[0, 0, 0]), int(image[0, 0, 1])
            hidden = whole or frame < 10 or not left <= 85 < 115 <= left + image.shape[1]
            return [Region(30 - left, 40, 15)] if left < 15 else [] if hidden else [Region(100 - left, 40, 15)]

    film = make_film(26)
    film.frames[..., 1] = np.arange(120, dtype=np.uint8)
    film.frames[10:, 30:60, 90:110, 2] = np.arange(16, dtype=np.uint8)[:, None, None] * 10
    actors = (Actor(lambda frame: Region(30, 40, 15)), Actor(lambda frame: Region(100, 40, 15)))
    tracker = PeopleTracker(Crowded(*actors))
    for frame, image in enumerate(film.frames):
        tracker.update(image, frame / 30)
    assert [(round(track.region.x), track.frames[0]) for track in tracker.tracks] == [(30, 0), (100, 3 * SEARCH_FRAMES)]


def test_a_small_person_is_found_in_a_part_of_the_image() -> None:
    class Shortsighted(Stage):
        def find(self, image: NDArray[np.uint8], *, margin: float = 0.25) -> list[Region]:
            # Sees somebody at column 100 of the whole image, in parts only, which begin with their own column.
            if image.shape[1] == 120:
                return []
            left = int(image[0, 0, 1])
            return [Region(100 - left, 40, 15)] if left <= 100 < left + image.shape[1] else []

    film = make_film(12)
    film.frames[..., 1] = np.arange(120, dtype=np.uint8)
    tracker = PeopleTracker(Shortsighted(Actor(lambda frame: Region(100, 40, 15))))
    for frame, image in enumerate(film.frames):
        tracker.update(image, frame / 30)
    assert [track.frames for track in tracker.tracks] == [list(range(12))]


def clip_of(length: int) -> dict[str, Any]:
    return {"joints": JOINTS, "times": np.arange(length) / 30, "size": (90, 240)}


def make_track(
    frames: range, *, x: float = 50.0, speed: float = 0.0, radius: float = 20.0, swing: float = 0.0, noise: float = 0.0
) -> PersonTrack:
    track = PersonTrack()
    rng = np.random.default_rng(0)
    for frame in frames:
        region = Region(x + speed * frame + noise * rng.normal(), 40.0, radius)
        track.add(frame, make_body(region, swing=swing * float(np.sin(frame / 5))))
    return track


@pytest.mark.parametrize(
    ("hero", "bystander"),
    [
        ({"swing": 0.6}, {"swing": 0.02}),
        ({"swing": 0.6, "radius": 14.0}, {"swing": 0.05, "radius": 22.0}),
        ({"swing": 0.3}, {"swing": 0.3, "radius": 13.0}),
        ({"swing": 0.5}, {"swing": 0.02, "speed": 1.0}),  # walks through the background
        ({"swing": 0.5}, {"swing": 0.02, "noise": 4.0}),  # is filmed by a shaking camera
    ],
)
def test_the_largest_and_most_moving_is_chosen(hero: dict[str, float], bystander: dict[str, float]) -> None:
    tracks = [make_track(range(60), x=100, **bystander), make_track(range(60), **hero)]
    person = choose_person(tracks, **clip_of(60))
    assert [person[frame] for frame in range(60)] == tracks[1].bodies
    assert choose_person(tracks[::-1], **clip_of(60)) == person


def test_a_short_glimpse_does_not_win() -> None:
    short = prominence(make_track(range(10), swing=0.6), **clip_of(60))
    long = prominence(make_track(range(60), swing=0.3), **clip_of(60))
    assert short < long


def test_a_gap_is_filled_by_a_track_that_lies_on_the_way() -> None:
    main = make_track(range(40), swing=0.5)
    for frame, body in zip(range(50, 70), make_track(range(50, 70), x=56, swing=0.5).bodies, strict=True):
        main.add(frame, body)
    other = make_track(range(38, 55), x=53)
    elsewhere = make_track(range(38, 55), x=110)
    person = choose_person([main, elsewhere, other], **clip_of(70))
    assert sorted(person) == list(range(70))
    assert person[45] is other.bodies[45 - 38]
    assert person[39] is main.bodies[39]


def test_a_cut_to_another_view_goes_on_with_who_is_as_large() -> None:
    before, after = make_track(range(40), swing=0.5), make_track(range(42, 80), x=200, swing=0.4)
    assert sorted(choose_person([before, after], **clip_of(80))) == [*range(40), *range(42, 80)]
    always = make_track(range(80), x=200, swing=0.02)
    assert sorted(choose_person([before, always], **clip_of(80))) == list(range(40)), "a bystander does not take over"
    small = make_track(range(42, 80), x=200, radius=9, swing=0.4)
    assert sorted(choose_person([before, small], **clip_of(80))) == list(range(40))


def test_a_phantom_larger_than_the_image_does_not_win() -> None:
    """A body upside down in a few frames, in a circle larger than the image, moves more pixels than anybody."""
    player, phantom = make_track(range(97), radius=14.0, swing=0.4), PersonTrack()
    for frame in range(40, 51):
        body = make_body(Region(120.0, 45.0, 200.0), swing=0.8 * float(np.sin(frame / 2)))
        phantom.add(frame, replace(body, points=np.array([240, 90], np.float32) - body.points))
    for tracks in ([player, phantom], [phantom, player]):
        person = choose_person(tracks, **clip_of(97))
        assert [person[frame] for frame in range(97)] == player.bodies


def test_jitter_is_no_motion() -> None:
    rng, still, player = np.random.default_rng(0), PersonTrack(), make_track(range(60), swing=0.3)
    for frame in range(60):
        body = make_body(Region(110.0, 40.0, 22.0))
        jitter = rng.normal(0, 8, body.points.shape).astype(np.float32)
        still.add(frame, replace(body, points=body.points + jitter))
    assert prominence(still, **clip_of(60)) < 0.5 * prominence(player, **clip_of(60))


def test_nobody_is_nobody() -> None:
    assert choose_person([], **clip_of(10)) == {}
