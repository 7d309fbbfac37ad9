"""`inphase pose3d`: the body in space, from videos of other people doing the same."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from inphase.cli.looking import CacheFolder, view_command
from inphase.data import DATASETS
from inphase.data.frame_source import select_joints
from inphase.data.video import Video, summarise
from inphase.pose.pose import JOINTS13
from inphase.storage.files import atomic_write, require_folder

if TYPE_CHECKING:
    from inphase.apps.pose3d.reconstruct import Reconstruction
    from inphase.apps.pose3d.views import Performance
    from inphase.apps.tracks import NamedVideo
    from inphase.models import Encoder
    from inphase.playback import VideoTrack

Videos = Annotated[
    tyro.conf.Positional[tuple[Path, ...]],
    tyro.conf.arg(metavar="QUERY OTHERS…", help="video files: the query, then others of the same action"),
]
Tell = Callable[[int, int], None]

# Other videos shown beside the query and the body: six tiles in all.
_SHOWN = 4


@dataclass(frozen=True, eq=False)
class _Seen:
    """A video's joints, the size of its picture, and its file where it has one."""

    performance: "Performance"
    size: tuple[int, int]
    recording: "NamedVideo | None" = None


def pose3d(
    videos: Videos = (),
    *,
    out: Path = Path("out/pose3d"),
    model: Path | None = None,
    data: str = "",
    root: Path | None = None,
    action: str = "",
    query: str = "",
    views: int = 20,
    rate: float = 30.0,
    flips: bool = True,
    cache: CacheFolder = None,
) -> None:
    """Reconstruct the body in space at every frame of a video, from other videos of the same action.

    The others are aligned with the query, so that each of its moments is seen by as many cameras as there are videos.
    Give video files, or a collection whose people's joints are known. Writes pose3d.npz, pose3d.png and a playback.

    Args:
        videos: the query, then others of the same action; none where a collection is named.
        out: the folder to write.
        model: a run folder or encoder file that sees poses; what is shipped where there is none.
        data: a collection with keypoints, as penn_action, utd_mhad or stage, instead of files.
        root: the folder the collection lies in.
        action: which of its actions.
        query: the id of the query in it; its first video where there is none.
        views: how many videos to use at most, those that align best; the query counts.
        rate: frames a second where a collection does not say.
        flips: try people of the other hand as mirror images.
        cache: where to keep the poses found in files.
    """
    if bool(videos) == bool(data):
        raise ValueError("name video files (the query, then others) or a collection (--data), one of the two")
    require_folder(out)
    encoder = _encoder(model)
    console = Console()
    with Progress(console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("following people" if videos else "reading poses", total=None)
        tell: Tell = lambda done, total: bar.update(task, completed=done, total=total)  # noqa: E731
        seen = (
            _watch(videos, cache, tell)
            if videos
            else _look_up(data, root, action=action, query=query, rate=rate, tell=tell)
        )
        found, tracks = _reconstruct(encoder, seen, views=views, flips=flips, out=out, bar=bar)
        _write(out, found, seen[0].performance, tracks)
    _report(console, found, out)


def _encoder(model: Path | None) -> "Encoder":
    """Load the encoder that was named, or the one that is shipped."""
    from inphase.models import load_encoder, load_shipped

    encoder = load_shipped("pose") if model is None else load_encoder(model)
    if encoder.modality != "pose" or tuple(encoder.config["joints"]) != JOINTS13:
        raise ValueError(
            f"{model or 'it'} does not see poses in the 13 joints of PennAction: name an encoder that does"
        )
    return encoder


def _watch(files: tuple[Path, ...], cache: Path | None, tell: Tell) -> list[_Seen]:
    """Follow the person in each video file; others than the query that cannot be followed are named and left out."""
    from inphase.apps.pose3d.views import FEWEST, Performance
    from inphase.apps.tracks import open_recordings
    from inphase.models.embed_videos import estimate_poses
    from inphase.storage.cache import Cache, default_cache_folder
    from inphase.storage.errors import MediaError

    if len(files) < FEWEST:
        raise ValueError(f"depth needs {FEWEST} videos or more, the query's among them; got {len(files)}")
    done: dict[int, int] = {}

    def progress(number: int, frame: int, total: int) -> None:
        done[number] = 100 * frame // total
        tell(sum(done.values()), 100 * len(files))

    poses, failed = estimate_poses(files, cache=Cache(cache or default_cache_folder()), progress=progress)
    if files[0] in failed:
        raise MediaError(failed[files[0]])
    for reason in failed.values():
        Console(stderr=True).print(f"[yellow]left out: {escape(reason)}[/yellow]")
    if len(poses) < FEWEST:
        raise ValueError(f"depth needs {FEWEST} videos or more that show a person; {len(poses)} of {len(files)} do")
    seen = []
    for recording, pose in zip(open_recordings(list(poses)), poses.values(), strict=True):
        points, visible = pose.joints13()
        joints = Performance(recording.name, points.astype(np.float64), visible, pose.times, JOINTS13)
        seen.append(_Seen(joints, pose.size, recording))
    return seen


def _look_up(data: str, root: Path | None, *, action: str, query: str, rate: float, tell: Tell) -> list[_Seen]:
    """Find the videos of an action in a collection, the query first."""
    if data not in DATASETS:
        raise ValueError(f"no collection {data!r}: choose one of {', '.join(DATASETS)}")
    if not (action or query):
        raise ValueError("name an --action of the collection, or the id of a --query")
    if root is None and data != "stage":
        raise ValueError(f"{data} is read from a folder: name it with --root")
    load = DATASETS[data]
    # Those that can list one action do not read or draw the rest.
    options: dict[str, Any] = {"actions": (action,)} if action and "actions" in signature(load).parameters else {}
    found = load(root, split="all", **options)
    videos = [video for video in found if video.keypoints is not None and action in ("", video.action)]
    if not videos:
        raise ValueError(f"{data} has no videos with keypoints of action {action!r}: choose a collection that has")
    chosen = [video for video in videos if query in ("", video.id)]
    if not chosen:
        raise ValueError(f"no video {query!r} there: it has {summarise(sorted(video.id for video in videos))}")
    others = [video for video in videos if video is not chosen[0] and video.action == chosen[0].action]
    tell(1, 1)
    return [_labelled(video, rate=rate) for video in (chosen[0], *others)]


def _labelled(video: Video, *, rate: float) -> _Seen:
    """Take a video's joints from its labels."""
    from inphase.apps.pose3d.views import Performance

    known = select_joints(video)
    assert known.keypoints is not None
    seen = np.ones(known.keypoints.shape[:2], np.bool_) if known.visibility is None else known.visibility
    times = np.arange(len(known.keypoints)) / (known.rate or rate)
    size = known.size or tuple(int(reach) + 1 for reach in known.keypoints[seen].max(0)[::-1])
    return _Seen(Performance(known.id, known.keypoints.astype(np.float64), seen, times, JOINTS13), (size[0], size[1]))


def _reconstruct(
    encoder: "Encoder", seen: list[_Seen], *, views: int, flips: bool, out: Path, bar: Progress
) -> tuple["Reconstruction", list["VideoTrack"]]:
    """Align the others with the first, reconstruct, and describe what is shown beside the body."""
    from inphase.apps.pose3d.reconstruct import reconstruct
    from inphase.apps.pose3d.reconstruction_files import make_track
    from inphase.apps.pose3d.views import choose_partners, gather

    query, others = seen[0], seen[1:]
    aligning, solving = (bar.add_task(doing, total=None) for doing in ("aligning", "reconstructing"))
    partners = choose_partners(
        encoder,
        query.performance,
        [other.performance for other in others],
        count=views - 1,
        progress=lambda done, total: bar.update(aligning, completed=done, total=total),
    )
    chosen = [others[partner.index] for partner in partners]
    gathered = gather(query.performance, [other.performance for other in chosen], [one.seconds for one in partners])
    found = reconstruct(
        gathered, flips=flips, progress=lambda part: bar.update(solving, completed=100 * part, total=100)
    )
    tracks = [make_track(query.performance, size=query.size, media=_media(out, query))]
    for index in np.argsort(-found.trust[1:].mean(1))[:_SHOWN].tolist():
        other, seconds = chosen[index], partners[index].seconds
        media = _media(out, other)
        tracks.append(
            make_track(other.performance, size=other.size, media=media, query=query.performance, seconds=seconds)
        )
    return found, tracks


def _media(out: Path, seen: _Seen) -> str | None:
    """Bring a video's file to the playback."""
    from inphase.apps.tracks import add_video_file

    return None if seen.recording is None else add_video_file(out, seen.recording)


def _write(out: Path, found: "Reconstruction", query: "Performance", tracks: list["VideoTrack"]) -> None:
    """Write the numbers, the picture and the playback."""
    from inphase.apps.pose3d.reconstruction_files import draw_reconstruction, make_playback, write_reconstruction
    from inphase.playback import write_playback

    out.mkdir(parents=True, exist_ok=True)
    write_reconstruction(out / "pose3d.npz", found)
    with atomic_write(out / "pose3d.png") as part:
        draw_reconstruction(found, query).save(part)
    write_playback(out, make_playback(f"{query.name} in space", found, tracks))


def _report(console: Console, found: "Reconstruction", out: Path) -> None:
    """Say how many views there were, which of them did not count, and how well the rest agree."""
    used = found.views
    console.print(
        f"{len(found.times):,} moments of {escape(found.names[0])}, {len(found.names)} views: each moment used "
        f"{used.min()} to {used.max()} of them (median {np.median(used):.0f}); they agree to "
        f"{np.nanmedian(found.error):.2f} torso lengths (median over joints)"
    )
    from inphase.apps.pose3d.reconstruct import COUNTS, NARROW, UNEXPLAINED

    ignored = [name for name, trust in zip(found.names, found.trust.mean(1), strict=True) if trust < COUNTS]
    mirrored = [name for name, flip in zip(found.names, found.flipped, strict=True) if flip]
    if ignored:
        console.print(f"[yellow]hardly used, since they disagree with the rest:[/yellow] {escape(summarise(ignored))}")
    if mirrored:
        console.print(f"taken as mirror images: {escape(summarise(mirrored))}")
    if np.nanmedian(found.error) > UNEXPLAINED:
        console.print(
            "[yellow]the videos do not agree on one body: use others of the same action, seen larger[/yellow]"
        )
    if found.spread < NARROW:
        console.print(
            f"[yellow]the cameras look along nearly the same line ({found.spread:.0f}° apart): depth is little more "
            "than a guess from the usual proportions of a body; add videos from other sides[/yellow]"
        )
    if used.min() < 3:
        console.print("[yellow]some moments have fewer than 3 views that agree: do not rely on their depth[/yellow]")
    written = f"pose3d.npz, pose3d.png and the playback are in {escape(str(out))}"
    console.print(f"{written}: {view_command(out)}", soft_wrap=True)
