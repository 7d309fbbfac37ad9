from dataclasses import replace

import numpy as np
import pytest

from inphase.evaluation.embedded_videos import NotApplicableError
from inphase.evaluation.scores import value_of
from inphase.evaluation.tasks.matching_errors import event_error, key_events
from inphase.models import Embedding
from tests.evaluation.embeddings import constant, curve, embedded, noisy, performance, performances


def test_a_perfect_embedding_carries_events_where_they_are_and_linear_stretch_does_not() -> None:
    early, late = np.concatenate([np.linspace(0, 0.5, 6), np.linspace(0.55, 1, 30)]), np.linspace(0, 1, 41)
    test = [performance(early, name="early"), performance(late, name="late")]
    scores = event_error([], test)
    assert value_of(scores, "mean", setting="nearest") == 0
    # A frame where x is fast goes with several where y is slow; the middle of them is not always the one alike.
    assert value_of(scores, "mean", setting="dtw") < 2
    assert value_of(scores, "mean", setting="contrastive") < 2
    # Frame 5 of 36 is stretched to 5 · 41/36, frame 20 of 41 to 20 · 36/41.
    errors = [20 - 5 * 41 / 36, 20 * 36 / 41 - 5]
    assert value_of(scores, "mean", setting="linear") == pytest.approx(np.mean(errors))
    assert value_of(scores, "median_fraction", setting="linear") == pytest.approx(
        np.mean([errors[0] / 41, errors[1] / 36])
    )
    assert value_of(scores, "transferred") == 2


def test_the_numbers_are_those_of_a_literal_loop() -> None:
    test = noisy(performances(4), noise=0.5)
    errors, shares = [], []
    for x in test:
        for y in test:
            if x is not y:
                ((name, at),) = x.video.events.items()
                found = np.square(y.values - x.values[at]).sum(1).argmin()
                errors.append(abs(int(found) - y.video.events[name]))
                shares.append(errors[-1] / len(y))
    scores = event_error([], test)
    assert value_of(scores, "mean", setting="nearest") == pytest.approx(np.mean(errors))
    assert value_of(scores, "median", setting="nearest") == pytest.approx(np.median(errors))
    assert value_of(scores, "mean_fraction", setting="nearest") == pytest.approx(np.mean(shares))
    assert value_of(scores, "mean", setting="nearest", event="middle") == pytest.approx(np.mean(errors))


def test_a_constant_embedding_is_undefined_though_a_path_through_it_is_nearly_linear() -> None:
    scores = event_error([], constant(performances(3)))
    for method in ("nearest", "dtw", "contrastive"):
        assert np.isnan(value_of(scores, "mean", setting=method))
    assert value_of(scores, "mean", setting="linear") > 0
    assert value_of(scores, "transferred") == 6


def test_phases_begin_where_there_are_no_events() -> None:
    phases = np.array([0, 0, 1, 1, 1, 2, -1, 3, 1])
    item = embedded(curve(np.linspace(0, 1, 9)), phases=phases)
    assert key_events(item) == {"phase 2": 5, "phase 3": 7}  # phase 1 comes twice
    named = replace(item, video=replace(item.video, phase_names=("a", "b", "c", "d")))
    assert key_events(named) == {"c": 5, "d": 7}
    rows = Embedding(item.values[:4], item.embedding.times[:4])
    assert key_events(replace(named, embedding=rows, first=4)) == {"c": 5, "d": 7}


def test_events_outside_what_is_embedded_are_not_carried() -> None:
    item = performance(np.linspace(0, 1, 21))
    part = replace(item, embedding=Embedding(item.values[11:], item.embedding.times[11:]), first=11)
    assert key_events(item) == {"middle": 10}
    assert key_events(part) == {}


def test_events_are_chosen_by_name_and_wrong_ones_refused() -> None:
    test = performances(2)
    test = [replace(item, video=replace(item.video, events={**item.video.events, "end": 3})) for item in test]
    assert value_of(event_error([], test), "transferred") == 4
    assert value_of(event_error([], test, events=["end"]), "transferred") == 2
    with pytest.raises(ValueError, match="no video has an event lunch; there are end, middle"):
        event_error([], test, events=["lunch"])
    bare = [embedded(item.values, name=item.video.id) for item in test]
    with pytest.raises(NotApplicableError, match="none of 2 videos has events or phases"):
        event_error([], bare)


def test_the_enclosed_area_is_between_the_match_and_lines_through_the_events() -> None:
    early, late = np.concatenate([np.linspace(0, 0.5, 6), np.linspace(0.55, 1, 30)]), np.linspace(0, 1, 41)
    test = [performance(early, name="early"), performance(late, name="late")]
    scores = event_error([], test)
    # Frame 5 of 36 goes with 20 of 41: lines (0, 0) – (5, 20) – (35, 40), and back.
    there = np.interp(np.arange(36), [0, 5, 35], [0, 20, 40])
    back = np.interp(np.arange(41), [0, 20, 40], [0, 5, 35])
    straight = [np.abs(np.arange(36) * 41 / 36 - there).mean() / 41, np.abs(np.arange(41) * 36 / 41 - back).mean() / 36]
    assert value_of(scores, "area", setting="linear") == pytest.approx(np.mean(straight))
    assert value_of(scores, "area", setting="dtw") < 0.02 < value_of(scores, "area", setting="linear")
    swapped = [replace(test[0], video=replace(test[0].video, events={"middle": 5, "end": 3})), test[1]]
    swapped[1] = replace(test[1], video=replace(test[1].video, events={"middle": 20, "end": 30}))
    assert np.isnan(value_of(event_error([], swapped), "area", setting="dtw"))
