"""Actions that let a ball go: pitching, bowling, putting the shot."""

from inphase.data.stage.controls import Action, left, right, step
from inphase.data.stage.props import Ball, Way

PITCH = Action(
    name="pitch",
    keys=(
        (
            0.0,
            "set",
            {"yaw": -75, "turn": 60, "z": 0.97}
            | left(x=0.4, y=0.02, z=-0.3)
            | right(x=0.4, y=-0.02, z=-0.3)
            | step("left", x=0.16, y=0.0)
            | step("right", x=-0.14, y=0.0),
        ),
        (
            0.25,
            "leg lift",
            {"yaw": -95, "turn": 70, "x": -0.12, "bend": 10, "pitch": -6}
            | left(x=0.35, y=0.05, z=-0.2)
            | right(x=0.35, y=0.0, z=-0.2)
            | step("left", x=0.2, y=-0.22, z=0.62),
        ),
        (
            0.42,
            "stride",
            {"yaw": -85, "turn": 70, "x": 0.3, "z": 0.83, "bend": 2, "pitch": 0}
            | left(x=0.2, y=0.9, z=0.05)
            | right(x=-0.1, y=-0.8, z=-0.45)
            | step("left", x=0.75, y=0.02, z=0.14),
        ),
        (
            0.53,
            "cocked",
            {"yaw": -50, "turn": 40, "x": 0.5, "z": 0.78, "bend": -6, "side": -4}
            | left(x=0.45, y=0.7, z=-0.05)
            | right(x=-0.25, y=-0.75, z=0.35)
            | step("left", x=0.95, y=0.03),
        ),
        (
            0.61,
            "release",
            {
                "yaw": 5,
                "twist": 18,
                "turn": -10,
                "x": 0.62,
                "z": 0.78,
                "bend": 18,
                "pitch": 12,
                "side": -12,
                "rfz": 0.1,
                "rfx": -0.05,
            }
            | left(x=0.15, y=0.4, z=-0.35)
            | right(x=0.6, y=-0.4, z=0.7),
        ),
        (
            0.72,
            "follow-through",
            {
                "yaw": 25,
                "twist": 32,
                "pitch": 30,
                "bend": 32,
                "side": -4,
                "x": 0.72,
                "z": 0.78,
                "nod": -25,
                "rfz": 0.4,
                "rfx": 0.05,
                "rfy": -0.1,
            }
            | left(x=-0.1, y=0.55, z=-0.3)
            | right(x=0.45, y=0.35, z=-0.75),
        ),
        (
            0.86,
            "land",
            {
                "yaw": 15,
                "twist": 15,
                "pitch": 20,
                "bend": 22,
                "x": 0.85,
                "z": 0.85,
                "nod": -15,
                "rfz": 0.0,
                "rfx": 0.95,
                "rfy": -0.35,
            }
            | left(x=0.35, y=0.5, z=-0.5)
            | right(x=0.35, y=0.1, z=-0.75),
        ),
        (
            1.0,
            "field",
            {"yaw": 5, "twist": 0, "pitch": 10, "bend": 12, "x": 0.92, "z": 0.9, "nod": -5}
            | left(x=0.45, y=0.3, z=-0.55)
            | right(x=0.45, y=-0.3, z=-0.55),
        ),
    ),
    phases={"wind-up": 0.0, "stride": 0.25, "cock": 0.42, "accelerate": 0.53, "follow-through": 0.61, "land": 0.8},
    events={"release": 0.61, "leg lift": 0.25},
    sound="whip",
    props=(Ball(radius=0.05, track=(Way(0, "right"), Way(0.61, "right"), Way(0.74, (11.0, 0.0, -0.3)))),),
    view=-90.0,
    rush=(0.46, 0.78),
)

