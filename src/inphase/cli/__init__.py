"""The command line: each command parses, calls one thing and prints.

A file here holds the commands of one topic, and `main` lists them. What is heavy is imported by the command that needs
it: `inphase --help` waits for nothing.
"""

import sys
import warnings

from rich.console import Console
from rich.markup import escape
from tyro.extras import SubcommandApp

from inphase.cli import (
    align_all,
    corpus,
    datasets,
    evaluate,
    learn,
    reproduce,
    use,
    viewing,
)
from inphase.storage.files import explain_os_error

app = SubcommandApp()
app.command(learn.demo)
app.command(use.align)
app.command(use.transfer)
app.command(use.search)
app.command(use.retrieve)
app.command(use.activations)
app.command(corpus.embed)
app.command(align_all.align_all)
app.command(datasets.commands, name="data", help="Examine and prepare data sets.")
app.command(learn.fit)
app.command(learn.train)
app.command(evaluate.evaluate)
app.command(reproduce.reproduce)
app.command(viewing.view)
app.command(viewing.export)
app.command(use.pose3d)


def main() -> None:
    """Run the command that was typed; a foreseen error is one line, not a traceback."""
    warnings.showwarning = _show_warning
    try:
        app.cli(prog="inphase", description="Temporal alignment of videos of the same action.")
    except Exception as error:
        # What we raise ourselves is worded for whoever typed the command; anything else is a fault of ours.
        ours = isinstance(error, (OSError, ValueError)) or type(error).__module__.startswith("inphase.")
        if not ours:
            raise
        message = str(error)
        if isinstance(error, OSError) and error.errno is not None:
            # Where a copy fails there are two: the file and where it was to go.
            named = [str(name) for name in (error.filename, error.filename2) if name is not None]
            message = f"{' → '.join(named)}: {explain_os_error(error)}" if named else explain_os_error(error)
        Console(stderr=True).print(f"[red]{escape(message)}[/red]")
        sys.exit(1)
    except KeyboardInterrupt:
        Console(stderr=True).print("[red]Interrupted. Finished files are kept; run the same command to resume.[/red]")
        sys.exit(130)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Say a warning in one line: where in the code it was raised does not help."""
    Console(stderr=True).print(f"[yellow]{escape(str(message))}[/yellow]")
