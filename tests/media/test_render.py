"""Rendered files are what browsers play, and show and sound what they should, when they should."""

import weakref
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from inphase.media import canvas as module
from inphase.media.audio import Sound, read_sound
from inphase.media.canvas import Captions, JointOverlay, choose_font, plan_layout
from inphase.media.decode import VideoFile
from inphase.media.frames import Clip, read_clip
from inphase.media.recording import open_recording
from inphase.media.render import render, write_mp4
from inphase.storage.errors import MediaError
from tests.media.recordings import clicks, number_of, numbered, numbers_of, write_video


def clip_of(count: int, *, rate: float = 30, height: int = 64, width: int = 96) -> Clip:
    return Clip(np.stack([numbered(i, height=height, width=width) for i in range(count)]), np.arange(count) / rate)


def halves(path: Path, *, at: int) -> tuple[list[int], list[int]]:
    frames = read_clip(path).frames
    return numbers_of(frames[:, :, :at]), numbers_of(frames[:, :, at:])


def test_the_file_is_one_that_browsers_play(tmp_path: Path) -> None:
    path = tmp_path / "out.mp4"
    sound = Sound(clicks([0.5], length=1.0, rate=48000), 48000)
    assert render(path, [clip_of(30), clip_of(30, width=63)], height=63, sound=sound) == 30
    data = path.read_bytes()
    assert data.index(b"moov") < data.index(b"mdat"), "the index comes first, so that playing starts before the end"
    with av.open(str(path)) as container:
        video, audio = container.streams.video[0], container.streams.audio[0]
        assert (video.codec_context.name, video.pix_fmt, video.average_rate) == ("h264", "yuv420p", Fraction(30))
        assert video.width % 2 == video.height % 2 == 0
        assert (audio.codec_context.name, audio.rate) == ("aac", 48000)
    assert not list(tmp_path.glob(".*"))


