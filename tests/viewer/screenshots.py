"""Take the images of docs/images: `python -m tests.viewer.screenshots`."""

import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from tests.viewer.conftest import answered, settle
from tests.viewer.demo import write_demo

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SECOND = 1.62


def main() -> None:
    """Draw the demo, open it in light and dark, and keep what is seen."""
    with tempfile.TemporaryDirectory() as made, sync_playwright() as engine:
        write_demo(Path(made) / "demo", level="plain")  # without grain, an image stays small
        browser = engine.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        )
        with answered(Path(made) / "demo") as url:
            for name, dark in (("viewer.png", False), ("viewer-dark.png", True)):
                page = browser.new_page(
                    viewport={"width": 1280, "height": 1180}, color_scheme="dark" if dark else "light"
                )
                page.goto(url)
                settle(page)
                if dark:
                    page.keyboard.press("h")
                _take(page, IMAGES / name)
        browser.close()


def _take(page: Page, path: Path) -> None:
    """Go to a moment and take the image."""
    page.evaluate(f"() => inphase.clock.seek({SECOND})")
    settle(page)
    page.wait_for_timeout(500)
    page.screenshot(path=path)
    with Image.open(path) as taken:
        # Six bits a color: nobody sees it, and the file is a third smaller.
        taken.convert("RGB").point([round(round(value * 63 / 255) * 255 / 63) for value in range(256)] * 3).save(
            path, optimize=True
        )


if __name__ == "__main__":
    main()
