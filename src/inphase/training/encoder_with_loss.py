"""An encoder and an objective as one network: groups of frames in, the terms of the loss out."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn

from inphase.data.augmentation import apply_image_augmentations
from inphase.data.stream import Batch, Group
from inphase.losses.loss import Loss
from inphase.losses.sequences import Sequences
from inphase.models.encoder import Encoder


class EncoderWithLoss(nn.Module):
    """Embed the groups of a batch together, so that batch norms see all of them, and score each.

    With an encoder of sounds, a group is one clip: its pictures and its sound. Where `precomputed`, groups hold
    of frames, which a frozen network has seen before, in place of the frames.
    """

    def __init__(
        self, encoder: Encoder, objective: Loss, *, sound: Encoder | None = None, precomputed: bool = False
    ) -> None:
        """Keep the parts."""
        super().__init__()
        self.encoder, self.objective, self.sound, self.precomputed = encoder, objective, sound, precomputed

    def forward(self, given: "StepInput") -> dict[str, Tensor]:
        """Give the mean over groups of `loss` and its terms, and the health of the embeddings."""
        vectors = self.embed([self._prepare(group) for group in given.groups])
        heard = self._hear([group.sound for group in given.groups if group.sound is not None])
        groups = [_sequences(group, seen, sound) for group, seen, sound in zip_longest(given.groups, vectors, heard)]
        everything = torch.cat([part.detach().flatten(0, 1) for part in (*vectors, *heard)])
        return self.objective.mean_over(groups) | health(everything)

    def embed(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Embed the frames of groups [K, T, C, …]: at once where their shapes agree."""
        look = self.encoder.embed_features if self.precomputed else self.encoder
        if len({part.shape[1:] for part in values}) > 1:
            return [look(part) for part in values]
        together: Tensor = look(torch.cat(list(values)))
        return list(torch.split(together, [len(part) for part in values]))

    def _prepare(self, group: Group) -> Tensor:
        """Turn frames as they were read into what the encoder takes, changed by the group's looks."""
        if self.precomputed:
            return group.values.float()
        if self.encoder.modality == "image":
            return apply_image_augmentations(group.values, looks=group.looks)
        return self.encoder.prepare(group.values)

    def _hear(self, sounds: Sequence[Tensor]) -> list[Tensor]:
        """Embed the sounds of groups, [1, N, …] each, together: [1, N, D]."""
        if bool(sounds) != (self.sound is not None):
            raise ValueError("groups with sound and a table [sound] for its encoder need each other")
        if self.sound is None:
            return []
        together: Tensor = self.sound(self.sound.prepare(torch.cat(list(sounds), 1))[:, :, None])
        return list(torch.split(together, [part.shape[1] for part in sounds], dim=1))


def _sequences(group: Group, vectors: Tensor, heard: Tensor | None) -> Sequences:
    """Give the objective a group's embeddings; those of pictures and of sound are two sequences."""
    if heard is not None:
        longest = max(vectors.shape[1], heard.shape[1])
        vectors = torch.cat([_pad(part, longest) for part in (vectors, heard)])
    return Sequences(
        values=vectors,
        lengths=group.lengths,
        frames=group.frames,
        totals=group.totals,
        labels=group.labels,
        progress=group.progress,
    )


class StepInput:
    """What a step is given. Not a dataclass, which Fabric would take apart and copy."""

    def __init__(self, batches: Sequence[Batch], *, device: torch.device) -> None:
        """Bring the groups of a step to the device."""
        self.groups: list[Group] = [group.to(device) for batch in batches for group in batch.groups]

    @property
    def ids(self) -> list[str]:
        """Name the videos."""
        return [name for group in self.groups for name in group.ids]

    @property
    def frames(self) -> int:
        """Count the frames that are embedded."""
        return sum(group.values.shape[0] * group.values.shape[1] for group in self.groups)


def health(vectors: Tensor) -> dict[str, Tensor]:
    """Tell a collapse: the mean cosine between two embeddings [N, D], and their variance; 1 and 0 where all are one."""
    unit = torch.nn.functional.normalize(vectors.float(), dim=-1)
    count = len(unit)
    together = unit.sum(0).square().sum()
    cosine = (together - count) / max(1, count * (count - 1))
    return {"cosine": cosine, "variance": 1 - together / count**2}


def _pad(vectors: Tensor, length: int) -> Tensor:
    """Fill up a sequence [1, T, D] with zeros, which its length says are none of it."""
    return torch.nn.functional.pad(vectors, (0, 0, 0, length - vectors.shape[1]))


def put_channels_last(module: nn.Module) -> None:
    """Lay the kernels of convolutions, over pictures and over time, out as GPUs multiply them fastest."""
    layouts = {4: torch.channels_last, 5: torch.channels_last_3d}
    for parameter in module.parameters():
        if parameter.ndim in layouts:
            parameter.data = parameter.data.contiguous(memory_format=layouts[parameter.ndim])


def trained(module: nn.Module) -> list[Tensor]:
    """List the parameters that train."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def numbers(terms: dict[str, Any]) -> dict[str, float]:
    """Turn terms into plain numbers."""
    return {name: float(value) for name, value in terms.items()}
