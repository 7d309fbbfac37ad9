"""Damage an input, run a command on it, and judge its end: the right result, or one line that names the thing."""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.forked import Ended, call_forked, run_forked
from tests.fuzz.inputs import TARGETS

CPU_LIMIT = 30  # seconds; a case takes one or two
MAX_LINES = 6
_COLOR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Damaged:
    """A command on a damaged file: its exit status, and what is wrong with its end, if anything."""

    target: str
    seed: int
    file: str
    words: tuple[str, ...]
    status: int
    problem: str = ""


class Fuzzer:
    """Damages the files of one target again and again, in a folder of its own."""

    def __init__(self, name: str, place: Path, *, whole: bool = True) -> None:
        """Write the files, and run every command once on `whole` ones."""
        self._name, self._target = name, TARGETS[name]
        self._template, self._case = place / "template", place / "case"
        self._case.mkdir(parents=True)
        call_forked(self._target.prepare, self._case)
        self._case.rename(self._template)  # prepared where it is used: some files contain the folder's name
        for words in self._target.commands if whole else ():
            self._reset()
            ended = self._run(words)
            if ended.status:
                raise AssertionError(f"{name}: {words} fails on whole files: {ended.output[-3000:]}")

    def damage(self, seed: int) -> Damaged:
        """Damage a file, run a command, and judge its end."""
        rng = Random(f"{self._name} {seed}")
        self._reset()
        words = rng.choice(self._target.commands)
        files = [
            (file, damage)
            for pattern, damage in self._target.files.items()
            for file in sorted(self._case.glob(pattern))
            if file.is_file() and file.stat().st_size
        ]
        named = [each for each in files if str(each[0].relative_to(self._case)) in words]
        file, damage = rng.choice(named or files)
        file.write_bytes(damage(file.read_bytes(), rng))
        ended = self._run(words)
        found = Damaged(self._name, seed, str(file.relative_to(self._case)), words, ended.status, judge(ended))
        if not found.problem and ended.status == 0 and self._target.check is not None:
            problem = call_forked(self._target.check, self._case)
            found = Damaged(self._name, seed, found.file, words, 0, problem)
        return found

    def _run(self, words: tuple[str, ...]) -> Ended:
        return run_forked(words, self._case, cpu_limit=CPU_LIMIT)

    def _reset(self) -> None:
        shutil.rmtree(self._case, ignore_errors=True)
        shutil.copytree(self._template, self._case)


def judge(ended: Ended) -> str:
    """Describe what is wrong with the end of a command; nothing, if it succeeded or printed one line."""
    text = _COLOR.sub("", ended.output)
    last = " | ".join(text.strip().splitlines()[-MAX_LINES:])[-900:]
    if ended.status == -24:
        return f"a hang, or more than {CPU_LIMIT} seconds of CPU: {last}"
    if ended.status < 0:
        return f"ended by signal {-ended.status}: {last}"
    if "Traceback (most recent call last)" in text:
        return f"a traceback: {last}"
    if ended.status not in (0, 1, 2):
        return f"exit status {ended.status}: {last}"
    if ended.status and not text.strip():
        return f"exit status {ended.status} without a word"
    return ""


def damage_inputs(name: str, place: Path, seeds: list[int]) -> list[Damaged]:
    """Damage the files of a target once for every seed."""
    fuzzer = Fuzzer(name, place, whole=False)
    return [fuzzer.damage(seed) for seed in seeds]
