"""Videos with the embeddings of their frames and their labels on the same rows: the input of every task.

`embed_videos` runs the encoder once per video and caches the result in the run folder:

    embeddings/<encoder>/<video>.safetensors    values [T, D], times [T]; first, length and context in the header

`<encoder>` is a hash of the encoder's weights and configuration and of the source of the frames, `<video>` a hash of
the id and the number of frames: other weights, another store or a longer video are embedded again.

`controls` and `untrained` build the controls that scores are compared with.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any, TypeVar
from warnings import warn

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from inphase.data.batches import Skip, try_reading
from inphase.data.video import Problem, Read, Video, measured_length
from inphase.media.sampling import Context, Frames, clamped, context_frames
from inphase.models import Embedding, Encoder, embed
from inphase.models.embedding import Route, rate_of, unit_rows
from inphase.models.encoder import image_precision
from inphase.models.joint_encoder import JointEncoder, add_motion_energy
from inphase.models.modality import MIN_PERSON_FRACTION, find_modality
from inphase.models.weights import fingerprint
from inphase.progress import Progress, stage_progress, summarize
from inphase.runs import Run
from inphase.storage.files import (
    CHECKSUM,
    atomic_write,
    exclusive_lock,
    sweep_drafts,
    verify_checksum,
    write_checksum,
)
from inphase.storage.settings import parse_json

Label = TypeVar("Label", bound=np.generic)

ROUNDING = 1e-6  # unit vectors whose coordinates differ by less are equal
CHUNK_BYTES = 2**29  # frames of a video in memory at a time
FEATURE_BATCH = 256
# The scores that stand beside those of the encoder.
CONTROLS = ("untrained", "time only", "clamped only")


class NotApplicableError(ValueError):
    """A task cannot be run on these videos; the message names the label it needs."""


@dataclass(frozen=True, eq=False)
class EmbeddedVideo:
    """A video and the embedding of its frames `first` to `first + T`, of `length` in all.

    Rows are missing at the ends only if the edges of the `context` are "valid". Labels come by row.
    """

    video: Video
    embedding: Embedding
    length: int
    first: int = 0
    context: Context = Context((0,))  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        """Raise if a row is not a frame of the video."""
        if self.first < 0 or self.first + len(self.embedding) > self.length:
            last = self.first + len(self.embedding)
            raise ValueError(f"{self.video.id} has {self.length} frames, not those from {self.first} to {last}")

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.embedding)

    @property
    def values(self) -> NDArray[np.float32]:
        """The unit vectors, [T, D]."""
        return self.embedding.values

    @property
    def frames(self) -> Frames:
        """The frame of the video that each row embeds, [T]."""
        return np.arange(self.first, self.first + len(self))

    @cached_property
    def clamped(self) -> NDArray[np.bool_]:
        """Whether the context of each row reaches beyond the ends of the video, [T]."""
        return clamped(self.frames, length=self.length, context=self.context)

    @cached_property
    def phases(self) -> NDArray[np.int64]:
        """The phase of each row, [T], −1 without a label."""
        if self.video.phases is None:
            return self.video.phases_at(self.embedding.times)
        return self._rows("phases", self.video.phases)

    @cached_property
    def progress(self) -> NDArray[np.float64] | None:
        """The true canonical time of each row, [T], if it is known."""
        return None if self.video.progress is None else self._rows("progress", self.video.progress)

    @cached_property
    def is_constant(self) -> bool:
        """Whether all rows are the same vector."""
        return bool(np.abs(self.values - self.values[:1]).max() < ROUNDING)

    def _rows(self, name: str, labels: NDArray[Label]) -> NDArray[Label]:
        if len(labels) != self.length:
            raise ValueError(f"{self.video.id} has {self.length} frames and {len(labels)} {name}: check the data set")
        return labels[self.first : self.first + len(self)]


def embed_videos(
    encoder: Encoder,
    videos: Iterable[Video],
    *,
    read: Read,
    frame_count: Callable[[Video], int] | None = None,
    progress: Progress | None = None,
    stage: str = "embedding",
    cache: Path | None = None,
    source: str = "",
    precomputed: bool = False,
    batch: int | None = None,
) -> list[EmbeddedVideo]:
    """Embed every frame of each video; leave out unreadable videos with a warning.

    `cache` is a run folder: embeddings found there are read, the others are added to it. `source` names the store that
    `read` takes frames from, if they do not come from the videos themselves. With `precomputed`, `read` returns the
    features of a frozen backbone. `progress` counts videos under the name `stage`.
    """
    listed, report = list(videos), stage_progress(progress, stage)
    count = frame_count or measured_length
    batch = batch or (FEATURE_BATCH if precomputed else find_modality(encoder).batch)
    network = fingerprint(encoder, source=source + image_precision())
    cached = None if cache is None else _CachedEmbeddings(Run(cache).embeddings / network, encoder.routes)
    found: list[EmbeddedVideo] = []
    failed: dict[str, str] = {}
    skipped: list[Skip] = []
    with cached or nullcontext():
        for done, video in enumerate(listed, start=1):
            length = try_reading(video, partial(count, video), failed=failed, skipped=skipped)
            if length is not None:
                item = cached.load(video, length) if cached else None
                if item is None:
                    work = partial(
                        _embed, encoder, video, length=length, read=read, batch=batch, precomputed=precomputed
                    )
                    item = try_reading(video, work, failed=failed, skipped=skipped)
                    if item is not None and cached:
                        cached.save(item)
                found.extend([item] if item is not None else [])
            report(done, len(listed))
    _warn_of_skipped(found, skipped)
    return found


def join_videos(
    encoder: JointEncoder, images: Sequence[EmbeddedVideo], poses: Sequence[EmbeddedVideo]
) -> list[EmbeddedVideo]:
    """Join the embeddings of the same videos by both parts of an encoder; a video without poses has images alone."""
    posed = {item.video.id: item for item in poses}
    joined = []
    for item in images:
        pose, visible = posed.get(item.video.id), None
        if pose is not None:
            frames, seen = pose.frames, pose.video.visibility
            if len(pose) != len(item) or pose.first != item.first:
                raise ValueError(
                    f"{item.video.id} has {len(pose)} poses and {len(item)} images: give both parts the same edges"
                )
            visible = None if seen is None else seen[frames] > 0
            if visible is not None and visible.any(1).mean() < MIN_PERSON_FRACTION:
                pose = None
        together = encoder.join(item.embedding, None if pose is None else pose.embedding, visible=visible)
        joined.append(replace(item, embedding=together))
    return joined


def with_motion_energy(encoder: Encoder, videos: Sequence[EmbeddedVideo]) -> list[EmbeddedVideo]:
    """Add the motion energy of untrained image features, for the alignment of whole videos."""
    found = add_motion_energy(encoder, [item.embedding for item in videos])
    return [replace(item, embedding=each) for item, each in zip(videos, found, strict=True)]


def _warn_of_skipped(found: Sequence[EmbeddedVideo], skipped: Sequence[Skip]) -> None:
    """Warn of the videos that are left out; raise if none is left."""
    if not found:
        reasons = summarize(f"{skip.id}: {skip.reason}" for skip in skipped)
        raise ValueError(f"no video could be embedded ({reasons or 'the list is empty'})")
    for skip in skipped:
        warn(Problem(skip.id, f"cannot be embedded ({skip.reason})", "it is left out of every score"), stacklevel=3)


def _embed(encoder: Encoder, video: Video, *, length: int, read: Read, batch: int, precomputed: bool) -> EmbeddedVideo:
    size = max(256, CHUNK_BYTES // prod(encoder.shape))
    chunks = (read(video, np.arange(begin, min(begin + size, length))) for begin in range(0, length, size))
    first = next(chunks, None)
    if first is None:
        raise ValueError("it has no frames")
    # The times of pose labels without a frame rate are frame numbers: no rate to scale a context by.
    rate = video.rate or (rate_of(first[1]) if find_modality(encoder).timed else None)
    context = encoder.context_at(rate)
    embedding = embed(encoder, chain([first], chunks), context=context, batch=batch, precomputed=precomputed)
    if not np.isfinite(embedding.values).all():
        raise ValueError("its embedding is not finite: the weights are damaged, or its frames hold NaN")
    start = max(0, -min(context.offsets)) if context.edges == "valid" else 0
    return EmbeddedVideo(video, embedding, length=length, first=start, context=context)


class _CachedEmbeddings(ExitStack):
    """The embeddings of one encoder on disk; the folder is locked from the first write to the end."""

    def __init__(self, folder: Path, routes: tuple[Route, ...]) -> None:
        """Take a folder and remove drafts of killed writers; it is locked only when something is written."""
        super().__init__()
        sweep_drafts(folder)
        self._folder, self._routes, self._is_locked = folder, routes, False

    def load(self, video: Video, length: int) -> EmbeddedVideo | None:
        """Read one embedding; None if it is missing or damaged."""
        file = self._file(video, length)
        if not file.exists():
            return None
        try:
            if verify_checksum(file) is False:
                return None
            with safe_open(file, framework="np") as opened:
                about = parse_json((opened.metadata() or {})["about"])
                embedding = Embedding(opened.get_tensor("values"), opened.get_tensor("times"), routes=self._routes)
            context = Context(tuple(about["context"]), about["edges"])
            return EmbeddedVideo(video, embedding, length=length, first=about["first"], context=context)
        except (SafetensorError, KeyError, ValueError, TypeError):
            return None

    def save(self, item: EmbeddedVideo) -> None:
        """Write one embedding atomically."""
        if not self._is_locked:
            self.enter_context(exclusive_lock(self._folder))
            self._is_locked = True
        about = {
            "video": item.video.id,
            "first": item.first,
            "context": item.context.offsets,
            "edges": item.context.edges,
            "checksum": CHECKSUM,
        }
        arrays: dict[str, Any] = {"values": item.values, "times": item.embedding.times}
        with atomic_write(self._file(item.video, item.length)) as part:
            save_file(arrays, part, metadata={"about": json.dumps(about)})
            write_checksum(part)

    def _file(self, video: Video, length: int) -> Path:
        name = hashlib.blake2b(json.dumps([video.id, length]).encode(), digest_size=12).hexdigest()
        return self._folder / f"{name}.safetensors"


def by_action(videos: Iterable[EmbeddedVideo]) -> dict[str, list[EmbeddedVideo]]:
    """Group videos by action, sorted by its name."""
    found: dict[str, list[EmbeddedVideo]] = defaultdict(list)
    for item in videos:
        found[item.video.action].append(item)
    return dict(sorted(found.items()))


def all_constant(videos: Sequence[EmbeddedVideo]) -> bool:
    """Return whether all frames of all videos are the same vector."""
    first = videos[0].values[:1]
    return all(bool(np.abs(item.values - first).max() < ROUNDING) for item in videos)


def require_two(videos: Sequence[EmbeddedVideo]) -> dict[str, list[EmbeddedVideo]]:
    """Group videos by action and keep the actions with at least two; raise if no action is left."""
    found = {action: items for action, items in by_action(videos).items() if len(items) > 1}
    if not found:
        raise NotApplicableError(f"no action has two videos among {len(videos)}: add videos of the same action")
    return found


def with_phases(videos: Iterable[EmbeddedVideo], *, role: str) -> list[EmbeddedVideo]:
    """Keep the videos that have labeled frames; raise if none has."""
    listed = list(videos)
    found = [item for item in listed if (item.phases >= 0).any()]
    if not found:
        raise NotApplicableError(f"none of {len(listed)} {role} videos has phases: use a data set that labels them")
    return found


def controls(test: Sequence[EmbeddedVideo]) -> dict[str, list[EmbeddedVideo]]:
    """Replace the embeddings by control embeddings that do not depend on the frames.

    "time only": the position t/length, as an angle on a quarter circle. "clamped only": for each frame of the context,
    its distance from t after frames beyond the ends are clamped; equal for all frames with a whole context. The third
    control, an untrained encoder, comes from `untrained`.
    """
    return {
        "time only": [replace(item, embedding=_replace_values(item, _position(item))) for item in test],
        "clamped only": [replace(item, embedding=_replace_values(item, _clamping(item))) for item in test],
    }


def _position(item: EmbeddedVideo) -> NDArray[np.float64]:
    angle = item.frames / item.length * np.pi / 2
    return np.stack([np.cos(angle), np.sin(angle)], 1)


def _clamping(item: EmbeddedVideo) -> NDArray[np.float64]:
    clamp = Context(item.context.offsets, "clamp")
    reached = context_frames(item.frames, length=item.length, context=clamp) - item.frames[:, None]
    farthest = max(1, *(abs(offset) for offset in clamp.offsets))
    # With a constant coordinate of 1, any of these has a direction.
    return unit_rows(np.concatenate([reached / farthest, np.ones((len(item), 1))], 1))


def _replace_values(item: EmbeddedVideo, values: NDArray[np.float64]) -> Embedding:
    return Embedding(values.astype(np.float32), item.embedding.times)


def untrained(encoder: Encoder, *, seed: int = 0) -> Encoder:
    """Build the encoder as it was before training: random weights, except those of a frozen backbone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fresh = type(encoder)(**encoder.config)
    if isinstance(encoder, JointEncoder):
        fresh = JointEncoder(**{name: untrained(part, seed=seed) for name, part in encoder.parts.items()})
    elif encoder.is_frozen:
        fresh.get_submodule("backbone").load_state_dict(encoder.get_submodule("backbone").state_dict())
    return fresh.to(next(encoder.parameters()).device).eval()
