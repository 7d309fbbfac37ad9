"""Bodies: the controls of a pose, and the joints that they give by forward and inverse kinematics.

World: meters, x forward in the direction that the performer faces at the start, y to the performer's left, z up, the
floor at z = 0. Controls are in limb lengths, so that every body can perform every action: pelvis and feet in leg
lengths; hands in arm lengths from the point between the shoulders, on upright axes that turn with the chest.
"""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from inphase.pose.pose import JOINTS13

Vectors = NDArray[np.float64]  # [T, 3]
Frames = NDArray[np.float64]  # [T, 3, 3], columns: forward, left, up

# control → value when standing at ease. Angles are in degrees: yaw, twist and turn to the left; pitch, bend and nod
# forward; roll and side to the right.
STANDING: dict[str, float] = {
    "x": 0.0,  # pelvis: forward, left, and height above the ankles
    "y": 0.0,
    "z": 0.995,
    "yaw": 0.0,
    "pitch": 0.0,
    "roll": 0.0,
    "bend": 0.0,  # chest relative to the pelvis
    "side": 0.0,
    "twist": 0.0,
    "nod": 0.0,  # head relative to the chest
    "turn": 0.0,
    "lx": 0.05,  # left hand
    "ly": 0.42,
    "lz": -0.95,
    "rx": 0.05,  # right hand
    "ry": -0.42,
    "rz": -0.95,
    "lfx": 0.0,  # left foot, on the floor at lfz = 0
    "lfy": 0.14,
    "lfz": 0.0,
    "rfx": 0.0,  # right foot
    "rfy": -0.14,
    "rfz": 0.0,
    "px": 0.0,  # direction of a held club, on the axes of the hands
    "py": 0.0,
    "pz": 1.0,
}
CONTROLS = tuple(STANDING)
COLUMN = {name: index for index, name in enumerate(CONTROLS)}
ANGLES = ("yaw", "pitch", "roll", "bend", "side", "twist", "nod", "turn")

JOINTS = ("pelvis", "spine", "neck", "head", "crown", *JOINTS13[1:])
JOINT = {name: index for index, name in enumerate(JOINTS)}


@dataclass(frozen=True)
class Physique:
    """The measures of one person, in meters; girth scales the thickness of all body parts."""

    trunk: float = 0.5
    shoulders: float = 0.19  # half their width
    hips: float = 0.1  # half their width
    upper_arm: float = 0.29
    forearm: float = 0.26
    thigh: float = 0.43
    shin: float = 0.41
    ankle: float = 0.08  # height above the floor
    foot: float = 0.17
    head: float = 0.108  # radius
    neck: float = 0.175  # from between the shoulders to the center of the head
    girth: float = 1.0

    @property
    def arm(self) -> float:
        """Return the length of a stretched arm to the wrist."""
        return self.upper_arm + self.forearm

    @property
    def leg(self) -> float:
        """Return the length of a stretched leg to the ankle."""
        return self.thigh + self.shin


@dataclass(frozen=True, eq=False)
class Posture:
    """A posed body over time: joints, fingertips, toes, and the axes of its parts."""

    joints: NDArray[np.float64]  # [T, 17, 3] meters, world
    hands: NDArray[np.float64]  # [T, 2, 3] fingertips, left and right
    toes: NDArray[np.float64]  # [T, 2, 3]
    face: Frames  # axes of the head
    chest: Frames
    heading: Frames  # upright axes that turn with the chest, for hands and club


def sample_physique(rng: np.random.Generator) -> Physique:
    """Sample a person: the overall height, then each measure independently."""
    height = np.clip(rng.normal(1.0, 0.07), 0.82, 1.18)
    spread = {"girth": 0.13, "head": 0.04, "shoulders": 0.09, "hips": 0.1}
    measures = {
        item.name: item.default * np.clip(rng.normal(1.0, spread.get(item.name, 0.05)), 0.78, 1.28)
        for item in fields(Physique)
    }
    return Physique(**{name: float(value * (1.0 if name == "girth" else height)) for name, value in measures.items()})


