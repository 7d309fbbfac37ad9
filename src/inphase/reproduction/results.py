"""The results of a study: jobs from rows and columns, cells from their scores, and the report."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import Any

from inphase.data import DATASETS
from inphase.evaluation import TASKS, Score, select
from inphase.evaluation.evaluate import Evaluation
from inphase.evaluation.report import Cell, Number, Report, Table, versions
from inphase.reproduction.study import Changes, Column, Setup, Study, StudyRow, task_options
from inphase.reproduction.study_runs import (
    Measurement,
    TrainingJob,
    describe_machine,
    list_actions,
    make_recipe,
    read_measured,
    read_trained,
)
from inphase.training import Recipe
from inphase.training.metrics import COLLAPSED

LINEAR = "linear stretch"
# The ways of matching whose scores linear stretch is compared with.
_STRETCHED = ("nearest", "dtw")


@dataclass(frozen=True, eq=False)
class Results:
    """A study on a setup, and the folder of its runs; `failed` maps the folders of failed runs to reasons."""

    study: Study
    setup: Setup
    out: Path
    failed: Mapping[Path, str] = field(default_factory=dict)

    @cached_property
    def rows(self) -> list[StudyRow]:
        """The rows of the chosen methods."""
        return self.study.chosen_rows(self.setup)

    @cached_property
    def columns(self) -> list[Column]:
        """The columns of this setup."""
        return self.study.chosen_columns(self.setup)

    @cached_property
    def actions(self) -> list[str | None]:
        """The actions that have a network of their own; [None] where one network is for all."""
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
        """The rows that cannot be trained on this data, with the reasons."""
        found = {}
        for row in self.rows:
            try:
                self.recipe(row, self.columns[0], self.actions[0])
            except ValueError as error:
                found[row.label] = str(error)
        return found

    @cached_property
    def trained(self) -> list[StudyRow]:
        """The rows that can be trained; raise where none can."""
        found = [row for row in self.rows if row.label not in self.refused]
        if not found:
            raise ValueError(next(iter(self.refused.values())))
        return found

    @cached_property
    def _recipes(self) -> dict[tuple[str, str, str | None], Recipe]:
        """The recipes made so far, by row, column and action: a report asks for each of them dozens of times."""
        return {}

    def recipe(self, row: StudyRow, column: Column, action: str | None) -> Recipe:
        """Make the recipe of the network of a cell."""
        cell = (row.label, column.head, action)
        if cell not in self._recipes:
            alone: Changes = {"data": {"actions": [action]}} if action is not None else {}
            changes = {
                table: {**row.changes.get(table, {}), **column.train.get(table, {}), **alone.get(table, {})}
                for table in {**row.changes, **column.train, **alone}
            }
            self._recipes[cell] = make_recipe(self.setup, row.method, changes)
        return self._recipes[cell]

    def jobs(self) -> list[TrainingJob]:
        """List the runs of all rows seed by seed, so that a stopped study has complete rows; the controls are first."""
        found: dict[Path, TrainingJob] = {}
        for seed in (None, *range(self.setup.seeds)):
            for row in self.trained:
                for column in self.columns:
                    for action in self.actions:
                        job = self._job(row, column, action, seed)
                        before = found.get(job.folder)
                        if before is None:
                            found[job.folder] = job
                        elif job.measurements[0].file not in {each.file for each in before.measurements}:
                            found[job.folder] = TrainingJob(job.recipe, seed, (*before.measurements, *job.measurements))
        return list(found.values())

    def _job(self, row: StudyRow, column: Column, action: str | None, seed: int | None) -> TrainingJob:
        recipe = self.recipe(row, column, action)
        return TrainingJob(recipe, seed, (self._measurement(recipe, column),))

    def _measurement(self, recipe: Recipe, column: Column) -> Measurement:
        """Combine the columns that are measured on the same data."""
        alike = [other.task for other in self.columns if other.test == column.test]
        tasks = tuple(task for task in TASKS if task in alike)
        chosen = {task: given for task, given in task_options(self.setup).items() if task in tasks and given}
        return Measurement({**recipe.data, **column.test}, tasks, chosen)

    def measured(self, row: StudyRow, column: Column, action: str | None, seed: int | None) -> Evaluation | None:
        """Read the scores of a run; None where it failed."""
        if row.label in self.refused:
            return None
        job = self._job(row, column, action, seed)
        names = (job.measurements[0].file, job.measurements[0].partial_file)
        file = next((found for name in names if (found := self.out / job.folder / name).is_file()), None)
        return None if file is None else read_measured(file)

    def cell(self, row: StudyRow, column: Column) -> Cell:
        """Average a score over seeds; a failed seed is shown as such, since a mean over the others would flatter."""
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

    def _number(self, row: StudyRow, column: Column, action: str | None, seed: int) -> float | str | None:
        measured = self.measured(row, column, action, seed)
        if measured is None or column.task in measured.failed:
            return _FAILED
        return _value(select(measured.scores, control=None, **_fields(column)))

    def by_action(self, row: StudyRow, column: Column) -> dict[str, Number]:
        """Average the score of each action over seeds, where a task has it by action and no seed failed."""
        found: dict[str, list[float]] = {}
        for seed in range(self.setup.seeds):
            for action in self.actions:
                measured = self.measured(row, column, action, seed)
                fields = {name: value for name, value in _fields(column).items() if name != "action"}
                for score in select(measured.scores, control=None, **fields) if measured else []:
                    if score.action is not None:
                        found.setdefault(score.action, []).append(column.scale * score.value)
        return {name: Number.of(values) for name, values in sorted(found.items()) if len(values) == self.setup.seeds}

    @cached_property
    def action_names(self) -> set[str]:
        """The actions of the test videos."""
        return set(list_actions(self.setup))

    def untrained(self) -> dict[str, StudyRow]:
        """Return a row for each untrained network, by its name."""
        modes = {row.changes.get("encoder", {}).get("mode", ""): row for row in reversed(self.trained)}
        return {f"untrained, {mode}" if len(modes) > 1 else "untrained": modes[mode] for mode in reversed(modes)}

    def control(self, name: str, column: Column, *, row: StudyRow | None = None) -> Cell:
        """Return the score of a control of a row's network: one of `CONTROLS`, or linear stretch."""
        fields, control = _fields(column), None if name == "untrained" else name
        if name == LINEAR:
            if column.setting not in _STRETCHED:
                return None
            fields, control = {**fields, "setting": "linear"}, None
        row = row or self.trained[0]
        values = []
        for action in self.actions:
            measured = self.measured(row, column, action, None)
            value = _value(select(measured.scores, control=control, **fields)) if measured else None
            values.extend([] if value is None else [value])
        return Number(column.scale * sum(values) / len(values)) if values else None

    def left_out(self) -> dict[str, str]:
        """Return the tasks that the labels do not allow, with the reasons."""
        found = (self.measured(row, column, self.actions[0], None) for row in self.trained for column in self.columns)
        return {task: reason for measured in found if measured for task, reason in measured.left_out.items()}

    def runs(self) -> list[dict[str, Any]]:
        """List every run with its label, seed, state and training time."""
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
    def _collapsed(measured: Evaluation | None) -> bool:
        cosine = _value(select(measured.scores, metric="mean_cosine", control=None)) if measured else None
        return cosine is not None and (math.isnan(cosine) or cosine > COLLAPSED)


