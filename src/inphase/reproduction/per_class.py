"""The supplement's synchronisation with one network for each action."""

from inphase.reproduction import measures
from inphase.reproduction.events import rows as method_rows_of
from inphase.reproduction.figures import bars_and_errors
from inphase.reproduction.published import PER_CLASS
from inphase.reproduction.study import Column, Row, Setup, Study


def rows(setup: Setup) -> list[Row]:
    """Train every method."""
    return [
        Row(row.label, row.method, row.changes, PER_CLASS.get(row.method, {}), whole=row.whole)
        for row in method_rows_of(setup)
    ]


def columns(setup: Setup) -> list[Column]:
    """Measure τ and the errors."""
    return [*measures.tau(paper="PennAction τ"), *measures.errors(setup), *measures.health()]


STUDY = Study(
    name="per-class",
    title="Synchronisation, a network for each action",
    about="A network for each action, measured on that action; means over actions.",
    rows=rows,
    columns=columns,
    unlike=lambda setup: measures.unlike(setup, collection="PennAction"),
    figures=bars_and_errors,
    each_action=True,
)
