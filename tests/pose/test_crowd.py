"""Everybody in view is followed, lost and found again."""

import numpy as np
from numpy.typing import NDArray

from inphase.pose.blazepose import Landmarks, Region
from inphase.pose.tracking import EVERY, PeopleTracker, PersonTrack, crops
from tests.pose.people import Actor, Stage, make_body, make_film


def watch(stage: Stage, length: int = 40) -> list[PersonTrack]:
    crowd = PeopleTracker(stage)
    for frame, picture in enumerate(make_film(length).frames):
        crowd.look(picture, frame / 30)
    return crowd.tracks


def test_two_people_who_cross_the_picture_are_two_tracks() -> None:
    left = Actor(lambda frame: Region(20 + frame, 40, 15))
    right = Actor(lambda frame: Region(100, 40 + frame / 2, 18))
    stage = Stage(left, right)
    tracks = watch(stage)
    assert [track.frames for track in tracks] == [list(range(40))] * 2
    assert [round(track.region.x) for track in tracks] == [59, 100]
    parts = len(crops(make_film(1).frames[0])) + 1
    assert stage.glances == 1 + parts + (40 / EVERY - 1) * 4, "those who are followed are not looked for all the time"


def test_somebody_who_comes_later_is_noticed() -> None:
    late = Actor(lambda frame: Region(90, 40, 20) if frame >= 11 else None)
    tracks = watch(Stage(Actor(lambda frame: Region(30, 40, 20)), late))
    assert [track.frames[0] for track in tracks] == [0, 16]


def test_somebody_lost_for_a_few_frames_is_the_same_person_also_when_they_moved() -> None:
    moving = Actor(lambda frame: Region(20 + 2 * frame, 40, 20), hidden=range(10, 16))
    (track,) = watch(Stage(moving))
    assert track.frames == [*range(10), *range(16, 40)]


def test_pictures_that_are_far_apart_are_searched_more_often() -> None:
    late = Actor(lambda frame: Region(90, 40, 20) if frame >= 3 else None)
    crowd = PeopleTracker(Stage(Actor(lambda frame: Region(30, 40, 20)), late))
    for frame, picture in enumerate(make_film(6).frames):
        crowd.look(picture, frame / 10)
    assert [track.frames[0] for track in crowd.tracks] == [0, 3]


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
        def read(self, picture: NDArray[np.uint8], region: Region) -> Landmarks | None:
            return make_body(Region(60, 30, 40)) if region.radius > 30 else super().read(picture, region)

    class Mistaken(Doubled):
        def find(self, picture: NDArray[np.uint8], *, margin: float = 0.25) -> list[Region]:
            first = [Region(60, 30, 40)] if picture[0, 0, 0] == 0 else []
            return first + super().find(picture, margin=margin)

    tracks = watch(Mistaken(Actor(lambda frame: Region(60, 45, 20))))
    assert [(round(track.region.radius), len(track.frames)) for track in tracks] == [(40, 2 * EVERY + 1), (20, 40)]


def test_the_much_smaller_are_left_alone() -> None:
    large, small = Actor(lambda frame: Region(40, 45, 40)), Actor(lambda frame: Region(100, 60, 10))
    assert [track.region.radius for track in watch(Stage(large)) if len(track.frames) > 8] == [40]
    lasting = [track for track in watch(Stage(large, small)) if len(track.frames) > 8]
    assert [track.region.radius for track in lasting] == [40]


def test_parts_cover_the_picture_and_overlap() -> None:
    for shape in ((90, 120), (128, 128), (100, 400), (7, 3)):
        covered: NDArray[np.int64] = np.zeros(shape, np.int64)
        for top, left, part in crops(np.zeros((*shape, 3), np.uint8)):
            assert part.shape[0] == part.shape[1]
            covered[top : top + part.shape[0], left : left + part.shape[1]] += 1
        assert covered.min() >= 1


def test_where_something_moves_somebody_is_looked_for() -> None:
    class Crowded(Stage):
        """Sees somebody at column 100 in parts of the picture only, and only when they move."""

        def find(self, picture: NDArray[np.uint8], *, margin: float = 0.25) -> list[Region]:
            whole, frame, left = picture.shape[1] == 120, int(picture[0, 0, 0]), int(picture[0, 0, 1])
            hidden = whole or frame < 10 or not left <= 85 < 115 <= left + picture.shape[1]
            return [Region(30 - left, 40, 15)] if left < 15 else [] if hidden else [Region(100 - left, 40, 15)]

    film = make_film(24)
    film.frames[..., 1] = np.arange(120, dtype=np.uint8)
    film.frames[10:, 30:60, 90:110, 2] = np.arange(14, dtype=np.uint8)[:, None, None] * 10
    actors = (Actor(lambda frame: Region(30, 40, 15)), Actor(lambda frame: Region(100, 40, 15)))
    crowd = PeopleTracker(Crowded(*actors))
    for frame, picture in enumerate(film.frames):
        crowd.look(picture, frame / 30)
    assert [(round(track.region.x), track.frames[0]) for track in crowd.tracks] == [(30, 0), (100, 16)]


def test_a_small_person_is_found_in_a_part_of_the_picture() -> None:
    class Shortsighted(Stage):
        def find(self, picture: NDArray[np.uint8], *, margin: float = 0.25) -> list[Region]:
            # Sees somebody at column 100 of the whole picture, in parts only, which begin with their own column.
            if picture.shape[1] == 120:
                return []
            left = int(picture[0, 0, 1])
            return [Region(100 - left, 40, 15)] if left <= 100 < left + picture.shape[1] else []

    film = make_film(12)
    film.frames[..., 1] = np.arange(120, dtype=np.uint8)
    crowd = PeopleTracker(Shortsighted(Actor(lambda frame: Region(100, 40, 15))))
    for frame, picture in enumerate(film.frames):
        crowd.look(picture, frame / 30)
    assert [track.frames for track in crowd.tracks] == [list(range(12))]
