"""`inphase activations`: what a network looks at."""

from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.markup import escape

from inphase.cli.looking import Out, bars, task_of, view_command
from inphase.storage.files import refuse_overwrite, require_folder


def activations(
    video: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="VIDEO", help="a video file")],
    *,
    model: Annotated[Path, tyro.conf.arg(metavar="RUN", help="a run folder or an encoder's file, of pictures")],
    out: Out,
    height: int = 360,
) -> None:
    """Show where in the frames of a video a network that sees pictures finds what it aligns by.

    Writes activations.mp4, the heat laid over the frames, and a playback in which it can be shown and hidden.

    Args:
        video: what to look at.
        model: the network.
        out: where to write.
        height: of the pictures, in pixels.
    """
    from inphase.apps.activation_maps import heat_of, write_heat
    from inphase.apps.tracks import open_recordings
    from inphase.models import load_encoder
    from inphase.playback import write_playback

    require_folder(out)
    refuse_overwrite([video], [out / "activations.mp4"])
    encoder = load_encoder(model)
    (recording,) = open_recordings([video])
    with bars() as bar:
        maps, grid = heat_of(encoder, recording, progress=task_of(bar, f"looking at {video.name}"))
        playback = write_heat(out, recording, maps, grid, height=height, progress=task_of(bar, "drawing"))
    write_playback(out, playback)
    Console().print(f"watch {escape(str(out / 'activations.mp4'))}, or: {view_command(out)}", soft_wrap=True)
