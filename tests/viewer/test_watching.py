"""Layout of the tiles, overlay of two videos, mirror, zoom, swap, full screen and details."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from inphase.playback import Keypoints, Playback, TimeMap, VideoTrack, write_playback
from tests.media.recordings import write_video
from tests.viewer.conftest import RATE, answered, where

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from playwright.sync_api import Page

Open = Callable[..., "Page"]
JOINTS = ("left_hip", "right_hip", "left_shoulder", "right_shoulder")
TIMES = np.arange(30) / RATE
TRUNK = np.array([[40, 120], [50, 120], [38, 80], [52, 80]], float)


def joints(scale: float = 1.0, shift: tuple[float, float] = (0, 0)) -> Keypoints:
    points = np.repeat(((TRUNK + 0.5) * scale + shift - 0.5)[None], 30, axis=0)
    return Keypoints(TIMES, points, JOINTS, ((0, 1), (2, 3)))


@pytest.fixture(scope="module")
def upright(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write two upright videos with joints; the second person is half as large and elsewhere."""
    folder = tmp_path_factory.mktemp("upright")
    for name in ("a.mp4", "b.mp4"):
        write_video(folder / name, count=30, rate=RATE, height=160, width=90, faststart=True)
    first = VideoTrack("a", 1.0, RATE, (160, 90), media="a.mp4", keypoints=joints())
    second = VideoTrack(
        "b",
        1.0,
        RATE,
        (160, 90),
        media="b.mp4",
        keypoints=joints(0.5, (10, 20)),
        time_map=TimeMap(np.array([0, 1]), np.array([0, 1])),
    )
    write_playback(folder, Playback("Upright", (first, second)))
    return folder


def boxes(page: "Page") -> list[dict[str, float]]:
    found: list[dict[str, float]] = page.locator("#videos .stage").evaluate_all(
        "(all) => all.map((each) => each.getBoundingClientRect().toJSON())"
    )
    return found


def test_rows_are_chosen_that_show_most(open_page: Open, pair_url: str) -> None:
    page = open_page(pair_url)
    for ratios, size in (([0.5625] * 2, (1200, 500)), ([1.78] * 9, (1200, 600)), ([1.78, 0.5625, 1], (366, 560))):
        made: dict[str, Any] = page.evaluate(
            """async ([ratios, width, height]) => (await import("/static/tiles.js"))
            .arrange(ratios, width, height, { gap: 10, caption: 30 })""",
            [ratios, *size],
        )
        areas = []
        for each in range(1, len(ratios) + 1):
            rows = [ratios[k : k + each] for k in range(0, len(ratios), each)]
            most = (size[1] - 10 * (len(rows) - 1)) / len(rows) - 30
            heights = [max(40, min(most, (size[0] - 10 * (len(row) - 1)) / sum(row))) for row in rows]
            areas.append(sum(sum(row) * height**2 for row, height in zip(rows, heights, strict=True)))
        assert sum(w * h for w, h in made["sizes"]) == pytest.approx(max(areas), rel=2e-3)


def test_upright_videos_are_large(open_page: Open, upright: Path) -> None:
    with answered(upright) as url:
        for width, height, least in ((1280, 720, 240), (1400, 900, 320), (390, 844, 150)):
            page = open_page(url, width=width, height=height)
            first, second = boxes(page)
            assert first["width"] >= least
            assert first["width"] / first["height"] == pytest.approx(90 / 160, rel=0.02)
            assert second["left"] > first["right"]
            assert page.evaluate("() => document.documentElement.scrollWidth") <= width
            page.close()


def test_the_ghost_is_placed_by_joints_or_centered(open_page: Open, upright: Path) -> None:
    place = """async ([mirror, joints]) => {
      const { placementOf } = await import("/static/overlay.js");
      const [base, ghost] = inphase.tiles.list.map((tile) => ({ ...tile, track: { ...tile.track } }));
      if (!joints) ghost.track.keypoints = null;
      ghost.mirrored = () => mirror;
      return placementOf(base, ghost, inphase.clock);
    }"""
    with answered(upright) as url:
        page = open_page(url)
        found = page.evaluate(place, [False, True])
        assert found == pytest.approx({"joints": True, "scale": 2, "x": -20, "y": -40})
        mirrored = page.evaluate(place, [True, True])
        hips = 0.5 * 45.5 + 10
        assert mirrored["x"] + 2 * (90 - hips) == pytest.approx(45.5), "the hips are on the other's"
        assert page.evaluate(place, [False, False]) == {"joints": False, "scale": 1, "x": 0, "y": 0}
        page.keyboard.press("o")
        assert "placed by joints" in page.locator(".ghost figcaption").inner_text()
        side, (first, _) = page.locator(".ghost .stage").bounding_box(), boxes(page)
        assert side is not None
        assert side["width"] >= first["width"] - 2
        shown = """() => { const canvas = document.querySelector(".ghost canvas");
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          return [...data].reduce((sum, value) => sum + value, 0); }"""
        page.wait_for_timeout(200)
        full = page.evaluate(shown)
        page.get_by_role("slider", name="Opacity of the second video").fill("0")
        page.wait_for_timeout(200)
        assert full != page.evaluate(shown)
        page.keyboard.press("o")
        assert page.locator(".ghost").count() == 0


