"""The checkpoint is the truth of a run: whatever is killed or damaged beside it is rebuilt from it."""

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from inphase.models import Encoder, load_encoder
from inphase.models.weights import fingerprint
from inphase.runs import Run, load_checkpoint
from inphase.storage.files import is_draft, verify_checksum
from inphase.training import Recipe, loop, train
from inphase.training.build import build_encoder_with_loss
from inphase.training.metrics import read_metrics
from tests.training.conftest import make_recipe

FILE_OPERATIONS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod", "os.truncate", "os.scandir"}


def small(**run: Any) -> Recipe:
    return make_recipe(
        data={"actions": ["kick"], "videos": 2}, batch={"actions": 1}, run={"steps": 4, "save_every": 2, **run}
    )


def train_and_kill(recipe: Recipe, out: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Train; before the last save, fork a process for each of its file operations, which is killed before that one.

    Each process saves into a copy of the run folder. Return the copies; the last one was saved without a kill.
    """
    save, copies = loop._Training._save, list[Path]()

    def save_in_children(training: Any) -> None:
        killed = training.step == recipe.run["steps"]
        while killed:
            copy = out.with_name(f"{out.name}-{len(copies) + 1}")
            shutil.copytree(out, copy)
            copies.append(copy)
            child = os.fork()
            if child == 0:
                training.run = Run(copy)
                kill_before(len(copies))
                save(training)
                os._exit(0)
            killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
        save(training)

    monkeypatch.setattr(loop._Training, "_save", save_in_children)
    train(recipe, out)
    monkeypatch.undo()
    return copies


def kill_before(operation: int) -> None:
    """Kill this process before its file operation of a number."""
    seen: list[str] = []

    def watch(event: str, _: object) -> None:
        if event in FILE_OPERATIONS:
            seen.append(event)
            if len(seen) == operation:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def weights_in_state(folder: Path) -> str:
    """Return the fingerprint of the weights in a checkpoint."""
    checkpoint = load_checkpoint(Run(folder).state)
    assert checkpoint is not None
    encoder: Encoder = build_encoder_with_loss(small()).encoder
    prefix = "network.encoder."
    encoder.load_state_dict(
        {name.removeprefix(prefix): value for name, value in checkpoint.tensors.items() if name.startswith(prefix)}
    )
    return fingerprint(encoder)


@pytest.mark.slow
@pytest.mark.parametrize("save_every", [2, 100])
def test_a_run_killed_at_any_file_operation_of_its_last_save_ends_with_the_same_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save_every: int
) -> None:
    recipe = small(save_every=save_every)
    copies = train_and_kill(recipe, tmp_path / "run", monkeypatch)
    assert len(copies) > 20
    whole = fingerprint(load_encoder(tmp_path / "run"))
    steps = set()
    for out in copies:
        checkpoint = load_checkpoint(Run(out).state)
        steps.add(None if checkpoint is None else checkpoint.step)
        if checkpoint is not None:  # other commands load the weights of the checkpoint, before anything is rebuilt
            assert fingerprint(load_encoder(out)) == weights_in_state(out)
        train(recipe, out)
        assert fingerprint(load_encoder(out)) == whole
        assert (out / "encoder.safetensors").read_bytes() == (tmp_path / "run" / "encoder.safetensors").read_bytes()
        assert [row["step"] for row in read_metrics(out)] == [1, 2, 3, 4]
        assert not [path for path in out.iterdir() if is_draft(path)]
    assert steps == {2 if save_every == 2 else None, 4}


def test_an_encoder_that_is_missing_damaged_or_older_is_rebuilt_from_the_checkpoint(tmp_path: Path) -> None:
    recipe, out = small(), tmp_path / "run"
    train(small(steps=2), out)
    older = (out / "encoder.safetensors").read_bytes()
    train(recipe, out)
    right = (out / "encoder.safetensors").read_bytes()
    damaged = bytearray(right)
    damaged[-5] ^= 1
    for content in (None, older, bytes(damaged), right[:-9], b""):
        file = out / "encoder.safetensors"
        file.unlink() if content is None else file.write_bytes(content)
        if content != bytes(damaged):
            assert fingerprint(load_encoder(out)) == weights_in_state(out)
        else:
            with pytest.raises(ValueError, match=r"encoder\.safetensors .*damaged.*remove it"):
                load_encoder(out)
        train(recipe, out)  # finished: it trains nothing, and rebuilds
        assert fingerprint(load_encoder(file)) == weights_in_state(out)
        assert verify_checksum(file) is True


def test_a_flipped_bit_in_a_checkpoint_is_named(tmp_path: Path) -> None:
    train(small(steps=1), tmp_path)
    content = bytearray((tmp_path / "state.safetensors").read_bytes())
    content[-1] ^= 16
    (tmp_path / "state.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=r"state\.safetensors is damaged .*remove it to start over"):
        train(small(steps=2), tmp_path)


def test_a_checkpoint_records_the_metrics_up_to_its_step(tmp_path: Path) -> None:
    train(small(), tmp_path)
    with safe_open(tmp_path / "state.safetensors", framework="pt") as opened:
        length, _ = json.loads(opened.metadata()["inphase_state"])["metrics"]
    assert length == (tmp_path / "metrics.jsonl").stat().st_size
