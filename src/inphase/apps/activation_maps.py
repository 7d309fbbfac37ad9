"""Activation maps of an image encoder, laid over the frames: the supplement's variant of class activation maps.

The maps of the embedder's last convolution are averaged over channels, scaled to [0, 1] in each frame, enlarged and
laid over the frame. The embedder convolves over time as well; the map shown is the one at the frame itself, if the
frame is in its own context, otherwise the one at the first frame of the context, as in the released code. For a motion
encoder the map shows how much each cell of its grid contributes to the first layer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from inphase.apps.alignment_files import add_video_file, make_track
from inphase.media.frames import decode_ahead, stream_clips
from inphase.media.recording import NamedVideo, open_recordings
from inphase.media.render import follow_sound, play_file, write_mp4
from inphase.media.sampling import shown_at
from inphase.models import load_encoder
from inphase.models.embedding import Embedding, embed
from inphase.models.encoder import Encoder, Modality
from inphase.models.image_encoder import ImageEncoder
from inphase.models.motion_encoder import MotionEncoder
from inphase.playback import Playback, write_playback
from inphase.progress import Progress, Summary, ignore_progress, stage_progress
from inphase.storage.files import refuse_overwrite, require_folder

# Colors from low to high activation: black, violet, red, orange, pale yellow.
HEAT_COLORS = np.array([(0, 0, 0), (80, 18, 123), (203, 45, 62), (251, 155, 6), (252, 255, 164)], np.float64)
# Opacity of the highest activation.
MAX_OPACITY = 0.65
MAX_FPS = 60.0
# Frames embedded together, and clips decoded ahead of the network.
BATCH_FRAMES, CLIPS_AHEAD = 16, 4


@dataclass(frozen=True, eq=False)
class ActivationMaps:
    """Activation maps of a video: `maps` [T, h · w] on the times of its frames, with the `grid` (h, w).

    `height` is the height of the written videos in pixels.
    """

    recording: NamedVideo
    maps: Embedding
    grid: tuple[int, int]
    height: int = 360

    def write(self, folder: Path | str, *, progress: Progress | None = None) -> list[Path]:
        """Write activations.mp4 and a playback whose overlay the viewer can fade; return their paths."""
        out, report = Path(folder), progress or ignore_progress
        require_folder(out)
        file = out / "activations.mp4"
        refuse_overwrite([self.recording.path], [file])
        media = add_video_file(out, self.recording, progress=report)
        properties = self.recording.properties
        rate = min(properties.fps, MAX_FPS)
        ticks = np.arange(max(1, round(properties.duration * rate))) / rate
        heat = _scale(self.maps.values)[shown_at(self.maps.times, ticks)].reshape(-1, *self.grid)
        size = (self.height, max(2, round(self.height * properties.size[1] / properties.size[0])))

        def overlaid() -> Iterator[NDArray[np.uint8]]:
            frames = zip(play_file(self.recording.path, size, ticks), heat, strict=True)
            for number, (image, values) in enumerate(frames, start=1):
                yield overlay(image, enlarge(values, size))
                report(f"rendering {file.name}", number, len(ticks))

        path = self.recording.path
        sound = follow_sound(path, lambda seconds: seconds, fps=rate) if properties.has_sound else None
        write_mp4(file, overlaid(), fps=rate, sound=sound)
        layer = f"{Path(media).stem}-heat.mp4"
        write_mp4(out / layer, (color_heat(enlarge(values, size)) for values in heat), fps=rate)
        track = make_track(self.recording, media).replace(overlay=layer)
        title = f"activation maps of {self.recording.name}"
        return [file, write_playback(out, Playback(title, tracks=(track,)))]

    def summary(self) -> Summary:
        """Return the number of frames and cells."""
        return Summary(
            [f"{len(self.maps):,} frames of {self.recording.name}, {self.grid[0]} × {self.grid[1]} cells each"]
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the maps, unscaled, as JSON-ready values: for every frame its second and h · w numbers."""
        return {
            "video": str(self.recording.path),
            "grid": list(self.grid),
            "times": self.maps.times.tolist(),
            "maps": self.maps.values.tolist(),
        }


