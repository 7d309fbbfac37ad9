"""The supplement's synchronisation with one network for each action."""

from inphase.reproduction import measures
from inphase.reproduction.figures import bars_and_errors
from inphase.reproduction.published import PER_CLASS
from inphase.reproduction.recognition import one_of_each
from inphase.reproduction.study import Column, Setup, Study


def columns(setup: Setup) -> list[Column]:
    """Measure τ and the errors."""
    return [*measures.tau(paper="PennAction τ"), *measures.errors(setup), *measures.health()]


STUDY = Study(
    name="per-class",
    title="Synchronisation, a network for each action",
    about="A network for each action, measured on that action; means over actions.",
    rows=lambda setup: one_of_each(setup, PER_CLASS),
    columns=columns,
    unlike=lambda setup: measures.unlike(setup, collection="PennAction"),
    figures=bars_and_errors,
    each_action=True,
    by_action=True,
)
