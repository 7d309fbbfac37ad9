import numpy as np
import pytest

from inphase.apps.search import (
    MomentContext,
    context_of,
    moment_of,
    nearest_moments,
    nearest_recordings,
    require_question,
    score_moments,
)
from tests.apps.curves import on_curve

LINE = np.linspace(0, 1, 90)
CORPUS = {
    "same": on_curve(LINE),
    "late": on_curve(np.linspace(0.5, 1, 60)),
    "other": on_curve(LINE, noise=2.0, seed=1),
}


def test_the_moments_most_alike_are_found() -> None:
    query = on_curve(np.linspace(0, 1, 45))
    hits = nearest_moments(moment_of(query, 0.7 * 44 / 30), CORPUS, top=2)
    assert {hit.name for hit in hits} == {"same", "late"}
    seconds = {hit.name: hit.second for hit in hits}
    assert seconds["same"] == pytest.approx(0.7 * 89 / 30, abs=0.05)
    assert seconds["late"] == pytest.approx(0.4 * 59 / 30, abs=0.05)
    assert hits[0].score >= hits[1].score > 0.99


def test_moments_of_a_recording_are_apart() -> None:
    hits = nearest_moments(moment_of(CORPUS["same"], 1.0), {"same": CORPUS["same"]}, top=10, apart=0.5)
    gaps = np.diff(sorted(hit.second for hit in hits))
    assert gaps.min() >= 0.5 - 1e-9
    assert len(hits) > 3
    assert len(nearest_moments(moment_of(CORPUS["same"], 1.0), CORPUS, top=100, apart=0.0)) == 100


def test_a_brute_force_search_agrees() -> None:
    moment = moment_of(CORPUS["same"], 0.4)
    best = max((float(value @ moment), name) for name, seen in CORPUS.items() for value in seen.values)
    hit = nearest_moments(moment, CORPUS, top=1)[0]
    assert hit.name == best[1]
    assert hit.score == pytest.approx(best[0])


def test_the_context_separates_moments_of_equal_frames() -> None:
    """A way there and back passes every place twice; only the direction differs."""
    there_and_back = on_curve(np.concatenate([np.linspace(0, 0.8, 60), np.linspace(0.8, 0, 60)]))
    query = on_curve(np.linspace(0, 0.8, 60))
    for window, expected in ((1.0, [1.0]), (0.0, [1.0, 119 / 30 - 1.0])):
        hits = nearest_moments(context_of(query, 1.0, window=window), {"both": there_and_back}, top=2)
        best = [hit.second for hit in hits if hit.score > 0.999]
        assert sorted(best) == pytest.approx(expected, abs=0.04)


def test_scores_of_a_context_are_means_of_cosines_at_the_seconds_of_the_query() -> None:
    context = context_of(CORPUS["same"], 1.5, window=0.4)
    assert context.offsets == pytest.approx(np.arange(-6, 7) / 30)
    slow = on_curve(np.linspace(0, 1, 45), rate=15.0)
    scores = score_moments(context, slow)
    cosines = [slow.values[20 + round(15 * o)] @ v for o, v in zip(context.offsets, context.vectors, strict=True)]
    assert scores[20] == pytest.approx(np.mean(cosines), abs=1e-6)


def test_a_context_is_found_at_half_the_tempo_for_a_small_penalty() -> None:
    context, slow = context_of(CORPUS["same"], 1.0), on_curve(np.linspace(0, 1, 179))
    scores = score_moments(context, slow)
    assert scores.argmax() == pytest.approx(60, abs=2)
    spread = (context.vectors @ slow.values.T).std()
    assert 1 - 0.5 * spread - 0.01 <= scores.max() < 1
    edge = score_moments(context, CORPUS["same"])
    assert edge[0] == -np.inf, "half of the context lies before the recording"
    assert np.isfinite(edge[15:-15]).all()


def test_a_recording_shorter_than_the_context_has_scores() -> None:
    context = context_of(CORPUS["same"], 1.5, window=2.0)
    short = on_curve(np.linspace(0.4, 0.6, 10))
    assert np.isfinite(score_moments(context, short)).any()
    assert isinstance(context, MomentContext)


def test_a_negative_window_is_refused() -> None:
    with pytest.raises(ValueError, match=r"window must be 0 seconds or more, got -1"):
        require_question(at=1.0, window=-1.0, top=1, subsequence=False)


def test_a_second_outside_the_query_is_refused() -> None:
    with pytest.raises(ValueError, match=r"second 9 lies outside the query, which runs to 3\.00 s"):
        moment_of(CORPUS["same"], 9.0)


def test_recordings_are_ranked_by_how_well_they_align() -> None:
    reports: list[tuple[str, int, int]] = []
    found = nearest_recordings(on_curve(LINE**1.3), CORPUS, progress=lambda *report: reports.append(report))
    assert [each.name for each in found] == ["same", "late", "other"]
    assert found[0].score > 0.99
    assert reports[-1] == ("aligning 3 videos", 3, 3)


def test_a_short_query_is_found_inside_a_long_recording() -> None:
    query = on_curve(np.linspace(0.5, 0.75, 30))
    found = nearest_recordings(query, CORPUS, top=2, subsequence=True)
    assert {each.name for each in found} == {"same", "late"}
    same = next(each for each in found if each.name == "same")
    np.testing.assert_allclose(same.seconds[[0, -1]], np.array([0.5, 0.75]) * 89 / 30, atol=0.15)
