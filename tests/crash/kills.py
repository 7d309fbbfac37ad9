"""Kill a command, run it again, and compare its results with those of a command that nobody killed."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.crash.commands import COMMANDS
from tests.forked import MORE_MEMORY, Ended, call_forked, run_forked

CPU_LIMIT = 120  # seconds; starting interpreters included
RAY_MEMORY = 64 * 2**30  # bytes
_NUMBERS = re.compile(r"[0-9a-f]{6,}|\d+")
_PROBE = re.compile(r"tmp/[a-z0-9_]{8}")


@dataclass(frozen=True)
class Killed:
    """A command that was killed `kills` times and then run to its end: what is wrong with its results, if anything."""

    command: str
    seed: int
    kills: int
    problem: str = ""


class Killer:
    """Kills one command again and again, in a folder of its own."""

    def __init__(self, name: str, place: Path, *, twice: bool = True) -> None:
        """Run the command as a whole, and `twice` to see that its results are always the same."""
        self._name, self._command = name, COMMANDS[name]
        self._template, self._case = place / "template", place / "case"
        self._case.mkdir(parents=True)
        call_forked(self._command.prepare, self._case)
        self._case.rename(self._template)  # prepared where it is used: some files contain the folder's name
        self._reset()
        self._whole = self._run()
        self._result, self._names = self._summarize(), self._list_names()
        if twice:
            self._reset()
            self._run()
            if self._summarize() != self._result:
                raise AssertionError(f"{name}: two whole runs differ")

    def kill(self, seed: int) -> Killed:
        """Kill the command once or a few times, run it as a whole, and compare."""
        rng, kills = Random(f"{self._name} {seed}"), 0
        self._reset()
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            if rng.random() < 0.75:
                ended = self._start(kill_before=rng.randint(1, max(1, self._whole.operations)))
            else:
                ended = self._start(kill_after=rng.uniform(0.0, self._whole.wall))
            kills += ended.status == -9
            if ended.status not in (0, -9):
                return Killed(self._name, seed, kills, f"{ended.status} before a kill: {ended.output[-800:]}")
        if not kills:  # the random moments came after the end
            self._reset()
            kills += self._start(kill_before=rng.randint(1, max(1, self._whole.operations // 2))).status == -9
        return Killed(self._name, seed, kills, self._compare())

    def _compare(self) -> str:
        ended = self._start()
        if ended.status:
            return f"exit status {ended.status} after a kill: {ended.output[-800:]}"
        try:
            found = self._summarize()
        except RuntimeError as error:
            return f"the results cannot be read: {error}"
        if found != self._result:
            wrong = [key for key in {**found, **self._result} if found.get(key) != self._result.get(key)]
            return f"other results than of a whole run: {', '.join(wrong)}"
        left = sorted(self._list_names() - self._names)
        return f"left behind: {', '.join(left)}" if left else ""

    def _start(self, **kill: Any) -> Ended:
        # Ray maps far more than it uses, and does not start below a limit.
        memory = RAY_MEMORY if "--ray" in self._command.words else MORE_MEMORY
        return run_forked(self._command.words, self._case, cpu_limit=CPU_LIMIT, more_memory=memory, **kill)

    def _run(self) -> Ended:
        ended = self._start()
        if ended.status:
            raise AssertionError(f"{self._name} fails by itself: {ended.output[-3000:]}")
        return ended

    def _summarize(self) -> Any:
        return call_forked(self._command.summarize, self._case)

    def _reset(self) -> None:
        shutil.rmtree(self._case, ignore_errors=True)
        shutil.copytree(self._template, self._case)

    def _list_names(self) -> set[str]:
        """Name the files below the case, with # for numbers and hashes.

        Sockets of multiprocessing in the folder for temporary files are Python's own: they have random names, and
        processes that are started from a server, as here, leave them behind whether they are killed or not. So is the
        lock of matplotlib's list of fonts, the logs of Ray, and a file of eight letters by which `tempfile` tests its
        folder and which it removes at once.
        """
        paths = [path.relative_to(self._case) for path in self._case.rglob("*")]
        names = {_NUMBERS.sub("#", str(path)) for path in paths if not _PROBE.fullmatch(str(path))}
        return {name for name in names if not name.startswith(("tmp/pymp-", "tmp/ray/", "cache/matplotlib/"))}


def kill_command(name: str, place: Path, seeds: list[int]) -> list[Killed]:
    """Kill a command at least once for every seed."""
    killer = Killer(name, place, twice=False)
    return [killer.kill(seed) for seed in seeds]
