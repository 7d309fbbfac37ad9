from pathlib import Path
from typing import Any

from inphase.runs import Run
from inphase.storage.errors import import_extra
from inphase.training.metrics import Metrics, Status, read_metrics


def test_a_status_is_a_line() -> None:
    status = Status(20, 400, {"loss": 1.23456, "lr": 0.001}, frames_per_second=1234.5, seconds_left=3725)
    assert str(status) == "    20/400  loss 1.235  1,234 frames/s  1:02:05 left"


def test_tensorboard_reads_the_same_numbers_and_drops_those_after_a_resumed_step(tmp_path: Path) -> None:
    reader: Any = import_extra("tensorboard.backend.event_processing.event_accumulator", extra="train")
    run = Run(tmp_path)
    for step, rows in ((0, {1: 1.0, 2: 2.0, 3: 3.0}), (1, {2: 2.5})):
        metrics = Metrics(run, step=step)
        for row, loss in rows.items():
            metrics.write(row, {"loss": loss, "val/tau": -loss})
        metrics.close()
    read = reader.EventAccumulator(str(run.tensorboard)).Reload()
    assert sorted(read.Tags()["scalars"]) == ["loss", "val/tau"]
    assert [(each.step, each.value) for each in read.Scalars("loss")] == [(1, 1.0), (2, 2.5)]
    assert [(row["step"], row["loss"]) for row in read_metrics(tmp_path)] == [(1, 1.0), (2, 2.5)]