def test_a_row_shows_every_clip_on_the_common_clock(tmp_path: Path) -> None:
    # The second clip has half the rate and no more images after 0.6 s.
    render(tmp_path / "out.mp4", [clip_of(30), clip_of(9, rate=15)], height=64)
    left, right = halves(tmp_path / "out.mp4", at=96)
    assert left == list(range(30))
    assert right == [min(i // 2, 8) for i in range(30)]


@pytest.mark.parametrize("as_files", [False, True])
def test_maps_and_slow_motion_choose_the_images(tmp_path: Path, as_files: bool) -> None:
    source = write_video(tmp_path / "film.mp4", count=60)
    sources = [source, source] if as_files else [clip_of(60), clip_of(60)]
    # From second 1 of the clock on the second source runs at double speed, after standing still.
    clock, seconds = [0.5, 1.0, 1.5], [[0.5, 0.2], [1.0, 0.2], [1.5, 1.2]]
    render(tmp_path / "out.mp4", sources, clock=clock, seconds=seconds, height=64, slow=2, fps=30)
    left, right = halves(tmp_path / "out.mp4", at=96)
    ticks = 0.5 + np.arange(61) / 60
    assert left == [int(t * 30 + 1e-6) for t in ticks]
    assert right == [int(np.interp(t, clock, [0.2, 0.2, 1.2]) * 30 + 0.015) for t in ticks]


def test_a_grid_keeps_aspects_and_leaves_the_rest_black(tmp_path: Path) -> None:
    clips = [clip_of(5), clip_of(5, width=48), clip_of(5)]
    render(tmp_path / "out.mp4", clips, layout="grid", height=64)
    frames = read_clip(tmp_path / "out.mp4").frames
    assert frames.shape[1:3] == (128, 192)
    assert numbers_of(frames[:, :64, :96]) == numbers_of(frames[:, :64, 120:168]) == numbers_of(frames[:, 64:, :96])
    assert frames[:, :64, 100:116].max() < 12
    assert frames[:, 68:, 100:].max() < 12


def test_an_overlay_is_the_average(tmp_path: Path) -> None:
    dark, light = np.full((4, 64, 96, 3), 40, np.uint8), np.full((4, 64, 96, 3), 200, np.uint8)
    times = np.arange(4) / 30
    render(tmp_path / "out.mp4", [Clip(dark, times), Clip(light, times)], layout="overlay", height=64)
    frames = read_clip(tmp_path / "out.mp4").frames
    assert frames.shape[1:3] == (64, 96)
    assert np.abs(frames.astype(int) - 120).max() <= 3


def test_colors_come_back(tmp_path: Path) -> None:
    for color in [(230, 30, 30), (30, 200, 40), (20, 40, 220), (128, 128, 128), (255, 255, 255), (0, 0, 0)]:
        write_mp4(tmp_path / "out.mp4", [np.full((32, 32, 3), color, np.uint8)] * 3, fps=10)
        assert np.abs(read_clip(tmp_path / "out.mp4").frames.astype(int) - color).max() <= 6


@pytest.mark.parametrize("slow", [1.0, 2.0])
def test_sound_is_heard_with_its_image(tmp_path: Path, slow: float) -> None:
    source = tmp_path / "film.mp4"
    write_video(source, count=60, sound=clicks([0.4, 1.2], length=2.0))
    clock, seconds = [0.0, 1.0], [[0.0, 0.3], [1.0, 1.3]]
    render(
        tmp_path / "out.mp4", [clip_of(60), source], clock=clock, seconds=seconds, slow=slow, sound=source, sound_of=1
    )
    sound = read_sound(tmp_path / "out.mp4", rate=48000)
    times = sound.start + np.arange(len(sound)) / 48000
    loud = times[np.abs(sound.samples) > 0.3]
    middle = slow * 0.5
    assert loud[loud < middle].mean() == pytest.approx(slow * 0.1, abs=0.004)
    assert loud[loud > middle].mean() == pytest.approx(slow * 0.9, abs=0.004)


def test_where_the_image_stands_still_it_is_silent(tmp_path: Path) -> None:
    tone = Sound(np.sin(2 * np.pi * 440 * np.arange(96000) / 48000).astype(np.float32), 48000)
    render(tmp_path / "out.mp4", [clip_of(60)], clock=[0, 1, 2], seconds=[[0.1013], [0.1013], [1.1]], sound=tone)
    heard = read_sound(tmp_path / "out.mp4", rate=48000)
    assert np.abs(heard.samples[4800:43200]).max() < 0.02
    assert np.abs(heard.samples[52800:91200]).max() > 0.8


def test_labels_stand_in_their_cells_and_long_ones_are_cut(tmp_path: Path) -> None:
    plain = Clip(np.full((3, 120, 160, 3), 128, np.uint8), np.arange(3) / 30)
    render(tmp_path / "out.mp4", [plain, plain], labels=["first", "a very long label that cannot fit in"], height=120)
    frames = read_clip(tmp_path / "out.mp4").frames.astype(int)
    for left in (0, 160):
        cell = frames[1, :, left : left + 160]
        assert np.abs(cell[:100] - 128).max() < 12
        assert cell[108:].max() > 200
        assert cell[108:].min() < 80
    with pytest.raises(ValueError, match="2 clips need as many labels, got 1"):
        render(tmp_path / "out.mp4", [plain, plain], labels=["one"])


def test_files_are_played_from_the_disk_in_bounded_memory(tmp_path: Path) -> None:
    path = write_video(tmp_path / "film.mp4", count=120)
    decode, alive, counts = VideoFile.images, dict[int, object](), list[int]()

    def watched(self: VideoFile, *args: Any, **settings: Any) -> Iterator[tuple[float, NDArray[np.uint8]]]:
        for time, image in decode(self, *args, **settings):
            alive[id(image)] = weakref.finalize(image, alive.pop, id(image), None)
            counts.append(len(alive))
            yield time, image

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VideoFile, "images", watched)
        done: list[tuple[str, int, int]] = []
        render(tmp_path / "out.mp4", [path], height=64, progress=lambda *step: done.append(step))
    assert max(counts) <= 8
    assert done == [("rendering out.mp4", i, 120) for i in range(1, 121)]
    assert [number_of(frame) for frame in read_clip(tmp_path / "out.mp4").frames] == list(range(120))


def test_wrong_requests_are_explained(tmp_path: Path) -> None:
    clip, out = clip_of(5), tmp_path / "out.mp4"
    with pytest.raises(ValueError, match=r"must end in \.mp4"):
        render(tmp_path / "out.avi", [clip])
    with pytest.raises(ValueError, match="at least one clip"):
        render(out, [])
    with pytest.raises(ValueError, match=r"seconds must be \[2, 1\]"):
        render(out, [clip], clock=[0, 1], seconds=[[0, 0], [1, 1]])
    with pytest.raises(ValueError, match="increasing"):
        render(out, [clip], clock=[1, 0], seconds=[[0], [1]])
    with pytest.raises(ValueError, match="together"):
        render(out, [clip], clock=[1, 0])
    with pytest.raises(ValueError, match="'row', 'grid' or 'overlay', got 'ring'"):
        render(out, [clip], layout="ring")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="positive"):
        render(out, [clip], slow=0)
    film = write_video(tmp_path / "film.mp4")
    with pytest.raises(ValueError, match="runs backwards"):
        render(out, [film], clock=[0, 1], seconds=[[1], [0]])
    with pytest.raises(MediaError, match=r"cannot be written: .*check the folder"):
        render(tmp_path / "no" / "out.mp4", [clip])
    with pytest.raises(ValueError, match="no image"):
        write_mp4(out, [], fps=30)
    assert not out.exists()


