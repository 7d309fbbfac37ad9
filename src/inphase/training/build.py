"""Build the parts that a recipe names: the network, the sources of frames, the stream of batches."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from inphase.data import frame_source as sources
from inphase.data.audio_visual import AudioVisualStream, LogMelReader
from inphase.data.frame_source import FrameSource, load_videos
from inphase.data.stream import GroupStream, Stream
from inphase.data.video import Video, measure
from inphase.losses import LOSSES, Loss
from inphase.models import ENCODERS, Encoder, load_encoder, load_shipped, save_encoder
from inphase.models.joint_encoder import JointEncoder
from inphase.models.pose_encoder import FineTunedPoseEncoder, PoseEncoder
from inphase.models.weights import check_encoder, resolve_encoder, set_route_weights
from inphase.runs import Run
from inphase.storage.errors import MissingExtraError
from inphase.storage.settings import Table, call, check_value, choose
from inphase.training.metrics import Trained
from inphase.training.recipe import Recipe, RunSettings, ValidationSettings, write_run_recipe
from inphase.training.step import EncoderWithLoss

if TYPE_CHECKING:
    from lightning.fabric import Fabric

DEFAULT_VALIDATION_FRACTION = 0.1


@dataclass(frozen=True, eq=False)
class TrainingSources:
    """The frames to train on, and those of the validation videos, if any."""

    train: FrameSource
    validation: FrameSource | None


def build_encoder_with_loss(recipe: Recipe) -> EncoderWithLoss:
    """Build the networks of a recipe; weights come from torch's generator unless the recipe names a start."""
    encoder = build_encoder(sources.fill_joints(recipe.encoder, recipe.data))
    audio = None if recipe.audio is None else call(ENCODERS["audio"], recipe.audio, where="[audio]")
    # Without augmentation the features of a frozen network never change, so they are computed once.
    precomputed = encoder.is_frozen and recipe.augmentation is None
    if audio is not None and audio.config["dimension"] != encoder.config["dimension"]:
        raise ValueError(
            f"[encoder] and [audio] must embed into one space, but their dimensions differ: "
            f"{encoder.config['dimension']} and {audio.config['dimension']}"
        )
    loss = build_loss(recipe, dimension=encoder.config["dimension"])
    return EncoderWithLoss(encoder, loss, audio=audio, precomputed=precomputed)


def build_encoder(table: Table) -> Encoder:
    """Build an encoder from its arguments, or load the one that `start` names: "shipped", a run folder or a file.

    `name` is an entry of `ENCODERS`, or `package.module:Class` of your own; the parts of "both" are trained alone.
    `route_weights` are the weights of routes by name, as {"appearance": 0.5}.
    """
    rest = dict(table)
    if rest.get("name") == "both":
        raise ValueError("a joint encoder is built from its trained parts: train its recipe, which trains both")
    if "name" not in rest:
        raise ValueError(f"[encoder] has no name: choose one of {', '.join(ENCODERS)}, or package.module:Class")
    name, start, weights = rest.pop("name"), rest.pop("start", ""), rest.pop("route_weights", {})
    kind = resolve_encoder(name)
    check_value("[encoder] start", start, str)
    if not start:
        if issubclass(kind, FineTunedPoseEncoder):
            raise ValueError(f'[encoder] {name} needs start = "shipped" or another; from random weights, name = "pose"')
        encoder = call(kind, rest, where="[encoder]")
        check_encoder(encoder, name=name)
        return set_route_weights(encoder, weights)
    if rest:
        raise ValueError(f"[encoder] starts from {start}, which fixes its sizes: leave out {', '.join(rest)}")
    encoder = load_shipped(kind.modality) if start == "shipped" else load_encoder(start)
    if issubclass(kind, FineTunedPoseEncoder) and type(encoder) is PoseEncoder:
        encoder = kind.from_encoder(encoder)
    if type(encoder) is not kind:
        raise ValueError(f"[encoder] names {name!r}, but {start} holds a {type(encoder).__name__}")
    return set_route_weights(encoder.train(), weights)


def build_loss(recipe: Recipe, *, dimension: int) -> Loss:
    """Build the loss of a recipe; layers of its own take embeddings of `dimension`."""
    kind, table = choose(LOSSES, recipe.loss, where="loss")
    needed = {"dimension": dimension} if "dimension" in signature(kind).parameters else {}
    return call(kind, {**needed, **table}, where="[loss]")


def load_frame_sources(recipe: Recipe, encoder: Encoder) -> TrainingSources:
    """List the videos of a recipe and open their frames for an encoder."""
    store, split = recipe.data.get("store"), recipe.data.get("split", "train")
    settings = call(ValidationSettings, recipe.validation, where="[validation]")
    train, validation = load_videos(recipe.data, split=split), []
    if settings.fraction is None and split == "train":
        validation = _load_validation_split(recipe.data)
    if not validation:
        fraction = DEFAULT_VALIDATION_FRACTION if settings.fraction is None else settings.fraction
        train, validation = split_videos(train, fraction=fraction)
    if "max_videos_per_action" in recipe.data:
        train = limit_videos(train, per_action=_require_pair(recipe.data["max_videos_per_action"]))
    validation = limit_videos(validation, per_action=settings.videos)
    return TrainingSources(
        sources.open_frame_source(encoder, train, store=store),
        sources.open_frame_source(encoder, validation, store=store) if validation else None,
    )


