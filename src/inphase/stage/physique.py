"""Bodies and how they look: the joints that the controls of a pose give, colors, light and painted backgrounds.

World: meters, x forward in the direction that the performer faces at the start, y to the performer's left, z up, the
floor at z = 0. Controls are in limb lengths, so that every body can perform every action: pelvis and feet in leg
lengths; hands in arm lengths from the point between the shoulders, on upright axes that turn with the chest.
"""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from inphase.pose.pose import JOINTS13, Camera

Color = NDArray[np.float64]  # [3] red, green, blue in [0, 1]
Image = NDArray[np.float64]  # [H, W, 3]

# Smallest RGB distance between any color of the performer and any color of the background.
MIN_CONTRAST = 0.3


@dataclass(frozen=True)
class Level:
    """A difficulty level: how much the recordings of a set vary."""

    views: float  # degrees to either side of the best view
    elevations: tuple[float, float]  # degrees
    clutter: int  # 0: none; otherwise objects in up to four colors, up to four objects per color
    texture: float  # strength of the pattern of wall and floor
    shake: float  # of the hand-held camera, in image widths
    noise: float  # of the sensor, as a fraction of white
    style: float  # variation of the key poses
    light: float  # how far the light may come from the side


LEVELS: dict[str, Level] = {
    "plain": Level(views=20, elevations=(4, 12), clutter=0, texture=0.0, shake=0.0, noise=0.008, style=0.6, light=0.5),
    "medium": Level(
        views=60, elevations=(2, 20), clutter=6, texture=0.05, shake=0.004, noise=0.015, style=1.0, light=0.8
    ),
    "hard": Level(
        views=180, elevations=(0, 30), clutter=18, texture=0.1, shake=0.008, noise=0.03, style=1.3, light=1.0
    ),
}


@dataclass(frozen=True, eq=False)
class Appearance:
    """The colors and the light of one recording."""

    skin: Color
    hair: Color
    shirt: Color
    trousers: Color
    shoes: Color
    prop: Color
    wall: Color
    floor: Color
    clutter: NDArray[np.float64]  # [N, 3] colors of the objects in the background
    sleeves: float  # below 1: the part of the upper arm they cover; 1: the upper arm; 2: the whole arm
    legs: float  # 1: the trousers cover the thigh; 2: the whole leg
    light: NDArray[np.float64]  # [3] unit vector toward the light, in camera axes
    ambient: float
    exposure: float


def sample_appearance(rng: np.random.Generator, level: Level) -> Appearance:
    """Sample a skin color, then surroundings that contrast with it, then clothes that contrast with both."""
    tone = rng.uniform(0.0, 1.0)
    skin = (1 - tone) * np.array([0.96, 0.78, 0.66]) + tone * np.array([0.36, 0.22, 0.15])
    skin = np.clip(skin + rng.normal(0, 0.02, 3), 0, 1)
    wall = _sample_contrasting(rng, [skin], dull=True)
    floor = _sample_contrasting(rng, [skin], dull=True)
    clutter = [_sample_contrasting(rng, [skin], dull=True) for _ in range(min(level.clutter, 4))]
    background = [wall, floor, *clutter]
    shirt = _sample_contrasting(rng, [*background, skin])
    trousers = _sample_contrasting(rng, [*background, skin, shirt])
    sideways = rng.uniform(-level.light, level.light)
    light = np.array([sideways, -rng.uniform(0.5, 1.0), -rng.uniform(0.5, 1.0)])
    return Appearance(
        skin=skin,
        hair=np.clip(rng.uniform(0.05, 0.45) * np.array([1.0, rng.uniform(0.6, 0.9), rng.uniform(0.3, 0.8)]), 0, 1),
        shirt=shirt,
        trousers=trousers,
        shoes=_sample_contrasting(rng, background),
        prop=_sample_contrasting(rng, [*background, skin]),
        wall=wall,
        floor=floor,
        clutter=np.array(clutter).reshape(-1, 3),
        sleeves=float(rng.choice([0.5, 1.0, 2.0])),
        legs=float(rng.choice([1.0, 2.0, 2.0])),
        light=light / np.linalg.norm(light),
        ambient=float(rng.uniform(0.5, 0.65)),
        exposure=float(rng.uniform(0.85, 1.1)),
    )


