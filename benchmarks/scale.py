"""Measure the growth of time, memory and disk with videos, frames and pairs.

    python -m benchmarks.scale growth [--most 10000]       # every stage at 10, 100, … synthetic videos, log–log slopes
    python -m benchmarks.scale overlap                     # decoding beside the network, alone and together
    python -m benchmarks.scale soak [--minutes 3]          # embed and search repeatedly under a memory ceiling

Seconds are CPU time on one core, independent of other load; those of `overlap` are wall time. Memory is the peak of the
process during a stage, imports included (Linux only). The files of the corpus are small and their embeddings drawn at
random: the stages measure everything that `inphase embed` does except decoding and the network, and `overlap` measures
these two.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.soak import CEILING, soak
from inphase.align.matching import match_many
from inphase.corpus.align_corpus import align_action, write_page
from inphase.corpus.embed_corpus import (
    EmbeddedCorpus,
    EmbedJob,
    EmbedJobResult,
    EmbedSettings,
    embed_corpus,
    stamp_of,
)
from inphase.corpus.embedding_store import SHARD_BYTES, EmbeddingStore
from inphase.corpus.engines import Threads
from inphase.corpus.shards import ShardRow, write_shard
from inphase.corpus.store_search import find_moments
from inphase.corpus.vector_index import MAX_VECTORS, Index
from inphase.data import stage_videos
from inphase.media.frames import Clip, decode_ahead, stream_clips
from inphase.media.listing import ListedVideo
from inphase.models import Embedding, Encoder, ImageEncoder, PoseEncoder, embed
from inphase.models.embed_videos import embed_video
from inphase.models.modality import CLIP_FRAMES, CLIPS_AHEAD

DIMENSION, FRAMES, ACTIONS = 128, 25, 10

Measured = dict[str, float]


def drawn(video: ListedVideo, *, frames: int) -> Embedding:
    """Draw the embedding of a video: a curve near that of its action, at the video's own speed."""
    rng = np.random.default_rng(zlib.crc32(video.id.encode()))
    curve = np.random.default_rng(sum(video.action.encode())).standard_normal((12, DIMENSION))
    at = np.linspace(0, 11, frames) ** rng.uniform(0.8, 1.2)
    at = 11 * at / at[-1]
    low = np.minimum(at.astype(int), 10)
    values = curve[low] * (1 - at + low)[:, None] + curve[low + 1] * (at - low)[:, None]
    values += rng.normal(0, 0.3, values.shape)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    return Embedding(values.astype(np.float32), np.arange(frames) / 25)


class Drawing:
    """An engine that writes drawn embeddings and reads no video."""

    def __init__(self, frames: int) -> None:
        self._frames = frames

    def map(self, start: Callable[[str], Callable[[Any], Any]], items: Iterable[Any]) -> Iterator[Any]:
        assert isinstance(start, partial)
        (settings,) = start.args
        return (self._draw(job, settings) for job in items)

    def _draw(self, job: EmbedJob, settings: EmbedSettings) -> EmbedJobResult:
        rows = (
            ShardRow(
                video.id,
                video.path,
                video.action,
                "",
                stamp_of(video),
                settings.model,
                drawn(video, frames=self._frames),
            )
            for video in job.videos
        )
        write_shard(settings.store / "shards", job.shard, rows)
        return EmbedJobResult(job.shard, len(job.videos), self._frames * len(job.videos))


@dataclass(frozen=True)
class Size:
    """A synthetic corpus: number of videos and of frames, and the bounds of memory, in bytes and in vectors."""

    place: str
    videos: int
    frames: int = FRAMES
    merged: int = SHARD_BYTES
    sample: int = MAX_VECTORS
    most: int = 100
    stages: tuple[str, ...] = ()  # all by default

    @property
    def corpus(self) -> Path:
        return Path(self.place, "corpus")

    @property
    def store(self) -> Path:
        return Path(self.place, "store")


def small_encoder() -> Encoder:
    torch.manual_seed(0)
    return PoseEncoder(hidden=(8,), dimension=8).eval()


def fill(size: Size) -> Measured:
    """Embed a corpus of small files with drawn embeddings."""
    for action in range(ACTIONS):
        (size.corpus / f"action{action}").mkdir(parents=True, exist_ok=True)
    for number in range(size.videos):
        (size.corpus / f"action{number % ACTIONS}" / f"{number:07d}.mp4").write_bytes(b"%d" % number)
    began = time.process_time()
    assert bring_up_to_date(size).done == size.videos
    taken = time.process_time() - began
    return {"seconds": taken, "disk": sum(file.stat().st_size for file in (size.store / "shards").iterdir())}


