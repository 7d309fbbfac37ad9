"""Take the images of docs/images: `python -m tests.viewer.screenshots`."""

import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from inphase.playback import write_playback
from tests.viewer.conftest import answered, settle
from tests.viewer.demo import write_demo

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SECOND = 1.62


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
                    viewport={"width": 1280, "height": 1330}, color_scheme="dark" if dark else "light"
                )
                page.goto(url)
                settle(page)
                page.keyboard.press("d")
                if dark:
                    page.keyboard.press("h")
                _take(page, IMAGES / name)
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
        browser.close()


def _mark(page: Page) -> None:
    """Mark four moments by keys, the last one selected."""
    for second, name in ((0.05, "address"), (0.8, "club parallel"), (1.43, "top"), (SECOND, "club down")):
        page.evaluate(f"() => inphase.clock.seek({second})")
        page.keyboard.press("m")
        page.keyboard.type(name)
        page.keyboard.press("Enter")


def _take(page: Page, path: Path, *, height: int | None = None) -> None:
    """Go to a moment and take the image, or the top of it."""
    page.evaluate(f"() => inphase.clock.seek({SECOND})")
    settle(page)
    page.wait_for_timeout(500)
    if path.suffix == ".webp":
        taken = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        taken.crop((0, 0, taken.width, height or taken.height)).save(path, quality=82, method=6)
        return
    page.screenshot(path=path)
    with Image.open(path) as taken:
        # Six bits a color: nobody sees it, and the file is a third smaller.
        taken.convert("RGB").point([round(round(value * 63 / 255) * 255 / 63) for value in range(256)] * 3).save(
            path, optimize=True
        )


if __name__ == "__main__":
    main()
