import csv
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from inphase.align.consensus import align_pairwise, posterior
from inphase.align.matching import match, pair_cost
from inphase.apps import transfer_labels as transfer_labels_module
from inphase.apps.labels import Event, Labels, Segment
from inphase.apps.transfer_labels import carry_by_votes, carry_labels, transfer_labels
from inphase.apps.verdict import Verdict
from inphase.models.embedding import Embedding
from inphase.models.motion_encoder import PooledFeatures
from inphase.progress import ignore_progress
from inphase.storage.errors import MediaError
from tests.apps.curves import on_curve
from tests.apps.test_align_videos import fail_at
from tests.media.recordings import numbered, write_video
from tests.models.test_embed_videos import small
from tests.oracles import soft_path

LINE = np.linspace(0, 1, 60)
SLOW = np.linspace(0, 1, 91)


def test_the_posterior_is_that_of_all_paths() -> None:
    x, y = on_curve(np.linspace(0, 1, 4), noise=0.5), on_curve(np.linspace(0, 1, 5), noise=0.5, seed=1)
    cost = pair_cost(torch.from_numpy(x.values), torch.from_numpy(y.values)).double().numpy()
    weights = soft_path(cost, 5.0)[[1, 3]]
    found = posterior(x, y, np.array([1, 3]), alignment=match(x.values, y.values), gamma=5.0)
    np.testing.assert_allclose(found, weights / weights.sum(1, keepdims=True), atol=1e-5)


def test_of_long_recordings_the_surroundings_are_weighed() -> None:
    x, y = on_curve(LINE, noise=0.1), on_curve(SLOW, noise=0.1, seed=1)
    frames, found = np.array([0, 30, 59]), match(x.values, y.values)
    whole, part = (posterior(x, y, frames, alignment=found, gamma=0.5, max_cells=cells) for cells in (10**6, 1600))
    np.testing.assert_allclose(part.sum(1), 1)
    assert np.abs(whole - part).sum(1).max() < 0.05


def test_moments_and_stretches_arrive_where_they_belong() -> None:
    labels = Labels(segments=(Segment(0.0, 0.7, "early"), Segment(0.7, 2.0, "late")), events=(Event(1.0, "half"),))
    x, y = on_curve(LINE), on_curve(SLOW)
    carried = carry_labels(labels, x, y, y_end=91 / 30)
    (half,) = carried.events
    assert half.second == pytest.approx(30 / 59 * 90 / 30, abs=0.05)
    early, late = carried.segments
    assert (early.start, late.end) == (0.0, 91 / 30)
    assert early.end == late.start == pytest.approx(21 / 59 * 90 / 30, abs=0.05)
    assert min(each.confidence or 0 for each in carried.segments) > 0.5
    assert (half.confidence or 0) > 0.5


def test_a_moment_between_frames_is_carried_between_frames() -> None:
    x, y = on_curve(LINE), on_curve(LINE)
    seconds = [
        carry_labels(Labels(events=(Event(s, ""),)), x, y, y_end=2.0).events[0].second for s in (1.0, 1.02, 1.0333)
    ]
    assert seconds[0] < seconds[1] < seconds[2]


def test_doubt_is_where_the_recordings_are_unlike() -> None:
    y, sure = on_curve(SLOW), []
    labels = Labels(events=tuple(Event(second, "") for second in (0.4, 0.6, 1.4, 1.6)))
    for seed in range(5):
        noise = 3 * np.random.default_rng(seed).normal(size=y.values.shape)
        noise[:45] *= 0.01
        unlike = y.values + noise
        unlike /= np.linalg.norm(unlike, axis=1, keepdims=True)
        other = Embedding(unlike.astype(np.float32), y.times)
        found = carry_labels(labels, on_curve(LINE), other, y_end=91 / 30).events
        sure.append([each.confidence or 0.0 for each in found])
    before, after = np.split(np.mean(sure, axis=0), 2)
    assert before.min() > after.max() + 0.05


def test_a_confidence_is_the_probability_that_the_verdict_has_for_the_moment() -> None:
    x, y = on_curve(LINE), on_curve(SLOW)
    verdict = Verdict("check", 0.5, moments=np.linspace(0, 1, 60))
    labels = Labels(segments=(Segment(0.0, 1.0, "early"),), events=(Event(0.5, "event"),))
    carried = carry_labels(labels, x, y, y_end=91 / 30, verdict=verdict)
    assert carried.events[0].confidence == pytest.approx(15 / 59)
    assert carried.segments[0].confidence == pytest.approx(np.linspace(0, 1, 60)[:30].mean())


