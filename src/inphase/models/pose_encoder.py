"""The pose encoder, for joints in 2-D or 3-D: positions, motion and visibility of the joints.

Poses are normalized within the window of a frame and its context. The mean position of the hips over the window is the
origin, the mean length of the torso the unit: the position and the size of the person in the image do not matter, but
the travel of the whole body within the window, in a jump or a run-up, is kept. Centering each frame by itself would
lose it. Centering a whole clip would keep it, but the embedding of a frame would then depend on how the clip was cut,
and no stream could be embedded before its end.

The input of the layers is the mean posture of the window and the motion from each context frame to the next. This is
equivalent to the poses themselves, but small motions are not lost beside large coordinates.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from inphase.media.sampling import Edges
from inphase.models.embedding import Embedding, Route, rate_of, unit_rows
from inphase.models.encoder import Encoder, Modality, finish
from inphase.models.joint_encoder import join_routes
from inphase.pose.pose import JOINTS13, fill_hidden
from inphase.storage.settings import Offsets, Width, Widths

HIPS = ("left_hip", "right_hip")
SHOULDERS = ("left_shoulder", "right_shoulder")
ARMS = ("left_elbow", "right_elbow", "left_wrist", "right_wrist")
# From one context frame to the next joints move by a fraction of a torso: this scales motion up to posture.
MOTION = 3.0
# The temperature of the arms; a speed counts as the distance covered in SPEED_SECONDS (docs/lab/domains.md).
ARMS_BETA, SPEED_SECONDS = 0.05, 0.13


class PoseEncoder(Encoder):
    """Embed poses [B, T, C, J, 3] or [B, T, C, J, 4]: coordinates and visibility, visible if above 0.

    Without the last column every joint counts as visible. `joints` names the J joints, two hips and two shoulders among
    them; C is the number of offsets in `context`. [Linear, batch norm, ReLU] for each of `hidden` widths, linear, L2.
    """

    modality: ClassVar[Modality] = "pose"
    arms_weight: ClassVar[float | None] = None  # of the route of elbows and wrists; None: no such route
    tuned_weight: ClassVar[float | None] = None  # of a head that is fine-tuned beside the one it starts from

    def __init__(
        self,
        *,
        joints: Sequence[str] = JOINTS13,
        context: Offsets = (-8, -4, 0, 4, 8),
        edges: Edges = "clamp",
        rate: float | None = None,
        space: int = 2,
        hidden: Widths = (256, 256),
        dimension: Width = 128,
        normalize: bool = True,
    ) -> None:
        """Build the layers for coordinates in `space` dimensions."""
        super().__init__(context=context, edges=edges, rate=rate, normalize=normalize)
        absent = [name for name in (*HIPS, *SHOULDERS) if name not in joints]
        if absent:
            raise ValueError(f"poses are normalized by hips and shoulders; joints lacks {', '.join(absent)}")
        if space not in (2, 3):
            raise ValueError(f"space must be 2 or 3, got {space}")
        if self.arms_weight is not None:
            if 0 not in context or not normalize or not {*ARMS} <= {*joints}:
                needed = f"{', '.join(ARMS)} among the joints, normalize = true and the offset 0 in the context"
                raise ValueError(f"arms need {needed}")
            self.register_buffer("arms", torch.tensor(self.arms_weight))  # kept with the weights
        self.config |= {
            "joints": list(joints),
            "space": space,
            "hidden": list(hidden),
            "dimension": dimension,
        }
        self.shape = (len(joints), space + 1)
        self._context, self._space = len(context), space
        self._hips, self._shoulders = (_both(list(joints), pair) for pair in (HIPS, SHOULDERS))
        width = self._context * (len(joints) * (space + 1) + space)
        layers: list[nn.Module] = []
        for after in hidden:
            layers += [nn.Linear(width, after, bias=False), nn.BatchNorm1d(after), nn.ReLU(inplace=True)]
            width = after
        self.head = nn.Sequential(*layers, nn.Linear(width, dimension))
        if self.tuned_weight is not None:
            self.start = deepcopy(self.head).requires_grad_(False)
            self.register_buffer("tuned", torch.tensor(self.tuned_weight))

    def check(self, shape: torch.Size | tuple[int, ...]) -> None:
        """Accept poses without visibility as well."""
        if tuple(shape) != (self.shape[0], self._space):
            super().check(shape)

    def features(self, frames: Tensor) -> Tensor:
        """Add visibility if it is missing, and set the coordinates of invisible joints to 0: [N, J, 2 or 3 (+ 1)]."""
        if frames.shape[-1] == self._space:
            frames = torch.cat([frames, torch.ones_like(frames[..., :1])], -1)
        # Not a product: coordinates of invisible joints may be NaN.
        return torch.where(frames[..., -1:] > 0, frames, 0.0)

    def combine(self, features: Tensor) -> Tensor:
        """Embed poses with their context: [N, C, J, 3 or 4] → [N, D]."""
        return finish(self.head(self._inputs(features)), normalize=self.normalizes)

    def _inputs(self, features: Tensor) -> Tensor:
        """Compute the posture, the motion, the travel and the visibility that the layers take."""
        if features.shape[1] != self._context:
            raise ValueError(f"this encoder takes {self._context} context frames, got {features.shape[1]}")
        points, visibility = features[..., :-1], features[..., -1]
        visible = visibility > 0
        body, travel = self.normalize(points, visible)
        posture, _ = mean_of(body.transpose(1, 2), visible.transpose(1, 2))  # [N, J, S]
        places = body + travel[:, :, None]
        motion = (places[:, 1:] - places[:, :-1]) * (visible[:, 1:] & visible[:, :-1])[..., None]
        return torch.cat([part.flatten(1) for part in (posture, MOTION * motion, travel, visibility)], 1)

    def normalize(self, points: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
        """Normalize poses [N, C, J, S] by torso length.

        Return the joints relative to the body's center, [N, C, J, S], 0 if invisible, and that center relative to the
        window's, [N, C, S]. The center is the middle of the visible hips, or else of all visible joints. A torso that
        points at the camera has no length: the unit is at least half the spread of the joints.
        """
        everywhere, somebody = mean_of(points, visible)
        hips, hips_visible = mean_of(points[..., self._hips, :], visible[..., self._hips])
        shoulders, shoulders_visible = mean_of(points[..., self._shoulders, :], visible[..., self._shoulders])
        center = torch.where(hips_visible, hips, everywhere)
        body = (points - center[..., None, :]) * visible[..., None]
        origin, _ = mean_of(center, somebody[..., 0])

        torso = (shoulders - hips).norm(dim=-1, keepdim=True)
        length, _ = mean_of(torso, (shoulders_visible & hips_visible)[..., 0])
        spread, _ = mean_of(body.square().sum(-1, keepdim=True).flatten(1, 2), visible.flatten(1, 2))
        unit = torch.maximum(length, 0.5 * spread.sqrt()).clamp_min(1e-6)[:, None]  # [N, 1, 1]
        travel = (center - origin[:, None]) * somebody / unit
        return body / unit[..., None], travel


def _both(joints: list[str], pair: tuple[str, str]) -> slice:
    """Select two joints by a slice: an index would have to be copied to the GPU."""
    low, high = sorted(joints.index(name) for name in pair)
    return slice(low, high + 1, high - low)


def mean_of(values: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    """Average values [..., P, S] over the visible P: [..., S], 0 if none is, and whether any is visible [..., 1]."""
    count = visible.sum(-1, keepdim=True)
    return (values * visible[..., None]).sum(-2) / count.clamp_min(1), count > 0


class PoseArmsEncoder(PoseEncoder):
    """Embed poses, and where elbows and wrists are and how fast they move as a further, untrained route.

    People who stand before the camera and act with their hands, as in sign language, move them alike: their places
    find a moment to the frame. From another side they look different: it is not for people filmed from all around.
    """

    arms_weight: ClassVar[float | None] = 1.0
    weighted_routes: ClassVar[int] = 1

    @property
    def routes(self) -> tuple[Route, ...]:
        """The head, the head that training started from if it is kept, and the arms."""
        heads = 1 if self.tuned_weight is None else 2
        return *[Route(int(self.config["dimension"]), self.beta)] * heads, Route(2 * self._space * len(ARMS), ARMS_BETA)

    def describe(self, features: Tensor) -> Tensor:
        """Return the vectors of each head, and arms and shoulders in the frames themselves: [N, C, J, 3] → …"""
        names = self.config["joints"]
        own = features[:, self.context.offsets.index(0), [names.index(name) for name in (*ARMS, *SHOULDERS)]]
        before = [] if self.tuned_weight is None else [finish(self.start(self._inputs(features)), normalize=True)]
        return torch.cat([self.combine(features), *before, own.flatten(1)], 1)

    def center(self, embedding: Embedding) -> Embedding:
        """Place the arms about the shoulders and the middle of their range, and join all routes.

        The mean would depend on how long they rest.
        """
        edges = np.cumsum([route.width for route in self.routes[:-1]])
        *heads, flat = np.split(embedding.values, edges, axis=1)
        joints = flat.reshape(len(flat), -1, self._space + 1)
        arms, shoulders = np.split(fill_hidden(joints[..., :-1], joints[..., -1] > 0), [len(ARMS)], axis=1)
        places = (arms - shoulders.mean(1, keepdims=True)).reshape(len(arms), -1)
        speed = np.gradient(places, axis=0) if len(places) > 1 else np.zeros_like(places)
        about = np.percentile(places, [5, 95], axis=0).mean(0)
        shown = np.concatenate([places - about, SPEED_SECONDS * (rate_of(embedding.times) or 1.0) * speed], axis=1)
        # The cost of a pair is weighted by the squared lengths of both sides. Unit rows need no unit of length.
        visible = (joints[:, : len(ARMS), -1] > 0).mean(1, keepdims=True)
        support = float(self.get_buffer("arms")) ** 0.25 * np.sqrt(visible)
        if self.tuned_weight is not None:
            heads[0] = heads[0] * np.float32(float(self.get_buffer("tuned")) ** 0.25)
        parts = [*heads, (unit_rows(shown) * support).astype(np.float32)]
        return replace(embedding, values=join_routes(parts, self.routes), routes=self.routes)


class FineTunedPoseEncoder(PoseArmsEncoder):
    """Embed poses by a head that is fine-tuned, by the one that training starts from, and by the arms.

    Beside the first head, at a quarter of its weight, a head fine-tuned on few videos helps (docs/lab/training.md).
    """

    arms_weight: ClassVar[float | None] = 0.25
    tuned_weight: ClassVar[float | None] = 0.25

    @classmethod
    def from_encoder(cls, encoder: PoseEncoder) -> Self:
        """Start both heads from that of a trained encoder."""
        made = cls(**encoder.config)
        for head in (made.head, made.start):
            head.load_state_dict(encoder.head.state_dict())
        return made

    def train(self, mode: bool = True) -> Self:
        """Set training or evaluation mode; the head that training starts from stays in evaluation mode."""
        super().train(mode)
        self.start.eval()
        return self
