"""Actions that strike with a long arm: chopping with an axe, serving a ball."""

from inphase.data.stage.controls import Action, grip, left, point, right, step
from inphase.data.stage.props import Ball, Club, Slab, Way

AXE_CHOP = Action(
    name="axe_chop",
    keys=(
        (
            0.0,
            "ready",
            {"z": 0.95, "bend": 8, "nod": 15}
            | grip(x=0.4, y=0.0, z=-0.75)
            | point(x=0.8, y=0.0, z=-0.4)
            | step("left", x=0.05, y=0.25)
            | step("right", x=-0.15, y=-0.25),
        ),
        (0.22, "heave", {"bend": 0, "nod": 5, "z": 0.97} | grip(x=0.75, y=0.0, z=-0.2) | point(x=0.6, y=0.0, z=0.75)),
        (
            0.42,
            "overhead",
            {"bend": -14, "pitch": -4, "z": 0.99, "nod": 0, "rfz": 0.05}
            | grip(x=0.2, y=0.0, z=0.85)
            | point(x=-0.8, y=0, z=0.5),
        ),
        (
            0.5,
            "brought down",
            {"bend": 15, "pitch": 8, "z": 0.93} | grip(x=0.75, y=0, z=0.45) | point(x=0.3, y=0, z=0.95),
        ),
        (
            0.58,
            "strike",
            {"bend": 32, "pitch": 28, "z": 0.8, "nod": 5, "x": -0.06, "rfz": 0.03}
            | grip(x=0.55, y=0, z=-0.75)
            | point(x=0.9, y=0, z=-0.3),
        ),
        (0.72, "stuck", {"bend": 36, "pitch": 32, "z": 0.77} | grip(x=0.5, y=0, z=-0.78)),
        (0.86, "wrench", {"bend": 22, "pitch": 20, "z": 0.85} | grip(x=0.4, y=0, z=-0.75) | point(x=0.85, y=0, z=0.2)),
        (
            1.0,
            "shoulder",
            {"bend": 0, "pitch": 0, "z": 0.98, "x": 0.0, "rfz": 0}
            | grip(x=0.35, y=-0.3, z=-0.25)
            | point(x=-0.5, y=-0.2, z=0.7),
        ),
    ),
    phases={"raise": 0.0, "overhead": 0.3, "strike": 0.42, "stuck": 0.58, "wrench free": 0.72},
    events={"impact": 0.58, "overhead": 0.42},
    sound="thud",
    props=(
        Club(length=0.75, radius=(0.018, 0.018), head=0.03, blade=0.16),
        Slab(half=(0.17, 0.2), under=(Way(0, "tip", when=0.58),), gap=0.05),
    ),
    view=-75.0,
    rush=(0.44, 0.62),
)

SERVE = Action(
    name="serve",
    keys=(
        (
            0.0,
            "ready",
            {"yaw": -60, "z": 0.96, "turn": 35, "bend": 8}
            | left(x=0.55, y=0.15, z=-0.45)
            | right(x=0.5, y=-0.2, z=-0.5)
            | point(x=0.7, y=0.6, z=0.35)
            | step("left", x=0.2, y=0.02)
            | step("right", x=-0.25, y=-0.08),
        ),
        (
            0.18,
            "drop",
            {"yaw": -68, "bend": 14}
            | left(x=0.5, y=0.25, z=-0.75)
            | right(x=0.2, y=-0.5, z=-0.8)
            | point(x=0.2, y=-0.3, z=-0.9),
        ),
        (
            0.34,
            "toss",
            {"yaw": -80, "bend": -4, "side": 8, "nod": -20, "z": 0.95}
            | left(x=0.25, y=0.65, z=0.75)
            | right(x=-0.1, y=-0.95, z=-0.15)
            | point(x=-0.1, y=-0.9, z=0.2),
        ),
        (
            0.48,
            "trophy",
            {"yaw": -85, "bend": -10, "side": 16, "nod": -26, "z": 0.84, "x": 0.05}
            | left(x=0.2, y=0.6, z=0.8)
            | right(x=-0.1, y=-0.7, z=0.15)
            | point(x=0.1, y=0.35, z=0.9),
        ),
        (
            0.56,
            "racket drop",
            {"yaw": -50, "twist": 5, "z": 0.95, "side": 2}
            | left(x=0.4, y=0.4, z=0.0)
            | right(x=-0.1, y=-0.5, z=0.4)
            | point(x=-0.4, y=0.1, z=-0.9),
        ),
        (
            0.63,
            "contact",
            {"yaw": -15, "twist": 15, "bend": 4, "side": -16, "z": 1.03, "x": 0.15, "nod": -18, "lfz": 0.1, "rfz": 0.16}
            | left(x=0.35, y=0.15, z=-0.3)
            | right(x=0.3, y=-0.35, z=0.95)
            | point(x=0.25, y=0.1, z=0.95),
        ),
        (
            0.73,
            "snap",
            {
                "yaw": 5,
                "twist": 25,
                "bend": 25,
                "side": -5,
                "z": 0.95,
                "x": 0.3,
                "nod": 0,
                "lfz": 0.0,
                "lfx": 0.4,
                "rfx": -0.2,
                "rfz": 0.2,
            }
            | left(x=0.3, y=0.3, z=-0.4)
            | right(x=0.8, y=0.05, z=-0.25)
            | point(x=0.75, y=0.3, z=-0.6),
        ),
        (
            0.86,
            "follow-through",
            {"yaw": 15, "twist": 30, "bend": 22, "z": 0.92, "x": 0.5, "rfx": 0.2, "rfz": 0.18}
            | right(x=0.45, y=0.5, z=-0.65)
            | point(x=-0.3, y=0.7, z=-0.6),
        ),
        (
            1.0,
            "recover",
            {"yaw": 0, "twist": 5, "bend": 8, "z": 0.94, "x": 0.55, "rfx": 0.6, "rfz": 0.0}
            | left(x=0.5, y=0.2, z=-0.45)
            | right(x=0.5, y=-0.2, z=-0.5)
            | point(x=0.7, y=0.5, z=0.4),
        ),
    ),
    phases={"ready": 0.0, "toss": 0.18, "trophy": 0.34, "hit": 0.48, "follow-through": 0.63, "recover": 0.86},
    events={"contact": 0.63, "toss": 0.34},
    sound="pop",
    props=(
        Club(length=0.62, radius=(0.018, 0.012), face=0.15),
        Ball(
            radius=0.05,
            track=(
                Way(0, "left"),
                Way(0.33, "left"),
                Way(0.63, "tip", rise=0.55),
                Way(0.75, (10.0, 0.0, -0.6)),
            ),
        ),
    ),
    view=-80.0,
    rush=(0.32, 0.78),
)