def test_the_verdict_stands_in_for_one_of_the_votes() -> None:
    vectors = [on_curve(LINE), on_curve(SLOW), on_curve(LINE**1.2)]
    labels = Labels(segments=(Segment(0.1, 1.0, "early"),), events=(Event(0.5, "event"),))
    maps = align_pairwise(vectors)
    paths = len(maps.votes(0, 1, np.array([15.0])))
    verdict = Verdict("check", 0.5, moments=np.full(60, 0.2))
    share, both = (
        carry_by_votes([labels], vectors, maps.votes, target=1, y_end=91 / 30, verdict=each) for each in (None, verdict)
    )
    assert paths > 1
    for (_, alone), (_, found) in zip(share.confidences, both.confidences, strict=True):
        assert found == pytest.approx(((paths - 1) * alone + 0.2) / paths)
    direct = partial(maps.votes, neighbors=0)
    (event,) = carry_by_votes([labels], vectors, direct, target=1, y_end=91 / 30, verdict=verdict).events
    assert event.confidence == pytest.approx(0.2)
    (event,) = carry_by_votes([labels], vectors, direct, target=1, y_end=91 / 30).events
    assert event.confidence is None  # one path alone says nothing


def test_events_at_the_ends_have_no_confidence() -> None:
    vectors = [on_curve(LINE), on_curve(SLOW), on_curve(LINE**1.2)]
    labels = Labels(events=(Event(0.0, "start"), Event(1.0, "half"), Event(2.0, "end")))
    one = carry_labels(labels, vectors[0], vectors[1], y_end=91 / 30)
    several = carry_by_votes([labels], vectors, align_pairwise(vectors).votes, target=1, y_end=91 / 30)
    for found in (one, several):
        assert [each.second for each in found.events][::2] == [0.0, 91 / 30]
        assert [label for label, _ in found.confidences] == ["half"]


def test_labeled_videos_with_moments_and_others_with_segments_are_refused(tmp_path: Path) -> None:
    videos = [write_video(tmp_path / f"{name}.mp4", count=12) for name in "abc"]
    moments, segments = Labels(events=(Event(0.1, "up"),)), Labels(segments=(Segment(0.1, 0.2, "up"),))
    with pytest.raises(ValueError, match="tables of one kind"):
        transfer_labels(videos[0], moments, [videos[1]], references=[(videos[2], segments)])


def test_a_video_of_one_frame_is_not_trusted_and_has_no_vote(tmp_path: Path) -> None:
    walk = [int(n) for n in np.random.default_rng(0).permutation(4000)[:20]]
    folder = tmp_path / "targets"
    folder.mkdir()
    source = write_video(tmp_path / "a.mp4", images=[numbered(n) for n in walk])
    write_video(folder / "good.mp4", images=[numbered(n) for n in walk for _ in range(2)])
    (tmp_path / "a.csv").write_text("second,label\n0.2,up\n0.3,half\n")
    shared: dict[str, Any] = {"model": small(context=(0,)), "cache": tmp_path / "cache"}
    (alone,) = transfer_labels(source, tmp_path / "a.csv", [folder], **shared).transferred
    write_video(folder / "short.mp4", count=1)
    labeled = transfer_labels(source, tmp_path / "a.csv", [folder], **shared)
    good, short = labeled.transferred
    assert [each.second for each in good.events] == pytest.approx([each.second for each in alone.events], abs=0.04)
    assert max(each.confidence or 0 for each in short.events) == 0
    assert labeled.verdicts[1].judgment == "do_not_trust"
    assert any("short: One video has fewer than three frames." in line for line in labeled.summary().lines)


def test_confidence_ranks_errors() -> None:
    rng = np.random.default_rng(0)
    errors, sure = [], []
    for seed in range(30):
        y = on_curve(SLOW**1.4, noise=rng.uniform(0.05, 1.0), seed=seed)
        seconds = np.array([0.5, 1.0, 1.5])
        labels = Labels(events=tuple(Event(second, "") for second in seconds))
        found = carry_labels(labels, on_curve(LINE, noise=0.05, seed=99), y, y_end=91 / 30).events
        truth = (seconds * 30 / 59) ** (1 / 1.4) * 90 / 30
        errors += [abs(each.second - true) for each, true in zip(found, truth, strict=True)]
        sure += [each.confidence or 0.0 for each in found]
    order = np.argsort(sure)
    assert np.mean(np.array(errors)[order[45:]]) < 0.5 * np.mean(np.array(errors)[order[:45]])


