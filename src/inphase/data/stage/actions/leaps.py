"""Actions that leave the ground: a vault, a standing long jump, a jump shot."""

from inphase.data.stage.controls import Action, both, left, right, step
from inphase.data.stage.props import Ball, Slab, Way

VAULT = Action(
    name="vault",
    keys=(
        (0.0, "stand", {"x": -0.48, "lfx": -0.48, "rfx": -0.48}),
        (
            0.12,
            "first stride",
            {"x": -0.21, "bend": 12, "z": 0.95} | both(x=0.1, y=0.45, z=-0.75) | step("left", x=-0.09) | {"rfz": 0.2},
        ),
        (0.24, "second stride", {"x": 0.11, "bend": 14} | step("right", x=0.24) | step("left", x=0.00, z=0.3)),
        (
            0.33,
            "take-off",
            {"x": 0.42, "z": 0.9, "bend": 12, "pitch": 6}
            | both(x=0.4, y=0.4, z=-0.5)
            | step("left", x=0.50)
            | step("right", x=0.50),
        ),
        (
            0.43,
            "hands on",
            {"x": 0.72, "z": 1.3, "pitch": 45, "bend": 18, "nod": -25}
            | both(x=0.6, y=0.4, z=-0.75)
            | step("left", x=0.18, z=0.5)
            | step("right", x=0.18, z=0.5),
        ),
        (
            0.53,
            "tuck",
            {"x": 1.20, "z": 1.62, "pitch": 50, "bend": 30}
            | both(x=0.15, y=0.4, z=-0.95)
            | step("left", x=1.10, z=1.28)
            | step("right", x=1.10, z=1.28),
        ),
        (
            0.63,
            "through",
            {"x": 1.85, "z": 1.4, "pitch": 10, "bend": 12, "nod": 0}
            | both(x=-0.25, y=0.55, z=-0.6)
            | step("left", x=2.12, z=0.72)
            | step("right", x=2.12, z=0.72),
        ),
        (
            0.74,
            "landing",
            {"x": 2.27, "z": 0.74, "pitch": 24, "bend": 16}
            | both(x=0.6, y=0.5, z=-0.2)
            | step("left", x=2.39)
            | step("right", x=2.39),
        ),
        (0.84, "absorb", {"x": 2.31, "z": 0.6, "pitch": 32, "bend": 18} | both(x=0.75, y=0.4, z=0.0)),
        (1.0, "salute", {"x": 2.39, "z": 0.995, "pitch": 0, "bend": -5} | both(x=0.15, y=0.6, z=0.8)),
    ),
    phases={"run up": 0.0, "take off": 0.24, "flight on": 0.33, "support": 0.43, "flight off": 0.56, "land": 0.74},
    events={"landing": 0.74, "hands on": 0.43},
    sound="thump",
    props=(Slab(centre=(1.25, 0.0), half=(0.26, 0.55), high=0.86),),
    view=-85.0,
    rush=(0.28, 0.8),
)

