"""Videos on one clock, in a real browser."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from inphase.playback import Playback, TimeMap, VideoTrack, write_playback
from tests.viewer.conftest import KNOTS, RATE, answered, settle, where

pytestmark = pytest.mark.slow

if TYPE_CHECKING:
    from playwright.sync_api import Page

Open = Callable[..., "Page"]
Knots = tuple[Any, Any]
FRAME = 1 / RATE
# Two that differ much in tempo, as swings do: both have sound, and so obey late.
SWING = (np.array([0, 0.8, 1.2, 2.0, 2.3, 3.2, 3.5, 4.0]), np.array([0, 0.24, 1.24, 1.56, 2.46, 2.73, 3.48, 3.98]))

# While it plays, once per drawn frame: the reference's second, the other's, and how long in the last half second the
# page was not given the processor. Nobody steers then, and a video whose speed should change runs on.
SAMPLE = """() => new Promise((done) => {
  const rows = [], gaps = [], { clock } = inphase, [first, second] = document.querySelectorAll("video");
  let before = performance.now();
  const beat = setInterval(() => {
    const now = performance.now();
    gaps.push([now, now - before]);
    before = now;
  }, 12);
  const look = () => {
    const now = performance.now();
    const idle = Math.max(now - before, ...gaps.filter(([at]) => now - at < 500).map(([, gap]) => gap));
    if (clock.playing && !clock.holding) rows.push([first.currentTime, second.currentTime, idle / 1000]);
    if (clock.playing || clock.holding) requestAnimationFrame(look);
    else { clearInterval(beat); done(rows); }
  };
  look();
})"""


def mapped(seconds: Any) -> Any:
    return np.interp(seconds, *KNOTS)


@pytest.mark.parametrize(("speed", "overlay"), [("1", False), ("0.5", False), ("1", True)])
def test_two_videos_play_in_step(open_page: Open, pair_url: str, speed: str, overlay: bool) -> None:
    page = open_page(pair_url)
    if overlay:
        page.keyboard.press("o")
        page.locator(".ghost canvas").wait_for()
    off = how_far_off(page, KNOTS, speed)
    assert np.median(off) < FRAME / 4
    assert np.quantile(off, 0.95) < 2 * FRAME


def test_two_that_differ_tenfold_in_tempo_play_in_step(open_page: Open, pair_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "swing"
    shutil.copytree(pair_folder, folder)
    tracks = (
        VideoTrack("a", 4.0, RATE, (90, 160), media="a.mp4"),
        VideoTrack("b", 140 / RATE, RATE, (90, 160), media="b.mp4", time_map=TimeMap(*SWING)),
    )
    write_playback(folder, Playback("Swing", tracks))
    with answered(folder) as url:
        off = how_far_off(open_page(url), SWING, "1")
    assert np.median(off) < FRAME / 4
    assert np.quantile(off, 0.95) < 2 * FRAME


def how_far_off(page: "Page", knots: Knots, speed: str) -> Any:
    """Say how far the second video was from where it belongs, in the best of at most five plays.

    Frames drawn while the machine was busy elsewhere are left out, and a machine that is always busy cannot judge.
    """
    page.select_option("#speed", speed)
    plays = []
    for _ in range(5):
        off = play(page, knots, seconds=None if speed == "1" else 3)
        plays += [off] if len(off) > 15 else []
        if len(off) > 15 and np.median(off) < FRAME / 4 and np.quantile(off, 0.95) < FRAME:
            break
    if not plays:
        pytest.skip("the machine was too busy to play videos")
    return min(plays, key=lambda off: float(np.quantile(off, 0.95)))


def play(page: "Page", knots: Knots, *, seconds: int | None) -> Any:
    """Play from the start, all of it or for so many seconds; return how far off the second video was."""
    page.evaluate("() => inphase.clock.seek(0)")
    settle(page)
    page.click("#play")
    if seconds is not None:
        page.evaluate(f"() => {{ setTimeout(() => inphase.clock.pause(), {1000 * seconds}); }}")
    rows = np.array(page.evaluate(SAMPLE))
    assert rows[-1, 0] - rows[0, 0] > 1, "the reference did not play"
    assert not np.allclose(rows[:, 1], rows[:, 0], atol=0.1), "the map was not followed at all"
    first, second, _ = rows[(rows[:, 0] > 0.2) & (rows[:, 0] < 3.9) & (rows[:, 2] < 0.05)].T
    return np.abs(second - np.interp(first, *knots))


def test_how_late_a_video_obeys_is_learned(open_page: Open, pair_url: str) -> None:
    learned = open_page(pair_url).evaluate("""async () => {
      const { Lag } = await import("/static/lag.js");
      const learn = (late) => {  // a video that does what is ordered `late` seconds afterwards
        const lag = new Lag({}), orders = [];
        let own = 0;
        for (let now = 0; now < 3; now += 0.02) {
          own += 0.02 * (orders.findLast(([since]) => since + late <= now)?.[1] ?? 1);
          lag.observe(now + 0.02, own);
          const speed = 1 + 0.8 * Math.sin(7 * now);
          orders.push([now + 0.02, speed]);
          lag.order(now + 0.02, speed);
        }
        return lag.seconds;
      };
      return [learn(0), learn(0.06), learn(0.14), new Lag({ mozHasAudio: true }).seconds, new Lag({}).seconds];
    }""")
    assert learned[:3] == pytest.approx([0, 0.06, 0.14], abs=0.011)
    assert learned[3:] == [0.06, 0], "what is taken before anything was seen"


def test_one_that_waits_stands_exactly_where_it_belongs(open_page: Open, pair_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "waiting"
    shutil.copytree(pair_folder, folder)
    stands = TimeMap(np.array([0.0, 1.0, 3.0, 4.0]), np.array([0.0, 1.0, 1.0, 2.0]))
    tracks = (
        VideoTrack("a", 4.0, RATE, (90, 160), media="a.mp4"),
        VideoTrack("b", 140 / RATE, RATE, (90, 160), media="b.mp4", time_map=stands),
    )
    write_playback(folder, Playback("Waiting", tracks))
    with answered(folder) as url:
        page = open_page(url)
        page.click("#play")
        rows = np.array(page.evaluate(SAMPLE))
    waiting = rows[(rows[:, 0] > 1.8) & (rows[:, 0] < 2.7)]
    assert len(waiting) > 5
    assert np.abs(waiting[:, 1] - 1.0).max() < 0.01


def test_a_video_that_is_off_catches_up_without_a_jump(open_page: Open, pair_url: str) -> None:
    page = open_page(pair_url)
    off, seeks, playing = 1.0, 2, False
    for _ in range(6):  # on a busy machine the test's own seek may take so long that another is right
        page.evaluate("() => inphase.clock.seek(0)")
        settle(page)
        page.evaluate("() => inphase.clock.play()")
        page.wait_for_timeout(700)
        off, seeks, playing = page.evaluate("""() => new Promise((done) => {
          const { clock } = inphase, [first, second] = document.querySelectorAll("video");
          const off = () => Math.abs(second.currentTime - clock.followers[0].map.at(first.currentTime));
          let seeks = 0;
          second.currentTime -= 0.15;
          second.addEventListener("seeked", () => { seeks += 1; });
          setTimeout(() => done([off(), seeks, clock.playing]), 1500);
        })""")
        if seeks == 1 and off < FRAME:
            break
    assert playing
    assert seeks == 1, "that of the test itself"
    assert off < FRAME


def test_the_end_stops_and_repeats(open_page: Open, pair_url: str) -> None:
    page = open_page(pair_url)
    page.evaluate("() => inphase.clock.seek(3.7)")
    page.keyboard.press("Space")
    page.wait_for_function("() => !inphase.clock.playing")
    assert where(page)[0] == pytest.approx(4.0, abs=FRAME)
    page.keyboard.press("l")
    page.evaluate("() => inphase.clock.seek(3.7)")
    page.keyboard.press("Space")
    page.wait_for_function("() => inphase.clock.time < 3.5")
    assert page.evaluate("() => inphase.clock.playing") is True
    page.keyboard.press("Space")
    assert where(page)[2] == pytest.approx(mapped(where(page)[1]), abs=1e-3)


def test_scrubbing_is_exact(open_page: Open, pair_url: str) -> None:
    page = open_page(pair_url)
    for second in (2.5, 0.4, 3.3, 1.0, 1.7):  # faster than the videos can follow: the last one counts
        page.evaluate(f"() => {{ const bar = document.getElementById('seek'); bar.value = {second};"
                      "bar.dispatchEvent(new Event('input')); }")  # fmt: skip
    assert where(page) == pytest.approx([1.7, 1.7, mapped(1.7)], abs=1e-4)


def test_a_repetition_of_a_session_shows_its_own_start_and_its_number(
    open_page: Open, pair_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "session"
    shutil.copytree(pair_folder, folder)
    tracks = (
        VideoTrack("a", 4.0, RATE, (90, 160), media="a.mp4"),
        VideoTrack("b#1", 140 / RATE, RATE, (90, 160), media="b.mp4", time_map=TimeMap(KNOTS[0], 0.25 * KNOTS[0])),
        VideoTrack(
            "long recording#2", 140 / RATE, RATE, (90, 160), media="b.mp4", time_map=TimeMap(KNOTS[0], 2 + KNOTS[0] / 4)
        ),
    )
    write_playback(folder, Playback("Session", tracks))
    with answered(folder) as url:
        page = open_page(url, width=390, height=844)
        assert where(page) == [0.0, 0.0, 0.0, 2.0]
        assert page.locator(".tile .name").all_inner_texts() == ["a", "b#1", "long r…#2"]


def test_the_heat_map_of_a_single_video_is_shown_at_once(open_page: Open, pair_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "activations"
    shutil.copytree(pair_folder, folder)
    track = VideoTrack("a", 4.0, RATE, (90, 160), media="a.mp4", overlay="b.mp4")
    write_playback(folder, Playback("Activation maps", (track,)))
    with answered(folder) as url:
        page = open_page(url)
        assert page.locator("#heat").get_attribute("aria-pressed") == "true"
        assert float(page.locator("video.overlay").evaluate("(video) => video.style.opacity")) > 0
        assert page.locator(".tile .badge").count() == 0


def test_the_last_seek_counts_though_one_ends_before_it_is_reported(open_page: Open, pair_url: str) -> None:
    page = open_page(pair_url)
    settle(page)
    page.evaluate(
        """async () => {
            const player = inphase.clock.players[0];
            const reported = new Promise((done) => player.video.addEventListener("seeked", done, { once: true }));
            player.seek(0.5);
            player.seek(1.0);  // wanted, once the first is done
            while (player.video.seeking) await 0, await new Promise((next) => { const c = new MessageChannel();
                c.port1.onmessage = next; c.port2.postMessage(0); });
            player.seek(1.7);
            await reported;
        }"""
    )
    settle(page)
    assert page.evaluate("() => inphase.clock.players[0].video.currentTime") == pytest.approx(1.7, abs=1e-3)


def test_a_click_in_the_matrix_seeks_both(open_page: Open, pair_url: str) -> None:
    page = open_page(pair_url)
    canvas = page.locator("canvas.matrix")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    inner = box["width"] - 56  # the margins of the plot
    page.mouse.click(box["x"] + 46 + inner * 0.75, box["y"] + box["height"] / 2)
    clock, first, second = where(page)
    assert clock == pytest.approx(3.0, abs=2 * FRAME)
    assert first == pytest.approx(clock, abs=1e-3)
    assert second == pytest.approx(mapped(clock), abs=1e-3)
    assert "Cost" in page.locator(".readout").first.inner_text()
    page.mouse.down()
    page.mouse.move(box["x"] + 46 + inner * 0.25, box["y"] + 40)
    page.mouse.up()
    assert where(page)[0] == pytest.approx(1.0, abs=2 * FRAME)


def test_keys(open_page: Open, pair_url: str) -> None:
    page = open_page(pair_url)
    middle = 0.5 * FRAME
    for key, expected in (
        ("ArrowRight", FRAME + middle),
        (".", 2 * FRAME + middle),
        ("ArrowLeft", FRAME + middle),
        ("ArrowLeft", middle),
        ("ArrowLeft", middle),
        ("Shift+ArrowRight", 1 + middle),
        ("End", 4.0),
        ("Home", 0.0),
        ("n", 1.0),  # to the event, the next phase, and back
        ("n", 2.0),
        ("b", 1.0),
    ):
        page.keyboard.press(key)
        clock, first, second = where(page)
        assert clock == pytest.approx(expected, abs=1e-3), key
        assert [first, second] == pytest.approx([clock, mapped(clock)], abs=1e-3), key
    page.keyboard.press("ArrowUp")
    assert page.locator("#speed").input_value() == "1.5"
    page.keyboard.press("s")
    assert page.locator("#sound").get_attribute("aria-pressed") == "false"
    page.keyboard.press("?")
    assert page.locator("dialog").is_visible()
    assert "One frame back" in page.locator("dialog").inner_text()
    page.keyboard.press("Escape")
    page.keyboard.press("t")
    assert page.evaluate("() => document.documentElement.dataset.theme") == "dark"


def test_a_stretch_is_repeated(open_page: Open, pair_url: str) -> None:
    page = open_page(pair_url)
    page.evaluate("() => inphase.clock.seek(1)")
    page.keyboard.press("[")
    page.evaluate("() => inphase.clock.seek(1.4)")
    page.keyboard.press("]")
    page.keyboard.press("k")
    seen = []
    for _ in range(15):
        page.wait_for_timeout(100)
        seen.append(page.evaluate("() => inphase.clock.time"))
    assert page.evaluate("() => inphase.clock.playing")
    assert min(seen) >= 0.99
    assert max(seen) < 1.8, "a busy machine looks late"
