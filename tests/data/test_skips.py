import pytest

from inphase.data.batches import Skip, SkipLog, try_reading
from inphase.data.video import Video


def test_a_video_is_reported_once_and_counted_always() -> None:
    log = SkipLog()
    assert log.summary() == "every video could be read"
    assert log.note([Skip("a", "damaged"), Skip("a", "damaged")]) == ["a cannot be read and is skipped: damaged"]
    assert log.note([Skip("a", "damaged"), Skip("b", "absent")]) == ["b cannot be read and is skipped: absent"]
    assert log.note([]) == []
    assert log.counts == {"a": 3, "b": 1}
    assert log.summary() == "2 videos could not be read and were skipped 4 times: a, b"


def test_what_failed_once_is_not_tried_again_and_an_interrupt_goes_through() -> None:
    tries, failed, skipped = [], dict[str, str](), list[Skip]()

    def work() -> int:
        tries.append(1)
        raise OSError("gone")

    video = Video("a", "wave", "train")
    for _ in range(3):
        assert try_reading(video, work, failed=failed, skipped=skipped) is None
    assert len(tries) == 1
    assert skipped == [Skip("a", "OSError: gone")] * 3

    def interrupt() -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        try_reading(Video("b", "wave", "train"), interrupt, failed=failed, skipped=skipped)
