"""The page in a real browser."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from inphase.playback import (
    INDEX,
    Certainty,
    Curves,
    Keypoints,
    Pair,
    Playback,
    PlaybackMoment,
    Result,
    Skeleton,
    TimeMap,
    VideoTrack,
    read_playback,
    write_playback,
)
from tests.viewer.conftest import EVIL, RATE, answered, where

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from playwright.sync_api import Page

Open = Callable[..., "Page"]


def test_names_and_labels_stay_text(open_page: Open, pair_url: str) -> None:
    page = open_page(pair_url)
    page.wait_for_timeout(200)
    assert page.evaluate("() => window.evil") is None
    assert page.locator("main img, header img:not(.mark)").count() == 0
    assert page.locator("h1").inner_text() == f"Pair {EVIL}"
    assert page.locator("figcaption .name").nth(1).inner_text() == EVIL
    assert page.locator(".band span").first.inner_text() == EVIL


def with_certainty(folder: Path, copy: Path, certainty: Certainty) -> Path:
    """Copy a playback and give its second track a certainty."""
    shutil.copytree(folder, copy)
    playback = read_playback(copy)
    first, second = playback.tracks
    write_playback(copy, playback.replace(tracks=(first, second.replace(certainty=certainty))))
    return copy


@pytest.mark.parametrize(
    ("judgment", "words"), [("good", "good"), ("check", "check these moments"), ("do_not_trust", "do not trust")]
)
def test_the_verdict_is_in_words_with_its_reasons(
    open_page: Open, pair_folder: Path, tmp_path: Path, judgment: str, words: str
) -> None:
    certainty = Certainty(np.arange(5), np.ones(5), judgment, 0.42, (f"Frames differ {EVIL}.",))
    with answered(with_certainty(pair_folder, tmp_path / "p", certainty)) as url:
        page = open_page(url)
        assert page.locator("#badge").inner_text().split("\n")[-1] == words
        assert page.locator("#badge .verdict").get_attribute("title") == "probability 42 %"
        warned = page.get_by_role("alert").filter(has_text="Warning")
        assert warned.count() == (judgment == "do_not_trust")
        shown = page.locator("#warning" if judgment == "do_not_trust" else "#reasons").inner_text()
        assert (f"Frames differ {EVIL}." in shown) is (judgment != "good")
        assert page.evaluate("() => window.evil") is None


def test_the_reasons_of_several_videos_are_folded(open_page: Open, pair_folder: Path, tmp_path: Path) -> None:
    certainty = Certainty(np.arange(5), np.ones(5), "check", 0.6, ("Frames differ.",))
    folder = with_certainty(pair_folder, tmp_path / "p", certainty)
    first, second = read_playback(folder).tracks
    third = second.replace(name="third")
    write_playback(folder, read_playback(folder).replace(tracks=(first, second, third), pairs=()))
    with answered(folder) as url:
        page = open_page(url, width=390, height=844)
        assert page.locator("#reasons").inner_text() == "2 videos to check: reasons"
        page.locator("#reasons summary").click()
        assert page.locator("#reasons").inner_text().count("Frames differ.") == 2


def test_the_confidence_of_moments_is_shown_by_color_pattern_and_words(
    open_page: Open, pair_folder: Path, tmp_path: Path
) -> None:
    certainty = Certainty(np.arange(5), np.array([1, 1, 0, 1, 1]), "check", 0.6)  # low around 2 s
    with answered(with_certainty(pair_folder, tmp_path / "p", certainty)) as url:
        page = open_page(url)
        label = page.locator(".confidence").get_attribute("aria-label") or ""
        assert "low 1.50–2.50 s" in label
        assert label.endswith("otherwise high")
        styles = page.evaluate(
            "() => ['high', 'medium', 'low'].map((level) => { const style = getComputedStyle("
            "document.querySelector(`.confidence .${level}`)); return [style.height, style.backgroundImage]; })"
        )
        assert len({height for height, _ in styles}) == 3
        assert len({image for _, image in styles}) == 3
        page.locator(".confidence-legend button").click()
        assert where(page)[0] == pytest.approx(1.5)


def test_a_screen_reader_finds_its_way(open_page: Open, pair_url: str) -> None:
    page = open_page(pair_url)
    for role, name in (
        ("button", "Play"),
        ("button", "One frame forward"),
        ("slider", "Time"),
        ("slider", "Cost matrix and path of the alignment"),
        ("combobox", "Speed"),
        ("button", "Repeat"),
        ("button", "top, 1.00 seconds, 80 % sure"),
        ("button", "Light or dark theme"),
        ("region", "Videos"),
    ):
        assert page.get_by_role(role, name=name, exact=True).count() == 1, name  # type: ignore[arg-type]
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    page.wait_for_timeout(700)
    assert page.locator("#live").inner_text() == "3.98 seconds, frame 119. first: down."
    assert "seconds, frame" in (page.locator("#seek").get_attribute("aria-valuetext") or "")
    unnamed = page.evaluate(
        "() => [...document.querySelectorAll('button, select, input, canvas, video')]"
        ".filter((e) => !(e.ariaLabel || e.innerText.trim() || e.textContent.trim() || e.labels?.length || e.title))"
        ".map((e) => e.outerHTML.slice(0, 80))"
    )
    assert unnamed == []


@pytest.mark.parametrize(("width", "dark"), [(360, False), (768, True), (1920, False)])
def test_nothing_sticks_out_at_any_width(open_page: Open, pair_url: str, width: int, dark: bool) -> None:
    page = open_page(pair_url, width=width, height=740, dark=dark)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    background = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert (sum(int(part) for part in background[4:-1].split(",")) < 200) is dark


def test_long_names_leave_headings_their_line(open_page: Open, pair_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "long"
    shutil.copytree(pair_folder, folder)
    content = json.loads((folder / INDEX).read_text())
    for number, track in enumerate(content["tracks"]):
        track["name"] = f"a clip that a telephone named by the day and the hour, 2024-05-17 14.33.05 ({number})"
    content["pairs"] *= 2  # to choose from
    (folder / INDEX).write_text(json.dumps(content))
    with answered(folder) as url:
        page = open_page(url, width=390)
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
        heights = page.evaluate("() => [...document.querySelectorAll('.card h2')].map((each) => each.offsetHeight)")
        assert heights
        assert max(heights) < 30
        assert page.locator("figcaption .name").all_inner_texts() == ["…0)", "…1)"], "what differs can be read"


def test_panels_fill_the_width_above_what_was_found(open_page: Open, pair_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "found"
    shutil.copytree(pair_folder, folder)
    content = json.loads((folder / INDEX).read_text())
    content["results"] = [{"query": {"name": "a", "second": 1.0}, "hits": [{"name": "b", "second": 1.0}]}]
    (folder / INDEX).write_text(json.dumps(content))
    edges = "() => [...document.querySelectorAll('.panels > .card')].map((card) => card.getBoundingClientRect().right)"
    with answered(folder) as url:
        matrix, found = open_page(url, width=1280).evaluate(edges)
    assert matrix == pytest.approx(found, abs=1)


def test_a_broken_playback_says_what_is_wrong(open_page: Open, pair_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(pair_folder, folder)
    content = json.loads((folder / INDEX).read_text())
    content["tracks"][1]["time_map"]["own"] = [0, 2, 1, 3, 4]
    (folder / INDEX).write_text(json.dumps(content))
    with answered(folder) as url:
        page = open_page(url, ready=False)
        page.locator("#problem .reason").wait_for()
        text = page.locator("#problem").inner_text()
        assert "tracks[1].time_map: own runs backwards at knot 2 (2 s, then 1 s)" in text
        assert not page.locator("main").is_visible()
        # The page's own check, for what no server has looked at.
        content["version"] = 7
        page.route("**/playback.json", lambda route: route.fulfill(json=content))
        page.reload()
        page.locator("#problem .reason").wait_for()
        assert "has version 7; this page shows 1" in page.locator("#problem").inner_text()
        page.unroute("**/playback.json")
        page.route("**/playback.json", lambda route: route.fulfill(body="{"))
        page.reload()
        page.locator("#problem .reason").wait_for()
        assert "is not JSON" in page.locator("#problem").inner_text()


def test_a_video_that_cannot_be_played_is_named_and_the_rest_plays(
    open_page: Open, pair_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "damaged"
    shutil.copytree(pair_folder, folder)
    (folder / "b.mp4").write_bytes(b"not a video")
    with answered(folder) as url:
        page = open_page(url)
        page.locator(".broken").wait_for()
        assert "b.mp4 cannot be played" in page.locator(".broken").inner_text()
        page.click("#play")
        page.wait_for_timeout(1000)
        assert page.evaluate("() => inphase.clock.time") > 0.2


def test_a_large_matrix_is_drawn_quickly_and_right(open_page: Open, pair_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "large"
    shutil.copytree(pair_folder, folder)
    times = np.arange(2000) / 500
    cost = np.abs(times[:, None] - times[None])
    cost[:, :1000] += 2  # left half dear
    path = np.stack([np.arange(2000)] * 2, axis=1)
    tracks = (
        VideoTrack("a", 4.0, RATE, (90, 160), media="a.mp4"),
        VideoTrack("b", 4.0, RATE, (90, 160), media="b.mp4"),
    )
    write_playback(folder, Playback("Large", tracks, (Pair(1, 0, cost, times, times, path),)))
    with answered(folder) as url:
        page = open_page(url)
        page.locator("canvas.matrix").scroll_into_view_if_needed()
        page.wait_for_timeout(300)
        draw = page.evaluate("""() => new Promise((done) => {
          const start = performance.now();
          document.getElementById("theme").click();  // drops what was drawn
          requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - start)));
        })""")
        assert draw < 2000, f"a 2000 × 2000 matrix took {draw:.0f} ms"
        seek = page.evaluate("""() => new Promise((done) => {
          const start = performance.now(); let left = 20;
          const next = () => { if (!left--) return done((performance.now() - start) / 20);
            inphase.clock.seek(left / 10); requestAnimationFrame(next); };
          next();
        })""")
        assert seek < 150, f"moving the cross took {seek:.0f} ms a frame"
        light = page.evaluate("""() => {
          const canvas = document.querySelector("canvas.matrix"), [w, h] = [canvas.width, canvas.height];
          const at = (x, y) => [...canvas.getContext("2d").getImageData(w * x, h * y, 1, 1).data];
          return [at(0.3, 0.3), at(0.9, 0.25)].map(([red, green, blue]) => red + green + blue);
        }""")
        # Time runs to the right and upwards: top left is dear, and right of the middle, near the diagonal, cheap.
        assert light[0] > light[1] + 100


def test_people_in_space_stand_beside_the_video_where_there_is_nothing_else(
    open_page: Open, pair_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "beside"
    shutil.copytree(pair_folder, folder)
    times = np.arange(60) / 30
    skeleton = Skeleton("a", times, np.random.default_rng(0).random((60, 2, 3)), ("head", "hand"), ((0, 1),))
    write_playback(
        folder, Playback("Beside", (VideoTrack("a", 4.0, RATE, (90, 160), media="a.mp4"),), skeletons=(skeleton,))
    )
    with answered(folder) as url:
        page = open_page(url)
        video, space = (page.locator(each).bounding_box() for each in ("video", "canvas.skeleton"))
    assert video is not None
    assert space is not None
    assert space["x"] > video["x"] + video["width"]
    assert space["y"] < video["y"] + video["height"]
    assert 200 < space["height"] < 700


def test_people_in_space_are_turned_and_found_moments_play(open_page: Open, pair_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "people"
    shutil.copytree(pair_folder, folder)
    times = np.arange(60) / 30
    points = np.random.default_rng(0).random((60, 3, 3)).astype(np.float32)
    points[0, 1] = np.nan
    joints, bones = ("head", "left_hand", "right_hand"), ((0, 1), (0, 2))
    track = VideoTrack(
        "stick",
        2.0,
        RATE,
        (90, 160),
        keypoints=Keypoints(times, points[..., :2] * 90, joints, bones),
        curves=Curves(times, points[:, 0]),
    )
    other = VideoTrack(
        "b", 140 / RATE, RATE, (90, 160), media="b.mp4", time_map=TimeMap(np.array([0, 2]), np.array([0, 4]))
    )
    skeleton = Skeleton(EVIL, times, points, joints, bones)
    hits = (
        PlaybackMoment("known", 3.0, score=0.9, media="b.mp4"),
        PlaybackMoment("new", 1.0, score=0.5, media="a.mp4"),
    )
    playback = Playback("People", (track, other), (), (skeleton,), (Result(PlaybackMoment("q", 0.5), hits),))
    write_playback(folder, playback)
    look = "() => document.querySelector('canvas.skeleton').toDataURL()"
    with answered(folder) as url:
        page = open_page(url)
        page.wait_for_timeout(200)
        before = page.evaluate(look)
        page.locator("canvas.skeleton").focus()
        page.keyboard.press("ArrowLeft")
        page.wait_for_timeout(100)
        assert page.evaluate(look) != before
        assert page.evaluate("() => inphase.clock.time") == 0, "the arrows turned it and moved nothing else"
        page.click("#play")  # without a video of the reference, the page's own clock runs
        page.wait_for_timeout(700)
        page.click("#play")
        clock, second = where(page)
        assert 0.2 < clock < 2
        assert second == pytest.approx(2 * clock, abs=1e-3)
        page.get_by_role("button", name="Go to known at 3.00 s, score 0.900").click()
        assert where(page)[0] == pytest.approx(1.5)
        page.get_by_role("button", name="Play new at 1.00 s, score 0.500").click()
        player = page.locator(".hits video")
        player.wait_for()
        page.wait_for_timeout(3000)
        paused, second = player.evaluate("(video) => [video.paused, video.currentTime]")
        assert paused
        assert 2 <= second < 2.6
