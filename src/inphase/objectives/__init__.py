"""Methods: one file each, the loss and the frames it wants."""

from inphase.objectives.d3tw import D3TW
from inphase.objectives.gta import GTA
from inphase.objectives.lav import LAV
from inphase.objectives.objective import Objective
from inphase.objectives.sal import SaL
from inphase.objectives.sequences import Sequences
from inphase.objectives.soft_dtw import SoftDTW
from inphase.objectives.speednet import SpeedNet
from inphase.objectives.supervised import Supervised
from inphase.objectives.tcc import TCC
from inphase.objectives.tcn import TCN
from inphase.objectives.weighted import Weighted

OBJECTIVES: dict[str, type[Objective]] = {
    "gta": GTA,
    "soft_dtw": SoftDTW,
    "d3tw": D3TW,
    "tcc": TCC,
    "tcn": TCN,
    "sal": SaL,
    "speednet": SpeedNet,
    "lav": LAV,
    "supervised": Supervised,
    "weighted": Weighted,
}

__all__ = [
    "D3TW",
    "GTA",
    "LAV",
    "OBJECTIVES",
    "TCC",
    "TCN",
    "Objective",
    "SaL",
    "Sequences",
    "SoftDTW",
    "SpeedNet",
    "Supervised",
    "Weighted",
]