def _require_pair(count: object) -> int:
    if not isinstance(count, int) or count < 2:
        raise ValueError(f"[data] max_videos_per_action must be at least 2, since videos are compared; got {count!r}")
    return count


def _load_validation_split(data: Table) -> list[Video]:
    """Load the "val" split of a data set, or nothing where it has none."""
    try:
        return load_videos(data, split="val")
    except ValueError:
        return []


def split_videos(videos: Sequence[Video], *, fraction: float) -> tuple[list[Video], list[Video]]:
    """Hold out a fraction of every action's videos, selected by a hash of their names; at least two stay."""
    held_out: set[str] = set()
    for found in _by_action(videos).values():
        wanted = round(fraction * len(found))
        held_out.update(video.id for video in found[: max(0, min(wanted, len(found) - 2))])
    return [video for video in videos if video.id not in held_out], [video for video in videos if video.id in held_out]


def limit_videos(videos: Sequence[Video], *, per_action: int) -> list[Video]:
    """Keep at most `per_action` videos of every action, selected by a hash of their names."""
    return [video for found in _by_action(videos).values() for video in found[:per_action]]


def _by_action(videos: Sequence[Video]) -> dict[str, list[Video]]:
    """Group videos by action, each group sorted by a hash of the names."""
    groups: dict[str, list[Video]] = defaultdict(list)
    for video in sorted(videos, key=lambda video: hashlib.sha256(video.id.encode(errors="surrogatepass")).digest()):
        groups[video.action].append(video)
    return groups


def build_stream(
    recipe: Recipe, network: EncoderWithLoss, source: FrameSource, *, seed: int, rank: int, world: int
) -> Stream:
    """Build the stream of batches that a network trains on; `source` reads features if the network takes features."""
    encoder = network.encoder
    common: dict[str, Any] = {
        "collection": source.videos,
        "read": source.read,
        "context": lambda video: encoder.context_at(video.rate),
        "seed": seed,
        "rank": rank,
        "world": world,
        **_augmentation(recipe, encoder),
    }
    if network.audio is not None:
        _require_random_frames(network.loss)
        audio = {"read_sound": LogMelReader(), "measure": measure}
        return call(AudioVisualStream, recipe.batch, where="[batch]", **common, **audio)
    drawing = {"frame_count": source.frame_count, "choose": network.loss.frames, "views": network.loss.views}
    return call(GroupStream, recipe.batch, where="[batch]", **common, **drawing)


def _require_random_frames(loss: Loss) -> None:
    """Raise if a loss samples frames by a rule of its own, which seconds of audio cannot follow."""
    if loss.blocks != 1 or not loss.shares:
        raise ValueError("audio-visual training samples frames at random: choose a loss that allows it, such as gta")


def _augmentation(recipe: Recipe, encoder: Encoder) -> dict[str, Any]:
    """Build the arguments of a stream that augment its videos."""
    if recipe.augmentation is None:
        return {}
    settings = dict(recipe.augmentation)
    sample = sources.FRAME_SOURCES[encoder.modality].sample_augmentation
    if sample is not None:
        call(sample, settings, where="[augmentation]", rng=np.random.default_rng(0))
    return sources.augmentation_arguments(encoder.modality, settings)


def launch(settings: RunSettings) -> "Fabric":
    """Start Lightning Fabric on the hardware that the settings name."""
    try:
        from lightning.fabric import Fabric
        from lightning.fabric.utilities.exceptions import MisconfigurationException
    except ModuleNotFoundError as error:
        raise MissingExtraError("Training needs lightning: pip install 'inphase[train]'") from error
    named = {name: getattr(settings, name) for name in ("accelerator", "devices", "strategy", "precision")}
    if settings.accelerator in ("cuda", "gpu") and not torch.cuda.is_available():
        raise ValueError(f"[run] accelerator is {settings.accelerator!r}, but torch finds no GPU here: use cpu or auto")
    try:
        fabric = Fabric(num_nodes=settings.nodes, **named)
    except (ValueError, TypeError, RuntimeError, ImportError, MisconfigurationException) as error:
        line = next(iter(str(error).splitlines()), "")
        raise ValueError(f"[run] {line} (from {named}): correct accelerator, devices, strategy or precision") from error
    fabric.launch()
    return fabric


def train_parts(
    recipe: Recipe, parts: Mapping[str, Recipe], run: Run, train: Callable[[Recipe, Path], Trained]
) -> Trained:
    """Train the parts of a joint encoder, one after the other, into folders of the run; join their encoders in it."""
    run.folder.mkdir(parents=True, exist_ok=True)
    write_run_recipe(recipe, run)
    trained = {name: train(part, run.folder / name) for name, part in parts.items()}
    save_encoder(run.encoder_file, JointEncoder(**{name: each.run.encoder() for name, each in trained.items()}))
    metrics = {f"{name}/{key}": value for name, each in trained.items() for key, value in each.metrics.items()}
    return Trained(run, sum(each.steps for each in trained.values()), metrics)