@pytest.mark.parametrize("lengths", [(1, 60), (60, 1), (1, 1)])
def test_one_frame_is_enough(lengths: tuple[int, int]) -> None:
    x, y = (on_curve(np.linspace(0, 1, length)) for length in lengths)
    carried = carry_labels(Labels(events=(Event(0.0, "start"),)), x, y, y_end=lengths[1] / 30)
    assert carried.events == (Event(0.0, "start"),)


def test_a_table_is_transferred_written_and_described(tmp_path: Path) -> None:
    walk = [int(n) for n in np.random.default_rng(0).permutation(4000)[:20]]
    source = write_video(tmp_path / "a.mp4", images=[numbered(n) for n in walk])
    target = write_video(tmp_path / "b.mp4", images=[numbered(n) for n in walk for _ in range(2)])
    (tmp_path / "labels.csv").write_text("start,end,label\n0,0.3,up\n0.3,0.6,down\n")
    labeled = transfer_labels(
        source, tmp_path / "labels.csv", [target], model=small(context=(0,)), cache=tmp_path / "cache"
    )
    (found,) = labeled.transferred
    assert [each.label for each in found.segments] == ["up", "down"]
    assert found.segments[0].end == pytest.approx(0.6, abs=0.06)
    assert [file.name for file in labeled.write(tmp_path / "out")] == ["b.csv", "transferred.csv", "playback.json"]
    verdict = Verdict("do_not_trust", 0.1, ("Hardly alike.",), moments=np.full(20, 0.1))
    doubtful = replace(labeled, verdicts=(verdict,))
    assert "b: Hardly alike." in doubtful.summary().lines
    doubtful.write(tmp_path / "doubtful")
    with (tmp_path / "doubtful" / "transferred.csv").open(newline="") as table:
        (row,) = csv.DictReader(table)
    tracks = json.loads((tmp_path / "doubtful" / "playback.json").read_text(encoding="utf-8"))["tracks"]
    assert [each.get("certainty", {}).get("judgment") for each in tracks] == [None, "do_not_trust"]
    assert (row["verdict"], row["reason"]) == ("do_not_trust", "Hardly alike.")  # as in alignment.csv and in JSON
    described = json.loads(json.dumps(labeled.to_dict(), allow_nan=False))
    assert described["videos"][0]["segments"][0]["end"] == found.segments[0].end
    again = transfer_labels(source, labeled.labels, [target], model=small(context=(0,)), cache=tmp_path / "cache")
    assert again.transferred == labeled.transferred
    with pytest.raises(ValueError, match="name at least one target"):
        transfer_labels(source, labeled.labels, [])


def test_a_target_that_fails_is_left_out_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, bad, good = (write_video(tmp_path / f"{name}.mp4", count=12) for name in ("source", "bad", "good"))
    (tmp_path / "text.mp4").write_text("no video")
    fail_at("bad.mp4", MediaError("bad.mp4 shows no person"), monkeypatch)
    given = {"model": small(context=(0,)), "cache": tmp_path / "cache"}
    labels = Labels(events=(Event(0.2, "half"),))
    labeled = transfer_labels(source, labels, [bad, tmp_path / "text.mp4", good], **given)  # type: ignore[arg-type]
    assert [each.name for each in labeled.targets] == ["good"]
    assert len(labeled.transferred) == len(labeled.times) == 1
    assert list(labeled.left_out) == [str(tmp_path / "text.mp4"), str(bad)]
    assert labeled.to_dict()["left_out"][str(bad)] == "bad.mp4 shows no person"
    with pytest.raises(ValueError, match=r"fewer than two videos can be used: bad\.mp4 shows no person"):
        transfer_labels(source, labels, [bad], **given)  # type: ignore[arg-type]
    with pytest.raises(MediaError, match=r"bad\.mp4 shows no person"):
        transfer_labels(bad, labels, [good], **given)  # type: ignore[arg-type]