LONG_JUMP = Action(
    name="long_jump",
    keys=(
        (0.0, "stand", {"x": -0.59, "lfx": -0.59, "rfx": -0.59}),
        (0.18, "arms up", {"z": 0.99, "bend": -4, "lfz": 0.04, "rfz": 0.04} | both(x=0.35, y=0.4, z=0.85)),
        (
            0.36,
            "wind",
            {"x": -0.72, "z": 0.62, "pitch": 48, "bend": 22, "nod": -30, "lfz": 0, "rfz": 0}
            | both(x=-0.8, y=0.4, z=-0.4),
        ),
        (
            0.46,
            "push",
            {"x": -0.36, "z": 0.95, "pitch": 26, "bend": 6, "lfz": 0.1, "rfz": 0.1} | both(x=0.5, y=0.4, z=-0.4),
        ),
        (
            0.53,
            "take-off",
            {"x": -0.09, "z": 1.18, "pitch": 12, "bend": 0, "nod": 0}
            | both(x=0.6, y=0.4, z=0.75)
            | step("left", x=-0.47, z=0.26)
            | step("right", x=-0.47, z=0.26),
        ),
        (
            0.62,
            "tuck",
            {"x": 0.42, "z": 1.22, "pitch": 20, "bend": 22}
            | both(x=0.8, y=0.4, z=0.2)
            | step("left", x=0.47, z=0.55)
            | step("right", x=0.47, z=0.55),
        ),
        (
            0.7,
            "reach",
            {"x": 0.83, "z": 0.95, "pitch": 22, "bend": 30}
            | both(x=0.8, y=0.4, z=-0.3)
            | step("left", x=1.32, z=0.24)
            | step("right", x=1.32, z=0.24),
        ),
        (
            0.76,
            "landing",
            {"x": 1.06, "z": 0.66, "pitch": 28, "bend": 30}
            | both(x=0.5, y=0.42, z=-0.55)
            | step("left", x=1.40)
            | step("right", x=1.40),
        ),
        (0.85, "absorb", {"x": 1.27, "z": 0.5, "pitch": 38, "bend": 26, "nod": -20} | both(x=0.75, y=0.4, z=-0.3)),
        (1.0, "stand", {"x": 1.41, "z": 0.995, "pitch": 0, "bend": 0, "nod": 0} | both(x=0.05, y=0.42, z=-0.93)),
    ),
    phases={"swing up": 0.0, "wind": 0.18, "push": 0.36, "flight": 0.5, "land": 0.76},
    events={"landing": 0.76, "take-off": 0.5},
    sound="thump",
    view=-90.0,
    rush=(0.4, 0.82),
)

JUMP_SHOT = Action(
    name="jump_shot",
    keys=(
        (
            0.0,
            "hold",
            {"bend": 6, "z": 0.96}
            | both(x=0.5, y=0.18, z=-0.4)
            | step("left", x=0, y=0.16)
            | step("right", x=0.06, y=-0.16),
        ),
        (0.25, "dip", {"bend": 16, "pitch": 14, "z": 0.74, "nod": -18} | both(x=0.5, y=0.18, z=-0.65)),
        (
            0.42,
            "lift-off",
            {"bend": 2, "pitch": 2, "z": 1.02, "nod": -6, "lfz": 0.05, "rfz": 0.05} | both(x=0.5, y=0.18, z=0.35),
        ),
        (
            0.52,
            "set point",
            {"z": 1.24, "lfz": 0.26, "rfz": 0.26, "bend": -4}
            | left(x=0.3, y=0.1, z=0.62)
            | right(x=0.25, y=-0.25, z=0.6),
        ),
        (
            0.6,
            "release",
            {"z": 1.3, "lfz": 0.32, "rfz": 0.32} | left(x=0.3, y=0.2, z=0.6) | right(x=0.5, y=-0.28, z=0.82),
        ),
        (
            0.72,
            "come down",
            {"z": 1.05, "lfz": 0.08, "rfz": 0.08, "x": 0.06}
            | left(x=0.4, y=0.3, z=0.2)
            | right(x=0.72, y=-0.28, z=0.5),
        ),
        (
            0.8,
            "land",
            {"z": 0.82, "lfz": 0, "rfz": 0, "bend": 12, "pitch": 8}
            | left(x=0.4, y=0.4, z=-0.3)
            | right(x=0.75, y=-0.28, z=0.25)
            | {"lfx": 0.06, "rfx": 0.12},
        ),
        (
            1.0,
            "watch",
            {"z": 0.97, "bend": 0, "pitch": 0, "nod": -12}
            | left(x=0.15, y=0.42, z=-0.85)
            | right(x=0.5, y=-0.3, z=0.1),
        ),
    ),
    phases={"hold": 0.0, "dip": 0.12, "rise": 0.25, "flight": 0.42, "land": 0.68},
    events={"release": 0.6, "landing": 0.8},
    sound="whip",
    props=(
        Ball(
            radius=0.12,
            track=(
                Way(0, "hands"),
                Way(0.5, "hands"),
                Way(0.56, "fingers"),
                Way(0.6, "fingers"),
                Way(0.9, (5.0, 0.0, 0.3), rise=1.0),
            ),
        ),
    ),
    view=-80.0,
    rush=(0.38, 0.82),
)
