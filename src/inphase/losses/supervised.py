"""Supervised: learning from labels, an upper bound for methods without them.

    "phase"     L = mean −log softmax(W z + b)[label of the frame]
    "progress"  L = mean (W z + b − (t − t_e) / length)² over the key events e

with z the frame's embedding, at unit length.
"""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from inphase.align.cost import single_precision
from inphase.losses.loss import Loss, Sequences, masked_mean, normalize, require_choice, require_count


class Supervised(Loss):
    """Predict each frame's phase, or its time since every key event, by one linear layer.

    TCC's paper trains its supervised baseline by cross entropy of phases; the targets of "progress" are those of its
    evaluation. Open: the layer and the normalization (the encoders here end in unit vectors). `outputs` is the number
    of phases or key events; several actions share one layer, so their phases are numbered through.

    Frames: the plain draw. Pairs: none. Frames without a label, and events without a time, do not count.
    """

    def __init__(
        self,
        *,
        kind: Literal["phase", "progress"] = "phase",
        outputs: int = 10,
        dimension: int = 128,
        unit: bool = True,
    ) -> None:
        """Make the layer for embeddings of `dimension`; `unit` normalizes them first."""
        super().__init__()
        require_choice("kind", kind, ("phase", "progress"))
        require_count("outputs", outputs)
        require_count("dimension", dimension)
        self.kind, self.outputs, self.dimension, self.unit = kind, outputs, dimension, unit
        self.head = nn.Linear(dimension, outputs)

    def forward(self, sequences: Sequences) -> dict[str, Tensor]:
        """Score a group: `loss`, and the fraction of frames classified correctly, `accuracy`, or the mean `error`."""
        values = normalize(sequences.clean) if self.unit else sequences.clean
        if values.shape[2] != self.dimension:
            raise ValueError(f"the head takes embeddings of dimension {self.dimension}, got {values.shape[2]}")
        (outputs,) = single_precision(self.head(values))
        if self.kind == "phase":
            return self._phase(outputs, sequences)
        return self._progress(outputs, sequences)

    def _phase(self, logits: Tensor, sequences: Sequences) -> dict[str, Tensor]:
        if sequences.labels is None:
            raise ValueError("kind='phase' learns from labels, and these sequences have none; try kind='progress'")
        known = sequences.mask & (sequences.labels >= 0)
        labels = sequences.labels.where(known, 0)
        entropy = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(labels.shape)
        right = (logits.argmax(2) == labels).to(entropy.dtype)
        return {"loss": _mean(entropy, known), "accuracy": _mean(right, known)}

    def _progress(self, times: Tensor, sequences: Sequences) -> dict[str, Tensor]:
        if sequences.progress is None:
            raise ValueError("kind='progress' learns from event times, and these sequences have none; try kind='phase'")
        if sequences.progress.shape[2] != self.outputs:
            raise ValueError(
                f"the head predicts {self.outputs} events, the sequences have {sequences.progress.shape[2]}"
            )
        known = sequences.mask[:, :, None] & ~sequences.progress.isnan()
        off = times - sequences.progress.to(times.dtype).where(known, 0)
        return {"loss": _mean(off.square(), known), "error": _mean(off.detach().abs(), known)}


def _mean(values: Tensor, known: Tensor) -> Tensor:
    return masked_mean(values.flatten(), known.flatten())
