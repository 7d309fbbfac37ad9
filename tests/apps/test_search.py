import numpy as np
import pytest

from inphase.apps.search import moment_of, nearest_moments, nearest_recordings
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
