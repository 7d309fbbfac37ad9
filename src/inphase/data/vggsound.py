"""VGGSound: ten-second clips with one sound each.

    root/vggsound.csv                  YouTube id, start second, label, train or test; or
    root/train.csv, root/test.csv      <id>_<start, six digits>.mp4, label
    root/videos/<id>_<start>.mp4       also found in root/video/ or in root itself

Many clips are no longer available: every listed clip becomes a video, and `find_present` finds those with a file.

Chen et al., "VGGSound: A Large-Scale Audio-Visual Dataset", ICASSP 2020.
"""

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from warnings import warn

from inphase.data.video import Problem, Video, check_split, read_rows
from inphase.progress import summarize

SPLITS = ("train", "test")
_CLIP = re.compile(r"(?P<id>.{11})_(?P<start>\d{6})\.mp4")


def load(root: Path | str, *, split: str, classes: tuple[str, ...] = ()) -> list[Video]:
    """Parse the list of clips into videos whose action is the label of their sound; `classes` selects some labels."""
    root = Path(root)
    check_split(split, of=SPLITS)
    listed = list(_read_lists(root))
    labels = {label for _, _, label, _ in listed}
    for name in classes:
        if name not in labels:
            near = difflib.get_close_matches(name, labels, n=3)
            raise ValueError(
                f"no class {name!r} among the {len(labels)} listed; near it: {', '.join(near) or 'nothing'}"
            )
    folder = _clip_folder(root)
    return [
        _parse(youtube, start, label, subset, folder=folder)
        for youtube, start, label, subset in listed
        if split in ("all", subset) and (not classes or label in classes)
    ]


def _read_lists(root: Path) -> Iterator[tuple[str, int, str, str]]:
    """Yield id, start second, label and split of every line, from either form of the list."""
    if (root / "vggsound.csv").is_file():
        files = [root / "vggsound.csv"]
    else:
        files = [root / f"{split}.csv" for split in SPLITS if (root / f"{split}.csv").is_file()]
    if not files:
        raise FileNotFoundError(f"neither vggsound.csv nor train.csv or test.csv in {root}: download the list there")
    for file in files:
        broken = []
        for number, row in enumerate(read_rows(file), start=1):
            parsed = _read_row(row, subset=file.stem)
            if parsed is not None:
                yield parsed
            elif row:
                broken.append(f"line {number}")
        if broken:
            what = f"{summarize(broken)} not in either published form"
            warn(Problem(str(file), what, "compare with the published list"), stacklevel=3)


def _read_row(row: list[str], *, subset: str) -> tuple[str, int, str, str] | None:
    """Read one line of either form."""
    match row:
        case [youtube, start, label, split] if start.strip().isdecimal() and split.strip() in SPLITS:
            return youtube.strip(), int(start), label.strip(), split.strip()
        case [name, label] if found := _CLIP.fullmatch(name.strip()):
            return found["id"], int(found["start"]), label.strip(), subset
        case _:
            return None


def _clip_folder(root: Path) -> Path:
    """Find the folder of the clips; by default `videos`."""
    for folder in (root / "videos", root / "video"):
        if folder.is_dir():
            return folder
    return root if any(root.glob("*.mp4")) else root / "videos"


def _parse(youtube: str, start: int, label: str, split: str, *, folder: Path) -> Video:
    """Convert one line to a video with images and sound in one file."""
    name = f"{youtube}_{start:06d}"
    path = folder / f"{name}.mp4"
    return Video(
        id=name, action=label, split=split, path=path, sound=path, notes={"youtube": youtube, "start": str(start)}
    )
