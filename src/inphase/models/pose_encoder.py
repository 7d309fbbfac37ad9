"""An encoder of poses, in the plane or in space: where the joints are, how they move, and how well each is seen.

Poses are measured within the window that a frame and its context make. The mean position of the hips over the window
is the origin, the mean length of the torso the unit: where in the picture somebody stands and how large they appear
does not matter, while how the whole body travels within the window, a jump or a run-up, stays visible. Centring each
frame by itself would lose that. Centring a clip as a whole would keep it, but a frame's embedding would then depend on
how the clip was cut, and no stream could be embedded before its end.

The layers see the mean posture of the window and the motion from each context frame to the next, which is what the
poses themselves say, in other words: small motions are then not lost beside large coordinates.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from inphase.media.sampling import Edges
from inphase.models.encoder import Encoder, Modality, unit
from inphase.pose.pose import JOINTS13

HIPS = ("left_hip", "right_hip")
SHOULDERS = ("left_shoulder", "right_shoulder")
# From one context frame to the next joints move by a fraction of a torso: this brings motion to the scale of posture.
MOTION = 3.0


class PoseEncoder(Encoder):
    """Embed poses [B, T, C, J, 3] or [B, T, C, J, 4]: coordinates and visibility, seen where that is above 0.

    Without the last column every joint counts as seen. `joints` names the J joints, two hips and two shoulders among
    them; C is the number of offsets in `context`. [Linear, batch norm, ReLU] for each of `hidden` widths, linear, L2.
    """

    modality: ClassVar[Modality] = "pose"

    def __init__(
        self,
        *,
        joints: Sequence[str] = JOINTS13,
        context: Sequence[int] = (-8, -4, 0, 4, 8),
        edges: Edges = "clamp",
        rate: float | None = None,
        space: int = 2,
        hidden: Sequence[int] = (256, 256),
        dimension: int = 128,
    ) -> None:
        """Build the layers for coordinates in `space` dimensions."""
        super().__init__(context=context, edges=edges, rate=rate)
        absent = [name for name in (*HIPS, *SHOULDERS) if name not in joints]
        if absent:
            raise ValueError(f"poses are measured by hips and shoulders; there is no joint {', '.join(absent)}")
        if space not in (2, 3):
            raise ValueError(f"space must be 2 or 3, got {space}")
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

    def check(self, shape: torch.Size | tuple[int, ...]) -> None:
        """Let poses without visibility pass as well."""
        if tuple(shape) != (self.shape[0], self._space):
            super().check(shape)

    def features(self, frames: Tensor) -> Tensor:
        """Add the visibility where there is none, and forget coordinates that are not seen: [N, J, 2 or 3 (+ 1)]."""
        if frames.shape[-1] == self._space:
            frames = torch.cat([frames, torch.ones_like(frames[..., :1])], -1)
        # Not a product: what is not seen may be NaN.
        return torch.where(frames[..., -1:] > 0, frames, 0.0)

    def combine(self, features: Tensor) -> Tensor:
        """Embed poses with their context: [N, C, J, 3 or 4] → [N, D]."""
        if features.shape[1] != self._context:
            raise ValueError(f"this encoder takes {self._context} context frames, got {features.shape[1]}")
        points, visibility = features[..., :-1], features[..., -1]
        seen = visibility > 0
        body, travel = self.measure(points, seen)
        posture, _ = mean_of(body.transpose(1, 2), seen.transpose(1, 2))  # [N, J, S]
        places = body + travel[:, :, None]
        motion = (places[:, 1:] - places[:, :-1]) * (seen[:, 1:] & seen[:, :-1])[..., None]
        inputs = [posture, MOTION * motion, travel, visibility]
        return unit(self.head(torch.cat([part.flatten(1) for part in inputs], 1)))

    def measure(self, points: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Measure poses [N, C, J, S] in torso lengths.

        Return the joints about the body's own centre, [N, C, J, S], 0 where unseen, and the centre about the window's,
        [N, C, S]. The centre is the middle of the hips that are seen, failing them of all joints that are. A torso that
        points at the camera has no length: half the spread of the joints is the least that counts.
        """
        everywhere, somebody = mean_of(points, seen)
        hips, hips_seen = mean_of(points[..., self._hips, :], seen[..., self._hips])
        shoulders, shoulders_seen = mean_of(points[..., self._shoulders, :], seen[..., self._shoulders])
        centre = torch.where(hips_seen, hips, everywhere)
        body = (points - centre[..., None, :]) * seen[..., None]
        origin, _ = mean_of(centre, somebody[..., 0])

        torso = (shoulders - hips).norm(dim=-1, keepdim=True)
        length, _ = mean_of(torso, (shoulders_seen & hips_seen)[..., 0])
        spread, _ = mean_of(body.square().sum(-1, keepdim=True).flatten(1, 2), seen.flatten(1, 2))
        unit = torch.maximum(length, 0.5 * spread.sqrt()).clamp_min(1e-6)[:, None]  # [N, 1, 1]
        travel = (centre - origin[:, None]) * somebody / unit
        return body / unit[..., None], travel


def _both(joints: list[str], pair: tuple[str, str]) -> slice:
    """Cut out two joints without an index, which would have to be sent to a GPU and waited for."""
    low, high = sorted(joints.index(name) for name in pair)
    return slice(low, high + 1, high - low)


def mean_of(values: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Average values [..., P, S] over the P that are seen: [..., S], 0 where none is, and whether any is [..., 1]."""
    count = seen.sum(-1, keepdim=True)
    return (values * seen[..., None]).sum(-2) / count.clamp_min(1), count > 0
