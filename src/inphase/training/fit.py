"""Fit: learn to align your own videos. From a folder of them to a run folder, without labels or a GPU."""

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from inphase.data import folder as collection
from inphase.data.reading import sources
from inphase.data.video import Problem, Video, summarise
from inphase.media.frame_store import FillSummary, StoredVideo, fill_store
from inphase.pose.pose_store import fill_poses
from inphase.storage.cache import Cache
from inphase.storage.errors import MissingExtraError
from inphase.training.build import build_encoder_with_loss
from inphase.training.loop import OnStatus, train
from inphase.training.recipe import SHIPPED, Recipe, read_recipe

Modality = Literal["auto", "pose", "image", "both"]
Way = Literal["pose", "image"]

# What was seen of the videos, in the run folder.
SEEN = "seen"
# People are what the videos are about where so large a part of them shows somebody.
MOSTLY = 0.8
# Of fewer videos of an action none is held out: there would be too little to learn from, or to measure.
FEW = 10
HELD_OUT = 0.2


@dataclass(frozen=True)
class Fitted:
    """What was learnt from a folder: the run, how it sees videos, and those it could not see, with the reasons.

    `split` is what to measure the run on: "test" where videos were held out, otherwise "train".
    """

    run: Path
    way: Way
    left_out: dict[str, str]
    split: str
    labelled: bool  # whether phases.csv says when something happens


def fit(
    folder: Path | str,
    out: Path | str,
    *,
    modality: Modality = "auto",
    changes: Sequence[str] = (),
    workers: int = 2,
    cache: Cache | None = None,
    tell: Callable[[str], None] | None = None,
    looking: Callable[[str, int, int], None] | None = None,
    watch: OnStatus | None = None,
) -> Fitted:
    """Learn from the videos of a folder, one action or a sub-folder for each, into the run folder `out`.

    "pose" sees people by their joints, "image" whole pictures; "auto" takes poses where people are found in most of
    the videos. What is seen is kept in the run folder; poses are looked for on the `shelf`, and kept there as well. A
    fifth of the videos is held out to measure on. `changes` to the recipe are written `table.key=value`. Stopped at any
    moment, the same call goes on. `tell` is told in words what was decided, `looking` what is being done with the
    videos, how many are done and how many there are, `watch` how training stands.
    """
    folder, out, tell = Path(folder), Path(out), tell or (lambda _: None)
    videos = collection.load(folder, split="all", val=0.0, test=0.0)
    _require_pairs(videos, folder)
    recipes = {way: read_recipe(SHIPPED / f"fit_{way}.toml", changes=changes) for way in ("pose", "image")}
    look = partial(_look, out / SEEN, videos, workers=workers, looking=looking)
    follow = partial(fill_poses, cache=cache)
    way, left_out = _choose_way(look, follow, recipes["image"], modality=modality, tell=tell)
    kept = [video for video in videos if video.id not in left_out]
    _require_pairs(kept, folder)
    held_out = HELD_OUT if min(Counter(video.action for video in kept).values()) >= FEW else 0.0
    data: dict[str, Any] = {"root": str(folder.resolve()), "store": str((out / SEEN).resolve()), "val": 0.0}
    recipe = replace(recipes[way], data={**recipes[way].data, **data, "test": held_out})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Problem)  # what cannot be seen was said when it was looked at
        train(recipe, out, watch=watch)
    return Fitted(out, way, left_out, "test" if held_out else "train", any(video.intervals for video in kept))


def _choose_way(
    look: Callable[..., FillSummary],
    follow: Callable[..., FillSummary],
    pixels: Recipe,
    *,
    modality: Modality,
    tell: Callable[[str], None],
) -> tuple[Way, dict[str, str]]:
    """Look at every video once, and say in which way and which of them cannot be seen so."""
    if modality in ("auto", "pose"):
        try:
            filled = look("following people", follow)
        except MissingExtraError as error:
            if modality == "pose":
                raise
            tell(str(error))
        else:
            dealt = filled.written + filled.kept
            share = dealt / max(1, dealt + len(filled.broken))
            if modality == "pose" or share >= MOSTLY:
                _tell_left_out(filled, tell)
                tell(f"looking at people: they are found in {share:.0%} of the videos")
                return "pose", filled.broken
            tell(f"looking at pictures: people are found in {share:.0%} of the videos only")
    height, width = build_encoder_with_loss(pixels).encoder.shape[:2]
    filled = look("decoding", partial(fill_store, size=(height, width)))
    _tell_left_out(filled, tell)
    return "image", filled.broken


def _look(
    store: Path,
    videos: Sequence[Video],
    doing: str,
    fill: Callable[..., FillSummary],
    *,
    workers: int,
    looking: Callable[[str, int, int], None] | None,
) -> FillSummary:
    """Fill the store with what is seen of the videos in one way."""

    def progress(state: StoredVideo) -> None:
        if looking is not None:
            looking(doing, state.done, state.total)

    return fill(store, sources(videos), workers=workers, progress=progress)


def _tell_left_out(filled: FillSummary, tell: Callable[[str], None]) -> None:
    if filled.broken:
        tell(f"left out: {summarise(f'{name} ({reason})' for name, reason in filled.broken.items())}")


def _require_pairs(videos: Sequence[Video], folder: Path) -> None:
    """Refuse an action with a single video: there is nothing to align it with."""
    lonely = [action for action, number in Counter(video.action for video in videos).items() if number < 2]
    if lonely or not videos:
        what = f"there is only one of {summarise(lonely)}" if lonely else "there is none that can be seen"
        raise ValueError(f"{folder} needs two videos of an action or more to align, and {what}: add some, or remove it")
