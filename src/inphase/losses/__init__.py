"""Losses, one method per file: the loss and the frames it needs. `LOSSES` lists them by name."""

from inphase.losses.d3tw import D3TW
from inphase.losses.gta import GTA
from inphase.losses.lav import LAV
from inphase.losses.loss import Loss, Sequences, Weighted
from inphase.losses.lrprop import LRProp
from inphase.losses.sal import SaL
from inphase.losses.scl import SCL
from inphase.losses.soft_dtw import SoftDTW
from inphase.losses.speednet import SpeedNet
from inphase.losses.supervised import Supervised
from inphase.losses.tcc import TCC
from inphase.losses.tcn import TCN
from inphase.losses.vava import VAVA

LOSSES: dict[str, type[Loss]] = {
    "gta": GTA,
    "soft_dtw": SoftDTW,
    "d3tw": D3TW,
    "tcc": TCC,
    "tcn": TCN,
    "sal": SaL,
    "speednet": SpeedNet,
    "lav": LAV,
    "scl": SCL,
    "vava": VAVA,
    "lrprop": LRProp,
    "supervised": Supervised,
    "weighted": Weighted,
}

__all__ = [
    "D3TW",
    "GTA",
    "LAV",
    "LOSSES",
    "SCL",
    "TCC",
    "TCN",
    "VAVA",
    "LRProp",
    "Loss",
    "SaL",
    "Sequences",
    "SoftDTW",
    "SpeedNet",
    "Supervised",
    "Weighted",
]
