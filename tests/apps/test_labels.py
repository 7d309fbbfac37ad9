import csv
import io

import numpy as np
import pytest

from inphase.apps.labels import Event, Labels, Segment, parse_labels, tabulate

TIMES = np.arange(10) / 10


def parse(text: str) -> Labels:
    rows = dict(enumerate(csv.DictReader(io.StringIO(text)), start=2))
    return parse_labels(rows, times=TIMES, end=1.0, source="labels.csv")


def test_stretches_and_moments_are_read_in_the_order_of_time() -> None:
    assert parse("start,end,label\n0.5,1,b\n0,0.5,a\n").segments == (Segment(0.0, 0.5, "a"), Segment(0.5, 1.0, "b"))
    assert parse("second,label\n0.7,hit\n0.2,lift\n").events == (Event(0.2, "lift"), Event(0.7, "hit"))
    assert parse("frame,label\n7,hit\n2,lift\n").events == (Event(0.2, "lift"), Event(0.7, "hit"))


def test_labels_at_frame_after_frame_are_stretches() -> None:
    rows = "".join(f"{frame},{'ab'[frame >= 4]}\n" for frame in range(10) if frame != 7)
    found = parse("frame,label\n" + rows).segments
    assert [(each.start, each.end, each.label) for each in found] == [(0, 0.4, "a"), (0.4, 0.7, "b"), (0.8, 1.0, "b")]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("start,end,label\n", "has no labels: its first line must be start,end,label, or second,label"),
        ("from,to,label\n0,1,a\n", "begins with from,to,label: its first line must be start,end,label"),
        ("start,end,label\n0,1,a\n0.6,0.5,b\n", "line 3: a segment from 0.6 to 0.5 s"),
        ("start,end,label\n0,7,a\n", "line 2: 7 s lies outside the video, which runs from 0 to 1.00 s"),
        ("second,label\nsoon,a\n", "line 2: 'soon' is not a number"),
        ("second,label\nnan,a\n", "line 2: nan s lies outside"),
        ("second,label\n0.1, \n", "line 2 has no label"),
        ("frame,label\n10,a\n", "line 2: frame '10' does not exist; there are 0 to 9"),
    ],
)
def test_a_mistake_is_named_with_its_line(text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=r"labels\.csv") as error:
        parse(text)
    assert wrong in str(error.value)


@pytest.mark.parametrize(
    "labels",
    [
        Labels(segments=(Segment(0.0, 0.35, "a, with a comma", 0.5), Segment(0.35, 1.0, 'b "quoted"', 0.9))),
        Labels(events=(Event(0.24, "=1+1", 0.25),)),
    ],
)
def test_what_is_written_is_read_again(labels: Labels) -> None:
    text = io.StringIO()
    csv.writer(text).writerows(tabulate(labels, times=TIMES))
    again = parse(text.getvalue())
    assert [each.label for each in again.segments] == [each.label for each in labels.segments]
    assert [(each.second, each.label) for each in again.events] == [(each.second, each.label) for each in labels.events]
    rows = list(csv.DictReader(io.StringIO(text.getvalue())))
    if labels.segments:
        assert [(row["first_frame"], row["last_frame"]) for row in rows] == [("0", "3"), ("4", "9")]
    else:
        assert [row["nearest_frame"] for row in rows] == ["2"]