def drawn(text: str, font: module.Font) -> bytes:
    image = Image.new("L", (300, 40))
    ImageDraw.Draw(image).text((2, 2), text, fill=255, font=font)
    return image.tobytes()


def test_english_is_written_in_the_font_that_is_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(size: int) -> tuple[module.Font, ...]:
        raise AssertionError("no font has to be looked for")

    monkeypatch.setattr(module, "_installed", search)
    text, font = choose_font("my swing (2) … it's 100%", 14)
    assert text == "my swing (2) … it's 100%"
    assert drawn("a", font) != drawn("b", font)


def test_letters_that_no_font_has_lose_their_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_installed", lambda size: ())
    text, font = choose_font("Übung à 日", 14)
    assert text == "Ubung a ?"
    assert drawn(text, font) == drawn("Ubung a ?", font)


def test_a_font_of_the_system_writes_what_it_knows() -> None:
    if not module._installed(14):
        pytest.skip("no font of many letters is installed")
    text, font = choose_font("Übung – žena", 14)
    assert text == "Übung – žena"
    assert len({drawn(letter, font) for letter in "Ü–žu"}) == 4, "not a box for each"


def test_captions_of_videos_are_not_boxes() -> None:
    layout = plan_layout([(64, 96)], layout="row", height=64)
    first, second = (Captions([text], layout).on(np.zeros((64, 96, 3), np.uint8)) for text in ("Ü", "Ý"))
    assert (first != second).any()


def test_a_mark_stands_still_and_is_named(tmp_path: Path) -> None:
    sound = Sound(clicks([0.5], length=1.0, rate=48000), 48000)
    # The lowest bits, at the top of the image, are 0: the label is written there.
    clip = Clip(np.stack([numbered(i << 4) for i in range(30)]), np.arange(30) / 30)
    marks = [(10 / 30, "top"), (5.0, "beyond the end")]
    count = render(tmp_path / "out.mp4", [clip], height=64, marks=marks, freeze=0.5, sound=sound)
    frames = read_clip(tmp_path / "out.mp4").frames
    assert [number >> 4 for number in numbers_of(frames)] == [*range(11), *[10] * 15, *range(11, 30)]
    assert count == len(frames)
    bright = [int((frame[:12] > 150).sum()) for frame in frames]
    assert max(bright[:10]) == 0
    assert min(bright[10:]) > 0, "the label stays until the next mark"


def test_seconds_and_joints_are_drawn(tmp_path: Path) -> None:
    clip = Clip(np.full((6, 120, 160, 3), 90, np.uint8), np.arange(6) / 30)
    points = np.full((6, 3, 2), np.nan, np.float32)
    points[:, 0], points[:, 1] = (40, 60), (120, 60)
    points[3:, :2, 1] = 90
    overlay = JointOverlay(clip.times, points, (120, 160), ((0, 1), (1, 2)), ((255, 0, 0), (0, 255, 0)))
    render(tmp_path / "out.mp4", [clip, clip], height=120, joints=[overlay, None], show_time=True)
    frames = read_clip(tmp_path / "out.mp4").frames.astype(int)
    red = frames[..., 0] - frames[..., 2]
    assert red[0, 60, 80] > 80
    assert abs(red[0, 90, 80]) < 40
    assert red[4, 90, 80] > 80
    assert np.abs(red[:, :, 160:]).max() < 40, "no joints on the second video"
    assert (frames[..., 1] - frames[..., 0]).max() < 40, "a bone to an unknown joint is left out"
    assert frames[0, :10, 120:160].min() < 60, "the second of each video is at its upper right"
    assert (frames[0, :10, 120:160] != frames[5, :10, 120:160]).any()


def test_halved_colors_are_nearly_those_of_full_resolution(tmp_path: Path) -> None:
    rows, columns = np.mgrid[:240, :320] / 40
    waves = [np.sin(rows + number / 3) + np.cos(columns * (1 + channel)) for number in range(3) for channel in range(3)]
    images = (np.stack(waves).reshape(3, 3, 240, 320).transpose(0, 2, 3, 1) * 60 + 128).astype(np.uint8)
    write_mp4(tmp_path / "a.mp4", images, fps=10, quality=10)
    recording = open_recording(tmp_path / "a.mp4")
    full, halved = (
        np.stack([image for _, image in recording.images(None, size=(60, 80), halve_color=halve)]).astype(float)
        for halve in (False, True)
    )
    assert full.shape == halved.shape == (3, 60, 80, 3)
    assert 0 < np.abs(full - halved).max() <= 24  # where the color changes within a pixel or two
    assert np.abs(full - halved).mean() < 4
    assert np.abs((full - halved).mean((0, 1, 2))).max() < 1  # the same colors