def test_tiles_are_mirrored_zoomed_moved_and_swapped(open_page: Open, upright: Path) -> None:
    with answered(upright) as url:
        page = open_page(url)
        before = boxes(page)
        page.get_by_role("button", name="Mirror image: a").click()
        assert "matrix(-1, 0, 0, 1, 0, 0)" in page.locator(".stage").first.evaluate(
            "(e) => getComputedStyle(e).transform"
        )
        page.mouse.move(before[1]["x"] + 50, before[1]["y"] + 60)
        page.keyboard.down("Control")
        page.mouse.wheel(0, -300)
        page.keyboard.up("Control")
        zoomed = boxes(page)[1]
        assert zoomed["width"] > 2 * before[1]["width"]
        page.mouse.down()
        page.mouse.move(before[1]["x"] + 80, before[1]["y"] + 60, steps=4)
        page.mouse.up()
        assert boxes(page)[1]["x"] == pytest.approx(zoomed["x"] + 30, abs=1) or boxes(page)[1]["x"] <= before[1]["x"]
        assert page.evaluate("() => inphase.clock.playing") is False, "dragging is no click"
        page.mouse.dblclick(before[1]["x"] + 50, before[1]["y"] + 60)
        assert boxes(page)[1]["width"] == pytest.approx(before[1]["width"])
        page.locator(".stage").nth(1).evaluate(
            """(stage) => { const box = stage.getBoundingClientRect();
            const send = (name, id, x) => stage.dispatchEvent(new PointerEvent(name, { pointerId: id, bubbles: true,
              button: 0, clientX: box.left + x, clientY: box.top + 50 }));
            stage.setPointerCapture = () => {};  // these fingers are not real
            send("pointerdown", 1, 40); send("pointerdown", 2, 80);
            send("pointermove", 2, 120); send("pointerup", 1, 40); send("pointerup", 2, 120); }"""
        )
        assert boxes(page)[1]["width"] == pytest.approx(2 * before[1]["width"], rel=0.01), "two fingers zoom"
        page.keyboard.press("0")
        assert boxes(page)[1]["width"] == pytest.approx(before[1]["width"])
        page.keyboard.press("x")
        assert page.locator("#videos .name").all_inner_texts() == ["b", "a"]
        page.get_by_role("button", name="Swap with another: a").click()
        assert page.locator("#videos .name").all_inner_texts() == ["a", "b"]
        page.keyboard.press(".")
        clock, first, second = where(page)
        assert [first, second] == pytest.approx([clock, clock], abs=1e-3)


def test_details_are_folded_and_remembered(open_page: Open, pair_url: str) -> None:
    page = open_page(pair_url, unfold=False)
    assert not page.locator("canvas.matrix").is_visible()
    page.locator("#details summary").click()
    assert page.locator("canvas.matrix").is_visible()
    page.reload()
    page.locator("canvas.matrix").wait_for()
    page.keyboard.press("d")
    assert not page.locator("canvas.matrix").is_visible()


def test_full_screen_shows_the_videos_and_nothing_else(open_page: Open, pair_url: str) -> None:
    page = open_page(pair_url, width=1000, height=600)
    page.keyboard.press("f")
    page.wait_for_timeout(300)
    assert not page.locator("#timeline").is_visible()
    bottom = page.locator("#transport").bounding_box()
    assert bottom is not None
    assert all(box["bottom"] <= bottom["y"] for box in boxes(page))
    page.keyboard.press("f")
    page.locator("#timeline").wait_for()


def test_the_help_lists_every_key_and_focus_follows_the_page(open_page: Open, pair_url: str) -> None:
    page = open_page(pair_url)
    page.keyboard.press("?")
    listed = page.locator("#key-list dt").all_inner_texts()
    for key in ("Space", "M", "O", "F", "X", "D", "1", "9", "Delete", "Ctrl Z", "Ctrl Shift Z", "+", "S", "?"):
        assert any(key in each.replace("\n", " ") for each in listed), key
    page.keyboard.press("Escape")
    order = page.evaluate(
        "() => [...document.querySelectorAll('main button, main input, main summary, #transport button')]"
        ".filter((e) => e.offsetParent && e.tabIndex >= 0).map((e) => { const box = e.getBoundingClientRect();"
        " return [e.closest('.watch, #positions, #timeline, #details, #transport')?.id ?? '', box.top]; })"
    )
    groups = [name for name, _ in order]
    changes = 1 + sum(a != b for a, b in pairwise(groups))
    assert changes == len(set(groups)), "each group of controls is passed once"
