"""Commands for one's own videos: align."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from inphase.cli.bars import show_progress
from inphase.cli.options import (
    CacheFolder,
    Fps,
    Json,
    Modality,
    Model,
    Out,
    RequiredModel,
    Video,
    Videos,
    print_json,
    print_line,
    print_table,
    view_command,
)
from inphase.storage.files import require_folder


def align(
    videos: Videos,
    *,
    out: Out = Path("out/align"),
    model: Model = None,
    modality: Modality = "auto",
    reference: str = "",
    subsequence: bool = False,
    smooth: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = 0.0,
    slow: float = 1.0,
    cost: Literal["contrastive", "cosine"] = "contrastive",
    fps: Fps = None,
    height: int = 360,
    cache: CacheFolder = None,
    json: Json = False,
) -> None:
    """Align two to nine videos of the same action and write them side by side, synchronized.

    Writes aligned.mp4, path.csv, alignment.png and playback.json (see `inphase view`).

    Args:
        reference: the video whose clock counts: its number, its name, or `medoid` for the one nearest to all others; by
            default the first, with --subsequence the shortest.
        subsequence: locate the reference, a short action, inside the others.
        smooth: remove changes of speed that last less than so many seconds; 0 keeps every step of the alignment.
        slow: slow-motion factor of aligned.mp4.
        cost: the cost of matching two frames.
        height: height of each video in aligned.mp4, in pixels.
    """
    from inphase.apps.align_videos import align_videos

    require_folder(out)
    with show_progress() as progress:
        aligned = align_videos(
            videos,
            model=model,
            modality=modality,
            reference=reference,
            subsequence=subsequence,
            smooth=smooth,
            slow=slow,
            cost=cost,
            fps=fps,
            height=height,
            cache=cache,
            progress=progress,
        )
        aligned.write(out, progress=progress)
    if json:
        return print_json(aligned)
    print_line(aligned.why)
    rows = []
    for k, (each, found) in enumerate(zip(aligned.recordings, aligned.alignments, strict=True)):
        if k != aligned.reference:
            span = f"{aligned.seconds[0, k]:.2f}", f"{aligned.seconds[-1, k]:.2f}"
            rows.append((each.name, f"{each.properties.duration:.2f}", *span, f"{found.distance:.3f}"))
    title = f"aligned with {aligned.recordings[aligned.reference].name}"
    print_table(title, ("video", ">seconds", ">from", ">to", ">distance"), rows)
    print_line(f"watch {out / 'aligned.mp4'}, or: {view_command(out)}")
    return None


def activations(
    video: Video, *, model: RequiredModel, out: Out = Path("out/activations"), height: int = 360, json: Json = False
) -> None:
    """Show which parts of the frames an image encoder responds to.

    Writes activations.mp4, the activation maps laid over the frames, and a playback in which they can be faded.

    Args:
        height: height of the video in pixels.
    """
    from inphase.apps.activation_maps import activation_maps

    require_folder(out)
    with show_progress() as progress:
        maps = activation_maps(video, model, height=height, progress=progress)
        maps.write(out, progress=progress)
    if json:
        return print_json(maps)
    return print_line(f"watch {out / 'activations.mp4'}, or: {view_command(out)}")
