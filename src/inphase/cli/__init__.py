"""The command line: a command parses its options, calls one function of the library, shows progress and prints.

A file here holds the commands of one topic. Commands import the library when they run, so `inphase --help` is fast.
"""

import sys
import warnings
from collections.abc import Callable

from rich.console import Console
from rich.markup import escape
from tyro.extras import SubcommandApp

from inphase import __version__
from inphase.cli import corpora, learn, use
from inphase.cli.options import plain_help
from inphase.storage.files import explain_os_error

COMMANDS: dict[str, Callable[..., None]] = {
    "demo": learn.demo,
    "align": use.align,
    "cut": use.cut,
    "transfer": use.transfer,
    "compare": use.compare,
    "search": use.search,
    "retrieve": use.retrieve,
    "activations": use.activations,
    "pose3d": use.pose3d,
    "embed": corpora.embed,
    "align-all": corpora.align_all,
    "fit": learn.fit,
    "train": learn.train,
    "evaluate": learn.evaluate,
    "reproduce": learn.reproduce,
    "view": use.view,
    "export": use.export,
}

app = SubcommandApp()
for name, command in COMMANDS.items():
    app.command(name=name)(plain_help(command))
app.command(corpora.commands, name="data", help="Examine and prepare data sets.")


def main() -> None:
    """Run a command; print an expected error as one line, without a traceback."""
    warnings.showwarning = _show_warning
    if sys.argv[1:] == ["--version"]:
        print(f"inphase {__version__}")
        return
    try:
        app.cli(prog="inphase", description="Temporal alignment of videos of the same action.")
    except Exception as error:
        # The messages of these are written for the user; any other exception is a bug.
        if not (isinstance(error, (OSError, ValueError)) or type(error).__module__.startswith("inphase.")):
            raise
        message = str(error)
        if isinstance(error, OSError) and error.errno is not None:
            # A failed copy has two names: the file and its destination.
            named = [str(name) for name in (error.filename, error.filename2) if name is not None]
            reason = explain_os_error(error)
            if isinstance(error, FileNotFoundError) and len(named) == 1:
                message = f"{named[0]} does not exist: check the path"
            else:
                message = f"{' → '.join(named)}: {reason}" if named else reason
        Console(stderr=True).print(f"[red]{escape(message)}[/red]", soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        Console(stderr=True).print("[red]Interrupted. Finished files are kept; run the same command to resume.[/red]")
        sys.exit(130)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning in one line, without its place in the code."""
    Console(stderr=True).print(f"[yellow]{escape(str(message))}[/yellow]", soft_wrap=True)
