"""Exact frames by presentation timestamp, whatever the container, codec, clock or shape."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from av.video.frame import VideoFrame
from hypothesis import given, settings
from hypothesis import strategies as st

from inphase.media import recording as recordings
from inphase.media.frames import Clip, read_clip, read_spans, stream_clips
from inphase.media.recording import ScaledCopies, open_recording
from inphase.media.sampling import choose
from inphase.storage.errors import MediaError
from tests.media.recordings import (
    HEIGHT,
    WIDTH,
    clicks,
    number_of,
    numbered,
    numbers_of,
    remux,
    write_images,
    write_video,
)

pytestmark = pytest.mark.slow

NTSC = Fraction(30000, 1001)
# Long groups of pictures, reordered frames, references across key frames, no key frames but the first, other codecs.
KINDS: dict[str, dict[str, object]] = {
    "h264.mp4": {"options": {"g": "12", "bf": "3"}},
    "h264-open.mp4": {"options": {"g": "12", "bf": "3", "x264-params": "open-gop=1"}},
    "h264-refresh.mp4": {"options": {"g": "12", "x264-params": "intra-refresh=1"}},
    "h264.mkv": {"options": {"g": "12"}},
    "h264.ts": {"options": {"g": "12", "bf": "3"}},
    "hevc-open.mp4": {"codec": "libx265", "options": {"g": "12", "x265-params": "open-gop=1:bframes=4:log-level=none"}},
    "vp9.webm": {"codec": "libvpx-vp9", "options": {"g": "12", "auto-alt-ref": "1", "deadline": "realtime"}},
    "vp8.webm": {"codec": "libvpx", "options": {"g": "12", "auto-alt-ref": "1", "lag-in-frames": "8"}},
    "mpeg4.avi": {"codec": "mpeg4", "options": {"g": "12", "bf": "2", "q": "2"}},
    "mpeg2.ts": {"codec": "mpeg2video", "options": {"g": "12", "bf": "2", "q": "2"}},
    "h264.avi": {"options": {"g": "12", "bf": "3"}},
    "h264.h264": {"options": {"g": "12"}},
    "ffv1.mkv": {"codec": "ffv1"},
}


@pytest.fixture(scope="module", params=KINDS, ids=lambda name: name.replace(".", "_"))
def film(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    rate = 25 if request.param.endswith(("h264", "avi", "ts")) else NTSC
    return write_video(tmp_path_factory.mktemp("films") / request.param, count=70, rate=rate, **KINDS[request.param])  # type: ignore[arg-type]


def test_every_frame_comes_once_and_on_time(film: Path) -> None:
    clip = read_clip(film)
    assert numbers_of(clip.frames) == list(range(70))
    rate = 25 if film.suffix in {".h264", ".avi", ".ts"} else NTSC
    rounding = 0.0005 if film.suffix in {".mkv", ".webm"} else 1e-9
    np.testing.assert_allclose(clip.times, [float(i / rate) for i in range(70)], atol=rounding)


@pytest.mark.parametrize(
    "indices",
    [
        [0],
        [69],
        [11, 12, 13],
        [5, 30, 31, 68],
        [23, 24, 36, 47],
        list(range(1, 70, 9)),
        list(range(0, 70, 2)),
        list(range(1, 70, 2)),
        [k for k in range(70) if k % 3],
    ],
)
def test_seeking_gives_what_decoding_everything_gives(film: Path, indices: list[int]) -> None:
    clip, whole = read_clip(film, indices=indices), read_clip(film)
    assert numbers_of(clip.frames) == indices
    np.testing.assert_array_equal(clip.frames, whole.frames[indices])
    np.testing.assert_array_equal(clip.times, whole.times[indices])


def test_several_threads_give_the_same_frames(film: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, half = read_clip(film), list(range(1, 70, 2))
    monkeypatch.setattr("inphase.media.decode.MIN_THREADED_PIXELS", 0)
    np.testing.assert_array_equal(read_clip(film).frames, one.frames)
    np.testing.assert_array_equal(read_clip(film, indices=half).frames, one.frames[half])


def test_a_trimmed_file_starts_where_it_is_shown_from(tmp_path: Path) -> None:
    source = write_video(tmp_path / "film.mp4", count=60, options={"g": "12", "bf": "2"})
    trimmed = remux(source, tmp_path / "trimmed.mp4", shift=-5 * 512)
    clip = read_clip(trimmed)
    assert numbers_of(clip.frames) == list(range(5, 60))
    assert clip.times[0] == 0
    assert numbers_of(read_clip(trimmed, indices=[0, 3, 30]).frames) == [5, 8, 35]


def test_a_file_in_fragments_is_read_whole(tmp_path: Path) -> None:
    source = write_video(tmp_path / "film.mp4", count=60, options={"g": "12"})
    path = remux(source, tmp_path / "fragments.mp4", options={"movflags": "frag_keyframe+empty_moov"})
    assert numbers_of(read_clip(path).frames) == list(range(60))
    assert numbers_of(read_clip(path, indices=[40, 41]).frames) == [40, 41]


@pytest.mark.parametrize("offset", [0, 20000])
def test_a_clock_that_starts_again_does_not_mix_the_parts(tmp_path: Path, offset: int) -> None:
    joined = tmp_path / "joined.ts"
    for begin in (0, offset):
        stamps = range(begin, begin + 40 * 3600, 3600)
        part = write_video(
            tmp_path / "part.ts", rate=25, stamps=stamps, time_base=Fraction(1, 90000), options={"g": "12"}
        )
        with joined.open("ab") as file:
            file.write(part.read_bytes())
    clip = read_clip(joined)
    assert numbers_of(clip.frames) == [*range(40), *range(40)]
    np.testing.assert_allclose(clip.times, np.arange(80) / 25)
    assert numbers_of(read_clip(joined, indices=[39, 40, 41]).frames) == [39, 0, 1]


@pytest.mark.parametrize("count", [1, 2])
def test_the_shortest_films_are_films(tmp_path: Path, count: int) -> None:
    path = write_video(tmp_path / "film.mp4", count=count)
    assert numbers_of(read_clip(path).frames) == list(range(count))
    assert numbers_of(read_clip(path, fps=5).frames) == [0]
    assert numbers_of(read_clip(path, seconds=0).frames) == [0]


@pytest.mark.parametrize(("indices", "most"), [([100, 410, 595], 3 * 30), (list(range(0, 600, 2)), 350)])
def test_frames_that_no_wanted_frame_needs_are_not_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indices: list[int], most: int
) -> None:
    import inphase.media.decode as decode

    # Three frames between references, on which no other frame depends.
    options = {"g": "30", "bf": "3", "x264-params": "b-adapt=0:b-pyramid=none"}
    path = write_video(tmp_path / "long.mp4", count=600, options=options)
    decoded: list[int | None] = []
    for name in ("decoded", "decoded_after_seek"):
        inner = getattr(decode, name)

        def counted(*args: object, inner: Callable[..., Iterator[VideoFrame]] = inner, **settings: object) -> object:
            for frame in inner(*args, **settings):
                decoded.append(frame.pts)
                yield frame

        monkeypatch.setattr(decode, name, counted)
    assert numbers_of(read_clip(path, indices=indices).frames) == indices
    assert len(indices) <= len(decoded) <= most


@pytest.fixture(scope="module")
def variable(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    steps = np.random.default_rng(0).integers(1, 9, 50) * 400
    stamps = np.concatenate([[0], np.cumsum(steps)])
    path = tmp_path_factory.mktemp("variable") / "variable.mp4"
    write_video(path, count=51, stamps=stamps.tolist(), time_base=Fraction(1, 30000), options={"bf": "3", "g": "10"})
    return path, stamps / 30000


def test_a_variable_rate_keeps_its_clock(variable: tuple[Path, np.ndarray[tuple[int], np.dtype[np.float64]]]) -> None:
    path, times = variable
    clip = read_clip(path)
    assert numbers_of(clip.frames) == list(range(51))
    np.testing.assert_allclose(clip.times, times, atol=1e-12)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_seconds_and_spans_mean_what_a_player_shows(
    variable: tuple[Path, np.ndarray[tuple[int], np.dtype[np.float64]]], data: st.DataObject
) -> None:
    path, times = variable
    seconds = data.draw(st.lists(st.floats(0, float(times[-1])), min_size=1, max_size=4))
    shown = sorted({max(i for i, time in enumerate(times) if time <= second + 0.0005) for second in seconds})
    assert numbers_of(read_clip(path, seconds=seconds).frames) == shown
    start = data.draw(st.floats(0, float(times[-2])))
    end = data.draw(st.floats(start + 0.3, float(times[-1]) + 1))
    inside = [i for i, time in enumerate(times) if start - 0.0005 <= time < end - 0.0005]
    assert numbers_of(read_clip(path, span=(start, end)).frames) == inside


@pytest.mark.parametrize("rate", [7.5, 10, 29.97, 30, 60])
def test_a_rate_takes_the_nearest_frames(tmp_path: Path, rate: float) -> None:
    path = write_video(tmp_path / "film.mp4", count=60, rate=NTSC, options={"g": "12"})
    clip = read_clip(path, fps=rate)
    ticks = np.arange(0, float(59 / NTSC) + 1e-9, 1 / rate)
    nearest = sorted({min(range(60), key=lambda i: (abs(float(i / NTSC) - tick), i)) for tick in ticks})
    assert numbers_of(clip.frames) == nearest
    if rate >= 29.9:
        assert len(clip) >= 59


def test_spans_join_in_the_order_given_on_one_clock(tmp_path: Path) -> None:
    clip = read_spans(write_video(tmp_path / "film.mp4", count=60), [(1.0, 1.2), (0.0, 0.1)])
    assert numbers_of(clip.frames) == [30, 31, 32, 33, 34, 35, 0, 1, 2]
    np.testing.assert_allclose(clip.times, np.arange(9) / 30, atol=1e-9)


def test_a_stream_of_clips_is_the_whole(tmp_path: Path) -> None:
    path = write_video(tmp_path / "film.mp4", count=45)
    clips = list(stream_clips(path, length=16))
    assert [len(clip) for clip in clips] == [16, 16, 13]
    assert [number for clip in clips for number in numbers_of(clip.frames)] == list(range(45))
    np.testing.assert_array_equal(np.concatenate([clip.times for clip in clips]), read_clip(path).times)
    assert len(list(stream_clips(path, length=45))) == 1


def test_second_0_is_where_sound_or_image_begins(tmp_path: Path) -> None:
    silence = clicks([], length=1.0)
    late = write_video(tmp_path / "late.mkv", stamps=range(500, 1700, 30), time_base=Fraction(1, 1000), sound=silence)
    np.testing.assert_allclose(read_clip(late).times[:2], [0.5, 0.53], atol=0.0011)
    alone = write_video(tmp_path / "alone.mkv", stamps=range(500, 1700, 30), time_base=Fraction(1, 1000))
    assert read_clip(alone).times[0] == 0.0


@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
@pytest.mark.parametrize("mirrored", [False, True])
def test_images_come_upright(tmp_path: Path, degrees: int, mirrored: bool) -> None:
    stored = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    stored[:16, :24] = (255, 0, 0)
    stored[-16:, :24] = (0, 255, 0)
    path = write_video(tmp_path / "turned.mp4", turn={"degrees": degrees, "hflip": mirrored}, images=[stored] * 3)
    expected = np.rot90(stored, degrees // 90)
    expected = expected[:, ::-1] if mirrored else expected
    clip = read_clip(path)
    assert clip.frames.shape[1:] == expected.shape
    assert np.abs(clip.frames[0].astype(int) - expected).mean() < 6
    half = read_clip(path, size=(expected.shape[0] // 2, expected.shape[1] // 2))
    assert np.abs(half.frames[0].astype(int) - expected[::2, ::2]).mean() < 9


@pytest.mark.parametrize(
    ("codec", "pixels", "suffix"),
    [
        ("libx264", "yuv420p10le", "mp4"),
        ("libx265", "yuv420p10le", "mp4"),
        ("libx264", "yuv444p", "mp4"),
        ("libx264", "yuvj420p", "mp4"),
        ("libx264", "gray", "mp4"),
        ("ffv1", "gray16le", "mkv"),
        ("ffv1", "yuva420p", "mkv"),
        ("png", "rgba", "mov"),
        ("prores_ks", "yuv422p10le", "mov"),
        ("rawvideo", "bgr0", "nut"),
        ("gif", "rgb8", "gif"),
    ],
)
def test_any_pixel_format_gives_the_same_images(tmp_path: Path, codec: str, pixels: str, suffix: str) -> None:
    options = {"x265-params": "log-level=none"} if codec == "libx265" else {}
    path = write_video(tmp_path / f"film.{suffix}", codec=codec, pixels=pixels, count=12, rate=10, options=options)
    clip = read_clip(path)
    assert numbers_of(clip.frames) == list(range(12))
    truth = np.stack([numbered(i) for i in range(12)])
    # The reduced palette of a gif is coarse; elsewhere only edges suffer.
    assert np.median(np.abs(clip.frames.astype(int) - truth)) <= (20 if suffix == "gif" else 2)


@pytest.mark.parametrize(("height", "width"), [(63, 97), (65, 96), (33, 5), (2, 2)])
def test_odd_sizes_keep_their_size(tmp_path: Path, height: int, width: int) -> None:
    images = [np.full((height, width, 3), 20 * i, np.uint8) for i in range(10)]
    path = write_video(tmp_path / "odd.mkv", codec="ffv1", height=height, width=width, images=images)
    clip = read_clip(path)
    assert clip.frames.shape == (10, height, width, 3)
    assert np.abs(clip.frames.astype(int) - np.stack(images)).max() <= 2


def test_size_scales_without_crop_or_aspect(tmp_path: Path) -> None:
    clip = read_clip(write_video(tmp_path / "film.mp4", count=5), size=(112, 80))
    assert clip.frames.shape == (5, 112, 80, 3)
    assert numbers_of(clip.frames) == list(range(5))


@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_a_folder_of_numbered_images_is_a_recording(tmp_path: Path, suffix: str) -> None:
    folder = write_images(tmp_path / "frames", range(8, 12), suffix=suffix, name="{}")
    clip = read_clip(folder, native_fps=20)
    assert numbers_of(clip.frames) == [8, 9, 10, 11]
    np.testing.assert_allclose(clip.times, [0, 0.05, 0.1, 0.15])
    assert numbers_of(read_clip(folder, native_fps=20, indices=[1, 3]).frames) == [9, 11]
    assert numbers_of(read_clip(folder, native_fps=20, fps=10).frames) == [8, 10]
    with pytest.raises(ValueError, match="native_fps"):
        read_clip(folder)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"indices": [3, 99]}, "frame 99 does not exist: the recording has frames 0 to 9"),
        ({"indices": [-1]}, "frame -1 does not exist"),
        ({"indices": [3, 3]}, r"np\.unique"),
        ({"indices": [0.5]}, "whole number"),
        ({"indices": []}, "at least one"),
        ({"seconds": [4.0]}, "second 4.0 lies outside"),
        ({"seconds": [float("nan")]}, "second nan lies outside"),
        ({"span": (0.2, 0.1)}, "earlier to a later"),
        ({"span": (5, 6)}, r"no frame lies in span \(5, 6\)"),
        ({"fps": 0}, "positive"),
        ({"size": (0, 9)}, r"\(height, width\)"),
        ({"indices": [1], "fps": 3}, "not two"),
        ({"native_fps": 30}, "drop it"),
    ],
)
def test_a_wrong_request_is_explained(tmp_path: Path, request_: dict[str, object], message: str) -> None:
    path = write_video(tmp_path / "film.mp4", count=10)
    with pytest.raises(ValueError, match=message):
        read_clip(path, **request_)  # type: ignore[arg-type]


def test_a_folder_without_numbered_images_is_explained(tmp_path: Path) -> None:
    with pytest.raises(MediaError, match="holds no images"):
        read_clip(tmp_path, native_fps=5)
    twice = write_images(tmp_path / "twice", [1])
    (twice / "again_1.jpg").write_bytes((twice / "000001.png").read_bytes())
    with pytest.raises(MediaError, match="both number 1"):
        read_clip(twice, native_fps=5)
    named = write_images(tmp_path / "named", [1], name="cover{}")
    (named / "cover1.png").rename(named / "cover.png")
    with pytest.raises(MediaError, match="no number in its name"):
        read_clip(named, native_fps=5)


def test_numbers_survive_their_own_reader() -> None:
    assert all(number_of(numbered(number)) == number for number in range(0, 4096, 7))


@pytest.mark.parametrize("fps", [None, 10.0, 20.0])
def test_scaled_copies_are_the_frames_that_another_reader_gets(tmp_path: Path, fps: float | None) -> None:
    path = write_video(tmp_path / "a.mp4", count=24)
    recording = open_recording(path)
    copies = ScaledCopies(recording, size=(16, 24), fps=fps)
    assert copies.take() is None  # nothing is read yet
    wanted = choose(recording.times, fps=fps)
    whole = dict(recording.images(wanted))
    list(recording.images(wanted))  # as a second look at the figure does: no frame is copied twice
    taken, expected = copies.take(), read_clip(path, fps=fps, size=(16, 24))
    assert taken is not None
    clip = Clip(*taken)
    np.testing.assert_array_equal(clip.frames, expected.frames)
    np.testing.assert_array_equal(clip.times, expected.times)
    assert list(whole) == clip.times.tolist()


def test_copies_of_a_part_and_of_a_long_recording_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_video(tmp_path / "a.mp4", count=12)
    recording = open_recording(path)
    copies = ScaledCopies(recording, size=(16, 24), fps=None)
    for _ in zip(range(5), recording.images(None), strict=False):
        pass
    assert copies.take() is None
    monkeypatch.setattr(recordings, "MAX_COPY_BYTES", 11 * 16 * 24 * 3)
    recording = open_recording(path)
    copies = ScaledCopies(recording, size=(16, 24), fps=None)
    assert recording.on_frame is None
    assert len(list(recording.images(None))) == 12
    assert copies.take() is None
