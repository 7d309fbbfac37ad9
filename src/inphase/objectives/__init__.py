"""Methods: one file each, the loss and the frames it wants."""

from inphase.objectives.gta import GTA

OBJECTIVES = {"gta": GTA}

__all__ = ["GTA", "OBJECTIVES"]
