"""Actions of the foot: a kick at a ball after two steps."""

from inphase.data.stage.controls import Action, left, right, step
from inphase.data.stage.props import Ball, Way

KICK = Action(
    name="kick",
    keys=(
        (0.0, "stand", {"x": -0.9, "bend": 4} | step("left", x=-0.9, y=0.12) | step("right", x=-1.0, y=-0.12)),
        (
            0.16,
            "first step",
            {"x": -0.62, "bend": 8, "z": 0.96}
            | left(x=-0.2, y=0.45, z=-0.85)
            | right(x=0.4, y=-0.4, z=-0.75)
            | step("left", x=-0.45)
            | {"rfz": 0.08},
        ),
        (
            0.3,
            "second step",
            {"x": -0.25, "z": 0.96}
            | left(x=0.45, y=0.45, z=-0.7)
            | right(x=-0.2, y=-0.45, z=-0.85)
            | step("right", x=-0.12)
            | {"lfz": 0.1},
        ),
        (
            0.45,
            "plant",
            {"x": 0.02, "z": 0.88, "yaw": -25, "twist": 25, "bend": -4, "pitch": -4}
            | left(x=0.35, y=0.85, z=0.0)
            | right(x=-0.45, y=-0.6, z=-0.45)
            | step("left", x=0.3, y=0.16)
            | step("right", x=-0.72, y=-0.2, z=0.42),
        ),
        (
            0.53,
            "whip",
            {"x": 0.16, "yaw": -8, "twist": 8, "bend": 8, "pitch": 0}
            | left(x=0.45, y=0.8, z=-0.1)
            | right(x=-0.4, y=-0.6, z=-0.5)
            | step("right", x=-0.22, y=-0.12, z=0.3),
        ),
        (
            0.59,
            "strike",
            {"x": 0.2, "z": 0.92, "yaw": 10, "twist": -8, "bend": 14}
            | left(x=0.3, y=0.75, z=-0.3)
            | right(x=-0.4, y=-0.55, z=-0.55)
            | step("right", x=0.62, y=-0.06, z=0.04),
        ),
        (0.64, "swing through", {"x": 0.24, "z": 0.94} | step("right", x=0.94, y=0.0, z=0.28)),
        (
            0.7,
            "follow-through",
            {"x": 0.3, "z": 0.96, "yaw": 20, "twist": -25, "bend": 12, "pitch": -10}
            | left(x=-0.1, y=0.7, z=-0.45)
            | right(x=0.5, y=-0.5, z=-0.4)
            | step("right", x=1.22, y=0.05, z=0.7),
        ),
        (
            0.85,
            "come down",
            {"x": 0.45, "z": 0.95, "yaw": 12, "twist": -5, "pitch": 0, "bend": 8}
            | left(x=0.2, y=0.5, z=-0.75)
            | right(x=0.1, y=-0.5, z=-0.75)
            | step("right", x=0.75, y=-0.1, z=0.08),
        ),
        (
            1.0,
            "stand",
            {"x": 0.62, "z": 0.975, "yaw": 0, "twist": 0, "bend": 2}
            | left(x=0.05, y=0.42, z=-0.93)
            | right(x=0.05, y=-0.42, z=-0.93)
            | step("right", x=0.72, y=-0.14)
            | step("left", x=0.5, y=0.14, z=0.0),
        ),
    ),
    phases={"run up": 0.0, "plant": 0.3, "swing": 0.45, "follow-through": 0.59, "recover": 0.77},
    events={"impact": 0.59, "plant": 0.45},
    sound="thump",
    props=(
        Ball(radius=0.11, track=(Way(0, "foot", when=0.59), Way(0.59, "foot", when=0.59), Way(0.72, (8.0, 0.2, 1.6)))),
    ),
    view=-90.0,
    rush=(0.36, 0.78),
)
