"""From a recipe to what it names: videos, encoder, objective, groups."""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

import numpy as np

from inphase.data.audio_visual import AudioVisualStream, LogMelReader
from inphase.data.augmentation import augment_poses, sample_image_augmentation, sample_pose_augmentation
from inphase.data.frame_source import FrameSource, open_frame_source
from inphase.data.reading import measure
from inphase.data.recipe_tables import Table, call, choose, load_videos
from inphase.data.stream import GroupStream, Stream
from inphase.data.video import Video
from inphase.losses import LOSSES, Loss
from inphase.models import ENCODERS, Encoder, load_encoder, load_shipped
from inphase.training.encoder_with_loss import EncoderWithLoss
from inphase.training.recipe import Recipe
from inphase.training.settings import ValidationSettings


@dataclass(frozen=True, eq=False)
class TrainingSources:
    """What is trained on and what is watched meanwhile."""

    train: FrameSource
    held: FrameSource | None


def build_encoder_with_loss(recipe: Recipe) -> EncoderWithLoss:
    """Make the networks a recipe names, their weights drawn from torch's generator unless it says where they start."""
    encoder = build_encoder(recipe.encoder)
    sound = None if recipe.sound is None else call(ENCODERS["audio"], recipe.sound, where="[sound]")
    # What a frozen network sees of a picture that never changes need not be seen twice.
    precomputed = encoder.is_frozen and recipe.augment is None
    if sound is not None and sound.config["dimension"] != encoder.config["dimension"]:
        raise ValueError(
            f"[encoder] and [sound] embed into one space: {encoder.config['dimension']} and "
            f"{sound.config['dimension']} dimensions differ"
        )
    return EncoderWithLoss(
        encoder, build_loss(recipe, dimension=encoder.config["dimension"]), sound=sound, precomputed=precomputed
    )


def build_encoder(table: Table) -> Encoder:
    """Make an encoder by its arguments, or begin with one there is: `start` is "shipped", a run folder or a file."""
    kind, rest = choose(ENCODERS, table, where="encoder")
    start = rest.pop("start", "")
    if not start:
        return call(kind, rest, where="[encoder]")
    if rest:
        raise ValueError(f"[encoder] begins as {start} is, its sizes and context included: leave out {', '.join(rest)}")
    encoder = load_shipped(kind.modality) if start == "shipped" else load_encoder(start)
    if type(encoder) is not kind:
        raise ValueError(f"[encoder] is to be {table['name']!r}, but {start} holds a {type(encoder).__name__}")
    return encoder.train()


def build_loss(recipe: Recipe, *, dimension: int) -> Loss:
    """Make the method a recipe names; where it has layers of its own they take embeddings of `dimension`."""
    kind, table = choose(LOSSES, recipe.objective, where="objective")
    given = {"dimension": dimension} if "dimension" in signature(kind).parameters and "dimension" not in table else {}
    return call(kind, table, where="[objective]", **given)


def load_frame_sources(recipe: Recipe, encoder: Encoder) -> TrainingSources:
    """Find the videos a recipe names and how the encoder sees them."""
    store, split = recipe.data.get("store"), recipe.data.get("split", "train")
    validation = call(ValidationSettings, recipe.validation, where="[validation]")
    train, held = load_videos(recipe.data, split=split), []
    if validation.fraction is None and split == "train":
        held = _load_val(recipe.data)
    if not held:
        train, held = divide(train, fraction=0.1 if validation.fraction is None else validation.fraction)
    if "videos_each" in recipe.data:
        train = keep_few(train, videos_each=_require_some(recipe.data["videos_each"]))
    watched = keep_few(held, videos_each=validation.videos)
    return TrainingSources(
        open_frame_source(encoder, train, store=store),
        open_frame_source(encoder, watched, store=store) if watched else None,
    )


def _require_some(count: object) -> int:
    if not isinstance(count, int) or count < 2:
        raise ValueError(f"[data] videos_each must be 2 or more, since videos are compared, got {count!r}")
    return count


def _load_val(data: Table) -> list[Video]:
    """Load a collection's "val" split, or nothing where it has none."""
    try:
        return load_videos(data, split="val")
    except ValueError:
        return []


def divide(videos: Sequence[Video], *, fraction: float) -> tuple[list[Video], list[Video]]:
    """Hold out a fraction of every action's videos, chosen by their names alone; two of each are left at least."""
    held: set[str] = set()
    for found in _by_action(videos).values():
        wanted = round(fraction * len(found))
        held.update(video.id for video in found[: max(0, min(wanted, len(found) - 2))])
    return [video for video in videos if video.id not in held], [video for video in videos if video.id in held]


def keep_few(videos: Sequence[Video], *, videos_each: int) -> list[Video]:
    """Keep at most so many videos of every action, chosen by their names alone."""
    return [video for found in _by_action(videos).values() for video in found[:videos_each]]


def _by_action(videos: Sequence[Video]) -> dict[str, list[Video]]:
    """Sort videos by action, and within one by a hash of their names."""
    sorted_: dict[str, list[Video]] = defaultdict(list)
    for video in sorted(videos, key=lambda video: hashlib.sha256(video.id.encode(errors="surrogatepass")).digest()):
        sorted_[video.action].append(video)
    return sorted_


def build_stream(
    recipe: Recipe, method: EncoderWithLoss, sight: FrameSource, *, seed: int, rank: int, world: int
) -> Stream:
    """Make the stream of groups that a method trains on; `sight` gives features where the method takes those."""
    encoder = method.encoder
    common: dict[str, Any] = {
        "videos": sight.videos,
        "read": sight.read,
        "context": lambda video: encoder.context_at(video.rate),
        "seed": seed,
        "rank": rank,
        "world": world,
        **_changes(recipe, encoder),
    }
    if method.sound is not None:
        _require_plain_draw(method.objective)
        sounds = {"read_sound": LogMelReader(), "measure": measure}
        return call(AudioVisualStream, recipe.groups, where="[groups]", **common, **sounds)
    drawing = {"frame_count": sight.frame_count, "choose": method.objective.frames}
    return call(GroupStream, recipe.groups, where="[groups]", **common, **drawing)


def _require_plain_draw(objective: Loss) -> None:
    """Refuse a method that wants frames of its own choice: seconds of sound cannot be chosen so."""
    if objective.blocks != 1 or not objective.shares:
        raise ValueError("audio-visual training draws frames at random: choose a method that takes them, as gta does")


def _changes(recipe: Recipe, encoder: Encoder) -> dict[str, Any]:
    """Make what changes a video at random, as far as the recipe says."""
    if recipe.augment is None:
        return {}
    draw = sample_image_augmentation if encoder.modality == "image" else sample_pose_augmentation
    call(draw, recipe.augment, where="[augment]", rng=np.random.default_rng(0))
    if encoder.modality == "image":
        return {"look": partial(sample_image_augmentation, **recipe.augment)}
    return {"prepare": partial(augment_poses, **recipe.augment)}
