"""The person chosen is the largest and most moving."""

import numpy as np
import pytest

from inphase.pose.blazepose import Region
from inphase.pose.tracking import PersonTrack, choose_person, prominence
from tests.pose.people import make_body


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
    person = choose_person(tracks, length=60)
    assert [person[frame] for frame in range(60)] == tracks[1].bodies
    assert choose_person(tracks[::-1], length=60) == person


def test_a_short_glimpse_does_not_win() -> None:
    assert prominence(make_track(range(10), swing=0.6), length=60) < prominence(
        make_track(range(60), swing=0.3), length=60
    )


def test_a_gap_is_filled_by_a_track_that_lies_on_the_way() -> None:
    main = make_track(range(40), swing=0.5)
    for frame, body in zip(range(50, 70), make_track(range(50, 70), x=56, swing=0.5).bodies, strict=True):
        main.add(frame, body)
    other = make_track(range(38, 55), x=53)
    elsewhere = make_track(range(38, 55), x=110)
    person = choose_person([main, elsewhere, other], length=70)
    assert sorted(person) == list(range(70))
    assert person[45] is other.bodies[45 - 38]
    assert person[39] is main.bodies[39]


def test_a_cut_to_another_view_goes_on_with_who_is_as_large() -> None:
    before, after = make_track(range(40), swing=0.5), make_track(range(42, 80), x=200, swing=0.4)
    assert sorted(choose_person([before, after], length=80)) == [*range(40), *range(42, 80)]
    always = make_track(range(80), x=200, swing=0.02)
    assert sorted(choose_person([before, always], length=80)) == list(range(40)), "a bystander does not take over"
    small = make_track(range(42, 80), x=200, radius=9, swing=0.4)
    assert sorted(choose_person([before, small], length=80)) == list(range(40))


def test_nobody_is_nobody() -> None:
    assert choose_person([], length=10) == {}
