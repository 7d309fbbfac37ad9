import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.interpolate import make_smoothing_spline
from torch import Tensor

from inphase.align import matching
from inphase.align.cost import contrastive_costs
from inphase.align.matching import match
from inphase.align.path import smooth_time_map
from inphase.apps import align_videos as align_videos_module
from inphase.apps.align_videos import Aligned, align_videos, medoid, synchronize
from inphase.apps.alignment_files import OUTPUTS
from inphase.apps.labels import Event, Labels
from inphase.apps.verdict import Verdict, judge
from inphase.media.frames import read_clip
from inphase.media.recording import probe
from inphase.models import embed_videos as embed_videos_module
from inphase.models.motion_encoder import PooledFeatures
from inphase.playback import read_playback
from inphase.progress import Progress
from inphase.stage.physique import JOINT
from inphase.storage.errors import MediaError
from tests.apps.curves import on_curve
from tests.apps.stage_pairs import STAGE_ESTIMATOR, make_stage_pair, write_stage_pair
from tests.media.recordings import numbered, write_video
from tests.models.test_embed_videos import small

LINE = np.linspace(0, 1, 60)
WALK = [int(n) for n in np.random.default_rng(0).permutation(4000)[:20]]


@pytest.fixture
def films(tmp_path: Path) -> list[Path]:
    """Write a video, and one that shows every frame of it twice."""
    quick, slow = [numbered(n) for n in WALK], [numbered(n) for n in WALK for _ in range(2)]
    return [write_video(tmp_path / "quick.mp4", images=quick), write_video(tmp_path / "slow.mp4", images=slow)]


def test_videos_are_aligned_written_and_described(films: list[Path], tmp_path: Path) -> None:
    stages: dict[str, tuple[int, int]] = {}
    progress: Progress = lambda stage, done, total: stages.update({stage: (done, total)})  # noqa: E731
    aligned = align_videos(films, model=small(context=(0,)), height=64, cache=tmp_path / "cache", progress=progress)
    assert aligned.reference == 0
    assert aligned.why == "Using the given image encoder."
    np.testing.assert_allclose(aligned.seconds[:, 1], aligned.clock * 2, atol=0.05)
    files = aligned.write(tmp_path / "out", progress=progress)
    assert [file.name for file in files] == [
        "aligned.mp4",
        "path.csv",
        "alignment.csv",
        "alignment.png",
        "playback.json",
    ]
    assert all(file.stat().st_size for file in files)
    assert [track.name for track in read_playback(tmp_path / "out").tracks] == ["quick", "slow"]
    assert stages["embedding quick.mp4"] == (20, 20)
    assert stages["rendering aligned.mp4"] == (20, 20)
    described = json.loads(json.dumps(aligned.to_dict(), allow_nan=False))
    assert [video["name"] for video in described["videos"]] == ["quick", "slow"]
    np.testing.assert_array_equal(described["videos"][1]["seconds"], aligned.seconds[:, 1])
    certainty = read_playback(tmp_path / "out").tracks[1].certainty
    assert certainty is not None
    np.testing.assert_allclose(certainty.probability, described["videos"][1]["moments"], atol=1e-3)
    with (tmp_path / "out" / "path.csv").open(encoding="utf-8", newline="") as opened:
        head, *rows = csv.reader(opened)
    assert head == ["quick", "slow", "probability of slow"]
    np.testing.assert_allclose([float(row[2]) for row in rows], certainty.probability, atol=1e-3)


