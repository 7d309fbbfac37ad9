"""The tables and figures of the paper, each by one call: what is trained, what is measured, what the paper reports.

A study is a declaration in `studies.py`; `reproduce` trains and measures what it needs and reports it.
"""

from inphase.reproduction.reproduce import Reproduction, reproduce
from inphase.reproduction.studies import STUDIES
from inphase.reproduction.study import STUDY_DATA, Setup, Study, StudyData

__all__ = ["STUDIES", "STUDY_DATA", "Reproduction", "Setup", "Study", "StudyData", "reproduce"]
