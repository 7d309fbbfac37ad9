"""The tables and figures of the paper, each by one command: what is trained, what is measured, what the paper found.

A study is a declaration in the file of its name; `reproduce` trains and measures what it needs and reports it.
"""

from inphase.reproduction.ablation import STUDY as ABLATION
from inphase.reproduction.events import STUDY as EVENTS
from inphase.reproduction.few_shot import STUDY as FEW_SHOT
from inphase.reproduction.per_class import STUDY as PER_CLASS
from inphase.reproduction.recognition import STUDY as RECOGNITION
from inphase.reproduction.reproduce import reproduce
from inphase.reproduction.study import Setup, Study
from inphase.reproduction.synchronisation import STUDY as SYNCHRONISATION

STUDIES: dict[str, Study] = {
    study.name: study for study in (ABLATION, RECOGNITION, EVENTS, FEW_SHOT, SYNCHRONISATION, PER_CLASS)
}

__all__ = ["STUDIES", "Setup", "Study", "reproduce"]
