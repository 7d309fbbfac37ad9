"""Recordings as tracks of a playback: their files brought into its folder, what was seen of them as curves."""

import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from inphase.align.coarse_to_fine import CELLS, average_blocks
from inphase.apps.matching import PairCost, PairMatch, pair_cost
from inphase.media.probe import Properties, probe
from inphase.media.render import is_playable, make_playable
from inphase.models.embedding import Embedding
from inphase.playback import Curves, Pair, TimeMap, VideoTrack, add_media, principal_curves

# Knots of a time map, at most: a page reads them with every step of its clock.
KNOTS = 10_000
# What commands write beside the media has these names.
RESULTS = ("aligned", "activations")
# Rows and columns of costs, at most, where all of them would not fit into memory.
SIDE = 2048


@dataclass(frozen=True)
class NamedVideo:
    """A video file as people know it: `name` is what to call it."""

    path: Path
    name: str
    properties: Properties


def open_recordings(paths: Sequence[Path]) -> list[NamedVideo]:
    """Measure video files and name them by their stems, with as many of their folders as tell them apart."""
    for path in paths:
        if path.is_dir():
            raise ValueError(f"{path} is a folder: name video files")
    return [NamedVideo(path, name, probe(path)) for path, name in zip(paths, names_of(paths), strict=True)]


def names_of(paths: Sequence[Path]) -> list[str]:
    """Call files by their stems; where two would be called alike, by folders as well, failing that by number."""
    for parts in range(1, 1 + max((len(path.parts) for path in paths), default=0)):
        names = ["/".join((*path.parent.parts[len(path.parts) - parts :], path.stem)) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{path.stem} ({number})" for number, path in enumerate(paths, start=1)]


def add_video_file(folder: Path, recording: NamedVideo, *, progress: Callable[[int, int], None] | None = None) -> str:
    """Put a recording into a playback's folder, encoded anew where browsers do not play it; give its path there."""
    folder.mkdir(parents=True, exist_ok=True)
    # Letters of any script, but nothing that an address or a page could take for something else.
    stem = re.sub(r"[^\w .-]", "_", recording.path.stem).strip(". ") or "video"
    stem += " (video)" if stem in RESULTS else ""
    if is_playable(recording.path):
        return add_media(folder, recording.path, name=stem + recording.path.suffix.lower())
    with tempfile.TemporaryDirectory(dir=folder, prefix=".encoding-") as draft:
        encoded = Path(draft) / "video.mp4"
        make_playable(recording.path, encoded, progress=progress)
        return add_media(folder, encoded, name=f"{stem}.mp4")


def make_track(
    recording: NamedVideo, media: str, *, time_map: TimeMap | None = None, curves: Curves | None = None
) -> VideoTrack:
    """Describe a recording whose file is in the playback's folder."""
    known = recording.properties
    return VideoTrack(
        recording.name,
        duration=known.duration,
        rate=known.rate,
        size=known.size,
        media=media,
        time_map=time_map,
        curves=curves,
    )


def make_curves(embeddings: Sequence[Embedding]) -> list[Curves]:
    """Draw embeddings as curves of their principal components, the same for all."""
    values = principal_curves([embedding.values for embedding in embeddings])
    return [Curves(seen.times, value) for seen, value in zip(embeddings, values, strict=True)]


def make_time_map(clock: NDArray[np.float64], seconds: NDArray[np.float64]) -> TimeMap:
    """Describe where a recording is at each second of the reference, by at most `KNOTS` knots."""
    step = -(-len(clock) // KNOTS)
    kept = np.unique(np.append(np.arange(0, len(clock), step), len(clock) - 1))
    return TimeMap(clock[kept], seconds[kept])


def make_pair(x: Embedding, y: Embedding, found: PairMatch, *, rows: int, columns: int, cost: PairCost) -> Pair:
    """Lay out the costs a match was found by; those of long recordings as costs of blocks of frames."""
    large = len(x) * len(y) > CELLS
    by = [-(-len(side) // SIDE) if large else 1 for side in (x, y)]
    a, b = (average_blocks(torch.from_numpy(side.values), size) for side, size in zip((x, y), by, strict=True))
    row_times, column_times = (side.times[size // 2 :: size] for side, size in zip((x, y), by, strict=True))
    path = np.unique(found.path // np.array(by), axis=0)
    # A last block that is shorter may have no frame in its middle.
    path = np.minimum(path, [len(row_times) - 1, len(column_times) - 1])
    costs = pair_cost(a, b, cost=cost)[: len(row_times), : len(column_times)].numpy()
    return Pair(rows, columns, costs, row_times, column_times, path)