_FAILED = "failed"


def _fields(column: Column) -> dict[str, str | None]:
    """Return the fields of the score that a column shows."""
    fields = ("task", "metric", "setting", "action")
    return {**{name: getattr(column, name) for name in fields}, "event": None}


def _value(scores: list[Score]) -> float | None:
    """Return the value of the selected score, or None."""
    return scores[0].value if scores else None


PAPER = "paper"


def summarize_study(results: Results) -> Report:
    """Make the report of a study: its table, plots, every run, a recipe and the versions."""
    study, setup = results.study, results.setup
    runs = results.runs()
    return Report(
        title=f"{study.title}, on {setup.data} by {setup.modality}",
        tables=(main_table(results), *action_tables(results)),
        figures=study.figures(results),
        details=(_runs_table(runs),),
        recipe=results.recipe(_shown(results), results.columns[0], results.actions[0]).to_toml(),
        notes=_notes(results),
        about={
            "command": command(study, setup),
            "trained on": "; ".join(sorted({run["machine"] for run in runs if "machine" in run})) or describe_machine(),
            "training took": _duration(sum(run.get("seconds", 0.0) for run in runs)) + f", {len(runs)} runs together",
            "seeds": str(setup.seeds),
            "not comparable": study.differences(setup) or "no known difference from the paper",
        },
        versions=versions(),
    )


def _shown(results: Results) -> StudyRow:
    """Choose the row whose recipe is shown: the complete GTA, or failing that the last."""
    return next((row for row in results.trained if row.whole), results.trained[-1])


