"""Align two recordings of one motion, played at different speeds, and draw the cost, the table and the path."""

from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from inphase import dtw

FILE = Path("out/demo/alignment.png")


def motion(progress: np.ndarray, seed: int) -> torch.Tensor:
    """Describe each frame of a motion by 16 numbers: bumps along its course and a little noise."""
    bumps = np.exp(-(((progress[:, None] - np.linspace(0, 1, 16)) / 0.12) ** 2))
    return torch.from_numpy(bumps + np.random.default_rng(seed).normal(0, 0.02, bumps.shape)).float()


x_times, y_times = np.arange(120) / 30, np.arange(90) / 30
x = motion(np.linspace(0, 1, 120), seed=0)
y = motion(np.interp(np.linspace(0, 1, 90), [0, 0.3, 0.6, 1], [0, 0.6, 0.7, 1]), seed=1)
alignment = dtw(x, y)
matched = alignment.time_map(x_times, y_times)  # the second of y that matches each frame of x

figure = Figure(figsize=(12, 3.6), layout="constrained")
left, middle, right = figure.subplots(1, 3)
for axis, name, values in (left, "cost", alignment.cost_matrix), (middle, "table", alignment.table):
    assert values is not None
    axis.contourf(x_times, y_times, values.T, levels=24)
    axis.plot(x_times, matched, color="white", linewidth=1.5)
    axis.set(title=f"{name} and path", xlabel="seconds of x", ylabel="seconds of y")
right.plot(x_times, x[:, 8], label="x", color="C0")
right.plot(y_times, y[:, 8], label="y as recorded", color="C1", linestyle=":")
right.plot(x_times, np.interp(matched, y_times, y[:, 8]), label="y aligned with x", color="C1")
right.set(title="one of the 16 numbers", xlabel="seconds")
right.legend(loc="upper right", fontsize="small")
FILE.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(FILE, dpi=100)
print(f"x at 2.0 s matches y at {np.interp(2.0, x_times, matched):.2f} s; wrote {FILE}")