BOWL = Action(
    name="bowl",
    keys=(
        (0.0, "address", {"bend": 6} | left(x=0.45, y=0.08, z=-0.35) | right(x=0.42, y=-0.12, z=-0.38)),
        (
            0.15,
            "push away",
            {"x": 0.10, "bend": 10}
            | left(x=0.55, y=0.15, z=-0.5)
            | right(x=0.75, y=-0.25, z=-0.55)
            | step("right", x=0.32),
        ),
        (
            0.32,
            "swing down",
            {"x": 0.40, "bend": 16, "z": 0.95}
            | left(x=0.3, y=0.7, z=-0.4)
            | right(x=0.05, y=-0.42, z=-0.92)
            | step("left", x=0.68),
        ),
        (
            0.5,
            "top of backswing",
            {"x": 0.80, "bend": 28, "pitch": 14, "z": 0.92, "nod": -20}
            | left(x=0.35, y=0.8, z=-0.15)
            | right(x=-0.85, y=-0.4, z=-0.05)
            | step("right", x=0.92)
            | {"lfz": 0.1, "lfx": 0.76},
        ),
        (
            0.62,
            "slide",
            {"x": 1.20, "bend": 30, "pitch": 18, "z": 0.68, "nod": -30}
            | left(x=0.2, y=0.85, z=-0.2)
            | right(x=-0.25, y=-0.4, z=-0.85)
            | step("left", x=1.48, y=0.08)
            | step("right", x=0.76, y=-0.1, z=0.1),
        ),
        (
            0.7,
            "release",
            {"x": 1.30, "z": 0.62, "bend": 34} | right(x=0.3, y=-0.4, z=-0.88) | step("right", x=0.76, y=0.1, z=0.12),
        ),
        (
            0.82,
            "follow-through",
            {"z": 0.68, "bend": 20, "nod": -15}
            | left(x=0.0, y=0.85, z=-0.25)
            | right(x=0.7, y=-0.2, z=0.55)
            | step("right", x=0.76, y=0.25, z=0.12),
        ),
        (
            1.0,
            "watch",
            {"z": 0.82, "bend": 8, "pitch": 5, "nod": 0}
            | left(x=0.2, y=0.6, z=-0.6)
            | right(x=0.5, y=-0.15, z=0.2)
            | step("right", x=0.96, y=-0.1, z=0.04),
        ),
    ),
    phases={"address": 0.0, "approach": 0.15, "backswing": 0.32, "slide": 0.5, "follow-through": 0.7},
    events={"release": 0.7, "top of backswing": 0.5},
    sound="thud",
    props=(
        Ball(
            radius=0.11,
            track=(Way(0, "right"), Way(0.7, "right"), Way(0.74, (0.5, 0.0, -0.12)), Way(1.0, (8.0, 0.3, 0.0))),
        ),
    ),
    view=-90.0,
    rush=(0.34, 0.78),
)

SHOT_PUT = Action(
    name="shot_put",
    keys=(
        (
            0.0,
            "stand",
            {"yaw": -170, "bend": 5, "turn": -10}
            | left(x=0.2, y=0.5, z=0.5)
            | right(x=0.18, y=-0.3, z=0.06)
            | step("right", x=-0.4, y=0.0)
            | step("left", x=-0.28, y=0.15)
            | {"x": -0.38},
        ),
        (
            0.18,
            "crouch",
            {"pitch": 42, "bend": 28, "z": 0.66, "x": -0.42}
            | left(x=0.5, y=0.3, z=-0.55)
            | right(x=0.2, y=-0.3, z=0.04)
            | step("left", x=-0.2, y=0.15, z=0.12),
        ),
        (
            0.36,
            "glide",
            {"pitch": 36, "x": 0.02, "z": 0.7}
            | step("left", x=0.55, y=0.12, z=0.1)
            | step("right", x=-0.12, y=0.0, z=0.05),
        ),
        (
            0.48,
            "power position",
            {"yaw": -130, "twist": -20, "pitch": 18, "bend": 12, "x": 0.12, "z": 0.72}
            | left(x=0.45, y=0.5, z=-0.2)
            | step("left", x=0.7, y=0.14)
            | step("right", x=0.0, y=-0.02),
        ),
        (
            0.6,
            "drive",
            {"yaw": -50, "twist": -10, "pitch": 0, "bend": -6, "x": 0.35, "z": 0.88}
            | left(x=0.4, y=0.8, z=0.2)
            | right(x=0.25, y=-0.32, z=0.1)
            | {"rfz": 0.05},
        ),
        (
            0.68,
            "release",
            {"yaw": 0, "twist": 22, "bend": 4, "x": 0.55, "z": 0.99, "side": -8, "nod": -15}
            | left(x=0.0, y=0.6, z=-0.3)
            | right(x=0.72, y=-0.25, z=0.62)
            | {"rfz": 0.14},
        ),
        (
            0.8,
            "reverse",
            {"yaw": 30, "twist": 20, "bend": 22, "pitch": 10, "x": 0.62, "z": 0.88, "nod": 0}
            | left(x=-0.1, y=0.7, z=-0.1)
            | right(x=0.6, y=0.1, z=-0.3)
            | step("right", x=0.72, y=-0.05, z=0.0)
            | step("left", x=0.3, y=0.25, z=0.3),
        ),
        (
            1.0,
            "balance",
            {"yaw": 25, "twist": 5, "bend": 8, "pitch": 4, "z": 0.92, "x": 0.66}
            | left(x=0.1, y=0.6, z=-0.5)
            | right(x=0.3, y=-0.4, z=-0.6)
            | step("left", x=0.5, y=0.25, z=0.04),
        ),
    ),
    phases={"stand": 0.0, "crouch": 0.1, "glide": 0.18, "power": 0.42, "put": 0.52, "reverse": 0.68},
    events={"release": 0.68, "crouch": 0.18},
    sound="grunt",
    props=(Ball(radius=0.075, track=(Way(0, "right"), Way(0.68, "right"), Way(0.88, (6.0, 0.0, -0.5), rise=0.5))),),
    view=-90.0,
    rush=(0.24, 0.78),
)