def _sample_contrasting(rng: np.random.Generator, others: list[Color], *, dull: bool = False) -> Color:
    """Sample a color at least MIN_CONTRAST away from others, or the most distant of 64; dull colors are grayish."""
    best, distance = np.zeros(3), -1.0
    for _ in range(64):
        color = rng.uniform(0.08, 0.95, 3)
        if dull:
            color = np.clip(0.3 * color + 0.7 * rng.uniform(0.15, 0.9), 0, 1)
        nearest = min(float(np.linalg.norm(color - other)) for other in others)
        if nearest >= MIN_CONTRAST:
            return color
        if nearest > distance:
            best, distance = color, nearest
    return best


def paint_background(
    rng: np.random.Generator,
    camera: Camera,
    appearance: Appearance,
    level: Level,
    *,
    ground: NDArray[np.float64],
    size: int,
    margin: int,
) -> NDArray[np.float32]:
    """Paint floor, wall and clutter in the perspective of a camera: [size + 2 margin, size + 2 margin, 3] in [0, 1].

    The wall stands behind all points of `ground` [N, 3], which the performer reaches.
    """
    ticks = (np.arange(-margin, size + margin) + 0.5) / size
    x, y = np.meshgrid(ticks, ticks)
    rays = camera.rays(x, y)
    level_forward = camera.axes[2] * np.array([1.0, 1.0, 0.0])
    level_forward /= np.linalg.norm(level_forward)
    reach = float(((ground - camera.position) @ level_forward).max())
    to_wall = (reach + rng.uniform(0.8, 4.0)) / np.maximum(rays @ level_forward, 1e-6)
    to_floor = np.where(rays[..., 2] < -1e-6, camera.position[2] / np.maximum(-rays[..., 2], 1e-6), np.inf)
    is_floor = to_floor < to_wall
    hit = camera.position + rays * np.minimum(to_floor, to_wall)[..., None]

    wall = appearance.wall * (1.0 + rng.uniform(-0.12, 0.12) * np.clip(hit[..., 2:] - 1.5, -2, 2) / 2)
    floor = appearance.floor * np.broadcast_to(1.0 + rng.uniform(-0.1, 0.1) * (y[..., None] - 0.5), (*x.shape, 1))
    if level.texture > 0:
        across = hit @ np.cross(level_forward, np.array([0.0, 0.0, 1.0]))
        wall = wall * (1 + level.texture * _sample_pattern(rng, across, hit[..., 2]))[..., None]
        floor = floor * (1 + level.texture * _sample_pattern(rng, hit[..., 0], hit[..., 1]))[..., None]
    image = np.where(is_floor[..., None], floor, wall)
    image = _add_clutter(rng, image, x, y, appearance)
    # The corner of wall and floor is a soft dark line.
    edge = np.abs(np.log(np.minimum(to_floor, 1e3) / to_wall))
    image *= (1.0 - 0.25 * np.exp(-((edge / 0.04) ** 2)))[..., None]
    return np.clip(image, 0.0, 1.0).astype(np.float32)


def _sample_pattern(rng: np.random.Generator, u: NDArray[np.float64], v: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sample tiles, boards or spots on the plane (u, v) in meters, values in about [−1, 1]."""
    kind, pitch = rng.integers(3), rng.uniform(0.3, 0.9)
    waves = rng.normal(0.0, 2.5, (6, 2))
    phases = rng.uniform(0, 2 * np.pi, 6)
    spots = sum(np.cos(a * u + b * v + phase) for (a, b), phase in zip(waves, phases, strict=True)) / 3.0
    if kind == 0:
        return np.asarray(0.7 * np.sign(np.sin(np.pi * u / pitch) * np.sin(np.pi * v / pitch)) + 0.3 * spots)
    if kind == 1:
        return np.asarray(0.7 * np.sin(2 * np.pi * np.floor(u / pitch * 2) * 0.37) + 0.3 * spots)
    return np.asarray(spots)


def _add_clutter(rng: np.random.Generator, image: Image, x: Image, y: Image, appearance: Appearance) -> Image:
    """Add rectangles and ellipses with soft edges, in the colors of the clutter."""
    if not len(appearance.clutter):
        return image
    for _ in range(rng.integers(2, 4 * len(appearance.clutter) + 1)):
        cx, cy = rng.uniform(-0.05, 1.05, 2)
        width, height = rng.uniform(0.02, 0.16, 2)
        color = appearance.clutter[rng.integers(len(appearance.clutter))] * rng.uniform(0.92, 1.08)
        a, b = np.abs(x - cx) / width, np.abs(y - cy) / height
        inside = np.maximum(a, b) if rng.random() < 0.7 else np.hypot(a, b)
        cover = np.clip((1.0 - inside) * min(width, height) * 60, 0.0, 1.0) * rng.uniform(0.5, 1.0)
        image = image * (1 - cover[..., None]) + color * cover[..., None]
    return image


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
