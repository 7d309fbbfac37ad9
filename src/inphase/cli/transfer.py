"""`inphase transfer`: labels of one video carried to others."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    task_of,
    view_command,
)
from inphase.storage.files import atomic_write, refuse_overwrite, require_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inphase.apps.labels import Labels
    from inphase.apps.tracks import NamedVideo
    from inphase.models.embedding import Embedding

# A playback shows nine tracks: the labelled one and as many others.
MOST = 8


def transfer(
    labelled: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="LABELLED", help="a video with labels")],
    labels: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="LABELS.csv", help="its labels")],
    targets: Videos,
    *,
    out: Out,
    model: Model = None,
    rate: Rate = None,
    cache: CacheFolder = None,
) -> None:
    """Carry the labels of one video to others of the same action, with a confidence each.

    The table of labels begins with the line start,end,label (seconds), second,label or frame,label (from 0). For every
    target a table of the same kind is written, and a playback of the first eight of them.

    Args:
        labelled: the video that is labelled.
        labels: its labels.
        targets: the videos to label.
        out: where to write.
        model: what to see them with.
        rate: frames a second to look at.
        cache: where to keep what was seen.
    """
    if not targets:
        raise ValueError("there is no video to carry labels to: name some after the table of labels")
    require_folder(out)
    from inphase.apps.labels import parse_labels, tabulate
    from inphase.apps.tracks import open_recordings
    from inphase.apps.transfer_labels import carry
    from inphase.data.text_files import read_numbered_table
    from inphase.media.frames import open_recording

    recordings = open_recordings([labelled, *targets])
    tables = name_tables(out, [each.name for each in recordings[1:]])
    refuse_overwrite([labels], tables)
    ends = [each.properties.duration for each in recordings]
    times = [open_recording(each.path).times for each in recordings]
    given = parse_labels(read_numbered_table(labels), times=times[0], end=ends[0], source=str(labels))
    seen = look_together([labelled, *targets], model=model, cache=cache, rate=rate).embeddings
    found = [carry(given, seen[0], each, y_end=end) for each, end in zip(seen[1:], ends[1:], strict=True)]
    out.mkdir(parents=True, exist_ok=True)
    for file, clock, carried in zip(tables, times[1:], found, strict=True):
        with atomic_write(file) as part, part.open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows(tabulate(carried, times=clock))
    write_labelled(out, recordings[: 1 + MOST], seen[: 1 + MOST], [given, *found][: 1 + MOST])
    console = Console()
    console.print(summary(recordings[1:], found, expected=len(given.stretches) + len(given.instants)))
    console.print(f"tables and a playback are in {escape(str(out))}: {view_command(out)}", soft_wrap=True)


def name_tables(out: Path, names: "Sequence[str]") -> list[Path]:
    """Name a table for each video, whose names may hold slashes; what would be written over another gets a number."""
    stems: list[str] = []
    for name in names:
        stem = name.replace("/", "_").lstrip(".") or "video"
        free = (f"{stem}{number}" for number in ("", *(f"_{n}" for n in range(2, len(names) + 2))))
        stems.append(next(each for each in free if each not in stems))
    return [out / f"{stem}.csv" for stem in stems]


def write_labelled(
    out: Path, recordings: "list[NamedVideo]", seen: "list[Embedding]", labels: "Sequence[Labels]"
) -> None:
    """Write a playback of labelled videos in step with the first."""
    from inphase.apps.align_videos import make_pairs, make_playback, synchronize
    from inphase.apps.labels import label_track
    from inphase.apps.tracks import add_video_file
    from inphase.playback import write_playback

    with bars() as bar:
        media = [add_video_file(out, each, progress=task_of(bar, f"encoding {each.path.name}")) for each in recordings]
    synchrony = synchronize(seen)
    playback = make_playback(recordings, media, seen, synchrony, pairs=make_pairs(seen, synchrony))
    tracks = tuple(label_track(track, known) for track, known in zip(playback.tracks, labels, strict=True))
    write_playback(out, playback.replace(tracks=tracks, title=f"labels carried from {recordings[0].name}"))


def summary(recordings: "list[NamedVideo]", found: "Sequence[Labels]", *, expected: int) -> Table:
    """Tabulate how sure the labels of every video are."""
    table = Table(title="labels carried", title_justify="left")
    for heading in ("video", "labels", "mean confidence", "least sure"):
        table.add_column(heading, justify="right" if heading in ("labels", "mean confidence") else "left")
    for each, carried in zip(recordings, found, strict=True):
        labels = [(stretch.label, stretch.confidence or 0.0) for stretch in carried.stretches]
        labels += [(moment.label, moment.confidence or 0.0) for moment in carried.instants]
        number = f"{len(labels)}" if len(labels) == expected else f"{len(labels)} of {expected}"
        if not labels:
            table.add_row(escape(each.name), number, "", "")
            continue
        mean, (least, doubt) = sum(sure for _, sure in labels) / len(labels), min(labels, key=lambda label: label[1])
        table.add_row(escape(each.name), number, f"{mean:.2f}", f"{escape(least)} {doubt:.2f}")
    return table
