import json
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from inphase.data.frame_source import FrameSource
from inphase.data.stream import Batch
from inphase.losses import GTA
from inphase.models import Encoder, PoseEncoder, load_encoder
from inphase.runs import Run, rng_state, set_rng_state
from inphase.storage.errors import StoreError
from inphase.storage.files import exclusive_lock
from inphase.training import Status, TrainingError, read_recipe, train
from inphase.training.build import build_encoder_with_loss, load_frame_sources
from inphase.training.metrics import read_metrics
from inphase.training.step import EncoderWithLoss, locate_row
from tests.processes import kill_group, start_command
from tests.training.conftest import make_recipe, train_interrupted

pytestmark = pytest.mark.slow


def weights(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "encoder.safetensors")


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_leaves_all_that_later_commands_need(out: Path) -> None:
    seen: list[Status] = []
    recipe = make_recipe()
    reported: list[tuple[str, int, int]] = []
    trained = train(recipe, out, on_status=seen.append, progress=lambda *report: reported.append(report))
    assert (trained.run, trained.steps) == (Run(out), 12)
    assert reported == [("training", step, 12) for step in range(1, 13)]
    assert {path.name for path in out.iterdir()} == {
        "encoder.safetensors",
        "lock",
        "metrics.jsonl",
        "recipe.toml",
        "state.safetensors",
        "tensorboard",
    }
    assert read_recipe(out / "recipe.toml") == recipe
    encoder = load_encoder(out)
    assert encoder.context.offsets == (-8, -4, 0, 4, 8)
    rows = read_metrics(out)
    assert [row["step"] for row in rows] == list(range(1, 13)) == [status.step for status in seen]
    assert {"loss", "align", "cycle", "cosine", "variance", "lr", "frames_per_second"} <= set(rows[0])
    assert list((out / "tensorboard").iterdir())
    assert trained.to_dict() == {"run": str(out), "steps": 12, "metrics": dict(list(rows[-1].items())[1:])}
    assert json.loads(trained.write(out).read_text()) == trained.to_dict()


