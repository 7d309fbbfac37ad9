import math

import pytest

from inphase.evaluation.scores import Score, mean, select, value_of

SCORES = [
    Score("kendall_tau", "tau", 0.9),
    Score("kendall_tau", "tau", 0.8, action="squat"),
    Score("kendall_tau", "tau", 0.5, control="untrained"),
    Score("event_error", "mean", 2.0, setting="dtw"),
    Score("event_error", "mean", 3.0, setting="dtw", event="impact"),
    Score("event_error", "mean", math.nan, setting="nearest"),
]


def test_rows_are_selected_by_the_fields_that_are_given() -> None:
    assert [score.value for score in select(SCORES, metric="tau")] == [0.9, 0.8, 0.5]
    assert [score.value for score in select(SCORES, metric="tau", control=None, action=None)] == [0.9]
    assert select(SCORES, event="impact") == [SCORES[4]]
    assert select(SCORES, task="health") == []
    with pytest.raises(ValueError, match="no field column: select by task, metric, setting, control, action, event"):
        select(SCORES, column="untrained")


def test_one_value_is_that_of_the_encoder_over_everything_unless_more_is_said() -> None:
    assert value_of(SCORES, "tau") == 0.9
    assert value_of(SCORES, "tau", action="squat") == 0.8
    assert value_of(SCORES, "tau", control="untrained") == 0.5
    assert value_of(SCORES, "mean", task="event_error", setting="dtw", event="impact") == 3.0
    with pytest.raises(ValueError, match=r"0 scores are mean, linear, need 1; there are mean, dtw; mean, dtw, impact"):
        value_of(SCORES, "mean", setting="linear")
    with pytest.raises(ValueError, match="2 scores are tau, need 1"):
        value_of([*SCORES, SCORES[0]], "tau")


def test_a_row_survives_json_and_an_undefined_value_is_null() -> None:
    row = SCORES[5].to_dict()
    assert row == {
        "task": "event_error",
        "metric": "mean",
        "value": None,
        "setting": "nearest",
        "control": None,
        "action": None,
        "event": None,
    }
    assert math.isnan(Score.from_dict(row).value)
    assert Score.from_dict(SCORES[4].to_dict()) == SCORES[4]


def test_labels_and_details() -> None:
    assert [score.label for score in SCORES[3:5]] == ["mean, dtw", "mean, dtw, impact"]
    assert [score.is_detail for score in SCORES] == [False, True, False, False, True, False]


def test_a_mean_leaves_undefined_numbers_out() -> None:
    assert mean([1.0, math.nan, 3.0]) == 2.0
    assert math.isnan(mean([math.nan]))
