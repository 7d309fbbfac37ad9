"""Weighted: a weighted sum of losses on one set of embeddings.

L = Σ_n w_n L_n
"""

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from inphase.align.cost import require_temperature
from inphase.losses.loss import Draw, Frames, Loss, Sequences, draw_distinct


class Weighted(Loss):
    """Add up the losses named in `weights` (names of `LOSSES`), each constructed with its own `settings`.

    The default is the combination of TCC's released code, 0.33 of TCC, 0.33 of SaL and 0.34 of TCN. There TCC and SaL
    take TCN's anchors or its positives at random for each video; here always the anchors, which are the plain draw.

    Frames: the plain draw once for all losses that share it, then the other blocks of each loss. No frame is embedded
    twice: TCC + SaL + TCN takes as many as TCN alone.
    """

    def __init__(
        self,
        *,
        weights: Mapping[str, float] | None = None,
        settings: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        """Construct the losses."""
        from inphase.losses import LOSSES

        super().__init__()
        weights = weights if weights is not None else {"tcc": 0.33, "sal": 0.33, "tcn": 0.34}
        settings = settings or {}
        known = sorted(set(LOSSES) - {"weighted"})
        unknown = [name for name in weights if name not in known]
        if unknown or not weights:
            raise ValueError(f"weights must name some of {', '.join(known)}; got {', '.join(unknown) or 'nothing'}")
        unweighted = [name for name in settings if name not in weights]
        if unweighted:
            raise ValueError(f"settings are given for {', '.join(unweighted)}, which are not in weights")
        for name, weight in weights.items():
            require_temperature(f"the weight of {name}", weight)
        self.weights = dict(weights)
        self.parts = nn.ModuleDict({name: LOSSES[name](**settings.get(name, {})) for name in weights})
        parts = self._parts().values()
        self.shares = any(part.shares for part in parts)
        self.blocks = self.shares + sum(part.blocks - part.shares for part in parts)

    def frames(self, total: int, *, count: int, rng: np.random.Generator, draw: Draw = draw_distinct) -> Frames:
        """Choose the plain draw and then the other blocks of each loss, int64 [blocks · count]."""
        plain = draw(total, count=count, rng=rng)
        chosen = [plain] if self.shares else []
        for part in self._parts().values():
            wanted = part.frames(total, count=count, rng=rng, draw=lambda *_, **__: plain)
            chosen.append(wanted[len(plain) :] if part.shares else wanted)
        return np.concatenate(chosen)

    def forward(self, sequences: Sequences) -> dict[str, Tensor]:
        """Score a group: `loss`, each loss by its name, and its terms as `name.term`."""
        terms = {}
        for name, view in self._views(sequences).items():
            scored = self.parts[name](view)
            terms[name] = scored.pop("loss")
            terms |= {f"{name}.{term}": value for term, value in scored.items()}
        loss = torch.stack([weight * terms[name] for name, weight in self.weights.items()]).sum()
        return {"loss": loss, **terms}

    def _views(self, sequences: Sequences) -> dict[str, Sequences]:
        """Assign each loss its own blocks of frames."""
        parts = self._parts()
        own = {name: part.blocks - part.shares for name, part in parts.items()}
        blocks = list(sequences.blocks(self.blocks))
        shared = blocks[:1] if self.shares else []
        views, taken = {}, len(shared)
        for name, part in parts.items():
            mine = (shared if part.shares else []) + blocks[taken : taken + own[name]]
            views[name] = reduce(Sequences.join, mine)
            taken += own[name]
        return views

    def _parts(self) -> dict[str, Loss]:
        return {name: part for name, part in self.parts.items() if isinstance(part, Loss)}

    def extra_repr(self) -> str:
        """List the weights."""
        return f"weights={self.weights}"
