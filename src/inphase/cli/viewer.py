"""`inphase view` and `inphase export`: look at a playback in the browser, here or from any static host."""

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
    """Play a playback in the browser, served on this machine alone until Ctrl-C.

    Args:
        folder: the folder that `inphase align` or another command wrote.
        port: where to listen; 0 takes any port that is free.
        open: open the page in the browser.
    """
    from inphase.playback import INDEX, PlaybackError, read_playback

    console = Console()
    if not (folder / INDEX).is_file():
        raise ValueError(f"no {INDEX} in {folder}: name a folder that `inphase align` or another command wrote")
    try:
        read_playback(folder)
    except PlaybackError as error:  # the page says so as well, and shows the playback once it is mended
        Console(stderr=True).print(f"[yellow]{escape(str(error))}[/yellow]")
    try:
        from inphase.viewer.server import serve
    except ModuleNotFoundError as error:
        raise ValueError(f"the viewer needs {error.name}: pip install 'inphase[viewer]'") from error

    def ready(url: str) -> None:
        console.print(f"{escape(str(folder))} plays at [bold]{url}[/bold] (Ctrl-C ends it)", soft_wrap=True)
        sys.stdout.flush()
        if open:
            _show(url)

    # The server heeds Ctrl-C itself; whether it also passes it on depends on when it comes.
    with contextlib.suppress(KeyboardInterrupt):
        serve(folder, port=port, ready=ready)
    console.print("Closed.")


def export(folder: Folder, out: Out) -> None:
    """Write a playback and its page as a folder for any static host; it also opens as a file.

    Args:
        folder: the folder that `inphase align` or another command wrote.
        out: the folder to write; it must be new or empty.
    """
    from inphase.viewer.export import export as write

    console = Console()
    with Progress(console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("copying media")
        page = write(folder, out, progress=lambda done, total: bar.update(task, completed=done, total=total))
    console.print(f"Open {escape(str(page))}, or put {escape(str(out))} on any static host.", soft_wrap=True)


def _show(url: str) -> None:
    """Open the browser where there is a screen; a browser in the terminal would cover what was printed."""
    import webbrowser

    if sys.platform in ("win32", "darwin") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(url)
