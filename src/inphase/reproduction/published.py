"""The numbers the paper reports, in percent, by method; the row and table they stand in is beside each."""

from collections.abc import Mapping

from inphase.data.finegym import EVENTS

Figures = Mapping[str, Mapping[str, float]]

# Table 1, FineGym101 by (contrastive cost, cycle consistency), and min^γ with both.
ABLATION: Mapping[tuple[bool, bool], float] = {
    (False, False): 28.20,
    (False, True): 28.20,
    (True, False): 47.32,
    (True, True): 49.51,
}
ABLATION_MIN_GAMMA = 48.07

# Table 2 and the supplement: by training of the backbone, FineGym101 and FineGym290.
RECOGNITION: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "scratch": {
        "speednet": (30.40, 29.87),
        "tcn": (36.52, 37.40),
        "sal": (40.25, 37.98),
        "d3tw": (32.10, 32.15),
        "tcc": (41.78, 40.57),
        "gta": (45.79, 43.49),
    },
    "train_all": {
        "speednet": (28.27, 30.95),
        "tcn": (30.97, 35.68),
        "sal": (36.76, 39.76),
        "d3tw": (35.75, 33.63),
        "tcc": (44.29, 40.31),
        "gta": (47.78, 44.77),
    },
    "only_bn": {
        "speednet": (34.38, 35.92),
        "tcn": (41.75, 39.93),
        "sal": (42.68, 41.58),
        "d3tw": (38.21, 34.04),
        "tcc": (45.62, 43.40),
        "gta": (49.51, 46.54),
    },
}
# Supplement, the original short clips, only_bn: FineGym99 and FineGym288.
ORIGINAL_CLIPS: Mapping[str, tuple[float, float]] = {
    "speednet": (16.86, 15.57),
    "tcn": (20.02, 17.11),
    "sal": (21.45, 19.58),
    "d3tw": (15.28, 14.07),
    "tcc": (25.18, 20.82),
    "gta": (27.81, 24.16),
}
# Supplement, FineGym101, only_bn, a classifier for each event: VT, FX, BB, UB.
_EVENTS: Mapping[str, tuple[float, float, float, float]] = {
    "speednet": (61.63, 12.10, 24.25, 24.42),
    "tcn": (68.82, 13.49, 29.57, 27.14),
    "sal": (70.53, 15.16, 37.73, 33.06),
    "d3tw": (65.79, 13.57, 31.96, 26.61),
    "tcc": (69.21, 20.01, 40.95, 37.08),
    "gta": (70.69, 20.06, 43.81, 40.12),
}
EVENTS_OF: Figures = {
    method: {f"FineGym101 {EVENTS[code]}": value for code, value in zip(("VT", "FX", "BB", "UB"), row, strict=True)}
    for method, row in _EVENTS.items()
}
# Table 3, PennAction, one network for all actions; the supplement's, one for each.
SYNCHRONISATION: Figures = {
    "tcn": {"PennAction τ": 65.29, "PennAction phases": 69.3},
    "sal": {"PennAction τ": 53.87, "PennAction phases": 69.4},
    "tcc": {"PennAction τ": 71.0, "PennAction phases": 77.51},
    "gta": {"PennAction τ": 74.84, "PennAction phases": 78.90},
}
PER_CLASS: Figures = {
    "tcn": {"PennAction τ": 73.28},
    "sal": {"PennAction τ": 63.36},
    "tcc": {"PennAction τ": 73.53},
    "gta": {"PennAction τ": 78.29},
}
