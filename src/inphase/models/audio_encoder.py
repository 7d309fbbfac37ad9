"""The audio encoder, in the shape of VGGish (Hershey et al., 2017): patches of 0.96 s in, unit vectors out."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from inphase.media.audio import BANDS, PATCH, Sound, log_mel_windows
from inphase.media.sampling import Edges
from inphase.models.embedding import Embedding, embed
from inphase.models.encoder import Encoder, Modality, glorot_uniform, unit
from inphase.storage.files import check_own_weights
from inphase.storage.settings import Offsets, Width, Widths

# Length of the windows of sound and the distance between them, in seconds; windows in a forward pass.
WINDOW_SECONDS, HOP_SECONDS, WINDOWS = 1.0, 0.1, 64
# Channels of VGGish's 3×3 convolutions, a 2×2 maximum after each group.
VGGISH = ((64,), (128,), (256, 256), (512, 512))


class AudioEncoder(Encoder):
    """Embed log-mel patches [B, T, C, 96, 64], as `media.log_mel` computes them.

    With the defaults it has VGGish's 72,141,184 parameters. The last layer is not rectified, as in later releases of
    VGGish: half the sphere would be lost. The vectors of C context patches are averaged, then L2-normalized. A smaller
    network has narrow `convolutions` and `hidden`; `norm` adds a batch norm after every convolution, without which a
    small network with random initial weights takes long to separate sounds from silence.
    """

    modality: ClassVar[Modality] = "audio"

    def __init__(
        self,
        *,
        context: Offsets = (0,),
        edges: Edges = "clamp",
        rate: float | None = None,
        convolutions: Sequence[Widths] = VGGISH,
        norm: bool = False,
        hidden: Widths = (4096, 4096),
        dimension: Width = 128,
        weights: str | None = None,
    ) -> None:
        """Build the layers, initialized by glorot_uniform, or with VGGish's weights from a safetensors file."""
        super().__init__(context=context, edges=edges, rate=rate)
        if not 1 <= len(convolutions) <= 5 or not all(convolutions) or min(min(group) for group in convolutions) < 1:
            raise ValueError(f"convolutions must be 1 to 5 groups of channels, as {VGGISH}; got {convolutions}")
        self.config |= {
            "convolutions": [list(group) for group in convolutions],
            "norm": norm,
            "hidden": list(hidden),
            "dimension": dimension,
            "weights": None,  # the initial weights are not part of the trained encoder
        }
        self.shape = (PATCH, BANDS)
        layers: list[nn.Module] = []
        before = 1
        for group in convolutions:
            for after in group:
                layers.append(glorot_uniform(nn.Conv2d(before, after, 3, padding=1)))
                layers += [nn.BatchNorm2d(after)] if norm else []
                layers.append(nn.ReLU(inplace=True))
                before = after
            layers.append(nn.MaxPool2d(2))
        self.convolutions = nn.Sequential(*layers)
        dense: list[nn.Module] = []
        width = (PATCH >> len(convolutions)) * (BANDS >> len(convolutions)) * before
        for after in hidden:
            dense += [glorot_uniform(nn.Linear(width, after)), nn.ReLU(inplace=True)]
            width = after
        self.head = nn.Sequential(*dense, glorot_uniform(nn.Linear(width, dimension)))
        if weights is not None:
            file = check_own_weights(weights)
            try:
                tensors = load_file(file)
            except SafetensorError as error:
                raise ValueError(f"{file} is not a safetensors file ({error}): convert VGGish's weights") from error
            load_vggish(self, tensors)

    def features(self, frames: Tensor) -> Tensor:
        """Compute the last convolution's maps, pooled: [N, 96, 64] → [N, 512, 6, 4] in VGGish."""
        maps: Tensor = self.convolutions(frames[:, None])
        return maps

    def combine(self, features: Tensor) -> Tensor:
        """Embed the maps of patches and their context: [N, C, 512, 6, 4] in VGGish → [N, D]."""
        # VGGish flattens time, band, channel.
        flat = features.movedim(2, -1).flatten(2)
        return unit(self.head(flat).mean(1))


def load_vggish(encoder: AudioEncoder, weights: Mapping[str, Tensor]) -> None:
    """Load VGGish's weights, converted to torch, by key: `features.0.weight` … and `embeddings.0.weight` ….

    That is the layout of the conversions in circulation: [out, in, 3, 3] convolutions and [out, in] linear maps, each
    numbered in a row with its ReLUs and pools. `weights=` of the encoder reads a safetensors
    file of them; another kind is read with `torch.load(path, weights_only=True)`.
    """
    ours = {"features": encoder.convolutions, "embeddings": encoder.head}
    with torch.no_grad():
        for group, module in ours.items():
            for name, target in module.named_parameters():
                key = f"{group}.{name}"
                if key not in weights:
                    raise ValueError(
                        f"no {key} among the weights ({', '.join(sorted(weights)[:3])} …): convert the keys"
                    )
                if weights[key].shape != target.shape:
                    found, wanted = list(weights[key].shape), list(target.shape)
                    raise ValueError(f"{key} is {found}, this encoder has {wanted}: build it with VGGish's widths")
                target.copy_(weights[key])


def embed_sound(
    encoder: Encoder, sound: Sound, *, duration: float | None = None, hop: float = HOP_SECONDS
) -> Embedding:
    """Embed windows of one second, `hop` seconds apart, from 0 to `duration` or the end; `times` are their middles.

    A sound shorter than a second is padded with silence to one window.
    """
    if encoder.modality != "audio":
        raise ValueError(f"this encoder embeds {encoder.modality}: use the audio encoder of a run trained with sound")
    if not hop > 0:
        raise ValueError(f"hop must be above 0 seconds, got {hop}")
    end = sound.start + len(sound) / sound.rate if duration is None else duration
    number = 1 + max(0, int((end - WINDOW_SECONDS) / hop + 1e-6))
    starts: NDArray[np.float64] = hop * np.arange(number, dtype=np.float64)
    windows = log_mel_windows(sound, starts, seconds=WINDOW_SECONDS)
    return embed(encoder, (windows, starts + WINDOW_SECONDS / 2), batch=WINDOWS)


def embed_sound_at(encoder: Encoder, sound: Sound, second: float) -> NDArray[np.float32]:
    """Embed the window of one second centered at `second`, as a vector [D]."""
    windows = log_mel_windows(sound, np.array([second - WINDOW_SECONDS / 2]), seconds=WINDOW_SECONDS)
    return np.asarray(embed(encoder, (windows, np.zeros(1))).values[0])
