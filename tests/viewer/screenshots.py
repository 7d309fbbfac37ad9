"""Take the images of docs/images: `python -m tests.viewer.screenshots`."""

import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

import inphase
from inphase.apps.labels import Event, Labels
from inphase.data import stage_videos
from inphase.media.render import write_mp4
from inphase.playback import write_playback
from inphase.stage.take import FPS
from tests.viewer.conftest import answered, settle
from tests.viewer.demo import write_demo

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SECOND = 1.62
KEY_POSITIONS = ((0.033, "address"), (0.1, "toe up"), (0.7, "top"), (1.333, "impact"), (2.4, "finish"))


def main() -> None:
    """Draw the demo, open it in light and dark, and keep what is seen."""
    with tempfile.TemporaryDirectory() as made, sync_playwright() as engine:
        playback = write_demo(Path(made) / "demo", level="plain")  # without grain, an image stays small
        write_playback(Path(made) / "demo", playback.replace(results=()))
        browser = engine.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        )
        with answered(Path(made) / "demo") as url:
            for name, dark in (("viewer.png", False), ("viewer-dark.png", True)):
                page = browser.new_page(
                    viewport={"width": 1280, "height": 720}, color_scheme="dark" if dark else "light"
                )
                page.goto(url)
                settle(page)
                page.keyboard.press("d")
                if dark:
                    page.keyboard.press("h")
                # The whole page, below which the controls stand.
                page.evaluate("() => { document.querySelector('.transport').style.position = 'static'; }")
                page.evaluate("() => { document.body.style.paddingBottom = 0; }")
                _take(page, IMAGES / name, whole=True)
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto(url)
            settle(page)
            _mark(page)
            _take(page, IMAGES / "marking.webp")
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto(url)
            settle(page)
            page.keyboard.press("o")
            page.get_by_role("slider", name="Opacity of the second video").fill("0.5")
            page.evaluate("() => document.activeElement.blur()")
            _take(page, IMAGES / "overlay.webp", height=700)
        _compare(browser, Path(made))
        browser.close()


def _compare(browser: Browser, folder: Path) -> None:
    """Compare two drawn golfers, as docs/lab/compare.md does, and keep the sheet and the top of the report."""
    drawn = stage_videos.load(split="test", actions=["golf_swing"], videos=3, level="plain", size=384)
    for name, video in (("pro", drawn[0]), ("student", drawn[2])):
        assert video.render is not None
        write_mp4(folder / f"{name}.mp4", video.render().frames, fps=FPS)
    labels = Labels(events=tuple(Event(second, name) for second, name in KEY_POSITIONS))
    compared = inphase.compare_videos(folder / "student.mp4", folder / "pro.mp4", labels=labels)
    compared.write(folder / "compared")
    with Image.open(folder / "compared" / "positions.png") as sheet:
        sheet.resize((1200, round(1200 * sheet.height / sheet.width))).save(
            IMAGES / "compare.webp", quality=82, method=6
        )
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto((folder / "compared" / "report.html").as_uri())
    taken = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    taken.save(IMAGES / "compare-report.webp", quality=82, method=6)


def _mark(page: Page) -> None:
    """Mark four moments by keys, the last one selected."""
    for second, name in ((0.05, "address"), (0.8, "club parallel"), (1.43, "top"), (SECOND, "club down")):
        page.evaluate(f"() => inphase.clock.seek({second})")
        page.keyboard.press("m")
        page.keyboard.type(name)
        page.keyboard.press("Enter")


def _take(page: Page, path: Path, *, height: int | None = None, whole: bool = False) -> None:
    """Go to a moment and take the image, the top of it, or the whole page."""
    page.evaluate(f"() => inphase.clock.seek({SECOND})")
    settle(page)
    page.wait_for_timeout(500)
    if path.suffix == ".webp":
        taken = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        taken.crop((0, 0, taken.width, height or taken.height)).save(path, quality=82, method=6)
        return
    page.screenshot(path=path, full_page=whole)
    with Image.open(path) as taken:
        # Six bits a color: nobody sees it, and the file is a third smaller.
        taken.convert("RGB").point([round(round(value * 63 / 255) * 255 / 63) for value in range(256)] * 3).save(
            path, optimize=True
        )


if __name__ == "__main__":
    main()
