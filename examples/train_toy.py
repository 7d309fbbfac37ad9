"""Learn from scratch, in seconds, to align recordings of one motion that differ in appearance and in speed."""

from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from inphase import GTA, dtw

torch.manual_seed(0)
mixing = (random := np.random.default_rng(0)).normal(0, 0.4, (12, 32))


def film(length: int) -> tuple[torch.Tensor, np.ndarray]:
    """Record the motion: 6 useful and 6 distracting numbers, mixed into 32; and the true progress, for evaluation."""
    pace = np.append(0, np.exp(random.normal(0, 1.2, 6)).cumsum())
    clock = np.interp(np.linspace(0, 1, length), np.linspace(0, 1, 7), pace / pace[-1])
    motion = np.cos(np.pi * clock[:, None] * np.arange(1, 4) + np.arange(6)[:, None, None]).sum(2).T
    drift = np.linspace(random.normal(0, 1.5, 6), random.normal(0, 1.5, 6), length)
    return torch.from_numpy(np.tanh(np.hstack([motion, drift]) @ mixing)).float(), clock


encoder = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
films, (x, x_clock), (y, y_clock) = torch.stack([film(100)[0] for _ in range(64)]), film(100), film(100)
maps = {"linear stretch": y_clock, "untrained": dtw(encoder(x), encoder(y)).time_map(np.arange(100.0), y_clock)}
criterion, optimizer = GTA(variant="released"), torch.optim.Adam(encoder.parameters(), 1e-3)
for _ in range(500):
    frames = torch.rand(16, 100).argsort()[:, :20].sort().values  # 20 frames of each film, in order
    optimizer.zero_grad()
    torch.autograd.backward(criterion.pair(*encoder(films[torch.randint(64, (16, 1)), frames]).chunk(2))["loss"])
    optimizer.step()
maps["trained"] = dtw(encoder(x), encoder(y)).time_map(np.arange(100.0), y_clock)
axis = (figure := Figure(figsize=(5, 4), layout="constrained")).subplots()
for name, clock in maps.items():
    axis.plot(100 * x_clock, 100 * clock, label=f"{name}: off by {100 * np.abs(clock - x_clock).mean():.1f} %")
axis.set(xlabel="progress of a frame of x, %", ylabel="progress of its partner in y, %")
print("\n".join(text.get_text() for text in axis.legend().get_texts()))
Path("out/toy").mkdir(parents=True, exist_ok=True)
figure.savefig("out/toy/training.png", dpi=100)