def activation_maps(
    video: Path | str, model: Path | str | Encoder, *, height: int = 360, progress: Progress | None = None
) -> ActivationMaps:
    """Compute the activation maps of an image or motion encoder at every frame of a video.

    `model` is a run folder, an encoder file or an `Encoder`. Memory: a few images and the maps, a few hundred numbers a
    frame.
    """
    if height < 2:
        raise ValueError(f"height must be at least 2 pixels, got {height}")
    encoder = model if isinstance(model, Encoder) else load_encoder(model)
    maps_of = HeatMaps(encoder)
    (recording,) = open_recordings([video])
    size = (encoder.shape[0], encoder.shape[1])
    clips = decode_ahead(stream_clips(recording.path, length=BATCH_FRAMES, size=size), number=CLIPS_AHEAD)
    report, total = stage_progress(progress, f"embedding {recording.path.name}"), recording.properties.frames
    maps = embed(maps_of, clips, batch=BATCH_FRAMES, progress=lambda done: report(done, total))
    return ActivationMaps(recording, maps, maps_of.grid, height)


class HeatMaps(Encoder):
    """Return an image encoder's activation maps, flattened, in place of its embeddings."""

    modality: ClassVar[Modality] = "image"

    def __init__(self, encoder: Encoder) -> None:
        """Take over the context of the encoder; raise if it has no maps."""
        if not isinstance(encoder, ImageEncoder | MotionEncoder):
            raise ValueError(
                f"this model embeds {encoder.modality} and has no activation maps: choose an image or motion encoder"
            )
        context = encoder.context
        super().__init__(context=context.offsets, edges=context.edges, rate=encoder.rate)
        self.shape, self.head, self._encoder = encoder.shape, encoder.head, encoder
        self._slot = context.offsets.index(0) if 0 in context.offsets else 0
        self.train(encoder.training)
        self.grid = (0, 0)  # height and width of a map, set by the first call of `combine`

    def prepare(self, frames: Tensor) -> Tensor:
        """Prepare images as the encoder does."""
        return self._encoder.prepare(frames)

    def features(self, frames: Tensor) -> Tensor:
        """Compute the encoder's features."""
        return self._encoder.features(frames)

    def combine(self, features: Tensor) -> Tensor:
        """Compute the maps of frames with their context, [N, C, K, h, w] → [N, h · w]."""
        maps = self._encoder.heat_maps(features)[:, self._slot]
        self.grid = (maps.shape[1], maps.shape[2])
        return maps.flatten(1)


def _scale(maps: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale every map [T, h · w] to [0, 1]; a constant map becomes 0."""
    low, high = maps.min(1, keepdims=True), maps.max(1, keepdims=True)
    return np.asarray((maps - low) / np.maximum(high - low, 1e-12), dtype=np.float32)


def enlarge(heat: NDArray[np.float32], size: tuple[int, int]) -> NDArray[np.float32]:
    """Enlarge a map [h, w] to the (height, width) of an image, bilinearly."""
    image = Image.fromarray(np.ascontiguousarray(heat, np.float32))
    return np.asarray(image.resize(size[::-1], Image.Resampling.BILINEAR), dtype=np.float32)


def color_heat(heat: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Map activations from 0 to 1 to colors on black, [...] → [..., 3]."""
    places = heat * (len(HEAT_COLORS) - 1)
    channels = [np.interp(places, np.arange(len(HEAT_COLORS)), channel) for channel in HEAT_COLORS.T]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


def overlay(image: NDArray[np.uint8], heat: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Blend activations [H, W] over an image [H, W, 3]; opacity grows with the activation."""
    opacity = MAX_OPACITY * heat[..., None]
    return np.asarray((image * (1 - opacity) + color_heat(heat) * opacity).round(), dtype=np.uint8)
