"""Show an encoder every video once, and keep what it makes of them in the run folder.

    embeddings/<encoder>/<video>.safetensors    values [T, D], times [T]; first, length and context in the header

`<encoder>` is a hash of the encoder's weights and configuration and of where the frames come from, `<video>` one of the
id and the number of frames: other weights, another store or a longer video are embedded anew.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any
from warnings import warn

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from inphase.data.batches import Skip, try_reading
from inphase.data.reading import Read, measured_length
from inphase.data.video import Problem, Video, summarize
from inphase.evaluation.embedded import Embedded
from inphase.media.sampling import Context
from inphase.models import Embedding, Encoder, embed
from inphase.models.embedding import rate_of
from inphase.models.modality import find_modality
from inphase.models.weights import fingerprint
from inphase.runs import Run
from inphase.storage.files import atomic_write, exclusive_lock

STRETCH_BYTES = 2**29  # as much of a video is held at a time
KNOWN_BATCH = 256


def embed_videos(
    encoder: Encoder,
    videos: Iterable[Video],
    *,
    read: Read,
    frame_count: Callable[[Video], int] | None = None,
    progress: Callable[[int], None] | None = None,
    cache: Path | None = None,
    source: str = "",
    precomputed: bool = False,
    batch: int | None = None,
) -> list[Embedded]:
    """Embed every frame of each video; a video that cannot be read is left out with a warning.

    `cache` is a run folder: what is embedded there is read, the rest is added. `source` says where `read` takes frames
    from, as far as that is not the videos themselves; where `known`, it gives features. `progress` is told how many
    videos are done.
    """
    count, batch = (
        frame_count or measured_length,
        batch or (KNOWN_BATCH if precomputed else find_modality(encoder).batch),
    )
    kept = None if cache is None else _Kept(Run(cache).embeddings / fingerprint(encoder, source=source))
    found: list[Embedded] = []
    failed: dict[str, str] = {}
    skipped: list[Skip] = []
    with kept or nullcontext():
        for done, video in enumerate(videos, start=1):
            length = try_reading(video, partial(count, video), failed=failed, skipped=skipped)
            if length is not None:
                item = kept.load(video, length) if kept else None
                if item is None:
                    work = partial(
                        _embed, encoder, video, length=length, read=read, batch=batch, precomputed=precomputed
                    )
                    item = try_reading(video, work, failed=failed, skipped=skipped)
                    if item is not None and kept:
                        kept.save(item)
                found.extend([item] if item is not None else [])
            if progress is not None:
                progress(done)
    _report(found, skipped)
    return found


def _report(found: Sequence[Embedded], skipped: Iterable[Skip]) -> None:
    """Warn of the videos that are left out; where nothing is left, refuse."""
    listed = list(skipped)
    if not found:
        reasons = summarize(f"{skip.id}: {skip.reason}" for skip in listed)
        raise ValueError(f"no video could be embedded ({reasons or 'there is none'})")
    for skip in listed:
        warn(Problem(skip.id, f"cannot be embedded ({skip.reason})", "it is left out of every number"), stacklevel=3)


def _embed(encoder: Encoder, video: Video, *, length: int, read: Read, batch: int, precomputed: bool) -> Embedded:
    size = max(256, STRETCH_BYTES // prod(encoder.shape))
    stretches = (read(video, np.arange(begin, min(begin + size, length))) for begin in range(0, length, size))
    first = next(stretches, None)
    if first is None:
        raise ValueError("it has no frames")
    # Poses of labels without a rate count a second a frame: that is no rate to stretch a context by.
    rate = video.rate or (rate_of(first[1]) if find_modality(encoder).timed else None)
    context = encoder.context_at(rate)
    embedding = embed(encoder, chain([first], stretches), context=context, batch=batch, precomputed=precomputed)
    if not np.isfinite(embedding.values).all():
        raise ValueError("its embedding is not finite: the weights are damaged, or its frames hold NaN")
    start = max(0, -min(context.offsets)) if context.edges == "valid" else 0
    return Embedded(video, embedding, length=length, first=start, context=context)


class _Kept(ExitStack):
    """The embeddings of one encoder on disk. The folder is held from the first one written to the end."""

    def __init__(self, folder: Path) -> None:
        """Open nothing yet: who finds everything embedded writes nothing."""
        super().__init__()
        self._folder, self._held = folder, False

    def load(self, video: Video, length: int) -> Embedded | None:
        """Read one embedding, or nothing where there is none or it is damaged: it is made again."""
        file = self._file(video, length)
        if not file.exists():
            return None
        try:
            with safe_open(file, framework="np") as opened:
                about = json.loads((opened.metadata() or {})["about"])
                embedding = Embedding(opened.get_tensor("values"), opened.get_tensor("times"))
            context = Context(tuple(about["context"]), about["edges"])
            return Embedded(video, embedding, length=length, first=about["first"], context=context)
        except (SafetensorError, KeyError, ValueError, TypeError):
            return None

    def save(self, item: Embedded) -> None:
        """Write one embedding, which appears when it is whole."""
        if not self._held:
            self.enter_context(exclusive_lock(self._folder))
            self._held = True
        about = {
            "video": item.video.id,
            "first": item.first,
            "context": item.context.offsets,
            "edges": item.context.edges,
        }
        arrays: dict[str, Any] = {"values": item.values, "times": item.embedding.times}
        with atomic_write(self._file(item.video, item.length)) as part:
            save_file(arrays, part, metadata={"about": json.dumps(about)})

    def _file(self, video: Video, length: int) -> Path:
        name = hashlib.blake2b(json.dumps([video.id, length]).encode(), digest_size=12).hexdigest()
        return self._folder / f"{name}.safetensors"
