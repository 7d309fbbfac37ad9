"""Train a small embedding with every form of GTA's cycle term and compare how well it aligns.

    python -m benchmarks.variants [--seeds 5] [--steps 400]

The data are synthetic. One motion is a curve in 6 dimensions; with 6 distractors (each sequence has its own level and
drift) and noise it is mixed into 32 numbers per frame. Every sequence traverses the motion at its own, strongly varying
speed. The error is the distance in the motion between a frame and its partner in the other sequence, in percent of the
motion, on test sequences.
"""

import argparse
from statistics import mean, stdev

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.timing import lay_out
from inphase import GTA, dtw

Film = tuple[Tensor, np.ndarray]
FILMS, FRAMES, DIMENSIONS, HIDDEN = 512, 20, 32, 6
FORMS: dict[str, GTA | None] = {
    "untrained": None,
    "no cycle term": GTA(cycle_weight=0),
    "released": GTA(variant="released"),
    "paper": GTA(),
    "paper, cycle_weight = 1/20": GTA(cycle_weight=1 / FRAMES),
}


def main() -> None:
    """Print the table of docs/lab/gta.md."""
    parser = argparse.ArgumentParser(description="Compare the forms of GTA's cycle term.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=400)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name, criterion in FORMS.items():
        runs = [run(criterion, seed, arguments.steps) for seed in range(arguments.seeds)]
        rows.append([name, *[f"{mean(values):.2f} ± {stdev(values):.2f}" for values in zip(*runs, strict=True)]])
    linear = [linear_stretch(seed) for seed in range(arguments.seeds)]
    rows.append(["linear stretch", "", f"{mean(linear):.2f} ± {stdev(linear):.2f}", ""])
    print(f"error in percent of the motion, mean ± deviation over {arguments.seeds} seeds, {arguments.steps} steps")
    print(lay_out(["", "nearest neighbor", "DTW, cosine cost", "DTW, contrastive cost"], rows))


def run(criterion: GTA | None, seed: int, steps: int) -> list[float]:
    """Train on 512 sequences; return the errors on 24 pairs of others, the same for every criterion."""
    torch.manual_seed(seed)
    world = World(seed)
    pairs = world.pairs()
    encoder = nn.Sequential(
        nn.Linear(DIMENSIONS, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, DIMENSIONS)
    )
    if criterion is not None:
        films = torch.stack([world.film(100)[0] for _ in range(FILMS)])
        optimizer = torch.optim.Adam(encoder.parameters(), 1e-3)
        for _ in range(steps):
            which = torch.randint(FILMS, (16, 1))
            frames = torch.rand(16, 100).argsort()[:, :FRAMES].sort().values
            x, y = encoder(films[which, frames]).chunk(2)
            optimizer.zero_grad()
            torch.autograd.backward(criterion.pair(x, y)["loss"])
            optimizer.step()
    with torch.no_grad():
        results = [errors(encoder, *x, *y) for x, y in pairs]
    return [100 * mean(values) for values in zip(*results, strict=True)]


def linear_stretch(seed: int) -> float:
    """Return the error of linear stretch: one sequence played at the constant speed that equalizes the lengths."""
    stretched = np.linspace(0, 79, 100)
    pairs = World(seed).pairs()
    return 100 * mean(float(np.abs(x[1] - np.interp(stretched, range(80), y[1])).mean()) for x, y in pairs)


def errors(encoder: nn.Module, x: Tensor, x_clock: np.ndarray, y: Tensor, y_clock: np.ndarray) -> list[float]:
    """Return the mean distance between a frame and its partner, by nearest neighbor and by DTW."""
    x, y = nn.functional.normalize(encoder(x), dim=1), nn.functional.normalize(encoder(y), dim=1)
    partners = [y_clock[(x @ y.T).argmax(1)]]
    partners += [dtw(x, y, cost=cost).time_map(np.arange(100.0), y_clock) for cost in ("cosine", "contrastive")]
    return [float(np.abs(x_clock - partner).mean()) for partner in partners]


class World:
    """A motion and its mixing into observations; each film is another recording of it."""

    def __init__(self, seed: int) -> None:
        """Draw the motion and the mixing."""
        self.random = np.random.default_rng(seed)
        self.waves = self.random.normal(0, 1, (2, 3, HIDDEN)) / np.arange(1, 4)[:, None]
        self.mixing = self.random.normal(0, 1, (2 * HIDDEN, DIMENSIONS)) / HIDDEN**0.5

    def pairs(self) -> list[tuple[Film, Film]]:
        """Record the test pairs."""
        return [(self.film(100), self.film(80)) for _ in range(24)]

    def film(self, length: int) -> Film:
        """Record the motion once: observations [T, 32] and the position of each frame in the motion, in [0, 1]."""
        pace = np.exp(self.random.normal(0, 1.2, 6))
        clock = np.interp(np.linspace(0, 1, length), np.linspace(0, 1, 7), np.append(0, pace.cumsum()) / pace.sum())
        angles = np.pi * clock[:, None] * np.arange(1, 4)
        motion = np.sin(angles) @ self.waves[0] + np.cos(angles) @ self.waves[1]
        drift = np.linspace(self.random.normal(0, 1.5, HIDDEN), self.random.normal(0, 1.5, HIDDEN), length)
        values = np.tanh(np.hstack([motion, drift]) @ self.mixing) + self.random.normal(0, 0.1, (length, DIMENSIONS))
        return torch.from_numpy(values).float(), clock


if __name__ == "__main__":
    main()
