"""Encoders whose vectors join several routes, each with a cost of its own that `inphase.align.matching` adds up.

`JointEncoder` joins body pose and images; each clip uses the modalities it supports.

Pose and images often fail on different clips: pose where the person is tiny, hidden or mistaken for another, images
where the camera moves or others do. A frame supports pose as far as joints are visible in it; a clip without a person
has zeros there and follows its images, whatever the other clips show. A clip in whose images nothing moves has zeros in
the other part. `MotionAppearanceEncoder` joins the motion in images and what they show.

`add_motion_energy` adds a route to untrained image features. What images show differs between two places or two people
as it does between two moments; how much each cell of the grid changes from frame to frame shows only where something
moves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from inphase.models.embedding import Embedding, Route, subtract_mean, unit_rows
from inphase.models.encoder import Encoder
from inphase.models.motion_encoder import MotionEncoder, PooledFeatures

# The parts of a joint encoder, in the order of their columns; further routes of pose come last.
PARTS = ("pose", "image")
# The temperature of the motion energy, its share of the weight of the features beside a pose; the standard deviation of
# its Gaussian filter as a share of the frames (docs/lab/domains.md).
ENERGY_BETA, ENERGY_BESIDE_POSE, SMOOTHING = 0.05, 0.5, 0.01


class JointEncoder(Encoder):
    """Embed videos by a pose and an image encoder, given as encoders or as {"name": …, "config": …}."""

    modality: ClassVar[str] = "both"

    def __init__(self, *, pose: Encoder | Mapping[str, Any], image: Encoder | Mapping[str, Any]) -> None:
        """Take or build the two encoders."""
        super().__init__(context=(0,))
        self.pose, self.image = (_build(part) for part in (pose, image))
        for name, part in self.parts.items():
            if part.modality != name:
                raise ValueError(f"{name} must be an encoder of that modality, got one that embeds {part.modality}")
        self.config = {name: _describe(part) for name, part in self.parts.items()}
        self.shape, self.head = self.image.shape, nn.Identity()

    @property
    def parts(self) -> dict[str, Encoder]:
        """The two encoders by modality."""
        return {"pose": self.pose, "image": self.image}

    def features(self, frames: Tensor) -> NoReturn:
        """Raise: the parts take different frames."""
        raise ValueError("this encoder joins the embeddings of a pose and an image encoder: embed with each, then join")

    def combine(self, features: Tensor) -> NoReturn:
        """Raise: the parts take different frames."""
        self.features(features)

    def join(
        self, image: Embedding | None, pose: Embedding | None, *, visible: NDArray[np.bool_] | None = None
    ) -> Embedding:
        """Join the embeddings of the same frames; one that is None, of a clip that does not support it, is 0.

        `visible` [T, J] are the joints of each frame that can be seen; by default all of them.
        """
        given = {"pose": pose, "image": image}
        clock = next((each.times for each in (image, pose) if each is not None), None)
        if clock is None:
            raise ValueError("there is nothing to join: give the embedding of the images, the pose, or both")
        support = {
            "pose": np.ones(len(clock)) if visible is None else visible.mean(1),
            "image": np.full(len(clock), float(image is not None and not is_still(image))),
        }
        columns: dict[str, list[NDArray[np.float32]]] = {}
        for name, part in self.parts.items():
            embedding, routes = given[name], routes_of(part)
            if embedding is not None and len(embedding) != len(clock):
                raise ValueError(f"{len(embedding)} frames by {name} and {len(clock)} by image cannot be joined")
            weight = np.sqrt(support[name])[:, None].astype(np.float32)
            if embedding is None:
                columns[name] = [np.zeros((len(clock), route.width), np.float32) for route in routes]
            else:
                parts, plain = split_routes(embedding.values, routes), len(routes) - part.weighted_routes
                columns[name] = [rows * weight if k < plain else rows for k, rows in enumerate(parts)]
        shown = None if pose is None else pose.pose
        rows = join_routes(_in_order(columns["pose"], columns["image"]), self.routes)
        return Embedding(rows, clock, self.modality, pose=shown, routes=self.routes)

    @property
    def routes(self) -> tuple[Route, ...]:
        """The routes of its parts: the first of pose, those of images, then any others of pose."""
        return tuple(_in_order(routes_of(self.pose), routes_of(self.image)))

    def image_columns(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the columns of joint vectors that belong to images."""
        begin = self.routes[0].width
        return values[:, begin : begin + sum(route.width for route in routes_of(self.image))]


def _in_order(pose: Sequence[Any], image: Sequence[Any]) -> list[Any]:
    return [pose[0], *image, *pose[1:]]


