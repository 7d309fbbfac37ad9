"""What the runs of a study found: jobs from rows and columns, and cells from what the jobs wrote."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import Any

from inphase.data import DATASETS
from inphase.evaluation import TASKS
from inphase.evaluation.measure import Measured
from inphase.evaluation.report import Cell, Number
from inphase.reproduction.bases import compose, list_actions
from inphase.reproduction.measures import options
from inphase.reproduction.runs import Job, Test, read_measured, read_trained
from inphase.reproduction.study import Changes, Column, Row, Setup, Study
from inphase.training import Recipe
from inphase.training.status import COLLAPSED

LINEAR = "linear stretch"
# The numbers of what looks at nothing but lengths, under the keys of a matching.
_STRETCHED = ("nearest", "dtw")


@dataclass(frozen=True, eq=False)
class Results:
    """A study on a setup, and the folder its runs are in; `failed` are those that came to nothing, and why."""

    study: Study
    setup: Setup
    out: Path
    failed: Mapping[Path, str] = field(default_factory=dict)

    @cached_property
    def rows(self) -> list[Row]:
        """List the rows that are asked for."""
        return self.study.chosen_rows(self.setup)

    @cached_property
    def columns(self) -> list[Column]:
        """List the columns of this setup."""
        return list(self.study.columns(self.setup))

    @cached_property
    def actions(self) -> list[str | None]:
        """List the actions that have a network of their own; none where one is for all."""
        if not self.study.each_action:
            return [None]
        found = sorted(self.action_names)
        if "actions" in signature(DATASETS[self.setup.data]).parameters:
            return [*found]
        if len(found) > 1:
            raise ValueError(f"{self.setup.data} cannot be narrowed to one action: {self.study.name} needs that")
        return [None]

    @cached_property
    def refused(self) -> dict[str, str]:
        """Name the rows that cannot be trained on this data, and why."""
        found = {}
        for row in self.rows:
            try:
                self.recipe(row, self.columns[0], self.actions[0])
            except ValueError as error:
                found[row.label] = str(error)
        return found

    @cached_property
    def trained(self) -> list[Row]:
        """List the rows that can be trained; where none can, refuse."""
        found = [row for row in self.rows if row.label not in self.refused]
        if not found:
            raise ValueError(next(iter(self.refused.values())))
        return found

    def recipe(self, row: Row, column: Column, action: str | None) -> Recipe:
        """Compose the recipe of the network behind a cell."""
        alone: Changes = {"data": {"actions": [action]}} if action is not None else {}
        changes = {
            table: {**row.changes.get(table, {}), **column.train.get(table, {}), **alone.get(table, {})}
            for table in {**row.changes, **column.train, **alone}
        }
        return compose(self.setup, row.method, changes)

    def jobs(self) -> list[Job]:
        """List the runs of all rows, seeds first so that a stopped study has whole rows; the controls before them."""
        found: dict[Path, Job] = {}
        for seed in (None, *range(self.setup.seeds)):
            for row in self.trained:
                for column in self.columns:
                    for action in self.actions:
                        job = self._job(row, column, action, seed)
                        before = found.get(job.folder)
                        tests = dict.fromkeys(test.file for test in (before.tests if before else ()))
                        if before is None:
                            found[job.folder] = job
                        elif job.tests[0].file not in tests:
                            found[job.folder] = Job(job.recipe, seed, (*before.tests, *job.tests))
        return list(found.values())

    def _job(self, row: Row, column: Column, action: str | None, seed: int | None) -> Job:
        recipe = self.recipe(row, column, action)
        return Job(recipe, seed, (self._test(recipe, column),))

    def _test(self, recipe: Recipe, column: Column) -> Test:
        """Measure together what is measured on the same data."""
        alike = [other.task for other in self.columns if other.test == column.test]
        tasks = tuple(task for task in TASKS if task in alike)
        chosen = {task: given for task, given in options(self.setup).items() if task in tasks and given}
        return Test({**recipe.data, **column.test}, tasks, chosen)

    def measured(self, row: Row, column: Column, action: str | None, seed: int | None) -> Measured | None:
        """Read what a run found; nothing where it failed."""
        if row.label in self.refused:
            return None
        job = self._job(row, column, action, seed)
        file = self.out / job.folder / job.tests[0].file
        return None if job.folder in self.failed or not file.is_file() else read_measured(file)

    def cell(self, row: Row, column: Column) -> Cell:
        """Average a number over seeds; where a seed failed say so: a mean over what happened to work would flatter."""
        if row.label in self.refused:
            return None
        values = []
        for seed in range(self.setup.seeds):
            found = [self._number(row, column, action, seed) for action in self.actions]
            if any(value == _FAILED for value in found):
                continue
            known = [value for value in found if isinstance(value, float)]
            if not known:
                return None
            values.append(column.scale * sum(known) / len(known))
        lost = self.setup.seeds - len(values)
        if lost:
            return "failed" if self.setup.seeds == 1 else f"{lost} of {self.setup.seeds} failed"
        return Number.of(values)

    def _number(self, row: Row, column: Column, action: str | None, seed: int) -> float | str | None:
        measured = self.measured(row, column, action, seed)
        if measured is None:
            return _FAILED
        return measured.numbers.get(column.task, {}).get("this run", {}).get(column.key)

    def by_action(self, row: Row, column: Column) -> dict[str, Number]:
        """Average a number of each action over seeds, where a task tells it by action and no seed failed."""
        found: dict[str, list[float]] = {}
        for seed in range(self.setup.seeds):
            for action in self.actions:
                measured = self.measured(row, column, action, seed)
                numbers = measured.numbers.get(column.task, {}).get("this run", {}) if measured else {}
                for key, value in numbers.items():
                    name = key.removeprefix(f"{column.key}/")
                    if name in self.action_names and name != key:
                        found.setdefault(name, []).append(column.scale * value)
        return {name: Number.of(values) for name, values in sorted(found.items()) if len(values) == self.setup.seeds}

    @cached_property
    def action_names(self) -> set[str]:
        """Name the actions of the test videos."""
        return set(list_actions(self.setup))

    def untrained(self) -> dict[str, Row]:
        """Name the networks before training, and give a row of each."""
        modes = {row.changes.get("encoder", {}).get("mode", ""): row for row in reversed(self.trained)}
        return {f"untrained, {mode}" if len(modes) > 1 else "untrained": modes[mode] for mode in reversed(modes)}

    def control(self, name: str, column: Column, *, row: Row | None = None) -> Cell:
        """Give what a control scores beside a row's network: those of `CONTROLS`, and linear stretch."""
        key, own = column.key, name
        if name == LINEAR:
            parts = key.split("/")
            if column.task not in ("event_error", "alignment_error") or parts[0] not in _STRETCHED:
                return None
            key, own = "/".join(["linear", *parts[1:]]), "this run"
        row = row or self.trained[0]
        values = []
        for action in self.actions:
            measured = self.measured(row, column, action, None)
            found = measured.numbers.get(column.task, {}) if measured else {}
            value = found.get("this run" if own == "untrained" else own, {}).get(key)
            values.extend([] if value is None else [value])
        return Number(column.scale * sum(values) / len(values)) if values else None

    def left_out(self) -> dict[str, str]:
        """Name the tasks that the labels do not allow."""
        found = (self.measured(row, column, self.actions[0], None) for row in self.trained for column in self.columns)
        return {task: reason for measured in found if measured for task, reason in measured.left_out.items()}

    def runs(self) -> list[dict[str, Any]]:
        """Tell of every run how it went."""
        listed: dict[Path, dict[str, Any]] = {}
        for row in self.trained:
            for seed in range(self.setup.seeds):
                for column in self.columns:
                    for action in self.actions:
                        job = self._job(row, column, action, seed)
                        listed[job.folder] = {
                            "label": row.label if action is None else f"{row.label}, {action}",
                            "folder": job.folder,
                            "seed": seed,
                            "failed": self.failed.get(job.folder, ""),
                            "collapsed": self._collapsed(self.measured(row, column, action, seed)),
                            **read_trained(self.out / job.folder),
                        }
        return list(listed.values())

    @staticmethod
    def _collapsed(measured: Measured | None) -> bool:
        health = measured.numbers.get("health", {}).get("this run", {}) if measured else {}
        cosine = health.get("mean_cosine", math.nan)
        return math.isnan(cosine) or cosine > COLLAPSED if health else False


_FAILED = "failed"
