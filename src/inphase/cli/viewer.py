"""`inphase view` and `inphase export`: play a playback in the browser, served locally or from any static host."""

import contextlib
import os
import sys
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

Folder = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR", help="a folder with a playback.json")]
Out = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="OUT", help="a new folder to write")]


def view(folder: Folder, *, port: int = 0, open: bool = True) -> None:
    """Play a playback in the browser, served to this machine only until Ctrl-C.

    Args:
        folder: the folder that `inphase align` or another command wrote.
        port: the port to listen on; 0 selects a free one.
        open: open the page in the browser.
    """
    from inphase.playback import INDEX, PlaybackError, read_playback

    console = Console()
    try:
        read_playback(folder)
    except PlaybackError as error:  # the page shows the error too, and the playback once it is fixed
        if not (folder / INDEX).is_file():
            raise
        Console(stderr=True).print(f"[yellow]{escape(str(error))}[/yellow]")
    try:
        from inphase.viewer.server import serve
    except ModuleNotFoundError as error:
        raise ValueError(f"the viewer needs {error.name}: pip install 'inphase[viewer]'") from error

    def on_ready(url: str) -> None:
        console.print(f"{escape(str(folder))} plays at [bold]{url}[/bold] (Ctrl-C to stop)", soft_wrap=True)
        sys.stdout.flush()
        if open:
            _show(url)

    # The server handles Ctrl-C itself; depending on the moment, it also raises KeyboardInterrupt.
    with contextlib.suppress(KeyboardInterrupt):
        serve(folder, port=port, on_ready=on_ready)
    console.print("Closed.")


def export(folder: Folder, out: Out) -> None:
    """Export a playback as a web page for any static host; it also opens as a file.

    Args:
        folder: the folder that `inphase align` or another command wrote.
        out: the folder to write; it must be new or empty.
    """
    from inphase.viewer.page import export as export_playback

    console = Console()
    with Progress(console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading")
        exported = export_playback(
            folder,
            out,
            progress=lambda stage, done, total: bar.update(task, description=stage, completed=done, total=total),
        )
    console.print(f"Open {escape(str(exported.page))}, or put {escape(str(out))} on any static host.", soft_wrap=True)


def _show(url: str) -> None:
    """Open the browser if there is a display; a browser in the terminal would hide the printed URL."""
    import webbrowser

    if sys.platform in ("win32", "darwin") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(url)