class MotionAppearanceEncoder(MotionEncoder):
    """Embed images by their motion, and by what they show as a second, untrained route.

    The features of a frame without their mean over the recording find moments that the trained head confuses. They
    have half of its weight (docs/lab/transfer.md).
    """

    appearance_weight: ClassVar[float | None] = 0.5

    @property
    def routes(self) -> tuple[Route, ...]:
        """Motion and appearance."""
        motion, shown = int(self.config["dimension"]), self.channels * self.grid**2
        return Route(motion, self.beta), Route(shown, PooledFeatures.beta)

    def describe(self, features: Tensor) -> Tensor:
        """Return the trained vectors and the features of the frames themselves: [N, C, K, grid, grid] → [N, D]."""
        own = self.context.offsets.index(0)
        return torch.cat([self.combine(features), features[:, own].flatten(1)], 1)

    def center(self, embedding: Embedding) -> Embedding:
        """Subtract the mean over the recording from the features, and join both routes."""
        motion, shown = np.split(embedding.values, [self.routes[0].width], axis=1)
        # The cost of a pair is weighted by the squared lengths of both sides.
        parts = [motion, subtract_mean(shown) * np.float32(float(self.get_buffer("appearance")) ** 0.25)]
        return replace(embedding, values=join_routes(parts, self.routes), routes=self.routes)


def join_routes(parts: Sequence[NDArray[np.float32]], routes: Sequence[Route]) -> NDArray[np.float32]:
    """Join the vectors of routes, [T, width] each: unit rows in which each has a share of its squared length / β."""
    scaled = [part / np.float32(np.sqrt(route.beta)) for part, route in zip(parts, routes, strict=True)]
    return unit_rows(np.concatenate(scaled, axis=1))


def split_routes(values: NDArray[np.float32], routes: Sequence[Route]) -> list[NDArray[np.float32]]:
    """Split joint vectors [T, D] into those of their routes; of each frame the longest has length 1."""
    edges = np.cumsum([route.width for route in routes])[:-1]
    parts = [
        part * np.float32(np.sqrt(route.beta))
        for part, route in zip(np.split(values, edges, axis=1), routes, strict=True)
    ]
    longest = np.max([np.linalg.norm(part, axis=1, keepdims=True) for part in parts], axis=0)
    return [part / np.maximum(longest, 1e-12) for part in parts]


def add_motion_energy(encoder: Encoder, embeddings: Sequence[Embedding]) -> list[Embedding]:
    """Add the motion energy of untrained image features, for the alignment of whole videos.

    It has the weight of these features, and beside a pose a share of it. Embeddings without them stay as they are:
    those by pose alone, and by other image encoders. In joint vectors features shrink where more joints are visible, so
    that joints that appear count as motion, too.
    """
    joint = encoder if isinstance(encoder, JointEncoder) else None
    image = encoder if joint is None else joint.image
    if not isinstance(image, PooledFeatures | MotionAppearanceEncoder):
        return list(embeddings)
    energy, found = Route(image.grid**2, ENERGY_BETA), list[Embedding]()
    full = 1.0 if isinstance(image, PooledFeatures) else min(1.0, float(image.get_buffer("appearance")))
    for each in embeddings:
        columns = each.values if joint is None else joint.image_columns(each.values)
        columns = columns[:, -image.routes[-1].width :]  # the untrained features are its last route
        added = np.zeros((len(each), energy.width), np.float32)
        if columns.any():  # the cost of a pair is weighted by the squared lengths of both sides
            weight = full * ENERGY_BESIDE_POSE if joint is not None and has_route(each, 0) else full
            added = subtract_mean(measure_motion(columns, cells=energy.width)) * np.float32(weight**0.25)
        routes = (*each.routes, energy)
        rows = join_routes([*split_routes(each.values, each.routes), added], routes)
        found.append(replace(each, values=rows, routes=routes))
    return found


def measure_motion(values: NDArray[np.float32], *, cells: int) -> NDArray[np.float32]:
    """Average over the channels of each cell how much features [T, channels · cells] change, [T, cells], smoothed.

    The mean of the fifth of the cells that change least is subtracted: key frames and exposure change the whole image.
    """
    from scipy.ndimage import gaussian_filter1d

    frames, quiet = np.arange(len(values)), min(cells - 1, -(-cells // 5))
    after, before = np.minimum(frames + 1, len(values) - 1), np.maximum(frames - 1, 0)
    change = np.abs(values[after] - values[before]).reshape(len(values), -1, cells).mean(1)
    change -= np.sort(change, axis=1)[:, :quiet].sum(1, keepdims=True) / max(1, quiet)
    return np.asarray(gaussian_filter1d(change, SMOOTHING * len(values), axis=0, mode="nearest"), np.float32)


def is_still(embedding: Embedding) -> bool:
    """Return whether all frames have the same vector: nothing moves."""
    return bool(np.abs(embedding.values - embedding.values[:1]).max() < 1e-6)


def has_route(embedding: Embedding, number: int) -> bool:
    """Return whether a joint embedding supports its route of that number at all."""
    begin = sum(route.width for route in embedding.routes[:number])
    return bool(embedding.values[:, begin : begin + embedding.routes[number].width].any())


def routes_of(encoder: Encoder) -> tuple[Route, ...]:
    """Return the routes of an encoder's embeddings; all columns are one if it names none."""
    return encoder.routes or (Route(int(encoder.config["dimension"]), encoder.beta),)


def _build(part: Encoder | Mapping[str, Any]) -> Encoder:
    if isinstance(part, Encoder):
        return part
    from inphase.models.weights import resolve_encoder  # the registry lists this encoder, too

    return resolve_encoder(part["name"])(**part["config"])


def _describe(part: Encoder) -> dict[str, Any]:
    from inphase.models.weights import name_encoder

    return {"name": name_encoder(part), "config": part.config}
