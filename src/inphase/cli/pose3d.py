"""`inphase pose3d`: reconstruct the body in 3-D from several people's videos of the same action."""

from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.markup import escape

from inphase.cli.bars import show_progress
from inphase.cli.options import CacheFolder, view_command
from inphase.storage.files import require_folder

Videos = Annotated[
    tyro.conf.Positional[tuple[Path, ...]],
    tyro.conf.arg(metavar="QUERY OTHERS…", help="video files: the query, then others of the same action"),
]


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
    fps: float = 30.0,
    flips: bool = True,
    cache: CacheFolder = None,
) -> None:
    """Reconstruct the body in 3-D at every frame of a video, from other videos of the same action.

    Give video files, or a data set with keypoints. Writes pose3d.npz, pose3d.png and a playback.

    Args:
        videos: the query, then others of the same action; none with --data.
        out: the folder to write.
        model: a run folder or encoder file of poses; the shipped one by default.
        data: a data set with keypoints (penn_action, utd_mhad, stage) instead of files.
        root: the folder of the data set.
        action: the action of the data set.
        query: the id of the query in the data set; its first video by default.
        views: use at most this many videos, the query included: those that align best.
        fps: frames per second of a data set that does not state it.
        flips: try people of the other hand as mirror images.
        cache: the folder of cached poses.
    """
    from inphase.apps.pose3d.reconstruct_pose import reconstruct_pose

    require_folder(out)
    with show_progress() as progress:
        found = reconstruct_pose(
            videos,
            model=model,
            data=data,
            root=root,
            action=action,
            query=query,
            max_views=views,
            fps=fps,
            flips=flips,
            cache=cache,
            progress=progress,
        )
        found.write(out, progress=progress)
    console, errors = Console(), Console(stderr=True)
    for reason in found.left_out.values():
        errors.print(f"[yellow]left out: {escape(reason)}[/yellow]")
    result = found.to_dict()
    used = result["views_per_frame"]
    console.print(
        f"{len(used):,} frames of {escape(result['query'])} from {len(result['views'])} views, {min(used)} to "
        f"{max(used)} of them at each frame; median error {result['median_error']:.2f} torso lengths"
    )
    if result["mirrored"]:
        console.print(f"used as mirror images: {escape(', '.join(result['mirrored']))}")
    for sentence in result["warnings"]:
        console.print(f"[yellow]{escape(sentence)}[/yellow]")
    console.print(
        f"pose3d.npz, pose3d.png and the playback are in {escape(str(out))}: {view_command(out)}", soft_wrap=True
    )
