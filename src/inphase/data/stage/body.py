"""From controls to joints: proportions, forward kinematics of the trunk, inverse kinematics of the limbs."""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from inphase.data.stage.controls import COLUMN
from inphase.pose.pose import JOINTS13

Vectors = NDArray[np.float64]  # [T, 3]
Frames = NDArray[np.float64]  # [T, 3, 3], columns: forward, left, up

JOINTS = ("pelvis", "spine", "neck", "head", "crown", *JOINTS13[1:])
J = {name: index for index, name in enumerate(JOINTS)}


@dataclass(frozen=True)
class Body:
    """The measures of one person, in metres; girth multiplies the thickness of everything."""

    trunk: float = 0.5
    shoulders: float = 0.19  # half their width
    hips: float = 0.1
    upper_arm: float = 0.29
    forearm: float = 0.26
    thigh: float = 0.43
    shin: float = 0.41
    ankle: float = 0.08  # its height above the floor
    foot: float = 0.17
    head: float = 0.108  # radius
    neck: float = 0.175  # from between the shoulders to the middle of the head
    girth: float = 1.0

    @property
    def arm(self) -> float:
        """Measure a stretched arm to the wrist."""
        return self.upper_arm + self.forearm

    @property
    def leg(self) -> float:
        """Measure a stretched leg to the ankle."""
        return self.thigh + self.shin


@dataclass(frozen=True, eq=False)
class Posture:
    """Where a body is: joints, what is drawn beside them, and the places things can be held at."""

    joints: NDArray[np.float64]  # [T, 17, 3] metres, world
    hands: NDArray[np.float64]  # [T, 2, 3] finger tips, left and right
    toes: NDArray[np.float64]  # [T, 2, 3]
    face: Frames  # the head's own axes
    chest: Frames
    heading: Frames  # upright axes that turn with the chest: those of the hands and of a club


def draw_body(rng: np.random.Generator) -> Body:
    """Draw a person: overall height, then each measure on its own."""
    height = np.clip(rng.normal(1.0, 0.07), 0.82, 1.18)
    spread = {"girth": 0.13, "head": 0.04, "shoulders": 0.09, "hips": 0.1}
    measures = {
        item.name: item.default * np.clip(rng.normal(1.0, spread.get(item.name, 0.05)), 0.78, 1.28)
        for item in fields(Body)
    }
    return Body(**{name: float(value * (1.0 if name == "girth" else height)) for name, value in measures.items()})


