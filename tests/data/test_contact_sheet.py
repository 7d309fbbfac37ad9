import numpy as np
import pytest
from PIL import Image

from inphase.data.contact_sheet import PALETTE, UNLABELED, choose, draw_contact_sheet
from inphase.data.video import Video
from inphase.media.frames import Clip
from inphase.pose.pose import JOINTS13


def pixel(sheet: Image.Image, x: int, y: int) -> tuple[int, ...]:
    value = sheet.getpixel((x, y))
    assert isinstance(value, tuple)
    return value


def red(video: Video, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    images = np.zeros((len(frames), 40, 80, 3), np.uint8)
    images[..., 0] = frames[:, None, None] * 10
    return images, frames / 10.0


def video(name: str = "a", **how: object) -> Video:
    return Video(name, "wave", "train", length=20, **how)  # type: ignore[arg-type]


def drawn() -> Clip:
    images, times = red(video(), np.arange(20))
    return Clip(images, times)


def test_frames_are_spread_evenly_with_their_phase_below() -> None:
    labelled = video(render=drawn, phases=np.repeat([0, -1], 10))
    sheet = draw_contact_sheet([labelled], columns=3, cell=80)
    lefts = [150 + column * 84 for column in range(3)]
    assert [pixel(sheet, left + 40, 40) for left in lefts] == [(0, 0, 0), (100, 0, 0), (190, 0, 0)]
    assert [pixel(sheet, left + 40, 88) for left in lefts] == [PALETTE[0], UNLABELED, UNLABELED]


def test_names_are_not_written_as_boxes() -> None:
    sheets = [draw_contact_sheet([video(name, render=drawn)], columns=1, cell=80) for name in ("Ü", "Ý")]
    assert sheets[0].tobytes() != sheets[1].tobytes()


def test_images_are_read_where_they_can_be(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("x") / "a.mp4"
    sheet = draw_contact_sheet([video(path=path, intervals=((0.0, 0.95, 3),))], columns=2, cell=80, read=red)
    assert pixel(sheet, 150 + 84 + 40, 40) == (190, 0, 0)
    assert pixel(sheet, 150 + 40, 88) == PALETTE[3]
    assert pixel(sheet, 150 + 84 + 40, 88) == UNLABELED


def test_keypoints_become_stick_figures_with_distinct_sides() -> None:
    points = np.zeros((20, 13, 2), np.float32)
    for index, name in enumerate(JOINTS13):
        points[:, index] = [{"left": 90.0, "right": 10.0}.get(name.split("_")[0], 50.0), 10.0 * (index + 1)]
    sheet = np.asarray(draw_contact_sheet([video(keypoints=points, joints=JOINTS13)], columns=1, cell=90))
    image = sheet[:90, 150:240].astype(int)
    blue, orange = (np.abs(image - color).sum(-1) < 60 for color in ((0, 114, 178), (213, 94, 0)))
    assert blue.sum() > 50
    assert orange.sum() > 50
    assert np.nonzero(blue)[1].mean() > np.nonzero(orange)[1].mean()
    hidden = video(keypoints=points, joints=JOINTS13, visibility=np.zeros((20, 13), np.bool_))
    pale = np.asarray(draw_contact_sheet([hidden], columns=1, cell=90))[:90, 150:240].astype(int)
    assert not (np.abs(pale - (0, 114, 178)).sum(-1) < 60).any()


def test_a_video_that_cannot_be_shown_says_so_in_its_row() -> None:
    sheet = np.asarray(
        draw_contact_sheet([Video("a", "wave", "train"), video(render=drawn)], columns=2, cell=80)
    ).astype(int)
    assert (sheet[:80, 150:, 0] - sheet[:80, 150:, 1] > 100).any()
    with pytest.raises(ValueError, match="got 0 and 10"):
        draw_contact_sheet([])


def test_every_action_is_shown_before_any_is_shown_twice() -> None:
    videos = [Video(f"{action}{i}", action, "train") for action in "bca" for i in range(3)]
    assert [found.id for found in choose(videos, rows=4)] == ["a0", "a1", "b0", "c0"]
    assert len(choose(videos, rows=99)) == 9
