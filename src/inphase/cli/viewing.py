"""`inphase view` and `inphase export`: play a playback in the browser, served locally or from any static host."""

import contextlib
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

    def on_ready(url: str) -> None:
        print_line(f"{folder} {plays} at {url} (Ctrl-C to stop)")
        sys.stdout.flush()

    # The server handles Ctrl-C itself; depending on the moment, it also raises KeyboardInterrupt.
    with contextlib.suppress(KeyboardInterrupt):
        serve(folder, port=port, on_ready=on_ready, open_browser=open)
    print_line("Closed.")


def export(
    folder: Folder, *, out: Out = Path("out/export"), single: bool = False, zip: bool = False, json: Json = False
) -> None:
    """Export a playback as a web page for any static host; it also opens as a file. The folder must be new or empty.

    Args:
        single: write one page that holds the videos, OUT.html, to send it.
        zip: write an archive, OUT.zip.
    """
    from inphase.viewer.page import export as export_playback

    run(export_playback, folder, out, single=single, zipped=zip, json=json)
