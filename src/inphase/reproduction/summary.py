"""The report of a study: its table with the paper's figures beside ours, plots, every run, recipe and versions."""

from datetime import timedelta
from typing import Any

from inphase.evaluation.report import Cell, Number, Report, Table, versions
from inphase.reproduction.machine import describe_machine
from inphase.reproduction.results import LINEAR, Results
from inphase.reproduction.study import Column, Row, Setup, Study
from inphase.training.recipe import write_recipe

PAPER = "paper"


def summarise_study(results: Results) -> Report:
    """Lay out what a study found."""
    study, setup = results.study, results.setup
    runs = results.runs()
    return Report(
        title=f"{study.title}, on {setup.data} by {setup.see}",
        tables=(main_table(results), *action_tables(results)),
        figures=study.figures(results),
        details=(_runs_table(runs),),
        recipe=write_recipe(results.recipe(_shown(results), results.columns[0], results.actions[0])),
        notes=_notes(results),
        about={
            "command": command(study, setup),
            "trained on": "; ".join(sorted({run["machine"] for run in runs if "machine" in run})) or describe_machine(),
            "training took": _duration(sum(run.get("seconds", 0.0) for run in runs)) + f", {len(runs)} runs together",
            "seeds": str(setup.seeds),
            "not comparable": study.unlike(setup) or "nothing known of speaks against comparing with the paper",
        },
        versions=versions(),
    )


def _shown(results: Results) -> Row:
    """Choose the row whose recipe is shown: GTA as it is, or failing that the last."""
    return next((row for row in results.trained if row.whole), results.trained[-1])


def main_table(results: Results) -> Table:
    """Lay out rows and columns, the controls below; the paper's figures stand beside the column they belong to."""
    columns = [column for column in results.columns if _says_something(results, column)]
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
    rows += [_control_row(results, name, columns) for name in (*results.untrained(), *_BLIND)]
    kept = [row for row in rows if any(cell is not None for cell in row[1:])]
    return Table(
        results.study.title,
        tuple(head),
        tuple(kept),
        note=_spread(results.setup.seeds),
        published=tuple(name for name in head if name.startswith(f"{PAPER}: ")),
    )


def action_tables(results: Results) -> list[Table]:
    """Lay τ out by action, a column for each method, where a study shows that and there are several."""
    if not results.study.by_action:
        return []
    column = next(found for found in results.columns if (found.task, found.key) == ("kendall_tau", "tau"))
    found = {row.label: results.by_action(row, column) for row in results.trained}
    names = sorted({name for numbers in found.values() for name in numbers})
    if len(names) < 2:
        return []
    rows = tuple((name, *(numbers.get(name) for numbers in found.values())) for name in names)
    title = f"{column.head.removesuffix(', %')} by action, %"
    return [Table(title, ("", *found), rows, note=_spread(results.setup.seeds))]


def _spread(seeds: int) -> str:
    return "One seed: nothing is known of chance." if seeds == 1 else f"Mean ± deviation over {seeds} seeds."


_BLIND = ("time only", "clamped only", LINEAR)


def _control_row(results: Results, name: str, columns: list[Column]) -> tuple[Cell, ...]:
    """Give the numbers of what was not trained."""
    row = results.untrained().get(name)
    cells: list[Cell] = [name]
    for column in columns:
        cells.append(results.control("untrained" if row else name, column, row=row))
        if column.paper:
            cells.append(None)
    return tuple(cells)


def _says_something(results: Results, column: Column) -> bool:
    """Tell whether any row has a number here; a task that the labels do not allow leaves an empty column."""
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
    """Say how GTA's alignment error compares with linear stretch, where the true time is known."""
    column = next((found for found in results.columns if (found.task, found.key) == ("alignment_error", "dtw")), None)
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
    """Write the command that makes a study; where the data lies is for whoever types it to say."""
    words = ["inphase reproduce", study.name, f"--data {setup.data}"]
    words += ["--root ROOT"] if setup.root is not None else []
    words += ["--store STORE"] if setup.store is not None else []
    words += [f"--see {setup.see} --seeds {setup.seeds} --budget {setup.budget}"]
    words += [f"--methods {' '.join(setup.methods)}"] if setup.methods else []
    words += [f"--set {change}" for change in setup.changes]
    return " ".join(words)


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
