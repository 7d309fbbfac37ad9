import os
from pathlib import Path

import pytest

from tests.crash.commands import COMMANDS
from tests.crash.kills import Killed
from tests.fuzz.cases import Damaged
from tests.fuzz.inputs import TARGETS
from tools import load, soak
from tools.soak import BEGIN, CASES_AT_A_TIME, END, Counts, plan, read_counts, run, write_counts, write_page


def test_everything_is_attacked_and_no_seed_comes_twice() -> None:
    jobs = list(plan([], 1000, 10_000))
    cases = [(kind, name, seed) for kind, name, seeds in jobs for seed in seeds]
    assert len(cases) == len(set(cases))
    kills, damaged = (sum(kind == wanted for kind, _, _ in cases) for wanted in ("kill", "damage"))
    assert 1000 <= kills < 1000 + CASES_AT_A_TIME["kill"]
    assert 10_000 <= damaged < 10_000 + CASES_AT_A_TIME["damage"]
    assert {(kind, name) for kind, name, _ in jobs} == {
        *(("kill", name) for name in COMMANDS),
        *(("damage", name) for name in TARGETS),
    }


def test_only_what_is_named_is_attacked() -> None:
    assert {name for _, name, _ in plan(["labels", "train"], 30, 100)} == {"labels", "train"}


def test_another_first_seed_gives_other_cases() -> None:
    cases = [
        {(name, seed) for _, name, seeds in plan([], 50, 500, first=first) for seed in seeds} for first in (0, 500)
    ]
    assert len(cases[0]) == len(cases[1])
    assert not cases[0] & cases[1]


def test_counts_of_several_runs_are_added(tmp_path: Path) -> None:
    file = tmp_path / "soak.json"
    for name in ("first", "second"):
        found, runs = read_counts(file)
        found.setdefault(("kill", "train"), Counts()).add(Killed("train", 0, 2))
        for status, problem in ((0, ""), (1, "a traceback")):
            case = Damaged("labels", 1, "labels.csv", ("transfer",), status, problem)
            found.setdefault(("damage", "labels"), Counts()).add(case)
        write_counts(file, found, [*runs, name])
    total, runs = read_counts(file)
    assert runs == ["first", "second"]
    assert total["kill", "train"].kills == 4
    assert total["damage", "labels"].cases == 4
    assert total["damage", "labels"].endings == {"result": 2, "bad": 2}
    assert [(case.seed, case.problem) for case in total["damage", "labels"].problems] == [(1, "a traceback")] * 2


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
def test_counts_are_saved_after_every_job() -> None:
    found, saved = dict[tuple[str, str], Counts](), list[int]()
    run(
        iter([("damage", "labels", [0]), ("damage", "labels", [1])]),
        found,
        workers=1,
        minutes=1,
        report=print,
        save=lambda: saved.append(found["damage", "labels"].cases),
    )
    assert saved == [1, 2]


def test_counts_are_written_between_the_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    monkeypatch.setattr(soak, "PAGE", page)
    killed, damaged = Counts(), Counts()
    killed.add(Killed("train", 0, 2))
    for status, problem in ((0, ""), (1, ""), (1, "a traceback"), (-11, "signal 11")):
        damaged.add(Damaged("labels", 1, "labels.csv", ("transfer",), status, problem))
    write_page({("kill", "train"): killed, ("damage", "labels"): damaged}, runs="soak, 3 minutes")
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    assert "**2 kills, 4 damaged inputs, 2 failures.**" in text
    assert f"{BEGIN}\nsoak, 3 minutes: **2" in text
    assert "| `train` | 1 | 2 | 0 |" in text
    assert "| labels | 4 | 1 | 1 | 2 |" in text


def test_memory_that_grows_is_noticed() -> None:
    memory = load.Memory()
    memory.samples = [[100.0 + minute] for minute in range(30)]
    assert memory.describe() == ("119 MB, then 129 MB", True)
    memory.samples = [[100.0 + 10 * minute] for minute in range(30)]
    assert not memory.describe()[1]


def test_a_line_of_the_page_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("- <!-- load view --> old\n- <!-- load store --> other\n")
    monkeypatch.setattr(load, "PAGE", page)
    load.write_line("view", "new")
    assert page.read_text() == "- <!-- load view --> new\n- <!-- load store --> other\n"
