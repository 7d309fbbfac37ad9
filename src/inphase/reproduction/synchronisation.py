"""Table 3: one network for all actions, measured by order in time, by classification, and by what people feel."""

from inphase.reproduction import measures
from inphase.reproduction.figures import bars_and_errors
from inphase.reproduction.published import SYNCHRONISATION
from inphase.reproduction.recognition import one_of_each
from inphase.reproduction.study import Column, Setup, Study


def columns(setup: Setup) -> list[Column]:
    """Measure everything that the labels allow; τ never stands without the errors where they are known."""
    return [
        *measures.tau(paper="PennAction τ"),
        *measures.errors(setup),
        *measures.accuracy(setup, paper="PennAction phases", each=True),
        *measures.others(),
        *measures.health(),
    ]


STUDY = Study(
    name="synchronisation",
    title="Video synchronisation (Table 3)",
    about="τ rewards whatever grows with time: read it beside the errors, and beside what position alone scores.",
    rows=lambda setup: one_of_each(setup, SYNCHRONISATION),
    columns=columns,
    unlike=lambda setup: measures.unlike(setup, collection="PennAction"),
    figures=bars_and_errors,
    by_action=True,
)
