from inphase.training.metrics import Status


def test_a_status_is_a_line() -> None:
    status = Status(20, 400, {"loss": 1.23456, "lr": 0.001}, frames_per_second=1234.5, seconds_left=3725)
    assert str(status) == "    20/400  loss 1.235  1,234 frames/s  1:02:05 left"
