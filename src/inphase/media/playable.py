"""Files that every browser plays: those that are such already, and the rest encoded anew."""

from collections.abc import Callable
from pathlib import Path

from inphase.media.probe import probe
from inphase.media.render import render

# What Chrome, Firefox and Safari all play, by the name of the container's format.
VIDEO = {"mov,mp4,m4a,3gp,3g2,mj2": {"h264"}, "matroska,webm": {"vp8", "vp9"}}
SOUND = {"mov,mp4,m4a,3gp,3g2,mj2": {"aac", "mp3"}, "matroska,webm": {"opus", "vorbis"}}
ENDINGS = {".mp4": "mov,mp4,m4a,3gp,3g2,mj2", ".m4v": "mov,mp4,m4a,3gp,3g2,mj2", ".webm": "matroska,webm"}
PIXELS = {"yuv420p", "yuvj420p"}
# Larger pictures and faster ones are brought to these: a page plays up to nine files at a time.
HEIGHT, RATE = 1080, 60.0


def is_playable(path: Path | str) -> bool:
    """Tell whether browsers play a file as it is: container, codecs, 8 bits of 4:2:0, upright, its clock at 0."""
    from inphase.media.container import clock_origin, open_container, video_stream
    from inphase.media.decode import decoded
    from inphase.media.picture import orientation

    path = Path(path)
    if path.is_dir() or path.suffix.lower() not in ENDINGS:
        return False
    with open_container(path) as container:
        stream, name = video_stream(container, path), container.format.name
        if name != ENDINGS[path.suffix.lower()] or stream.codec_context.codec.canonical_name not in VIDEO[name]:
            return False
        if stream.codec_context.pix_fmt not in PIXELS or clock_origin(container) != 0:
            return False
        if any(sound.codec_context.codec.canonical_name not in SOUND[name] for sound in container.streams.audio):
            return False
        first = next(decoded(container, stream), None)
        return first is not None and orientation(first) == (False, False, False)


def make_playable(
    source: Path | str, target: Path | str, *, progress: Callable[[int, int], None] | None = None
) -> None:
    """Encode a recording anew as h264 and aac, upright and on the same clock from 0."""
    found = probe(source)
    height = min(found.size[0], HEIGHT)
    rate, sound = min(found.rate, RATE), source if found.has_sound else None
    render(target, [source], height=height + height % 2, rate=rate, sound=sound, progress=progress)
