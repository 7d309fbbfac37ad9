"""Fit the probability of a verdict on right and wrong pairs of videos, and measure it on other clips.

python -m benchmarks.verdict --golfdb ROOT --signs ROOT --figure docs/images/verdict.png

Right pairs: swings of GolfDB's validation players, and signs of LSA64 by different signers; a right pair counts as well
aligned if its events are off by at most 0.13 s on average. Wrong pairs: a swing and a sign, two different signs, and a
swing and a swing whose frames are in reverse order. Every second clip fits the regression, the others measure it.
"""

import argparse
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from sklearn.linear_model import LogisticRegression

from benchmarks.consensus import LabeledClip, read_golf, read_signs
from inphase.align.matching import match
from inphase.apps.verdict import DOUBTFUL, GOOD, cost_ratio
from inphase.models.embed_videos import embed_each, load_joint_encoder
from inphase.models.embedding import Embedding
from inphase.storage.cache import open_cache

PAIRS = 250  # of each kind
CLOSE = 4.0  # frames
BINS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.01)


def draw_pairs(
    clips: list[LabeledClip], embeddings: dict[Path, Embedding], *, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.bool_], list[str]]:
    """Align pairs of each kind; return the cost ratios, whether each is right and close, and the kinds."""
    golf = [each for each in clips if each.action == "golf_swing"]
    signs = [each for each in clips if each.action != "golf_swing"]
    ratios, close, kinds = [], [], []

    def add(kind: str, a: LabeledClip, b: LabeledClip) -> None:
        x, y = embeddings[a.path], embeddings[b.path]
        if kind == "reversed":
            y = replace(y, values=np.ascontiguousarray(y.values[::-1]))
        found = match(x, y)
        ratios.append(cost_ratio(found))
        error = np.abs(found.frame_map()[a.events] - b.events).mean() if kind.startswith("right") else np.inf
        close.append(error <= CLOSE)
        kinds.append(kind)

    for _ in range(PAIRS):
        a, b = (golf[k] for k in rng.choice(len(golf), 2, replace=False))
        add("right, golf", a, b)
        add("reversed", a, b)
        c = signs[rng.integers(len(signs))]
        same = [each for each in signs if each.action == c.action and each.person != c.person]
        other = [each for each in signs if each.action != c.action]
        add("right, signs", c, same[rng.integers(len(same))])
        add("another sign", c, other[rng.integers(len(other))])
        add("another action", a, c)
    return np.array(ratios), np.array(close), kinds


def draw_reliability(file: Path, chances: NDArray[np.float64], close: NDArray[np.bool_]) -> None:
    """Draw the share of close alignments over their mean probability, for each bin."""
    size, margin = 420, 50
    image = Image.new("RGB", (size, size), "white")
    draw = ImageDraw.Draw(image)
    span = size - 2 * margin
    draw.rectangle((margin, margin, size - margin, size - margin), outline="#888888")
    draw.line((margin, size - margin, size - margin, margin), fill="#bbbbbb")
    places = []
    for low, high in pairwise(BINS):
        inside = (chances >= low) & (chances < high)
        if inside.any():
            places.append((margin + span * chances[inside].mean(), size - margin - span * close[inside].mean()))
            x, y = places[-1]
            draw.ellipse((x - 5, y - 5, x + 5, y + 5), fill="#2f6bff")
            draw.text((x + 8, y - 6), f"{inside.sum()}", fill="#444444")
    draw.line(places, fill="#2f6bff", width=2)
    draw.text((margin, size - 30), "probability of the verdict", fill="black")
    draw.text((margin, 20), "share of pairs of the same action, aligned within 0.13 s", fill="black")
    image.save(file)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--golfdb", type=Path, required=True)
    arguments.add_argument("--signs", type=Path, required=True)
    arguments.add_argument("--figure", type=Path)
    given = arguments.parse_args()
    torch.set_num_threads(1)
    clips = [*read_golf(given.golfdb, "val", None), *read_signs(given.signs, ())]
    embedded, _ = embed_each([each.path for each in clips], encoder=load_joint_encoder(), cache=open_cache(None))
    clips = [each for each in clips if each.path in embedded]
    rng = np.random.default_rng(0)
    fitted, measured = (draw_pairs(clips[half::2], embedded, rng=rng) for half in (0, 1))
    model = LogisticRegression(C=100.0).fit(fitted[0][:, None], fitted[1])
    print(f"CONSTANT, RATIO_WEIGHT = {model.intercept_[0]:.1f}, {model.coef_[0, 0]:.1f}")
    ratios, close, kinds = measured
    chances = model.predict_proba(ratios[:, None])[:, 1]
    print(f"\n| | do not trust (below {DOUBTFUL}) | check | good (from {GOOD}) |\n|---|---|---|---|")
    groups = {kind: np.array([each == kind for each in kinds]) for kind in dict.fromkeys(kinds)}
    groups["all wrong"] = np.array([not each.startswith("right") for each in kinds])
    groups["all right"] = ~groups["all wrong"]
    groups["right and close"] = close
    for kind, inside in groups.items():
        low, high = np.mean(chances[inside] < DOUBTFUL), np.mean(chances[inside] >= GOOD)
        print(f"| {kind} | {low:.1%} | {1 - low - high:.1%} | {high:.1%} |")
    print("\n| probability | pairs | mean | right and close |\n|---|---|---|---|")
    for low, high in pairwise(BINS):
        inside = (chances >= low) & (chances < high)
        if inside.any():
            where = f"{low:.1f} to {min(high, 1):.1f}"
            print(f"| {where} | {inside.sum()} | {chances[inside].mean():.2f} | {close[inside].mean():.2f} |")
    if given.figure:
        draw_reliability(given.figure, chances, close)


if __name__ == "__main__":
    main()
