"""GolfDB: golf swings with the frames of eight events.

    root/index.csv        id, player, sex, club, view, split, frames, and the frame of each event
    root/videos/<id>.mp4  30 frames per second, with a lead-in and a lead-out around the swing

McNally et al., "GolfDB: A Video Database for Golf Swing Sequencing", CVPRW 2019.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from warnings import warn

import numpy as np

from inphase.data.video import Problem, Video, check_split, read_table

RATE = 30.0
EVENTS = (
    "address",
    "toe_up",
    "mid_backswing",
    "top",
    "mid_downswing",
    "impact",
    "mid_follow_through",
    "finish",
)
# Each event starts the phase of its name; the lead-in is before the first event.
PHASES = ("lead_in", *EVENTS)
_OFFICIAL_TRAIN, _OFFICIAL_TEST = ("1", "2", "3"), ("4",)


def load(root: Path | str, *, split: str, held_out: float = 0.2) -> list[Video]:
    """Parse the index into videos of nine phases; the lead-in and lead-out are kept.

    The official split 4 is "test". Of the others, players with the fraction `held_out` of the clips are "val" and the
    rest "train": no player is in both. The official test split does share players with training.
    """
    check_split(split)
    root = Path(root)
    index = root / "index.csv"
    if not index.is_file():
        raise FileNotFoundError(f"no index.csv in {root}: point at the folder that holds it and videos/")
    rows = read_table(index, columns=("id", "player", "split", "frames", *EVENTS))
    if not rows:
        raise ValueError(f"{index} has no rows: copy it again")
    validation = _hold_out((row["player"] for row in rows if row["split"] in _OFFICIAL_TRAIN), fraction=held_out)
    videos = (_parse(row, root=root, validation=validation) for row in rows)
    return [video for video in videos if video is not None and split in ("all", video.split)]


def _hold_out(players: Iterable[str], *, fraction: float) -> set[str]:
    """Choose players, in an order that depends only on their names, up to a fraction of the clips."""
    clips = Counter(players)
    room = round(fraction * clips.total())
    chosen = set()
    for player in sorted(clips, key=lambda name: hashlib.sha256(name.encode()).digest()):
        if clips[player] <= room:
            chosen.add(player)
            room -= clips[player]
    return chosen


def _parse(row: Mapping[str, str], *, root: Path, validation: set[str]) -> Video | None:
    """Parse one row into a video; warn of contradictory numbers and return None."""
    where = f"{root / 'index.csv'}, id {row['id']}"
    try:
        length = int(row["frames"])
        events = {name: int(row[name]) for name in EVENTS}
    except ValueError as error:
        warn(Problem(where, str(error), "correct the row"), stacklevel=4)
        return None
    frames = np.array(list(events.values()))
    if not (np.diff(frames, prepend=-1) > 0).all() or frames[-1] >= length:
        what = f"events {frames.tolist()} do not increase within {length} frames"
        warn(Problem(where, what, "correct the row"), stacklevel=4)
        return None
    if row["split"] in _OFFICIAL_TEST:
        split = "test"
    elif row["split"] in _OFFICIAL_TRAIN:
        split = "val" if row["player"] in validation else "train"
    else:
        warn(Problem(where, f"split {row['split']!r}", "write 1, 2, 3 or 4"), stacklevel=4)
        return None
    return Video(
        id=row["id"],
        action="golf_swing",
        split=split,
        path=root / "videos" / f"{row['id']}.mp4",
        length=length,
        rate=RATE,
        phases=np.searchsorted(frames, np.arange(length), side="right").astype(np.int64),
        phase_names=PHASES,
        events=events,
        notes={name: row[name] for name in ("player", "sex", "club", "view", "split") if row.get(name)},
    )
