"""Actions that move a weight: clean and jerk, a box onto a shelf; and two repetitions that lift the body itself."""

from inphase.data.stage.controls import Action, both, left, right, step
from inphase.data.stage.props import Bar, Crate, Slab, Way

_STANCE = step("left", x=0.0, y=0.2) | step("right", x=0.0, y=-0.2)

CLEAN_AND_JERK = Action(
    name="clean_and_jerk",
    keys=(
        (
            0.0,
            "set",
            {"z": 0.56, "x": -0.22, "pitch": 40, "bend": 18, "nod": -35} | both(x=0.12, y=0.55, z=-0.9) | _STANCE,
        ),
        (0.12, "first pull", {"z": 0.78, "x": -0.16, "pitch": 38, "bend": 15} | both(x=0.05, y=0.55, z=-0.92)),
        (
            0.22,
            "second pull",
            {"z": 1.03, "x": 0.0, "pitch": -2, "bend": -4, "nod": 0, "lfz": 0.08, "rfz": 0.08}
            | both(x=0.2, y=0.55, z=-0.5),
        ),
        (
            0.32,
            "catch",
            {"z": 0.42, "x": -0.12, "pitch": 12, "bend": 4, "lfz": 0, "rfz": 0, "lfy": 0.26, "rfy": -0.26}
            | both(x=0.32, y=0.48, z=-0.05),
        ),
        (0.48, "front rack", {"z": 0.97, "x": 0.0, "pitch": 0, "bend": -2}),
        (0.6, "rest", {"z": 0.98}),
        (0.67, "dip", {"z": 0.82, "bend": 0}),
        (0.73, "drive", {"z": 1.03, "lfz": 0.07, "rfz": 0.07} | both(x=0.2, y=0.5, z=0.5)),
        (
            0.79,
            "split",
            {"z": 0.76, "x": 0.03, "lfx": 0.5, "lfz": 0, "rfx": -0.55, "rfz": 0.1, "nod": 4}
            | both(x=0.08, y=0.6, z=0.86),
        ),
        (0.9, "recover", {"z": 0.95, "lfx": 0.12, "rfx": -0.12, "rfz": 0}),
        (1.0, "hold", {"z": 0.995, "x": 0.0, "lfx": 0, "rfx": 0, "nod": 0}),
    ),
    phases={"pull": 0.0, "catch": 0.22, "stand": 0.32, "rest": 0.52, "jerk": 0.64, "recover": 0.79},
    events={"jerk": 0.79, "catch": 0.32},
    sound="clang",
    props=(Bar(overhang=0.42, plate=0.21),),
    view=-35.0,
    rush=(0.12, 0.34),
)

_BOX = (Way(0, "hands", when=0.2), Way(0.2, "hands"), Way(0.78, "hands"), Way(1.0, "hands", when=0.78))

SHELF_LIFT = Action(
    name="shelf_lift",
    keys=(
        (0.0, "stand", {"x": -0.2, "lfx": -0.2, "rfx": -0.2}),
        (0.2, "grasp", {"z": 0.52, "x": -0.32, "pitch": 45, "bend": 28, "nod": -20} | both(x=0.42, y=0.3, z=-0.8)),
        (0.4, "carry", {"z": 0.98, "x": -0.18, "pitch": 0, "bend": -6, "nod": 0} | both(x=0.5, y=0.3, z=-0.55)),
        (0.52, "step", {"x": 0.1, "bend": -4} | both(x=0.45, y=0.3, z=-0.4) | step("left", x=0.3) | {"rfz": 0.05}),
        (
            0.66,
            "raise",
            {"x": 0.26, "z": 0.98, "bend": -8, "nod": -10} | both(x=0.5, y=0.3, z=0.3) | step("right", x=0.2),
        ),
        (0.78, "place", {"x": 0.33, "z": 1.02, "bend": 4, "lfz": 0.05, "rfz": 0.05} | both(x=0.78, y=0.3, z=0.38)),
        (0.86, "let go", {"z": 0.995, "bend": 0, "lfz": 0, "rfz": 0} | both(x=0.55, y=0.42, z=0.3)),
        (
            1.0,
            "step back",
            {"x": 0.0, "nod": 0} | both(x=0.08, y=0.42, z=-0.93) | step("left", x=0.05) | step("right", x=-0.05),
        ),
    ),
    phases={"reach": 0.0, "lift": 0.2, "carry": 0.4, "raise": 0.56, "leave": 0.78},
    events={"placed": 0.78, "grasp": 0.2},
    sound="knock",
    props=(
        Crate(half=(0.16, 0.17, 0.14), track=_BOX),
        Slab(half=(0.22, 0.5), under=_BOX, gap=0.14, thickness=0.05),
    ),
    view=-80.0,
)

_DOWN = {"z": 0.5, "x": -0.28, "pitch": 34, "bend": 10, "nod": -25} | both(x=0.85, y=0.3, z=0.05)
_UP = {"z": 0.995, "x": 0.0, "pitch": 0.0, "bend": 0.0, "nod": 0.0} | both(x=0.2, y=0.42, z=-0.9)

SQUAT = Action(
    name="squat",
    keys=(
        (0.0, "stand", _UP | _STANCE),
        (0.12, "brace", {"z": 0.97} | both(x=0.35, y=0.38, z=-0.78)),
        (0.5, "bottom", _DOWN),
        (0.88, "risen", _UP | {"z": 0.97} | both(x=0.35, y=0.38, z=-0.78)),
        (1.0, "stand", _UP),
    ),
    phases={"brace": 0.0, "descend": 0.12, "rise": 0.5, "stand": 0.88},
    events={"bottom": 0.5},
    sound="grunt",
    view=-65.0,
    symmetric=True,
)

_PLANK = {
    "x": -0.52,
    "z": 0.5,
    "pitch": 72,
    "bend": 4,
    "nod": -25,
    "lfx": -1.42,
    "rfx": -1.42,
    "lfz": 0.1,
    "rfz": 0.1,
    "lfy": 0.1,
    "rfy": -0.1,
}
_PLANK_ARMS = left(x=0.0, y=0.48, z=-0.98) | right(x=0.0, y=-0.48, z=-0.98)

PUSH_UP = Action(
    name="push_up",
    keys=(
        (0.0, "plank", _PLANK | _PLANK_ARMS),
        (0.12, "set", {"nod": -20}),
        (0.5, "chest down", {"x": -0.44, "z": 0.14, "pitch": 84, "nod": -20} | both(x=-0.16, y=0.55, z=-0.35)),
        (0.88, "pressed", _PLANK | _PLANK_ARMS | {"nod": -20}),
        (1.0, "plank", {"nod": -25}),
    ),
    phases={"set": 0.0, "lower": 0.12, "press": 0.5, "hold": 0.88},
    events={"chest down": 0.5},
    sound="grunt",
    view=-80.0,
    symmetric=True,
)
