"""Methods: one file each, the loss and the frames it wants."""

from inphase.objectives.gta import GTA
from inphase.objectives.objective import Objective
from inphase.objectives.sequences import Sequences
from inphase.objectives.tcc import TCC
from inphase.objectives.tcn import TCN

OBJECTIVES: dict[str, type[Objective]] = {
    "gta": GTA,
    "tcc": TCC,
    "tcn": TCN,
}

__all__ = ["GTA", "OBJECTIVES", "TCC", "TCN", "Objective", "Sequences"]
