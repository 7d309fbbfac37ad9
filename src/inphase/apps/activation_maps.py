"""What an encoder of pictures looks at: the supplement's variant of class activation maps.

The maps of the embedder's last convolution are averaged over channels, scaled to between 0 and 1 in each frame,
enlarged and laid over the frame. The embedder convolves over time as well; shown is the map at the frame itself, where
it is in its own context, and at the first frame of the context otherwise, as the released code does. Of an encoder of
motion it is how much each cell of its grid moves the first layer.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from inphase.apps.tracks import NamedVideo, add_video_file, make_track
from inphase.media.encode import write_mp4
from inphase.media.frames import shown_at, stream_clips
from inphase.media.render import follow_sound, play_file
from inphase.models.embed_videos import decode_ahead
from inphase.models.embedding import Embedding, embed
from inphase.models.encoder import Encoder, Modality
from inphase.models.image_encoder import ImageEncoder
from inphase.models.motion_encoder import MotionEncoder
from inphase.playback import Playback

# From nothing to much: transparent black, violet, red, orange, pale yellow.
COLOURS = np.array([(0, 0, 0), (80, 18, 123), (203, 45, 62), (251, 155, 6), (252, 255, 164)], np.float64)
# How much of a frame the strongest heat hides.
OPACITY = 0.65
# Of the videos that are written; and frames looked at together.
HEIGHT, RATE, LENGTH = 360, 60.0, 16

Tell = Callable[[int, int], None]  # frames done, frames there are


class HeatMaps(Encoder):
    """See a recording as an encoder of pictures does, and give its heat maps, flattened, in place of vectors."""

    modality: ClassVar[Modality] = "image"

    def __init__(self, encoder: Encoder) -> None:
        """Take over what the encoder sees; refuse one that sees no pictures."""
        if not isinstance(encoder, ImageEncoder | MotionEncoder):
            raise ValueError(
                f"this model sees {encoder.modality} and has no maps to show: name one that sees pictures with --model"
            )
        context = encoder.context
        super().__init__(context=context.offsets, edges=context.edges, rate=encoder.rate)
        self.shape, self.head, self._encoder = encoder.shape, encoder.head, encoder
        self._slot = context.offsets.index(0) if 0 in context.offsets else 0
        self.train(encoder.training)
        self.grid = (0, 0)  # height and width of a map, known once one was made

    def prepare(self, frames: Tensor) -> Tensor:
        """Prepare pictures as the encoder does."""
        return self._encoder.prepare(frames)

    def features(self, frames: Tensor) -> Tensor:
        """Look at pictures as the encoder does."""
        return self._encoder.features(frames)

    def combine(self, features: Tensor) -> Tensor:
        """Give the maps of frames with their context, [N, C, K, h, w] → [N, h · w]."""
        maps = self._encoder.heat_maps(features)[:, self._slot]
        self.grid = (maps.shape[1], maps.shape[2])
        return maps.flatten(1)


def heat_of(
    encoder: Encoder, recording: NamedVideo, *, progress: Tell | None = None
) -> tuple[Embedding, tuple[int, int]]:
    """Compute the heat maps of a recording, [T, h · w] on the clock of its frames, and their (h, w).

    In memory for a few pictures and the maps, a few hundred numbers a frame.
    """
    eye = HeatMaps(encoder)
    height, width = encoder.shape[:2]
    clips = decode_ahead(stream_clips(recording.path, length=LENGTH, size=(height, width)), number=4)
    tell = None if progress is None else lambda done: progress(done, recording.properties.frames)
    maps = embed(eye, clips, batch=LENGTH, progress=tell)
    return maps, eye.grid


def write_heat(
    folder: Path,
    recording: NamedVideo,
    maps: Embedding,
    grid: tuple[int, int],
    *,
    height: int = HEIGHT,
    progress: Tell | None = None,
) -> Playback:
    """Write `activations.mp4`, the maps laid over the frames, and a playback that can show and hide them."""
    media = add_video_file(folder, recording)
    known = recording.properties
    rate = min(known.rate, RATE)
    ticks = np.arange(max(1, round(known.duration * rate))) / rate
    heat = _scaled(maps.values)[shown_at(maps.times, ticks)].reshape(-1, *grid)
    size = (height, max(2, round(height * known.size[1] / known.size[0])))

    def overlaid() -> Iterator[NDArray[np.uint8]]:
        for number, (picture, hot) in enumerate(
            zip(play_file(recording.path, size, ticks), heat, strict=True), start=1
        ):
            yield overlay(picture, enlarged(hot, size))
            if progress is not None:
                progress(number, len(ticks))

    sound = follow_sound(recording.path, lambda seconds: seconds, rate=rate) if known.has_sound else None
    write_mp4(folder / "activations.mp4", overlaid(), rate=rate, sound=sound)
    alone = f"{Path(media).stem}-heat.mp4"
    write_mp4(folder / alone, (coloured(enlarged(hot, size)) for hot in heat), rate=rate)
    track = make_track(recording, media).replace(overlay=alone)
    return Playback(f"what a network looks at in {recording.name}", tracks=(track,))


def _scaled(maps: NDArray[np.float32]) -> NDArray[np.float32]:
    """Bring every map [T, h · w] to between 0 and 1; one that is the same everywhere to 0."""
    low, high = maps.min(1, keepdims=True), maps.max(1, keepdims=True)
    return np.asarray((maps - low) / np.maximum(high - low, 1e-12), dtype=np.float32)


def enlarged(heat: NDArray[np.float32], size: tuple[int, int]) -> NDArray[np.float32]:
    """Enlarge a map [h, w] to the (height, width) of a picture, bilinearly."""
    picture = Image.fromarray(np.ascontiguousarray(heat, np.float32))
    return np.asarray(picture.resize(size[::-1], Image.Resampling.BILINEAR), dtype=np.float32)


def coloured(heat: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Turn heat from 0 to 1 into colours on black, [...] → [..., 3]."""
    places = heat * (len(COLOURS) - 1)
    channels = [np.interp(places, np.arange(len(COLOURS)), channel) for channel in COLOURS.T]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


def overlay(picture: NDArray[np.uint8], heat: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Lay heat [H, W] over a picture [H, W, 3], the more opaque the hotter."""
    opacity = OPACITY * heat[..., None]
    return np.asarray((picture * (1 - opacity) + coloured(heat) * opacity).round(), dtype=np.uint8)