def main_table(results: Results) -> Table:
    """Make the table of rows and columns, with the controls below and the paper's numbers beside their columns."""
    columns = [column for column in results.columns if _has_scores(results, column)]
    head = [""]
    for column in columns:
        head += [column.head, f"{PAPER}: {column.paper}"] if column.paper else [column.head]
    rows: list[tuple[Cell, ...]] = []
    for row in results.rows:
        cells: list[Cell] = [row.label]
        for column in columns:
            cells.append(results.cell(row, column))
            if column.paper:
                cells.append(_percent(row.published.get(column.paper)))
        rows.append(tuple(cells))
    rows += [_control_row(results, name, columns) for name in (*results.untrained(), *_CONTROLS)]
    kept = [row for row in rows if any(cell is not None for cell in row[1:])]
    return Table(
        results.study.title,
        tuple(head),
        tuple(kept),
        note=_spread(results.setup.seeds),
        published=tuple(name for name in head if name.startswith(f"{PAPER}: ")),
    )


def action_tables(results: Results) -> list[Table]:
    """Make the table of τ by action, a column for each method, where a study has it and several actions."""
    if not results.study.by_action:
        return []
    column = next(found for found in results.columns if (found.task, found.metric) == ("kendall_tau", "tau"))
    found = {row.label: results.by_action(row, column) for row in results.trained}
    names = sorted({name for numbers in found.values() for name in numbers})
    if len(names) < 2:
        return []
    rows = tuple((name, *(numbers.get(name) for numbers in found.values())) for name in names)
    title = f"{column.head.removesuffix(', %')} by action, %"
    return [Table(title, ("", *found), rows, note=_spread(results.setup.seeds))]


def _spread(seeds: int) -> str:
    return "One seed: the spread is unknown." if seeds == 1 else f"Mean ± deviation over {seeds} seeds."


_CONTROLS = ("time only", "clamped only", LINEAR)


def _control_row(results: Results, name: str, columns: list[Column]) -> tuple[Cell, ...]:
    """Return the scores of a control."""
    row = results.untrained().get(name)
    cells: list[Cell] = [name]
    for column in columns:
        cells.append(results.control("untrained" if row else name, column, row=row))
        if column.paper:
            cells.append(None)
    return tuple(cells)


def _has_scores(results: Results, column: Column) -> bool:
    """Return whether any row has a score; a task that the labels do not allow leaves an empty column."""
    return any(results.cell(row, column) is not None for row in results.rows)


def _percent(value: float | None) -> Cell:
    return None if value is None else f"{value:.2f}"


def _runs_table(runs: list[dict[str, Any]]) -> Table:
    rows = []
    for run in runs:
        state = "trained" if not run["failed"] else f"failed: {run['failed']}"
        state = "collapsed" if run["collapsed"] else state
        took = f"{run['seconds']:.0f} s" if "seconds" in run else None
        rows.append((run["label"], str(run["seed"]), _count(run.get("steps")), took, state, run["folder"].name))
    note = "Collapsed: frames of all videos have a mean cosine above 0.99. Times are of training alone."
    return Table("Runs", ("", "seed", "steps", "time", "state", "folder"), tuple(rows), note=note)


def _count(steps: int | None) -> str | None:
    return None if steps is None else f"{steps:,}"


def _notes(results: Results) -> tuple[str, ...]:
    notes = [results.study.about]
    notes += [f"{label} is left out: {reason}" for label, reason in results.refused.items()]
    notes += [f"{task} is left out: {reason}" for task, reason in results.left_out().items()]
    notes += [f"{folder.name} failed: {reason}" for folder, reason in results.failed.items()]
    return (*filter(None, notes), *_against_stretch(results))


def _against_stretch(results: Results) -> list[str]:
    """Compare GTA's alignment error with that of linear stretch, where the true times are known."""
    column = next(
        (found for found in results.columns if (found.task, found.setting) == ("alignment_error", "dtw")), None
    )
    row = _shown(results)
    if column is None or not row.whole:
        return []
    ours, stretched = results.cell(row, column), results.control(LINEAR, column)
    if not isinstance(ours, Number) or not isinstance(stretched, Number):
        return []
    share = ours.mean / stretched.mean
    return [
        f"After DTW, {row.label} misses by {ours.mean:.1f} % of the action, linear stretch by {stretched.mean:.1f} %: "
        f"{share:.2f} times as much."
    ]


def command(study: Study, setup: Setup) -> str:
    """Return the command that runs a study, with placeholders for folders."""
    words = ["inphase reproduce", study.name, f"--data {setup.data}"]
    words += ["--root ROOT"] if setup.root is not None else []
    words += ["--store STORE"] if setup.store is not None else []
    words += [f"--modality {setup.modality} --seeds {setup.seeds} --budget {setup.budget}"]
    words += [f"--methods {' '.join(setup.methods)}"] if setup.methods else []
    words += [f"--tasks {' '.join(setup.tasks)}"] if setup.tasks else []
    words += [f"--set {change}" for change in setup.changes]
    return " ".join(words)


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