def test_tensorboard_may_be_missing(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    train(make_recipe(run={"steps": 2}), out)
    assert not (out / "tensorboard").exists()
    assert len(read_metrics(out)) == 2


def test_training_lowers_the_loss(out: Path) -> None:
    train(make_recipe(run={"steps": 150}), out)
    losses = [row["loss"] for row in read_metrics(out)]
    assert sum(losses[-20:]) < 0.85 * sum(losses[:20])


def test_an_interrupted_run_ends_as_an_uninterrupted_one(out: Path, tmp_path: Path) -> None:
    # Shuffle-and-learn draws from torch's generator inside its loss: that has to be resumed as well.
    recipe = replace(make_recipe(augmentation={"flip": 0.5, "jitter": 0.01}), loss={"name": "sal"})
    train(recipe, tmp_path / "whole")
    train_interrupted(recipe, out, step=7)
    assert read_metrics(out)[-1]["step"] == 7
    train(recipe, out)
    assert same(weights(out), weights(tmp_path / "whole"))
    assert same(load_file(out / "state.safetensors"), load_file(tmp_path / "whole" / "state.safetensors"))
    assert [row["step"] for row in read_metrics(out)] == list(range(1, 13))


def test_a_killed_run_ends_as_an_uninterrupted_one(out: Path, tmp_path: Path) -> None:
    recipe = make_recipe(run={"steps": 200, "save_every": 20, "log_every": 10})
    train(recipe, tmp_path / "whole")
    file = tmp_path / "recipe.toml"
    file.write_text(recipe.to_toml(), encoding="utf-8")
    for target in (40, 100):
        process = start_command("train", file, "--out", out, log=tmp_path / "log")
        while process.is_alive() and not any(row["step"] >= target for row in read_metrics(out)):
            time.sleep(0.005)
        kill_group(process)
    assert not (out / "encoder.safetensors").exists() or not same(weights(out), weights(tmp_path / "whole"))
    train(recipe, out)
    assert same(weights(out), weights(tmp_path / "whole"))
    assert [row["step"] for row in read_metrics(out)] == list(range(10, 201, 10))


def test_a_finished_run_is_gone_on_with_when_more_steps_are_asked_for(out: Path, tmp_path: Path) -> None:
    train(make_recipe(run={"steps": 5}), out)
    before = weights(out)
    printed: list[Status] = []
    train(make_recipe(run={"steps": 5}), out, on_status=printed.append)
    assert "finished" in printed[0].messages[0]
    assert same(weights(out), before)
    train(make_recipe(), out)
    train(make_recipe(), tmp_path / "whole")
    assert same(weights(out), weights(tmp_path / "whole"))


def test_another_recipe_does_not_enter_the_folder(out: Path) -> None:
    train(make_recipe(run={"steps": 2}), out)
    with pytest.raises(ValueError, match=r"another recipe \(encoder\.hidden, loss\.gamma differ\)"):
        train(make_recipe(encoder={"hidden": [8]}, loss={"gamma": 0.2}), out)


def test_a_second_process_is_refused(out: Path) -> None:
    with exclusive_lock(out), pytest.raises(StoreError, match="another process is training in"):
        train(make_recipe(), out)


def test_a_damaged_state_is_named(out: Path) -> None:
    train(make_recipe(run={"steps": 2}), out)
    state = out / "state.safetensors"
    state.write_bytes(state.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"state\.safetensors is damaged"):
        train(make_recipe(), out)


def test_a_loss_that_is_no_number_stops_the_run(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, calls = GTA.pair, []

    def spoilt(self: GTA, *given: Tensor) -> dict[str, Tensor]:
        calls.append(1)
        terms = pair(self, *given)
        return terms | {"loss": terms["loss"] * (float("nan") if len(calls) > 7 else 1)}

    monkeypatch.setattr(GTA, "pair", spoilt)
    match = (
        r"the loss of step 8 is nan; embeddings are finite; its videos were .*squat.*; "
        r"the checkpoint of step 5 is kept in .*run"
    )
    with pytest.raises(TrainingError, match=match):
        train(make_recipe(), out)
    assert all(torch.isfinite(value).all() for value in weights(out).values())


def test_the_first_frame_without_an_embedding_is_named(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    combine = PoseEncoder.combine
    found: list[str] = []

    def spoilt(self: PoseEncoder, features: Tensor) -> Tensor:
        vectors = combine(self, features)
        return vectors.index_fill(0, torch.tensor([11, 20]), float("nan"))  # 2 groups of 2 videos of 8 frames

    def locate(batch: Batch, row: int) -> str:
        group = batch.groups[0]
        found.append(f"the embedding of {group.ids[1]} at frame {int(group.frames[1, 3])};")
        return locate_row(batch, row)

    monkeypatch.setattr(PoseEncoder, "combine", spoilt)
    monkeypatch.setattr("inphase.training.loop.locate_row", locate)
    with pytest.raises(TrainingError, match="the first NaN is in the embedding of") as caught:
        train(make_recipe(), out)
    assert found[0] in str(caught.value)


@pytest.mark.parametrize(
    "wrong", [{"accelerator": "cuda"}, {"accelerator": "x"}, {"precision": "3"}, {"strategy": "x"}]
)
def test_hardware_that_is_missing_is_named(wrong: dict[str, str], out: Path) -> None:
    if wrong == {"accelerator": "cuda"} and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(ValueError, match=r"\[run\] .*(use cpu or auto|correct accelerator)") as caught:
        train(make_recipe(run=wrong), out)
    assert len(str(caught.value).splitlines()) == 1


def test_weights_that_are_no_numbers_are_not_saved(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair, calls = GTA.pair, []

    def spoilt(self: GTA, *given: Tensor) -> dict[str, Tensor]:
        calls.append(1)
        terms = pair(self, *given)
        if len(calls) == 10:  # a loss of 0 whose gradient is no number, just before the second state is saved
            return terms | {"loss": torch.sqrt(0 * terms["loss"])}
        return terms

    monkeypatch.setattr(GTA, "pair", spoilt)
    with pytest.raises(TrainingError, match=r"weights after step 10 are not finite.*the checkpoint of step 5 is kept"):
        train(make_recipe(), out)
    assert all(torch.isfinite(value).all() for value in weights(out).values())


def test_a_collapse_is_reported(out: Path) -> None:
    printed: list[str] = []
    # Without the contrast between frames nothing keeps them apart: the paper's ablation.
    recipe = make_recipe(
        loss={"cost": "cosine", "cycle_weight": 0.0, "align_weight": 1.0},
        optimizer={"lr": 0.05},
        run={"steps": 300, "log_every": 50},
    )
    train(recipe, out, on_status=lambda status: printed.extend(status.messages))
    (collapse,) = (message for message in printed if "collapsed" in message)  # once, not at every step
    assert "two have a cosine of" in collapse
    assert read_metrics(out)[-1]["variance"] < 0.02


def test_the_encoder_is_measured_on_videos_that_are_not_trained_on(out: Path) -> None:
    measured: list[tuple[int, set[str]]] = []

    def validate(encoder: Encoder, frame_source: FrameSource) -> Mapping[str, float]:
        torch.rand(3)  # must not disturb the run
        measured.append((len(frame_source.videos), {video.split for video in frame_source.videos}))
        return {"tau": 0.5}

    train(make_recipe(validation={"every": 5, "videos": 3}), out, validate=validate)
    assert measured == [(6, {"val"})] * 3
    assert [row["step"] for row in read_metrics(out) if "val/tau" in row] == [5, 10, 12]
    train(make_recipe(validation={"every": 5, "videos": 3}), out.with_name("plain"))
    assert same(weights(out), weights(out.with_name("plain")))


def test_every_process_goes_on_with_its_own_chance() -> None:
    states = []
    for seed in (3, 4):
        torch.manual_seed(seed)
        torch.rand(7)
        states.append(rng_state(torch.device("cpu")))
        torch.rand(9)
    kept = torch.stack(states)
    for seed, state in zip((3, 4), kept, strict=True):
        torch.manual_seed(seed)
        torch.rand(7)
        expected = torch.rand(5)
        set_rng_state(state, device=torch.device("cpu"))
        assert torch.equal(torch.rand(5), expected)


def test_accumulated_batches_are_one_batch(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[str]] = []
    forward = EncoderWithLoss.forward

    def noting(self: EncoderWithLoss, given: Batch) -> dict[str, Tensor]:
        seen.append({group.action for group in given.groups})
        assert len(given.groups) == 4
        return forward(self, given)

    monkeypatch.setattr(EncoderWithLoss, "forward", noting)
    train(make_recipe(run={"accumulate": 2, "steps": 3}), out)
    assert seen == [{"squat", "kick"}] * 3


def test_two_processes_train_as_one(out: Path, tmp_path: Path) -> None:
    # Adam divides the rounding errors of a weight that gets no gradient by their own size: not with this ε.
    recipe = make_recipe(run={"steps": 6, "save_every": 1}, optimizer={"eps": 0.1, "lr": 0.1})
    train(recipe, tmp_path / "one")
    file = tmp_path / "recipe.toml"
    file.write_text(recipe.to_toml(), encoding="utf-8")
    changes = ["--set", "run.devices=2", "--set", "run.strategy=ddp"]
    torchrun, log = ["--nproc-per-node=2", "--standalone"], tmp_path / "log"
    process = start_command("train", file, "--out", out, *changes, log=log, torchrun=torchrun)
    process.join(120)
    kill_group(process)
    assert process.exitcode == 0, log.read_text()
    one, two = weights(tmp_path / "one"), weights(out)
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, atol=1e-4, rtol=1e-4)
    train(make_recipe(run={"steps": 1, "seed": 0}, optimizer={"lr": 1e-12}), tmp_path / "none")
    moved = [(one[name] - value).abs().max() for name, value in weights(tmp_path / "none").items()]
    assert max(moved) > 0.01


def names(frame_source: FrameSource | None) -> set[str]:
    return set() if frame_source is None else {video.id for video in frame_source.videos}


def test_fewer_videos_of_every_action_are_trained_on_where_so_many_are_asked_for() -> None:
    whole, few = make_recipe(), make_recipe(data={"max_videos_per_action": 2})
    encoder = build_encoder_with_loss(whole).encoder
    every, some = (load_frame_sources(recipe, encoder) for recipe in (whole, few))
    assert Counter(video.action for video in some.train.videos) == {"squat": 2, "kick": 2}
    assert names(some.train) < names(every.train)
    assert names(some.validation) == names(every.validation) != set()  # measured alike
    with pytest.raises(ValueError, match="max_videos_per_action must be at least 2, since videos are compared; got 1"):
        load_frame_sources(make_recipe(data={"max_videos_per_action": 1}), encoder)
