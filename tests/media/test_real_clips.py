"""Real clips, where they are at hand."""

import csv
from pathlib import Path

import av
import numpy as np
import pytest

from inphase.media.frames import read_clip
from inphase.media.recording import probe
from tests.real_data import needs_real, real_folder

GOLFDB = real_folder("golfdb")

pytestmark = needs_real("golfdb")


def some_clips() -> list[tuple[Path, int]]:
    with (GOLFDB / "index.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))[::60]
    return [(GOLFDB / "videos" / f"{row['id']}.mp4", int(row["frames"])) for row in rows]


def test_real_clips_have_the_frames_their_index_says() -> None:
    for path, frames in some_clips():
        found = probe(path)
        assert (found.frames, found.size) == (frames, (128, 128))
        assert found.fps == pytest.approx(30, rel=0.01)


def test_real_clips_seek_to_what_plain_decoding_gives() -> None:
    rng = np.random.default_rng(0)
    for path, frames in some_clips():
        with av.open(str(path)) as container:
            plain = np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])
        np.testing.assert_array_equal(read_clip(path).frames, plain)
        wanted = np.sort(rng.choice(frames, 6, replace=False))
        np.testing.assert_array_equal(read_clip(path, indices=wanted).frames, plain[wanted])
