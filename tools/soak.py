"""Attack the commands for an hour: kill them, damage their inputs, and count it in docs/engineering/reliability.md.

    python -m tools.soak                                   # one hour: 1,000 kills, 10,000 damaged inputs
    python -m tools.soak --minutes 5 --only labels recipe  # less of it
    python -m tools.soak --only "recipe" --seeds 17 18     # the same cases again, with their outputs
    python -m tools.soak --first 5000 --counts soak.json   # other cases, added to those that the file counts

Every case has a seed, so a failure can be repeated. Exits with 1 if there was one. Linux only.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from inphase.storage.files import atomic_write
from tests.crash.commands import COMMANDS
from tests.crash.kills import Killed, Killer
from tests.fuzz.cases import Damaged, Fuzzer
from tests.fuzz.inputs import TARGETS
from tests.processes import FORK_SERVER

PAGE = Path(__file__).parents[1] / "docs" / "engineering" / "reliability.md"
BEGIN, END = "<!-- soak: begin -->", "<!-- soak: end -->"
CASES_AT_A_TIME = {"kill": 20, "damage": 100}
HEAVY_CASES = 5  # of a command that starts interpreters, every fourth turn: each takes as long as ten others


@dataclass(frozen=True)
class NotRun:
    """Cases that could not be run, by a fault of this tool or of the machine."""

    seed: int
    problem: str


@dataclass
class Counts:
    """What came of the cases of one command or one kind of input."""

    cases: int = 0
    kills: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    problems: "list[Case]" = field(default_factory=list)

    def add(self, case: "Case") -> None:
        """Count a case."""
        if isinstance(case, NotRun):
            self.problems.append(case)
            return
        self.cases += 1
        if isinstance(case, Killed):
            self.kills += case.kills
        else:
            self.endings["result" if case.status == 0 else "one line" if not case.problem else "bad"] += 1
        if case.problem:
            self.problems.append(case)


Case = Killed | Damaged | NotRun


def attack(kind: str, name: str, seeds: list[int]) -> list[Case]:
    """Run cases of one command or one kind of input in this process; go on with the others if one cannot be run."""
    found: list[Case] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        try:
            run = (
                Killer(name, Path(place) / "kill").kill
                if kind == "kill"
                else Fuzzer(name, Path(place) / "damage").damage
            )
        except Exception as error:  # such as an extra that is not installed
            return [NotRun(seeds[0], f"not run: {type(error).__name__}: {error}")]
        for seed in seeds:
            try:
                found.append(run(seed))
            except Exception as error:
                found.append(NotRun(seed, f"not run: {type(error).__name__}: {error}"))
    return found


def plan(only: list[str], kills: int, cases: int, *, first: int = 0) -> Iterator[tuple[str, str, list[int]]]:
    """Take turns between all commands and inputs until there are enough kills and cases; seeds count from `first`."""
    commands = [name for name in COMMANDS if not only or name in only]
    targets = [name for name in TARGETS if not only or name in only]
    given = {"kill": 0, "damage": 0}
    for turn in count():
        before = dict(given)
        for kind, names, most in (("kill", commands, kills), ("damage", targets, cases)):
            for name in names:
                heavy = kind == "kill" and COMMANDS[name].heavy
                size = HEAVY_CASES if heavy else CASES_AT_A_TIME[kind]
                if given[kind] < most and not (heavy and turn % 4):
                    given[kind] += size
                    yield kind, name, list(range(first + turn * size, first + (turn + 1) * size))
        if given == before and turn % 4 == 0:
            return


Found = dict[tuple[str, str], Counts]


def run(
    jobs: Iterator[tuple[str, str, list[int]]],
    found: Found,
    *,
    workers: int,
    minutes: float,
    report: Callable[[str], None],
    save: Callable[[], None] = lambda: None,
) -> None:
    """Run the jobs side by side until they or the minutes end; count each in `found`, and save it."""
    began, running = time.monotonic(), dict[Future[list[Case]], tuple[str, str]]()
    with ProcessPoolExecutor(workers, mp_context=FORK_SERVER, max_tasks_per_child=1) as pool:
        while True:
            while len(running) < workers and time.monotonic() - began < 60 * minutes:
                job = next(jobs, None)
                if job is None:
                    break
                running[pool.submit(attack, *job)] = job[:2]
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                key = running.pop(future)
                counts = found.setdefault(key, Counts())
                for case in future.result():
                    counts.add(case)
                    if case.problem:
                        report(f"{key[1]}, seed {case.seed}: {case.problem}")
                save()


def read_counts(file: Path | None) -> tuple[Found, list[str]]:
    """Read the counts of earlier runs, and the lines that describe these; none where there is no file."""
    if file is None or not file.exists():
        return {}, []
    content, found = json.loads(file.read_text(encoding="utf-8")), Found()
    for kind, name, cases, kills, endings, problems in content["counts"]:
        missed: list[Case] = [NotRun(seed, problem) for seed, problem in problems]
        found[kind, name] = Counts(cases, kills, Counter(endings), missed)
    return found, content["runs"]


def write_counts(file: Path, found: Found, runs: list[str]) -> None:
    """Write the counts of all runs."""
    rows = [
        (*key, counts.cases, counts.kills, counts.endings, [(case.seed, case.problem) for case in counts.problems])
        for key, counts in sorted(found.items())
    ]
    with atomic_write(file) as part:
        part.write_text(json.dumps({"runs": runs, "counts": rows}, indent=1), encoding="utf-8")


def write_page(found: Found, *, runs: str) -> None:
    """Write the counts between the marks of docs/engineering/reliability.md."""
    kills = sum(counts.kills for counts in found.values())
    damaged = sum(counts.cases for (kind, _), counts in found.items() if kind == "damage")
    problems = [case for counts in found.values() for case in counts.problems]
    lines = [
        f"{runs}: **{kills:,} kills, {damaged:,} damaged inputs, {len(problems)} failures.**",
        "",
        "| command | cases | kills | failures |",
        "|---|---|---|---|",
    ]
    for (kind, name), counts in sorted(found.items()):
        if kind == "kill":
            lines.append(f"| `{name}` | {counts.cases:,} | {counts.kills:,} | {len(counts.problems)} |")
    lines += ["", "| damaged input | cases | right results | errors of one line | failures |", "|---|---|---|---|---|"]
    for (kind, name), counts in sorted(found.items()):
        if kind == "damage":
            good, refused = counts.endings["result"], counts.endings["one line"]
            lines.append(f"| {name} | {counts.cases:,} | {good:,} | {refused:,} | {len(counts.problems)} |")
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{after}", encoding="utf-8")


def main() -> None:
    """Attack and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60, help="start no case later than this")
    parser.add_argument("--kills", type=int, default=1000, help="cases with at least one kill each")
    parser.add_argument("--cases", type=int, default=10_000, help="damaged inputs")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--first", type=int, default=0, help="the first seed: other runs have had those before it")
    parser.add_argument("--counts", type=Path, help="a file of counts to add to")
    parser.add_argument("--only", nargs="+", default=[], choices=[*COMMANDS, *TARGETS], metavar="NAME")
    parser.add_argument("--seeds", nargs="+", type=int, default=[], help="only these cases of --only")
    parser.add_argument("--write", action="store_true", help="write the counts to docs/engineering/reliability.md")
    given = parser.parse_args()
    jobs = plan(given.only, given.kills, given.cases, first=given.first)
    if given.seeds:
        jobs = iter([("kill" if name in COMMANDS else "damage", name, given.seeds) for name in given.only])
    found, runs = read_counts(given.counts)
    began = time.monotonic()

    def describe() -> list[str]:
        taken = (time.monotonic() - began) / 60
        command = f"`python -m tools.soak --minutes {given.minutes:g} --first {given.first}`"
        version = platform.python_version()
        return [*runs, f"{command} with {given.workers} processes, Python {version}, {taken:.0f} minutes"]

    def save() -> None:
        if given.counts:
            write_counts(given.counts, found, describe())

    run(
        jobs,
        found,
        workers=given.workers,
        minutes=given.minutes,
        report=lambda line: print(line, flush=True),
        save=save,
    )
    for (kind, name), counts in sorted(found.items()):
        print(f"{kind} {name}: {counts.cases} cases, {counts.kills} kills, {len(counts.problems)} failures")
    if given.write:
        write_page(found, runs="; ".join(describe()))
    sys.exit(any(counts.problems for counts in found.values()))


if __name__ == "__main__":
    main()