def test_costs_are_computed_once_for_aligning_and_drawing(
    films: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, costs = [], []

    def counted(x: Tensor, y: Tensor, **settings: Any) -> Tensor:
        calls.append((x.shape[1], y.shape[1]))
        costs.append(contrastive_costs(x, y, **settings))
        return costs[-1]

    monkeypatch.setattr(matching, "contrastive_costs", counted)
    aligned = align_videos(films, model=small(context=(0,)), height=64, cache=tmp_path / "cache")
    aligned.write(tmp_path / "out")
    assert calls == [(20, 40)]
    (pair,) = read_playback(tmp_path / "out").pairs
    np.testing.assert_array_equal(pair.cost, costs[0].mean(0)[0].numpy().astype(np.float16))
    np.testing.assert_array_equal(pair.path, aligned.alignments[1].path)


def test_an_output_format_is_a_function_and_a_line(films: list[Path], tmp_path: Path) -> None:
    def write_lengths(aligned: Aligned, file: Path, progress: Progress) -> None:
        file.write_text("\n".join(f"{each.properties.duration:.2f}" for each in aligned.recordings))

    aligned = align_videos(films, model=small(context=(0,)), height=64, cache=tmp_path / "cache")
    chosen = {"path.csv": OUTPUTS["path.csv"], "lengths.txt": write_lengths}
    assert aligned.write(tmp_path / "out", chosen) == [tmp_path / "out" / name for name in chosen]
    assert (tmp_path / "out" / "lengths.txt").read_text() == "0.67\n1.33"
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["lengths.txt", "path.csv"]


def fail_at(name: str, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let embedding one video fail, wherever it stands in the list."""
    embed_file = embed_videos_module._embed_file

    def embed_or_fail(encoder: Any, path: Path, *rest: Any) -> Any:
        if path.name == name:
            raise error
        return embed_file(encoder, path, *rest)

    monkeypatch.setattr(embed_videos_module, "_embed_file", embed_or_fail)


@pytest.mark.parametrize("error", [MediaError("slow.mp4 shows no person"), AttributeError("a bug")])
def test_a_video_that_fails_is_left_out_and_named(
    films: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    (tmp_path / "text.mp4").write_text("no video")
    third = write_video(tmp_path / "third.mp4", images=[numbered(n) for n in WALK])
    paths = [tmp_path / "text.mp4", films[1], films[0], third]
    fail_at("slow.mp4", error, monkeypatch)
    given: Any = {"model": small(context=(0,)), "cache": tmp_path / "cache"}
    aligned = align_videos(paths, reference=4, **given)  # a number among those given, not among those left
    assert [each.name for each in aligned.recordings] == ["quick", "third"]
    assert aligned.recordings[aligned.reference].name == "third"
    assert list(aligned.left_out) == [str(paths[0]), str(paths[1])] == list(aligned.to_dict()["left_out"])
    assert "text.mp4 cannot be opened" in aligned.left_out[str(paths[0])]
    assert str(error) in aligned.left_out[str(paths[1])]
    assert align_videos(paths, reference="medoid", **given).left_out == aligned.left_out
    # The reference cannot be left out, and neither can so many that fewer than two remain.
    with pytest.raises(MediaError, match=r"text\.mp4 cannot be opened"):
        align_videos(paths, **given)
    with pytest.raises(type(error), match=str(error)):
        align_videos(paths, reference="slow", **given)
    with pytest.raises(ValueError, match=rf"fewer than two videos can be used: .*text\.mp4 .*{error}"):
        align_videos(paths[:3], reference="quick", **given)


def test_one_path_in_place_of_a_list_is_named() -> None:
    with pytest.raises(ValueError, match=r"give a list of videos to align, got one path: a\.mp4"):
        align_videos("a.mp4")


def test_a_modality_that_contradicts_the_model_is_refused(films: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="modality 'pose': the model embeds image"):
        align_videos(films, model=small(), modality="pose", cache=tmp_path)


@pytest.mark.parametrize("cost", ["contrastive", "cosine"])
def test_all_follow_the_reference(cost: str) -> None:
    slow, curved = on_curve(np.linspace(0, 1, 90)), on_curve(np.linspace(0, 1, 70) ** 1.5)
    found = synchronize([on_curve(LINE), slow, curved], cost=cost)  # type: ignore[arg-type]
    truth = np.stack([np.arange(60), LINE * 89, LINE ** (1 / 1.5) * 69], axis=1) / 30
    assert np.abs(found.seconds - truth)[5:-5].max() < 2 / 30
    assert (np.diff(found.seconds, axis=0) >= 0).all()
    np.testing.assert_array_equal(found.clock, found.seconds[:, 0])


def test_another_reference_keeps_its_own_clock() -> None:
    found = synchronize([on_curve(LINE), on_curve(np.linspace(0, 1, 90))], reference=1)
    assert len(found.clock) == 90
    np.testing.assert_array_equal(found.seconds[:, 1], found.clock)
    with pytest.raises(ValueError, match="reference 2 does not exist"):
        synchronize([on_curve(LINE), on_curve(LINE)], reference=2)


def test_a_short_action_is_found_inside_a_long_recording() -> None:
    long = on_curve(np.linspace(0, 1, 300))
    short = on_curve(np.linspace(0.4, 0.6, 30))
    seconds = synchronize([short, long], subsequence=True).seconds[:, 1]
    np.testing.assert_allclose(seconds[[0, -1]], np.array([0.4, 0.6]) * 299 / 30, atol=0.1)


def test_what_has_no_counterpart_is_dropped_and_passed_over() -> None:
    foreign = np.random.default_rng(0).standard_normal((25, on_curve(LINE).values.shape[1])).astype(np.float32)
    foreign /= np.linalg.norm(foreign, axis=1, keepdims=True)
    plain, slow = on_curve(LINE), on_curve(np.linspace(0, 1, 90))
    values = np.concatenate([foreign[:15], slow.values[:40], foreign[15:], slow.values[40:]])
    spoiled = replace(slow, values=values, times=np.arange(len(values)) / 30)
    truth = np.interp(LINE * 89, np.arange(90), np.r_[np.arange(15, 55), np.arange(65, 115)]) / 30
    found = synchronize([plain, spoiled], drop=0.03)
    assert np.abs(found.seconds[:, 1] - truth).max() < 3 / 30
    # Without drops the first frame is held through all that comes before the action.
    assert np.abs(synchronize([plain, spoiled]).seconds[0, 1] - truth[0]) > 5 / 30
    kept = found.matches[1].kept
    assert kept is not None
    assert kept[0].mean() > 0.9
    assert kept[1][:15].sum() + kept[1][55:65].sum() <= 2


def test_smoothing_makes_the_warp_steady() -> None:
    noisy = [on_curve(LINE, noise=0.2), on_curve(np.linspace(0, 1, 90), noise=0.2, seed=1)]
    rough, smooth = (synchronize(noisy, smooth=smooth).seconds[:, 1] for smooth in (0.0, 0.5))
    assert np.abs(np.diff(smooth, 2)).max() < np.abs(np.diff(rough, 2)).max() / 3
    assert np.abs(smooth - LINE * 89 / 30)[5:-5].mean() <= np.abs(rough - LINE * 89 / 30)[5:-5].mean() + 0.005


def test_the_medoid_is_in_the_middle() -> None:
    middle = on_curve(LINE)
    strangers = [on_curve(LINE, noise=0.6, seed=seed) for seed in (1, 2, 3)]
    assert medoid([strangers[0], strangers[1], middle, strangers[2]]) == 2


@pytest.mark.parametrize("wrong", [1, 2, 3])
def test_a_clip_that_does_not_fit_has_no_vote(wrong: int, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = [np.linspace(0, 1, length) ** power for length, power in ((40, 1.0), (50, 1.3), (36, 0.8), (44, 1.1))]
    right = [on_curve(each, noise=0.1, seed=k) for k, each in enumerate(moments)]
    others = [on_curve(np.linspace(0.9, 0.1, 42 + k) ** 2, noise=0.1, seed=9 + k) for k in range(wrong)]
    alone, beside = synchronize(right), synchronize([*right, *others])
    np.testing.assert_array_equal(beside.seconds[:, : len(right)], alone.seconds)
    judged = [judge(right[0], other, match(right[0], other)).judgment for other in (*right[1:], *others)]
    assert "do_not_trust" not in judged[:3]
    assert judged[3:] == ["do_not_trust"] * wrong
    # Where all of them vote, the wrong ones move the others.
    monkeypatch.setattr(align_videos_module, "judge", lambda *_: Verdict("good", 1.0))
    assert not np.array_equal(synchronize([*right, *others]).seconds[:, : len(right)], alone.seconds)


def test_constant_speed_is_left_alone() -> None:
    clock = np.arange(90) / 30
    np.testing.assert_allclose(smooth_time_map(clock, 1.5 * clock + 0.2, period=0.5), 1.5 * clock + 0.2, atol=1e-9)


def test_a_staircase_becomes_the_curve_behind_it() -> None:
    clock = np.arange(240) / 30
    curve = clock + 0.4 * np.sin(clock)
    stairs = np.round(curve * 10) / 10
    smooth = smooth_time_map(clock, stairs, period=1.0)
    assert np.abs(smooth - curve).max() < 0.04 < np.abs(stairs - curve).max()
    assert np.diff(smooth).min() > 0


def test_it_is_a_smoothing_spline_where_no_bound_is_reached() -> None:
    clock = np.linspace(0, 4, 161)
    rough = clock + 0.3 * np.sin(2 * clock) + np.random.default_rng(0).normal(0, 0.01, len(clock))
    rough = np.maximum.accumulate(rough)
    period = 1.0
    gap = clock[1] - clock[0]
    spline = make_smoothing_spline(clock, rough, lam=(period / (2 * np.pi)) ** 4 / gap)(clock)
    assert np.abs(smooth_time_map(clock, rough, period=period, bound=100) - spline)[40:-40].max() < 0.004


def test_speeds_stay_within_the_bound() -> None:
    clock = np.arange(120) / 30
    jump = np.where(clock < 2, 0.1 * clock, 3.8 + 0.1 * (clock - 4))
    speeds = np.diff(smooth_time_map(clock, jump, period=0.1, bound=3)) / np.diff(clock)
    average = (jump[-1] - jump[0]) / (clock[-1] - clock[0])
    assert speeds.max() <= 3 * average + 1e-4
    assert speeds.min() >= average / 3 - 1e-4


def test_a_long_period_gives_constant_speed() -> None:
    clock = np.arange(120) / 30
    smooth = smooth_time_map(clock, clock + 0.3 * np.sin(3 * clock), period=500)
    np.testing.assert_allclose(np.diff(smooth, 2), 0, atol=1e-6)
    assert smooth[[0, -1]].tolist() == (clock + 0.3 * np.sin(3 * clock))[[0, -1]].tolist()


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_frames_are_left_alone(count: int) -> None:
    clock = np.arange(count) / 30
    np.testing.assert_array_equal(smooth_time_map(clock, clock, period=1), clock)


def test_a_period_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="period"):
        smooth_time_map(np.arange(9.0), np.arange(9.0), period=0)


def test_key_positions_stand_still_and_are_in_the_playback(films: list[Path], tmp_path: Path) -> None:
    labels = Labels(events=(Event(0.2, "top"), Event(0.4, "impact")))
    settings: dict[str, Any] = {"model": small(context=(0,)), "cache": tmp_path / "cache", "height": 64}
    aligned = align_videos(films, labels=labels, freeze=True, **settings)
    aligned.write(tmp_path / "out")
    assert len(read_clip(tmp_path / "out" / "aligned.mp4")) == 20 + 2 * 30
    reference, other = read_playback(tmp_path / "out").tracks
    assert [event.label for event in reference.events] == ["top", "impact"]
    assert other.events == ()
    with pytest.raises(ValueError, match="give the labels of the reference too"):
        align_videos(films, freeze=True, **settings)


def test_a_video_to_send_is_not_larger_than_asked(films: list[Path], tmp_path: Path) -> None:
    settings: dict[str, Any] = {"model": small(context=(0,)), "cache": tmp_path / "cache", "height": 240}
    only = {"aligned.mp4": OUTPUTS["aligned.mp4"]}
    align_videos(films, **settings).write(tmp_path / "free", only)
    size = (tmp_path / "free" / "aligned.mp4").stat().st_size
    align_videos(films, max_mb=0.6 * size / 1e6, **settings).write(tmp_path / "small", only)
    assert 0 < (tmp_path / "small" / "aligned.mp4").stat().st_size <= 0.6 * size
    with pytest.raises(ValueError, match="does not fit into 1e-06 MB: use shorter videos"):
        align_videos(films, max_mb=1e-6, **settings).write(tmp_path / "tiny", only)
    assert not list((tmp_path / "tiny").iterdir())


def test_a_video_of_the_same_input_is_not_rendered_again(films: list[Path], tmp_path: Path) -> None:
    settings: dict[str, Any] = {"model": small(context=(0,)), "cache": tmp_path / "cache"}
    only = {"aligned.mp4": OUTPUTS["aligned.mp4"]}
    aligned, file = align_videos(films, height=64, **settings), tmp_path / "out" / "aligned.mp4"

    def write(result: Aligned) -> list[str]:
        stages: list[str] = []
        result.write(tmp_path / "out", only, progress=lambda stage, *_: stages.append(stage))
        return stages

    assert write(aligned)
    content = file.read_bytes()
    assert not write(align_videos(films, height=64, **settings))
    assert file.read_bytes() == content
    assert write(align_videos(films, height=48, **settings))
    assert probe(file).size[0] == 48
    file.write_bytes(content[: len(content) * 2 // 3])  # cut short, with its index in front
    assert write(aligned)
    assert len(read_clip(file)) == 20


def test_upright_videos_are_twice_as_high(tmp_path: Path) -> None:
    images = [numbered(n, height=96, width=64) for n in WALK]
    films = [write_video(tmp_path / f"{name}.mp4", images=images, height=96, width=64) for name in "ab"]
    aligned = align_videos(films, model=small(context=(0,)), cache=tmp_path / "cache")
    aligned.write(tmp_path / "out", {"aligned.mp4": OUTPUTS["aligned.mp4"]})
    assert probe(tmp_path / "out" / "aligned.mp4").size == (720, 960)


def test_joints_are_in_the_playback_and_on_the_video(tmp_path: Path) -> None:
    pair = make_stage_pair("serve", side="right", degrees=0, at=0.4, pro_seconds=(0.4, 0.3), student_seconds=(0.5, 0.3))
    films = write_stage_pair(tmp_path, pair)
    for joints in (False, True):
        aligned = align_videos(films, joints=joints, cache=tmp_path / "cache", pose_estimator=STAGE_ESTIMATOR)
        aligned.write(tmp_path / f"joints-{joints}")
        for track, take in zip(
            read_playback(tmp_path / f"joints-{joints}").tracks, (pair.pro, pair.student), strict=True
        ):
            assert track.keypoints is not None
            wrist = track.keypoints.points[:, track.keypoints.joints.index("left_wrist"), :2]
            np.testing.assert_allclose(wrist, take.keypoints[:, JOINT["left_wrist"]] * 96, atol=1e-3)
    plain, drawn = (read_clip(tmp_path / f"joints-{joints}" / "aligned.mp4").frames for joints in (False, True))
    assert np.abs(plain.astype(int) - drawn).max() > 100


def test_images_alone_are_aligned_by_their_motion_energy_too(films: list[Path], tmp_path: Path) -> None:
    encoder = PooledFeatures(size=64, grid=2, weights=None)
    shared: dict[str, Any] = {"model": encoder, "cache": tmp_path / "cache"}
    aligned = align_videos(films, **shared)
    assert [[route.width for route in each.routes] for each in aligned.embeddings] == [[4 * 112, 4]] * 2
    np.testing.assert_allclose(aligned.seconds[:, 1], aligned.clock * 2, atol=0.05)
    for each in (align_videos(films, cost="cosine", **shared), align_videos(films, subsequence=True, **shared)):
        assert [len(embedding.routes) for embedding in each.embeddings] == [1, 1]