def test_several_targets_and_references_vote(tmp_path: Path) -> None:
    walk = [int(n) for n in np.random.default_rng(0).permutation(4000)[:20]]
    folder = tmp_path / "targets"
    folder.mkdir()
    source = write_video(tmp_path / "a.mp4", images=[numbered(n) for n in walk])
    second = write_video(tmp_path / "second.mp4", images=[numbered(n) for n in walk for _ in range(3)])
    for repeats in (1, 2, 3):
        write_video(folder / f"{repeats}.mp4", images=[numbered(n) for n in walk for _ in range(repeats)])
    (tmp_path / "a.csv").write_text("second,label\n0.2,up\n0.3,half\n")
    (tmp_path / "second.csv").write_text("second,label\n0.6,up\n0.9,half\n1.2,late\n")
    labeled = transfer_labels(
        source,
        tmp_path / "a.csv",
        [folder],
        references=[(second, tmp_path / "second.csv")],
        model=small(context=(0,)),
        cache=tmp_path / "cache",
    )
    assert [each.name for each in labeled.targets] == ["1", "2", "3"]
    for repeats, found in enumerate(labeled.transferred, start=1):
        assert [each.label for each in found.events] == ["up", "half", "late"]
        for event, second_of in zip(found.events, (0.2, 0.3, 0.4), strict=True):
            assert event.second == pytest.approx(second_of * repeats, abs=0.06)
            assert (event.confidence or 0) > 0.5
    assert "Not all labeled videos have the same labels: 'late' is a label of second." in labeled.why
    assert labeled.tables == (tmp_path / "a.csv", tmp_path / "second.csv")
    names = [file.name for file in labeled.write(tmp_path / "out")]
    assert names == ["1.csv", "2.csv", "3.csv", "transferred.csv", "playback.json"]
    with pytest.raises(ValueError, match="name at least one target"):
        transfer_labels(source, tmp_path / "a.csv", [source])
    with pytest.raises(ValueError, match="neighbors must not be negative"):
        transfer_labels(source, tmp_path / "a.csv", [folder], neighbors=-1)


def test_segments_are_carried_by_votes() -> None:
    clips = [on_curve(np.linspace(0, 1, length)) for length in (60, 91, 75)]
    labels = Labels(segments=(Segment(0.0, 0.7, "early"), Segment(0.7, 2.0, "late")))
    found = carry_by_votes([labels], clips, align_pairwise(clips).votes, target=1, y_end=91 / 30)
    early, late = found.segments
    assert (early.start, late.end) == (0.0, 91 / 30)
    assert early.end == late.start == pytest.approx(21 / 59 * 90 / 30, abs=0.07)
    assert min(each.confidence or 0 for each in found.segments) > 0.9


@pytest.mark.parametrize("wrong", [1, 3])
def test_a_clip_that_does_not_fit_has_no_vote_on_labels(wrong: int) -> None:
    moments = [np.linspace(0, 1, length) ** power for length, power in ((40, 1.0), (50, 1.3), (36, 0.8), (44, 1.1))]
    right = [on_curve(each, noise=0.1, seed=k) for k, each in enumerate(moments)]
    others = [on_curve(np.linspace(0.9, 0.1, 42 + k) ** 2, noise=0.1, seed=9 + k) for k in range(wrong)]
    labels = Labels(events=(Event(0.4, "top"), Event(0.9, "impact")))

    def carry(clips: list[Embedding]) -> list[Labels]:
        ends = [float(each.times[-1]) for each in clips[1:]]
        return transfer_labels_module._carry([labels], clips, ends=ends, neighbors=20, progress=ignore_progress)[1]

    assert carry([*right, *others])[: len(right) - 1] == carry(right)
    assert carry([*right, replace(right[0])])[: len(right) - 1] == carry(right), "nor has a copy of the labeled one"


def test_images_alone_are_transferred_by_their_motion_energy_too(tmp_path: Path) -> None:
    walk = [int(n) for n in np.random.default_rng(0).permutation(4000)[:20]]
    source = write_video(tmp_path / "a.mp4", images=[numbered(n) for n in walk])
    target = write_video(tmp_path / "b.mp4", images=[numbered(n) for n in walk for _ in range(2)])
    encoder, labels = PooledFeatures(size=64, grid=2, weights=None), Labels(events=(Event(0.3, "up"),))
    labeled = transfer_labels(source, labels, [target], model=encoder, cache=tmp_path / "cache")
    assert [[route.width for route in each.routes] for each in labeled.embeddings] == [[4 * 112, 4]] * 2
    assert labeled.transferred[0].events[0].second == pytest.approx(0.6, abs=0.06)
