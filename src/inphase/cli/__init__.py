"""The command line: a command parses its options, calls one function of the library, shows progress and prints.

Help and usage errors import the file of the named command and nothing of the library: so `inphase --help` is fast.
"""

import os
import sys
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from io import TextIOWrapper
from typing import NamedTuple

from inphase import __version__

# Exit codes: a usage error is an unknown command or option, or a value that cannot be parsed.
EXPECTED_ERROR, USAGE_ERROR, INTERRUPTED = 1, 2, 130


class Command(NamedTuple):
    """A command: the file here that holds it, its purpose in a line, and the words of an example."""

    file: str
    purpose: str
    example: str


GROUPS: dict[str, dict[str, Command]] = {
    "Use": {
        "align": Command("use", "align videos of an action and play them in step", "student.mp4 pro.mp4"),
        "compare": Command("use", "compare students with a pro: tempo and joint angles", "student.mp4 pro.mp4"),
        "transfer": Command("use", "transfer the labels of one video to others", "pro.mp4 labels.csv clips/"),
        "cut": Command("use", "find every repetition in a long recording", "session.mp4 --like swing.mp4"),
        "search": Command("use", "find a moment, or a similar video, in many videos", "swing.mp4 --at 1.2 --in clips"),
        "retrieve": Command("use", "find frames by a sound, or the reverse", "--sound hit.mp4 --in clips --model run"),
        "pose3d": Command("use", "reconstruct a body in 3-D from several videos", "query.mp4 other1.mp4 other2.mp4"),
        "embed": Command("corpora", "embed any number of videos into a store", "clips --out store"),
        "align-all": Command("corpora", "align all videos of a store with each other", "store --out report"),
        "view": Command("use", "play a result in the browser", "out/align"),
        "export": Command("use", "export a result as a web page to send", "out/align --single --out swing"),
    },
    "Learn": {
        "demo": Command("learn", "train, measure and align on drawn people, in minutes", "--out demo"),
        "fit": Command("learn", "train an encoder on your own videos, without labels", "clips --out run"),
        "train": Command("learn", "train the encoder of a recipe", "golf_pose --set data.root=golfdb --out run"),
    },
    "Measure": {
        "evaluate": Command("learn", "measure a run beside its controls", "run --tasks kendall_tau event_error"),
        "models": Command("learn", "list and verify the model files", "--json"),
        "activations": Command("use", "show what an image encoder responds to", "swing.mp4 --model run"),
    },
    "Research": {
        "reproduce": Command("learn", "repeat a table or figure of the paper", "ablation --data stage"),
        "data check": Command("corpora", "examine a data set: counts and faults", "penn_action Penn_Action --open"),
        "data show": Command("corpora", "draw a contact sheet of a data set", "stage --out sheet.png"),
        "data cache": Command("corpora", "decode a data set once, for training", "golfdb golfdb store"),
        "data pose": Command("corpora", "estimate the poses of a data set once", "golfdb golfdb store"),
        "data verify": Command("corpora", "find files that changed since they were written", "store"),
        "data stage": Command("corpora", "write the drawn data set as video files", "stage --videos 4"),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}


def main() -> None:
    """Run a command; print an expected error as one line, without a traceback."""
    for stream in (sys.stdout, sys.stderr):  # a pipe on Windows has an encoding without τ and →
        if isinstance(stream, TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(encoding="utf-8")
    words = sys.argv[1:]
    if words == ["--version"]:
        return print(f"inphase {__version__}")
    if any(word.startswith("--tyro-") for word in words):
        return _complete()
    name = next((found for size in (2, 1) if (found := " ".join(words[:size])) in COMMANDS), None)
    if name is None:
        sys.exit(_help(words))
    from inphase.cli.options import parse, print_error

    try:
        return parse(load_command(name), words[len(name.split()) :], name=name, example=COMMANDS[name].example)
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXPECTED_ERROR)
    except Exception as error:
        # The messages of these are written for the user; any other exception is a bug.
        if not (isinstance(error, (OSError, ValueError)) or type(error).__module__.startswith("inphase.")):
            raise
        from inphase.storage.errors import describe_os_error

        print_error(describe_os_error(error) if isinstance(error, OSError) else str(error))
        sys.exit(EXPECTED_ERROR)
    except KeyboardInterrupt:
        print_error("Interrupted. Finished files are kept; run the same command to resume.")
        sys.exit(INTERRUPTED)


def load_command(name: str) -> Callable[..., None]:
    """Import the function of a command: data_check for `inphase data check`."""
    module = import_module(f"inphase.cli.{COMMANDS[name].file}")
    command: Callable[..., None] = getattr(module, name.replace(" ", "_").replace("-", "_"))
    return command


def _help(words: list[str]) -> int:
    """Print the commands in their groups, or name those like an unknown one; return the exit code."""
    wanted = " ".join(word for word in words if word not in ("-h", "--help"))
    asked = wanted != " ".join(words)
    families = {name.split()[0] for name in COMMANDS if " " in name}
    if wanted and wanted not in families:
        typed = " ".join(words[: 2 if words[0] in families else 1])
        near = get_close_matches(typed, COMMANDS, n=3, cutoff=0.5)
        advice = f"did you mean {' or '.join(near)}?" if near else "`inphase --help` lists all."
        print(f"inphase {typed}: there is no such command; {advice}", file=sys.stderr)
        return USAGE_ERROR
    lines = ["usage: inphase COMMAND …", "", "Temporal alignment of videos of the same action."]
    for title, group in GROUPS.items():
        listed = {name: command for name, command in group.items() if name.startswith(wanted)}
        lines += ["", title] if listed else []
        lines += [f"  {name:<13} {command.purpose}" for name, command in listed.items()]
    lines += ["", "`inphase COMMAND --help` shows the options and an example. Every command takes --json and --quiet."]
    print("\n".join(lines), file=sys.stdout if asked else sys.stderr)
    return 0 if asked else USAGE_ERROR


def _complete() -> None:
    """Print or write the completion script of a shell, which needs the options of all commands."""
    from tyro.extras import SubcommandApp

    from inphase.cli.options import prepare

    app, data = SubcommandApp(), SubcommandApp()
    for name in COMMANDS:
        (data if name.startswith("data ") else app).command(name=name.split()[-1])(prepare(load_command(name)))
    app.command(data, name="data")
    app.cli(prog="inphase")
