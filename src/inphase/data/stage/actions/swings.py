"""Actions that swing a club across the body: golf, batting."""

from inphase.data.stage.controls import Action, grip, point, step
from inphase.data.stage.props import Ball, Club, Way

GOLF_SWING = Action(
    name="golf_swing",
    keys=(
        (
            0.0,
            "address",
            {"z": 0.93, "pitch": 22, "bend": 18, "nod": 10}
            | grip(x=0.35, y=0.0, z=-0.86)
            | point(x=0.5, y=0.0, z=-0.86)
            | step("left", x=0, y=0.27)
            | step("right", x=0, y=-0.27),
        ),
        (0.16, "toe up", {"twist": -30, "yaw": -8} | grip(x=0.45, y=-0.25, z=-0.72) | point(x=0.35, y=-0.9, z=-0.05)),
        (
            0.28,
            "mid backswing",
            {"twist": -45, "yaw": -20} | grip(x=0.6, y=-0.35, z=-0.25) | point(x=0.1, y=-0.5, z=0.85),
        ),
        (
            0.42,
            "top",
            {"twist": -58, "yaw": -32, "turn": 55, "y": -0.05}
            | grip(x=0.4, y=-0.25, z=0.35)
            | point(x=-0.85, y=0.3, z=0.1),
        ),
        (
            0.53,
            "mid downswing",
            {"twist": -45, "yaw": 5, "y": 0.05} | grip(x=0.55, y=-0.35, z=-0.45) | point(x=0.0, y=-0.75, z=0.65),
        ),
        (
            0.6,
            "impact",
            {"twist": -12, "yaw": 28, "turn": 0, "y": 0.09}
            | grip(x=0.38, y=0.02, z=-0.86)
            | point(x=0.5, y=-0.05, z=-0.86),
        ),
        (
            0.7,
            "mid follow-through",
            {"twist": 12, "yaw": 50, "pitch": 16, "y": 0.14, "rfz": 0.04}
            | grip(x=0.75, y=0.25, z=-0.2)
            | point(x=0.35, y=0.75, z=0.5),
        ),
        (
            0.85,
            "finish",
            {"twist": 30, "yaw": 80, "pitch": 3, "bend": 0, "nod": 0, "z": 0.97, "y": 0.2, "rfz": 0.13, "rfy": -0.2}
            | grip(x=0.3, y=0.3, z=0.35)
            | point(x=-0.75, y=-0.3, z=-0.4),
        ),
        (1.0, "hold", {"twist": 26, "yaw": 82} | grip(x=0.38, y=0.25, z=0.2) | point(x=-0.6, y=-0.1, z=0.4)),
    ),
    phases={"takeaway": 0.0, "backswing": 0.16, "downswing": 0.42, "follow-through": 0.6, "finish": 0.85},
    events={"impact": 0.6, "top": 0.42, "finish": 0.85},
    sound="click",
    props=(
        Club(length=0.98, radius=(0.014, 0.01), head=0.045),
        Ball(radius=0.035, track=(Way(0, "tip", when=0.6), Way(0.6, "tip", when=0.6), Way(0.72, (1.0, 12.0, 3.0)))),
    ),
    view=0.0,
    rush=(0.5, 0.75),
)

BAT_SWING = Action(
    name="bat_swing",
    keys=(
        (
            0.0,
            "stance",
            {"z": 0.9, "pitch": 12, "bend": 12, "yaw": -15, "twist": -20, "turn": 70}
            | grip(x=0.3, y=-0.45, z=0.0)
            | point(x=-0.1, y=-0.3, z=0.95)
            | step("left", x=0, y=0.22)
            | step("right", x=0, y=-0.26),
        ),
        (
            0.2,
            "load",
            {"twist": -40, "yaw": -25, "y": -0.1, "lfz": 0.16, "lfy": 0.16, "turn": 80}
            | grip(x=0.25, y=-0.55, z=0.08)
            | point(x=-0.3, y=-0.1, z=0.95),
        ),
        (0.38, "stride", {"yaw": -10, "y": 0.06, "lfz": 0.0, "lfy": 0.48, "z": 0.87} | grip(x=0.2, y=-0.6, z=0.05)),
        (
            0.47,
            "drive",
            {"yaw": 30, "twist": -30, "turn": 35} | grip(x=0.5, y=-0.4, z=-0.25) | point(x=-0.5, y=-0.8, z=0.2),
        ),
        (
            0.54,
            "contact",
            {"yaw": 58, "twist": 0, "turn": 0, "nod": 15, "y": 0.12, "rfz": 0.06}
            | grip(x=0.8, y=0.0, z=-0.35)
            | point(x=0.6, y=-0.8, z=-0.1),
        ),
        (
            0.63,
            "extension",
            {"yaw": 75, "twist": 20, "rfz": 0.1} | grip(x=0.85, y=0.25, z=-0.15) | point(x=0.6, y=0.8, z=0.1),
        ),
        (
            0.78,
            "wrap",
            {"yaw": 88, "twist": 42, "nod": 0, "rfz": 0.14}
            | grip(x=0.35, y=0.5, z=0.12)
            | point(x=-0.5, y=0.75, z=0.3),
        ),
        (1.0, "finish", {"yaw": 85, "twist": 45} | grip(x=0.25, y=0.5, z=0.18) | point(x=-0.85, y=0.1, z=0.1)),
    ),
    phases={"load": 0.0, "stride": 0.2, "swing": 0.38, "follow-through": 0.54, "finish": 0.78},
    events={"contact": 0.54, "stride": 0.38},
    sound="crack",
    props=(
        Club(length=0.8, radius=(0.016, 0.042)),
        Ball(
            radius=0.05,
            track=(
                Way(-0.2, "tip", when=0.54),
                Way(-0.1, (0.3, 9.0, 0.5)),
                Way(0.4, (0.0, 0.0, 0.0)),
                Way(0.54, "tip", when=0.54),
                Way(0.68, (1.5, 12.0, 6.0)),
            ),
        ),
    ),
    view=0.0,
    rush=(0.36, 0.7),
)
