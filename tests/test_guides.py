"""Guides: every command in them runs, in order, on small drawn videos."""

import re
import shlex
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from scipy.io import wavfile

from inphase.data import stage_videos
from inphase.data.frame_source import select_joints
from inphase.media.audio import read_sound
from inphase.media.frames import Clip, read_clip
from inphase.media.render import SOUND_RATE, write_mp4
from inphase.pose import estimator
from inphase.pose.pose import JOINTS13, Pose
from tests.commands import type_command

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
GUIDES = [ROOT / "docs" / "index.md", *sorted(ROOT.glob("docs/guides/*.md"))]
BLOCK = re.compile(r"(?:^<!-- not run: (?P<why>[^\n]+) -->\n)?^```\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
LABELS = "second,label\n0.1,toe up\n0.7,top\n1.2,impact\n"
# Smaller settings than a reader's: the command, its options and its files are the same.
QUICK = {
    "fit": "--steps 2 --modality pose --workers 0",
    "train": "--set run.steps=1 --set data.videos=2",
    "embed": "--workers 0",
    "evaluate": "--workers 0",
}


class DrawnPose:
    """A pose estimator that finds the joints of a drawn person by the length of the clip."""

    joints: ClassVar[tuple[str, ...]] = JOINTS13
    drawn: ClassVar[dict[int, np.ndarray]] = {}

    def estimate(self, clips: Iterable[Clip]) -> Pose:
        parts = list(clips)
        times = np.concatenate([clip.times for clip in parts])
        known = self.drawn[min(self.drawn, key=lambda length: abs(length - len(times)))]
        points = known[np.linspace(0, len(known) - 1, len(times)).round().astype(int)]
        height, width = parts[0].frames.shape[1:3]
        seen = np.ones(points.shape[:2], np.float32)
        return Pose(JOINTS13, points.astype(np.float32), seen, seen[:, 0] > 0, times, (height, width))


@pytest.fixture(scope="module")
def cast(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Draw the videos that the guides name, ten frames a second, and write their tables."""
    root = tmp_path_factory.mktemp("cast")
    (root / "swings").mkdir()
    names = ("student.mp4", "pro.mp4", "friend.mp4", "swings/third.mp4")
    drawn = stage_videos.load(split="train", actions=["golf_swing"], videos=4, level="plain", size=64)
    for name, video in zip(names, drawn, strict=True):
        assert video.render is not None
        assert video.synthesize is not None
        images, sound = video.render().frames[::3], video.synthesize()
        track = np.resize(np.repeat(sound.samples, SOUND_RATE // sound.rate), (len(images), SOUND_RATE // 10))
        write_mp4(root / name, images, fps=10, sound=iter(track))
        points = select_joints(video).keypoints
        assert points is not None
        DrawnPose.drawn[len(images)] = points[::3]
    shutil.copy(root / "pro.mp4", root / "swings" / "first.mp4")
    shutil.copy(root / "friend.mp4", root / "swings" / "second.mp4")
    swing = read_clip(root / "pro.mp4").frames
    write_mp4(root / "session.mp4", np.concatenate([swing] * 3), fps=10)
    DrawnPose.drawn[3 * len(swing)] = np.concatenate([DrawnPose.drawn[len(swing)]] * 3)
    sound = read_sound(root / "pro.mp4")
    wavfile.write(root / "hit.wav", sound.rate, sound.samples)
    for name in ("pro.csv", "friend.csv"):
        (root / name).write_text(LABELS, encoding="utf-8")
    return root


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_the_commands_of_a_guide_run(
    guide: Path, cast: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    commands = [line for why, block in blocks(guide) if not why for line in commands_in(block)]
    assert commands, "a guide without a command"
    shutil.copytree(cast, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(estimator.POSE_ESTIMATORS, "blazepose", f"{__name__}:DrawnPose")
    monkeypatch.setattr("inphase.viewer.server.serve", lambda *_, **__: None)
    for line in commands:
        command, *rest = shlex.split(line)[1:]
        words = [command, *rest, *QUICK.get(command, "").split()]
        assert type_command(monkeypatch, *words) == 0, f"{line}\n{capfd.readouterr().err}"


def blocks(guide: Path) -> list[tuple[str | None, str]]:
    """List the blocks of commands with the reason why one is not run."""
    text = guide.read_text(encoding="utf-8")
    return [(match["why"], match["text"]) for match in BLOCK.finditer(text)]


def commands_in(block: str) -> list[str]:
    """List the commands of a block without comments."""
    lines = block.replace("\\\n", " ").splitlines()
    return [line.split(" #")[0].strip() for line in lines if line.startswith("inphase ")]


def test_few_blocks_are_not_run() -> None:
    left_out = [(guide.name, why) for guide in GUIDES for why, _ in blocks(guide) if why]
    assert len(left_out) <= 2, left_out