def again(size: Size) -> Measured:
    """Embed the same corpus a second time, when everything is up to date."""
    began = time.process_time()
    assert bring_up_to_date(size).kept == size.videos
    return {"seconds": time.process_time() - began}


def bring_up_to_date(size: Size) -> EmbeddedCorpus:
    engine = Drawing(size.frames)
    return embed_corpus(size.corpus, size.store, model=small_encoder(), engine=engine, shard_bytes=size.merged)


def search(size: Size, *, exact: int) -> Measured:
    """Find the ten nearest moments, exhaustively or by an index, after building it."""
    with EmbeddingStore(size.store) as store:
        began = time.process_time()
        index = Index(store, exact=exact, sample=size.sample)
        built = time.process_time() - began
        query = drawn(ListedVideo("query", "", "action3"), frames=size.frames).values[size.frames // 2]
        find_moments(store, index, query)
        began = time.process_time()
        for _ in range(3):
            hits = find_moments(store, index, query)
        taken = (time.process_time() - began) / 3
        assert len(hits) == 10
        found = {"seconds": taken, "build": built, "recall": index.method.recall}
        if index.method.lists:
            found["disk"] = sum(file.stat().st_size for file in (size.store / "index").iterdir())
        return found


def align(size: Size) -> Measured:
    """Align all videos of an action with a reference, and pairs of at most `most`."""
    # Compiled once per installation, not once per corpus.
    list(match_many([(np.eye(3, dtype=np.float32), np.eye(3, dtype=np.float32))]))
    began = time.process_time()
    with EmbeddingStore(size.store) as store:
        place = Path(size.place, "aligned")
        compared = align_action(
            store, "action3", place, engine=Threads(workers=1, device="cpu"), max_compared=size.most
        )
    taken = time.process_time() - began
    write_page(compared, size.store, place)
    return {"seconds": taken, "pairs": compared.pairs}


STAGES: dict[str, Callable[[Size], Measured]] = {
    "embed": fill,
    "embed again": again,
    "search, all compared": partial(search, exact=10**12),
    "search, index": partial(search, exact=0),
    "align-all": align,
}


def measure(size: Size) -> dict[str, Measured]:
    """Run the stages in a separate process; memory is its peak during each stage, in MB."""
    command = [sys.executable, "-m", "benchmarks.scale", "stages", json.dumps(asdict(size))]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found: dict[str, Measured] = json.loads(done.stdout.splitlines()[-1])
    return found


def run_stages(size: Size) -> dict[str, Measured]:
    torch.set_num_threads(1)
    names = size.stages or tuple(STAGES)
    with tempfile.TemporaryDirectory() as place:
        # Warm up: one-time work, such as loading libraries, is not part of the growth.
        for name in names:
            STAGES[name](replace(size, place=place, videos=ACTIONS))
    found = {}
    for name in names:
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak
        found[name] = STAGES[name](size)
        found[name]["memory"] = peak()
    return found


def peak() -> float:
    """Return the peak memory of this process since the last reset, in MB."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def slope(sizes: list[int], values: list[float]) -> float:
    """Fit log value = slope · log size + …"""
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-9)), 1)[0])


def growth(most: int) -> None:
    sizes = [10**k for k in range(1, 9) if 10**k <= most]
    found: dict[str, list[Measured]] = {name: [] for name in STAGES}
    for videos in sizes:
        with tempfile.TemporaryDirectory() as place:
            for name, value in measure(Size(place, videos)).items():
                found[name].append(value)
                print(f"# {videos} videos, {name}: {value}", file=sys.stderr, flush=True)
    print(f"\nvideos of {FRAMES} frames × {DIMENSION}; slope over the last three sizes\n")
    print("| | " + " | ".join(f"{size:,}" for size in sizes) + " | slope |")
    print("|---" * (len(sizes) + 2) + "|")
    for name, values in found.items():
        for key, unit, factor in [
            ("seconds", "s", 1.0),
            ("build", "s to build", 1.0),
            ("memory", "MB of memory", 1.0),
            ("disk", "MB on disk", 1e-6),
            ("recall", "recall@10", 1.0),
        ]:
            if key in values[0] and not (key in ("build", "recall") and name == "search, all compared"):
                column = [value[key] * factor for value in values]
                tail = "" if key == "recall" else f"{slope(sizes[-3:], column[-3:]):.2f}"
                print(f"| {name}, {unit} | " + " | ".join(f"{each:,.3g}" for each in column) + f" | {tail} |")
    pairs()


def pairs() -> None:
    """Measure the growth of all pairs of one action with videos and with frames."""
    print("\nall pairs of an action on one core\n\n| videos | frames | pairs | seconds | pairs/s | MB of memory |")
    print("|---" * 6 + "|")
    rows: list[tuple[int, int, Measured]] = []
    for videos, frames in [(25, 50), (50, 50), (100, 50), (50, 25), (50, 100), (50, 200)]:
        with tempfile.TemporaryDirectory() as place:
            size = Size(place, videos * ACTIONS, frames, stages=("embed", "align-all"))
            rows.append((videos, frames, measure(size)["align-all"]))
    for videos, frames, value in rows:
        taken = value["seconds"]
        cells = [f"{value['pairs']:,.0f}", f"{taken:.2f}", f"{value['pairs'] / taken:,.0f}", f"{value['memory']:.0f}"]
        print(f"| {videos} | {frames} | " + " | ".join(cells) + " |")
    by_videos = slope([r[0] for r in rows[:3]], [r[2]["seconds"] for r in rows[:3]])
    longer = [rows[3], rows[1], rows[4], rows[5]]
    by_frames = slope([r[1] for r in longer], [r[2]["seconds"] for r in longer])
    print(f"\nslope with videos {by_videos:.2f}, with frames {by_frames:.2f}")


def overlap() -> None:
    """Measure decoding and the network alone, in sequence, and in parallel as in `embed_video`.

    Where network and codec share a core, parallel work gains little. A GPU leaves the core to the codec: a device that
    takes as long per frame as decoding simulates one, so that parallel work should take half the time.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    sizes = {"size": (112, 112), "convolutions": (128,), "hidden": (128,)}
    encoder = ImageEncoder(context=(0,), mode="scratch", weights=None, **sizes).eval()  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as place:
        stage_videos.write(Path(place), split="train", actions=("squat",), videos=3, size=256)
        files = sorted(Path(place).rglob("*.mp4"))

        def decoded(file: Path) -> Iterator[Clip]:
            return stream_clips(file, length=CLIP_FRAMES, size=(112, 112))

        def decode() -> int:
            return sum(len(clip) for file in files for clip in decoded(file))

        def wait(clips: Iterable[Clip]) -> int:
            done = 0
            for clip in clips:
                time.sleep(len(clip) * a_frame)
                done += len(clip)
            return done

        frames = decode()
        a_frame = min(timed(decode) for _ in range(3)) / frames
        clips = [list(decoded(file)) for file in files]
        ways: dict[str, Callable[[], object]] = {
            "decoding alone": decode,
            "a device as fast, alone": lambda: [wait(each) for each in clips],
            "the device after decoding": lambda: [wait(list(decoded(file))) for file in files],
            "the device beside decoding": lambda: [
                wait(decode_ahead(decoded(file), number=CLIPS_AHEAD)) for file in files
            ],
            "network on the core, alone": lambda: [embed(encoder, each) for each in clips],
            "network after decoding": lambda: [embed(encoder, list(decoded(file))) for file in files],
            "network beside decoding": lambda: [embed_video(encoder, file) for file in files],
        }
        print(f"{len(files)} videos, {frames} frames of 256 × 256, embedded at 112 × 112 on one core\n")
        print("| | seconds | frames/s |\n|---|---|---|")
        for name, way in ways.items():
            taken = min(timed(way) for _ in range(3))
            print(f"| {name} | {taken:.2f} | {frames / taken:,.0f} |", flush=True)


def timed(way: Callable[[], object]) -> float:
    began = time.perf_counter()
    way()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["growth", "pairs", "overlap", "soak", "stages"])
    parser.add_argument("size", nargs="?", help="of stages: a Size as JSON")
    parser.add_argument("--most", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--ceiling", type=float, default=CEILING, help="memory limit of the soak test in MB")
    given = parser.parse_args()
    if given.what == "stages":
        print(json.dumps(run_stages(Size(**json.loads(given.size)))))
    elif given.what == "growth":
        growth(given.most)
    elif given.what == "pairs":
        pairs()
    elif given.what == "overlap":
        overlap()
    else:
        print(soak(given.minutes, ceiling=given.ceiling))


if __name__ == "__main__":
    main()
