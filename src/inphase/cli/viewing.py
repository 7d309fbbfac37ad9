"""`inphase view` and `inphase export`: play a playback in the browser, served locally or from any static host."""

import contextlib
import os
import sys
from pathlib import Path
from typing import Annotated

import tyro

from inphase.cli.options import Json, Out, print_line, run, warn_line

Folder = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR", help="a folder with a playback.json")]


def view(folder: Folder, *, port: int = 0, open: bool = True) -> None:
    """Play a playback in the browser, served to this machine only until Ctrl-C.

    Args:
        port: the port to listen on; 0 selects a free one.
        open: open the page in the browser.
    """
    from inphase.playback import INDEX, PlaybackError, read_playback

    plays = "plays"
    try:
        read_playback(folder)
    except PlaybackError as error:  # the page shows the error too, and the playback once it is fixed
        if not (folder / INDEX).is_file():
            raise
        warn_line(str(error))
        plays = "cannot be played; the error is shown"
    try:
        from inphase.viewer.server import serve
    except ModuleNotFoundError as error:
        raise ValueError(f"the viewer needs {error.name}: pip install 'inphase[viewer]'") from error

    with contextlib.ExitStack() as stack:

        def on_ready(url: str) -> None:
            print_line(f"{folder} {plays} at {url} (Ctrl-C to stop)")
            sys.stdout.flush()
            if open:
                _open_browser(url, stack)

        # The server handles Ctrl-C itself; depending on the moment, it also raises KeyboardInterrupt.
        with contextlib.suppress(KeyboardInterrupt):
            serve(folder, port=port, on_ready=on_ready)
    print_line("Closed.")


def export(
    folder: Folder,
    *,
    out: Out = Path("out/export"),
    single: bool = False,
    zip: bool = False,
    json: Json = False,
) -> None:
    """Export a playback as a web page for any static host; it also opens as a file. The folder must be new or empty.

    Args:
        single: write one page that holds the videos, OUT.html, to send it.
        zip: write an archive, OUT.zip.
    """
    from inphase.viewer.page import export as export_playback

    run(export_playback, folder, out, single=single, zipped=zip, json=json)


def _open_browser(url: str, stack: contextlib.ExitStack) -> None:
    """Open the browser if there is a display; a browser in the terminal would hide the printed URL.

    Every user of a machine can list the arguments of a browser, so it opens a file that leads to the URL and that
    nobody else can read. `stack` removes the file.
    """
    import tempfile
    import webbrowser

    if sys.platform not in ("win32", "darwin") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return
    with tempfile.NamedTemporaryFile("w", prefix="inphase-", suffix=".html", delete=False) as page:
        page.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={url}">')
    stack.callback(Path(page.name).unlink, missing_ok=True)
    webbrowser.open(Path(page.name).as_uri())
