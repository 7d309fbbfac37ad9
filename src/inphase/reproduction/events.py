"""The supplement's classification of each event by itself: one network for all, a classifier for each."""

from inphase.data.finegym import EVENTS
from inphase.evaluation.tasks.phase_classification import classifier_name
from inphase.reproduction import measures
from inphase.reproduction.bases import list_actions
from inphase.reproduction.figures import heat
from inphase.reproduction.published import EVENTS_OF
from inphase.reproduction.recognition import one_of_each
from inphase.reproduction.study import Column, Setup, Study


def columns(setup: Setup) -> list[Column]:
    """Measure the classifier of each event, or of each action elsewhere, and their mean."""
    known = setup.data == "finegym"
    actions = list(EVENTS.values()) if known else list_actions(setup)
    task, setting = "phase_classification", classifier_name("linear", "raw")
    found = [
        Column(
            f"{action}, %",
            task,
            "accuracy",
            100,
            f"FineGym101 {action}" if known else "",
            setting=setting,
            action=action,
        )
        for action in actions
    ]
    # A single action has no classifier of its own beside that of all.
    mean = Column("mean, %", task, "accuracy_per_action", 100, setting=setting)
    return [*found, mean] if len(actions) > 1 else [*measures.accuracy(setup)]


STUDY = Study(
    name="events",
    title="Recognition, event by event",
    about="A support vector machine for the phases of each action by itself, on embeddings of one network for all.",
    rows=lambda setup: one_of_each(setup, EVENTS_OF),
    columns=columns,
    unlike=lambda setup: measures.unlike(setup, collection="FineGym"),
    figures=heat,
)
