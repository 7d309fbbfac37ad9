"""Align two recordings of one motion, played at different speeds, and draw the cost, the table and the path."""

from pathlib import Path

import matplotlib
import numpy as np
import torch

from inphase import dtw
from inphase.align import contrastive_cost

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FILE = Path("out/demo/alignment.png")


def motion(progress: np.ndarray) -> torch.Tensor:
    """See a motion as 16 numbers a frame: bumps along its course, a little noise on top."""
    bumps = np.exp(-(((progress[:, None] - np.linspace(0, 1, 16)) / 0.12) ** 2))
    return torch.from_numpy(bumps + np.random.default_rng(0).normal(0, 0.02, bumps.shape)).float()


clock = np.linspace(0, 1, 120)
x, y = motion(clock), motion(np.interp(np.linspace(0, 1, 90), [0, 0.3, 0.6, 1], [0, 0.6, 0.7, 1]))
alignment = dtw(x, y, cost="contrastive")
seconds = alignment.time_map(np.arange(120) / 30, np.arange(90) / 30)

figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
panels = {"cost": contrastive_cost(x[None], y[None])[0], "table": alignment.table, "path": alignment.table}
for axis, (name, values) in zip(axes, panels.items(), strict=True):
    axis.imshow(values.T, origin="lower", aspect="auto", extent=(0, 4, 0, 3), cmap="magma")
    axis.set(title=name, xlabel="seconds of x", ylabel="seconds of y")
axes[2].plot(np.arange(120) / 30, seconds, color="cyan", linewidth=2)

FILE.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(FILE, dpi=120)
print(f"x at 2.0 s goes with y at {np.interp(2.0, np.arange(120) / 30, seconds):.2f} s; wrote {FILE}")