def pose_body(body: Physique, controls: NDArray[np.float64]) -> Posture:
    """Pose a body by controls [T, C]."""
    c = {name: controls[:, column] for name, column in COLUMN.items()}
    pelvis = np.stack([c["x"] * body.leg, c["y"] * body.leg, c["z"] * body.leg + body.ankle], axis=-1)
    hip_axes = _rotation(c["yaw"], c["pitch"], c["roll"])
    middle = hip_axes @ _rotation(c["twist"] / 2, c["bend"] / 2, c["side"] / 2)
    chest = hip_axes @ _rotation(c["twist"], c["bend"], c["side"])
    head_axes = chest @ _rotation(c["turn"], c["nod"], np.zeros_like(c["nod"]))
    heading = _rotation(c["yaw"] + c["twist"], np.zeros_like(c["yaw"]), np.zeros_like(c["yaw"]))

    spine = pelvis + middle @ np.array([0.0, 0.0, body.trunk / 2])
    neck = spine + chest @ np.array([0.0, 0.0, body.trunk / 2])
    head = neck + head_axes @ np.array([0.03, 0.0, body.neck])
    joints = np.empty((len(controls), len(JOINTS), 3))
    joints[:, JOINT["pelvis"]], joints[:, JOINT["spine"]], joints[:, JOINT["neck"]] = pelvis, spine, neck
    joints[:, JOINT["head"]], joints[:, JOINT["crown"]] = head, head + head_axes @ np.array([0.0, 0.0, body.head])

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
            joints[:, JOINT[f"{side}_{name}"]] = value
        for name, value in (("hip", hip), ("knee", knee), ("ankle", ankle)):
            joints[:, JOINT[f"{side}_{name}"]] = value
        hands[:, i] = wrist + 0.3 * body.forearm * normalize(wrist - elbow)
        toes[:, i] = _toe(body, ankle, hip_axes)
    return Posture(joints=joints, hands=hands, toes=toes, face=head_axes, chest=chest, heading=heading)


def reach(start: Vectors, target: Vectors, first: float, second: float, pole: Vectors) -> tuple[Vectors, Vectors]:
    """Solve the inverse kinematics of a limb of two bones from `start` toward `target`, bent to the side of `pole`.

    Returns the middle joint and the end. Bone lengths stay exact: if the target is out of reach, the end stops short.
    """
    way = target - start
    distance = np.linalg.norm(way, axis=-1, keepdims=True)
    along = way / np.maximum(distance, 1e-9)
    span = np.clip(distance, abs(first - second) + 1e-3, (first + second) * 0.999)
    reached = (first**2 - second**2 + span**2) / (2 * span)
    height = np.sqrt(np.maximum(first**2 - reached**2, 0.0))
    sideways = pole - (pole * along).sum(-1, keepdims=True) * along
    return start + along * reached + normalize(sideways) * height, start + along * span


def _toe(body: Physique, ankle: Vectors, axes: Frames) -> Vectors:
    """Point a foot where the hips face; while the heel lifts, the toes stay down as far as the foot is long."""
    forward = axes[:, :, 0] * np.array([1.0, 1.0, 0.0]) + axes[:, :, 2] * np.array([1e-3, 1e-3, 0.0])
    lift = np.clip((ankle[:, 2:] - body.ankle) / body.foot, 0.0, 0.92)
    toe = ankle + body.foot * (normalize(forward) * np.sqrt(1 - lift**2) - np.array([0.0, 0.0, 1.0]) * lift)
    toe[:, 2] = np.maximum(toe[:, 2] - 0.6 * body.ankle, 0.03)
    return toe


def _rotation(yaw: NDArray[np.float64], pitch: NDArray[np.float64], roll: NDArray[np.float64]) -> Frames:
    """Compose rotations [T, 3, 3] from angles in degrees: roll about x, then pitch about y, then yaw about z."""
    (cy, sy), (cp, sp), (cr, sr) = ((np.cos(a), np.sin(a)) for a in np.radians((yaw, pitch, roll)))
    rows = [
        [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
        [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
        [-sp, cp * sr, cp * cr],
    ]
    return np.moveaxis(np.array(rows), -1, 0)


def normalize(vectors: Vectors) -> Vectors:
    """Normalize vectors to unit length."""
    scaled: Vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-9)
    return scaled
