"""What a recipe may say of the optimiser, of validation and of the run itself."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Schedule = Literal["constant", "cosine"]


@dataclass(frozen=True)
class OptimizerSettings:
    """Adam, as the released code sets it unless told otherwise.

    `penalty` is the strength of the released code's penalty on the embedder's weights; `weight_decay` is AdamW's.
    `clip` bounds the norm of the gradient, 0 leaves it alone.
    """

    lr: float = 1e-4
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-7
    weight_decay: float = 0.0
    penalty: float = 1e-5
    schedule: Schedule = "constant"
    warmup: int = 0
    clip: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what cannot train."""
        if not self.lr > 0 or self.schedule not in ("constant", "cosine"):
            raise ValueError(f"[optimiser] needs lr > 0 and schedule 'constant' or 'cosine'; got {self}")
        if self.warmup < 0 or self.clip < 0 or self.penalty < 0 or self.weight_decay < 0:
            raise ValueError(f"[optimiser] needs warmup, clip, penalty and weight_decay of at least 0; got {self}")

    def build(self, parameters: list[Tensor]) -> torch.optim.AdamW:
        """Make the optimiser; without weight decay AdamW is Adam."""
        a, b = self.betas
        return torch.optim.AdamW(
            parameters, lr=self.lr, betas=(a, b), eps=self.eps, weight_decay=self.weight_decay, fused=True
        )

    def rate(self, step: int, *, steps: int) -> float:
        """Give the learning rate of a step: a linear warm-up, then constant or half a cosine down to 0."""
        warm = min(1.0, (step + 1) / (self.warmup + 1))
        if self.schedule == "constant":
            return self.lr * warm
        done = max(0, step - self.warmup) / max(1, steps - self.warmup)
        return self.lr * warm * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


@dataclass(frozen=True)
class ValidationSettings:
    """Which videos are watched during training, and how often.

    The collection's "val" split where it has one and `fraction` is not given; otherwise the `fraction` of the training
    videos of every action that is held out of training, chosen by their names alone. At most `videos` of each action
    are watched. `every` 0 watches only at the end.
    """

    every: int = 0
    fraction: float | None = None
    videos: int = 8

    def __post_init__(self) -> None:
        """Refuse what is no share."""
        if self.fraction is not None and not 0 <= self.fraction < 1:
            raise ValueError(f"[validation] fraction must lie in [0, 1), got {self.fraction}")
        if self.every < 0 or self.videos < 2:
            raise ValueError(f"[validation] needs every ≥ 0 and at least 2 videos of an action; got {self}")


@dataclass(frozen=True)
class RunSettings:
    """How long, how often saved, on what.

    `precision`, `accelerator`, `devices`, `nodes` and `strategy` are Lightning Fabric's. `accumulate` takes as many
    batches for one step. `threads` read ahead, 0 reads when a step begins; by default 2 for pictures and 0 for poses.
    """

    steps: int = 1000
    seed: int = 0
    save_every: int = 500
    log_every: int = 10
    accumulate: int = 1
    threads: int | None = None
    precision: str = "32-true"
    channels_last: bool = False
    accelerator: str = "auto"
    devices: int | str = 1
    nodes: int = 1
    strategy: str = "auto"

    def __post_init__(self) -> None:
        """Refuse counts that are none."""
        for name in ("steps", "save_every", "log_every", "accumulate", "nodes"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"[run] {name} must be a whole number of at least 1, got {value!r}")
        if self.seed < 0:
            raise ValueError(f"[run] seed must be at least 0, got {self.seed}")
