"""`inphase align`: several videos of the same action, played in step."""

import csv
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from inphase.cli.looking import (
    CacheFolder,
    Model,
    Out,
    Rate,
    Videos,
    bars,
    look_together,
    require_folder,
    spare,
    task_of,
    view_command,
)
from inphase.storage.files import atomic_write

if TYPE_CHECKING:
    from inphase.apps.align_videos import Synchronization
    from inphase.apps.tracks import NamedVideo
    from inphase.models.embedding import Embedding

MOST = 9


def align(
    videos: Videos,
    *,
    out: Out,
    model: Model = None,
    reference: str = "",
    subsequence: bool = False,
    smooth: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = 0.0,
    slow: float = 1.0,
    cost: Literal["contrastive", "cosine"] = "contrastive",
    rate: Rate = None,
    height: int = 360,
    cache: CacheFolder = None,
) -> None:
    """Align videos of the same action and write them side by side, in step.

    Writes playback.json (see `inphase view`), aligned.mp4, path.csv and alignment.png.

    Args:
        videos: the videos, two to nine.
        out: where to write.
        model: what to see them with.
        reference: the video whose clock counts: its number, its name, or `medoid` for the one that goes best with all
            others. The first without it; with --subsequence the shortest.
        subsequence: look for the reference, a short action, inside the others.
        smooth: let no change of speed last less than so many seconds; 0 keeps every step of the alignment.
        slow: play aligned.mp4 so many times slower.
        cost: how frames are compared.
        rate: frames a second to look at.
        height: of each video in aligned.mp4, in pixels.
        cache: where to keep what was seen.
    """
    if not 2 <= len(videos) <= MOST:
        raise ValueError(f"name two to {MOST} videos to align, got {len(videos)}")
    if not 0 <= smooth < inf or not 0 < slow < inf:
        raise ValueError(f"--smooth must not be negative and --slow must be above 0, got {smooth:g} and {slow:g}")
    if height < 2:
        raise ValueError(f"--height must be at least 2 pixels, got {height}")
    require_folder(out)
    spare(videos, [out / "aligned.mp4"])
    from inphase.apps.align_videos import medoid, synchronize
    from inphase.apps.tracks import open_recordings

    recordings = open_recordings(videos)
    named = find_reference(reference, recordings, subsequence=subsequence)
    if subsequence and named is not None:
        require_inside(recordings, named)
    embeddings = look_together(videos, model=model, cache=cache, rate=rate).embeddings
    chosen = medoid(embeddings) if named is None else named
    if subsequence and named is None:
        require_inside(recordings, chosen)
    synchrony = synchronize(embeddings, reference=chosen, cost=cost, subsequence=subsequence, smooth=smooth)
    write_alignment(out, recordings, embeddings, synchrony, cost=cost, slow=slow, height=height)
    console = Console()
    console.print(summary(recordings, synchrony))
    console.print(f"watch {escape(str(out / 'aligned.mp4'))}, or: {view_command(out)}", soft_wrap=True)


def find_reference(wish: str, recordings: "list[NamedVideo]", *, subsequence: bool) -> int | None:
    """Find the video whose clock counts, before any is looked at; none where that will be the medoid."""
    named = [number for number, each in enumerate(recordings) if wish in (each.name, each.path.name, str(each.path))]
    if wish == "medoid":
        return None
    if not wish:
        return min(range(len(recordings)), key=lambda k: recordings[k].properties.duration) if subsequence else 0
    if len(named) == 1:  # first, since names may be numbers, too: 0002.mp4
        return named[0]
    if wish.isdecimal() and 1 <= int(wish) <= len(recordings):
        return int(wish) - 1
    names = ", ".join(each.name for each in recordings)
    raise ValueError(f"--reference {wish}: give a number from 1 to {len(recordings)}, medoid, or one of {names}")


def require_inside(recordings: "list[NamedVideo]", reference: int) -> None:
    """Refuse a video that is looked for inside others and is longer than one of them."""
    lengths = [each.properties.duration for each in recordings]
    if lengths[reference] > min(lengths):
        short = recordings[lengths.index(min(lengths))]
        raise ValueError(
            f"{recordings[reference].path} lasts {lengths[reference]:.1f} s and cannot be found inside {short.path}, "
            f"which lasts {min(lengths):.1f} s: let the short one be the --reference"
        )


def write_alignment(
    out: Path,
    recordings: "list[NamedVideo]",
    embeddings: "list[Embedding]",
    synchrony: "Synchronization",
    *,
    cost: Literal["contrastive", "cosine"],
    slow: float,
    height: int,
) -> None:
    """Write all files of an alignment into a folder."""
    from inphase.apps.align_videos import make_playback, render_aligned
    from inphase.apps.alignment_plot import draw_alignments
    from inphase.apps.tracks import add_video_file
    from inphase.playback import write_playback

    out.mkdir(parents=True, exist_ok=True)
    with bars() as bar:
        media = [add_video_file(out, each, progress=task_of(bar, f"encoding {each.path.name}")) for each in recordings]
        tell = task_of(bar, "rendering")
        render_aligned(out / "aligned.mp4", recordings, synchrony, slow=slow, height=height, progress=tell)
    playback = make_playback(recordings, media, embeddings, synchrony, cost=cost)
    write_path(out / "path.csv", recordings, synchrony)
    with atomic_write(out / "alignment.png") as part:
        draw_alignments(playback.pairs, [each.name for each in recordings]).save(part)
    write_playback(out, playback)


def write_path(file: Path, recordings: "list[NamedVideo]", synchrony: "Synchronization") -> None:
    """Write the second of every video at each frame of the reference, which comes first."""
    order = [synchrony.reference, *(k for k in range(len(recordings)) if k != synchrony.reference)]
    with atomic_write(file) as part, part.open("w", encoding="utf-8", newline="") as stream:
        table = csv.writer(stream)
        table.writerow([recordings[k].name for k in order])
        table.writerows([f"{second:.6f}" for second in row] for row in synchrony.seconds[:, order])


def summary(recordings: "list[NamedVideo]", synchrony: "Synchronization") -> Table:
    """Tabulate how each video goes with the reference."""
    table = Table(title=f"in step with {escape(recordings[synchrony.reference].name)}", title_justify="left")
    for heading in ("video", "seconds", "from", "to", "distance"):
        table.add_column(heading, justify="left" if heading == "video" else "right", overflow="fold")
    for k, each in enumerate(recordings):
        if k == synchrony.reference:
            continue
        first, last = synchrony.seconds[0, k], synchrony.seconds[-1, k]
        distance = f"{synchrony.matches[k].distance:.3f}"
        table.add_row(escape(each.name), f"{each.properties.duration:.2f}", f"{first:.2f}", f"{last:.2f}", distance)
    return table
