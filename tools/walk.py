"""List the files that a command passes: what to read, in which order, to follow it from the first line to the last.

    python -m tools.walk align        # inphase align a.mp4 b.mp4
    python -m tools.walk train        # inphase train demo_pose, two steps
    python -m tools.walk reproduce    # inphase reproduce recognition, of one method

A reader opens a file when one of its functions is called for the first time, and leaves it when none of its functions
is running and the run has gone on to a file not seen before. A *return* is a function not read before in a file that
was left: the reader has to open that file again. A function that calls no other file of the package (a check, a data
class) is read by its name where it is called, and so are those of `storage` and `progress.py`, which know nothing of
videos: both are like calls into a library, and no returns. The tool runs the library function behind the command on
clips that the stage draws, and follows every call. Images are embedded by torch, as in the base install.
"""

import argparse
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType

import inphase

PACKAGE = Path(inphase.__file__).parent
PREFIX = str(PACKAGE)
# Bodies of modules, classes, comprehensions and lambdas belong to the function around them.
ANONYMOUS = {"<module>", "<lambda>", "<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"}


# Parts of the package that are read like a library.
LIBRARIES = ("storage/", "progress.py")


@dataclass
class Call:
    """A running function of the package, and whether it has called another file of the package."""

    file: str
    entry: str | None  # file:function, if reading it would be a return
    leaf: bool = True


@dataclass
class Walk:
    """The files a run passed, in the order of their first call, and the functions that had a file opened again."""

    files: list[str] = field(default_factory=list)
    returns: list[str] = field(default_factory=list)
    _read: set[CodeType] = field(default_factory=set)
    _running: Counter[str] = field(default_factory=Counter)
    _opened: dict[str, int] = field(default_factory=dict)  # file → number of files opened when it last ran
    _calls: dict[int, list[Call]] = field(default_factory=dict)  # thread → running functions
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def record(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call or a return of a function of the package; a profile function of `sys.setprofile`."""
        code = frame.f_code
        if not code.co_filename.startswith(PREFIX) or event not in ("call", "return"):
            return
        if not code.co_filename.endswith(".py") or code.co_name in ANONYMOUS or is_import(frame):
            return
        file = str(Path(code.co_filename).relative_to(PACKAGE))
        with self._lock:
            stack = self._calls.setdefault(threading.get_ident(), [])
            if event == "return":
                self._leave(stack)
            else:
                self._enter(stack, file, code, read=not is_class_body(frame))

    def _enter(self, stack: list[Call], file: str, code: CodeType, *, read: bool) -> None:
        for caller in stack:
            caller.leaf = caller.leaf and caller.file == file
        entry = None
        if read and code not in self._read:
            self._read.add(code)
            if file not in self.files:
                self.files.append(file)
            elif not file.startswith(LIBRARIES) and not self._running[file] and self._opened[file] < len(self.files):
                entry = f"{file}:{code.co_name}"
        self._opened[file] = len(self.files)
        self._running[file] += 1
        stack.append(Call(file, entry))

    def _leave(self, stack: list[Call]) -> None:
        call = stack.pop()
        self._running[call.file] -= 1
        self._opened[call.file] = len(self.files)
        if call.entry and not call.leaf:
            self.returns.append(call.entry)


def is_import(frame: FrameType) -> bool:
    """Report whether a module of the package is being imported: decorators and registries run then."""
    caller = frame.f_back
    while caller is not None:
        if caller.f_code.co_name == "<module>" and caller.f_code.co_filename.startswith(PREFIX):
            return True
        caller = caller.f_back
    return False


def is_class_body(frame: FrameType) -> bool:
    """Recognize the body of a class statement, which runs when its module is imported."""
    return "__qualname__" in frame.f_code.co_names and "__module__" in frame.f_code.co_names


def follow(work: Callable[[], object]) -> Walk:
    """Run `work` and follow its calls through the package, in all threads it starts."""
    walk = Walk()
    threading.setprofile(walk.record)
    sys.setprofile(walk.record)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return walk


def main() -> None:
    """Print the walk that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("walk", choices=sorted(WALKS))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        walk = follow(WALKS[arguments.walk](Path(folder)))
    for number, file in enumerate(walk.files, 1):
        print(f"{number:3d}  {file}")
    print(f"{len(walk.files)} files, {len(walk.returns)} returns" + "".join(f"\n     {name}" for name in walk.returns))


def align(folder: Path) -> Callable[[], object]:
    """Prepare `inphase align` of two drawn clips."""
    from inphase.data.stage_videos import write

    write(folder / "stage", split="test", actions=["golf_swing"], videos=2, size=64)
    clips = sorted((folder / "stage").rglob("*.mp4"))[:2]
    align_videos = inphase.align_videos
    os.environ["INPHASE_IMAGE_RUNTIME"] = "torch"
    return lambda: align_videos(clips, modality="image", cache=folder / "cache").write(folder / "out")


def train(folder: Path) -> Callable[[], object]:
    """Prepare `inphase train demo_pose` for two steps."""
    import_module("lightning.fabric")  # not to be followed: it takes seconds
    recipe = inphase.read_recipe("demo_pose", changes=["run.steps=2", "validation.every=0", "data.videos=4"])
    train_recipe = inphase.train
    return lambda: train_recipe(recipe, folder / "run")


def reproduce(folder: Path) -> Callable[[], object]:
    """Prepare the smallest study: `inphase reproduce recognition --methods gta`."""
    changes = ("run.steps=2", "data.videos=3", "data.level=plain", 'data.actions=["golf_swing"]')
    run_study = partial(inphase.reproduce, seeds=1, methods=["gta"], changes=changes, workers=1)
    return lambda: run_study("recognition", folder / "study").write(folder / "report")


WALKS: dict[str, Callable[[Path], Callable[[], object]]] = {"align": align, "train": train, "reproduce": reproduce}

if __name__ == "__main__":
    main()