def pose(body: Body, controls: NDArray[np.float64]) -> Posture:
    """Put a body into the poses that controls [T, C] describe."""
    c = {name: controls[:, column] for name, column in COLUMN.items()}
    pelvis = np.stack([c["x"] * body.leg, c["y"] * body.leg, c["z"] * body.leg + body.ankle], axis=-1)
    hip_axes = _turn(c["yaw"], c["pitch"], c["roll"])
    middle = hip_axes @ _turn(c["twist"] / 2, c["bend"] / 2, c["side"] / 2)
    chest = hip_axes @ _turn(c["twist"], c["bend"], c["side"])
    head_axes = chest @ _turn(c["turn"], c["nod"], np.zeros_like(c["nod"]))
    heading = _turn(c["yaw"] + c["twist"], np.zeros_like(c["yaw"]), np.zeros_like(c["yaw"]))

    spine = pelvis + middle @ np.array([0.0, 0.0, body.trunk / 2])
    neck = spine + chest @ np.array([0.0, 0.0, body.trunk / 2])
    head = neck + head_axes @ np.array([0.03, 0.0, body.neck])
    joints = np.empty((len(controls), len(JOINTS), 3))
    joints[:, J["pelvis"]], joints[:, J["spine"]], joints[:, J["neck"]] = pelvis, spine, neck
    joints[:, J["head"]], joints[:, J["crown"]] = head, head + head_axes @ np.array([0.0, 0.0, body.head])

    hands, toes = np.empty((len(controls), 2, 3)), np.empty((len(controls), 2, 3))
    for i, (side, sign) in enumerate((("left", 1.0), ("right", -1.0))):
        shoulder = neck + chest @ np.array([0.0, sign * body.shoulders, -0.04])
        hand = np.stack([c[f"{side[0]}{axis}"] for axis in "xyz"], axis=-1) * body.arm
        wrist = neck + (heading @ hand[..., None])[..., 0]
        wrist[:, 2] = np.maximum(wrist[:, 2], 0.05)
        elbow, wrist = reach(
            shoulder, wrist, body.upper_arm, body.forearm, chest @ np.array([-0.45, sign * 0.55, -0.7])
        )
        hip = pelvis + hip_axes @ np.array([0.0, sign * body.hips, 0.0])
        foot = np.stack([c[f"{side[0]}f{axis}"] for axis in "xyz"], axis=-1) * body.leg
        foot[:, 2] = np.maximum(foot[:, 2], 0.0) + body.ankle
        knee, ankle = reach(hip, foot, body.thigh, body.shin, hip_axes @ np.array([1.0, sign * 0.18, 0.0]))
        for name, value in (("shoulder", shoulder), ("elbow", elbow), ("wrist", wrist)):
            joints[:, J[f"{side}_{name}"]] = value
        for name, value in (("hip", hip), ("knee", knee), ("ankle", ankle)):
            joints[:, J[f"{side}_{name}"]] = value
        hands[:, i] = wrist + 0.3 * body.forearm * unit(wrist - elbow)
        toes[:, i] = _toe(body, ankle, hip_axes)
    return Posture(joints=joints, hands=hands, toes=toes, face=head_axes, chest=chest, heading=heading)


def reach(start: Vectors, target: Vectors, first: float, second: float, pole: Vectors) -> tuple[Vectors, Vectors]:
    """Bend a limb of two bones from `start` towards `target`, its middle joint to the side of `pole`.

    Returns the middle joint and the end. Bone lengths are kept exactly: a target out of reach is approached as far as
    the bones allow.
    """
    way = target - start
    distance = np.linalg.norm(way, axis=-1, keepdims=True)
    along = way / np.maximum(distance, 1e-9)
    span = np.clip(distance, abs(first - second) + 1e-3, (first + second) * 0.999)
    reached = (first**2 - second**2 + span**2) / (2 * span)
    height = np.sqrt(np.maximum(first**2 - reached**2, 0.0))
    sideways = pole - (pole * along).sum(-1, keepdims=True) * along
    return start + along * reached + unit(sideways) * height, start + along * span


def _toe(body: Body, ankle: Vectors, axes: Frames) -> Vectors:
    """Point a foot the way the hips face; a lifted heel keeps the toes down as far as the foot is long."""
    forward = axes[:, :, 0] * np.array([1.0, 1.0, 0.0]) + axes[:, :, 2] * np.array([1e-3, 1e-3, 0.0])
    lift = np.clip((ankle[:, 2:] - body.ankle) / body.foot, 0.0, 0.92)
    toe = ankle + body.foot * (unit(forward) * np.sqrt(1 - lift**2) - np.array([0.0, 0.0, 1.0]) * lift)
    toe[:, 2] = np.maximum(toe[:, 2] - 0.6 * body.ankle, 0.03)
    return toe


def _turn(yaw: NDArray[np.float64], pitch: NDArray[np.float64], roll: NDArray[np.float64]) -> Frames:
    """Compose rotations [T, 3, 3] from degrees: first roll about x, then pitch about y, then yaw about z."""
    (cy, sy), (cp, sp), (cr, sr) = ((np.cos(a), np.sin(a)) for a in np.radians((yaw, pitch, roll)))
    rows = [
        [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
        [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
        [-sp, cp * sr, cp * cr],
    ]
    return np.moveaxis(np.array(rows), -1, 0)


def unit(vectors: Vectors) -> Vectors:
    """Scale vectors to length one."""
    scaled: Vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-9)
    return scaled
