"""Training on two machines: two network namespaces of this one, each with its own address, joined by a cable."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from shutil import which

import pytest
import torch
from safetensors.torch import load_file

from inphase.training import train
from inphase.training.metrics import read_metrics
from inphase.training.recipe import Recipe
from tests.processes import kill_group, start_command
from tests.training.conftest import make_recipe

pytestmark = pytest.mark.slow

FIRST, SECOND = "10.77.0.1", "10.77.0.2"
PATIENCE = 600  # seconds: importing torch four times takes minutes on a machine with much else to do


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def machine(name: str, cable: str, address: str) -> Iterator[str]:
    """Give a namespace a cable's end and an address."""
    ip("netns", "add", name)
    try:
        ip("link", "set", cable, "netns", name)
        ip("-n", name, "addr", "add", f"{address}/24", "dev", cable)
        ip("-n", name, "link", "set", cable, "up")
        ip("-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        ip("netns", "del", name)


@pytest.fixture
def machines() -> Iterator[tuple[str, str]]:
    """Give two namespaces that reach each other by TCP and nothing else."""
    if which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and iproute2")
    tag = f"{os.getpid() % 100000:x}"
    try:
        ip("link", "add", f"va{tag}", "type", "veth", "peer", "name", f"vb{tag}")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
    with ExitStack() as stack:
        stack.callback(subprocess.run, ["ip", "link", "del", f"va{tag}"], capture_output=True)
        a = stack.enter_context(machine(f"inphase-a{tag}", f"va{tag}", FIRST))
        yield a, stack.enter_context(machine(f"inphase-b{tag}", f"vb{tag}", SECOND))


def start(name: str, rank: int, file: Path, out: Path, log: Path) -> BaseProcess:
    """Type the command of docs/engineering/corpora.md on one machine."""
    device = subprocess.run(["ip", "-n", name, "-o", "-4", "addr"], capture_output=True, text=True, check=True).stdout
    interface = next(line.split()[1] for line in device.splitlines() if " lo " not in line)
    torchrun = ["--nnodes=2", "--nproc-per-node=1", f"--node-rank={rank}", f"--master-addr={FIRST}"]
    changes = ["--set", "run.nodes=2", "--set", "run.strategy=ddp"]
    return start_command(
        *("train", file, "--out", out, *changes),
        log=log,
        environment={"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": interface},
        torchrun=[*torchrun, "--master-port=29611"],
        namespace=name,
    )


def end(*running: BaseProcess) -> None:
    for process in running:
        kill_group(process)


def children(process: int) -> list[int]:
    """List the processes that a process started, and theirs."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True).stdout
    found = [int(pid) for pid in listed.split()]
    return found + [each for pid in found for each in children(pid)]


def recipe_of(steps: int) -> Recipe:
    # As in test_loop: Adam divides rounding errors of a weight without gradient by their own size, not with this ε.
    changes: dict[str, object] = {"steps": steps, "save_every": 5, "log_every": 1}
    return make_recipe(run=changes, batch={"epochs": True}, optimizer={"eps": 0.1, "lr": 0.1})


def test_two_machines_train_as_one_and_a_lost_one_is_reported(machines: tuple[str, str], tmp_path: Path) -> None:
    recipe, out = recipe_of(400), tmp_path / "run"
    file = tmp_path / "recipe.toml"
    file.write_text(recipe.to_toml(), encoding="utf-8")
    logs = [tmp_path / "a.log", tmp_path / "b.log"]
    running = [start(name, rank, file, out, logs[rank]) for rank, name in enumerate(machines)]
    try:
        while running[0].is_alive() and not any(row["step"] >= 12 for row in read_metrics(out)):
            time.sleep(0.01)
        # The second machine's process dies in the middle of a step.
        assert running[1].pid is not None
        os.kill(children(running[1].pid)[-1], signal.SIGKILL)
        running[0].join(PATIENCE)
        assert running[0].exitcode not in (None, 0), "the first machine goes on alone"
    finally:
        end(*running)
    printed = logs[0].read_text(encoding="utf-8", errors="replace")
    assert "lost contact with another process" in printed, printed[-2000:]
    assert "run the same command on all of them again" in printed
    assert "the checkpoint of step" in printed

    reached = max(row["step"] for row in read_metrics(out))
    steps = reached + 8
    file.write_text(recipe_of(steps).to_toml(), encoding="utf-8")
    running = [start(name, rank, file, out, logs[rank]) for rank, name in enumerate(machines)]
    try:
        for process in running:
            process.join(PATIENCE)
            assert process.exitcode == 0, logs[0].read_text() + logs[1].read_text()
    finally:
        end(*running)
    train(recipe_of(steps), tmp_path / "one")
    one, two = (load_file(folder / "encoder.safetensors") for folder in (tmp_path / "one", out))
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, atol=2e-4, rtol=2e-3)
    assert [row["step"] for row in read_metrics(out)] == list(range(1, steps + 1))
