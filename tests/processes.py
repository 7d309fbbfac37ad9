"""Commands in processes of their own, forked from a server that has imported what they need.

Importing torch and Lightning takes 15 seconds of CPU; a process that is forked from the server starts at once. The
server itself never computes anything, so its children may use autograd and threads.
"""

import ctypes
import multiprocessing
import multiprocessing.forkserver
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

FORK_SERVER = multiprocessing.get_context("forkserver")
FORK_SERVER.set_forkserver_preload(
    [
        "av",
        "av.subtitles",
        "docstring_parser",
        "faiss",
        "inphase.apps.align_videos",
        "inphase.cli",
        "inphase.cli.options",
        "inphase.corpus.align_corpus",
        "inphase.corpus.embed_corpus",
        "inphase.corpus.store_search",
        "inphase.evaluation.evaluate",
        "inphase.stage.raster_numba",
        "inphase.training.fitting",
        "inphase.viewer.page",
        "jinja2",
        "lightning.fabric",
        "matplotlib.figure",
        "pandas",
        "pyarrow.parquet",
        "pytest",
        "sklearn.svm",
        "torch.utils.tensorboard",
        "typeguard",
        "tyro",
    ]
)
Result = TypeVar("Result")

_SERVER: Any = vars(multiprocessing.forkserver)["_forkserver"]
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET of <linux/sched.h>


def start_server() -> str:
    """Start the fork server if it does not run; return its address."""
    _SERVER.ensure_running()
    return str(_SERVER._forkserver_address)


def share_server(address: str) -> None:
    """Use the fork server of another process, which outlives this one."""
    _SERVER._forkserver_address, _SERVER._forkserver_alive_fd = address, os.pipe()[1]
    _SERVER.ensure_running = resource_tracker.ensure_running


def start_command(
    *words: object,
    log: Path,
    program: str = "inphase.cli",
    environment: Mapping[str, str] | None = None,
    torchrun: Sequence[str] = (),
    namespace: str | None = None,
) -> BaseProcess:
    """Start `inphase WORDS`, or another module's `main`, in a new process group; `log` gets its output.

    With `torchrun`, the options of that command, its agent starts the processes of this machine. `namespace` names a
    network namespace to enter.
    """
    given, variables = [str(word) for word in words], {**os.environ, **(environment or {})}
    process = FORK_SERVER.Process(target=_run, args=(program, given, variables, log, list(torchrun), namespace))
    process.start()
    return process


def call_in_process(function: Callable[..., Result], *arguments: object) -> Result:
    """Call a function in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=FORK_SERVER) as pool:
        return pool.submit(function, *arguments).result()


def hang() -> None:
    """Never return and hold the lock of the interpreter, as a codec in C may; the CPU stays free for other tests."""
    while True:
        ctypes.PyDLL(None).sleep(3600)


def kill_group(process: BaseProcess) -> None:
    """End a command and every process that it started, as a power cut does."""
    if process.is_alive() and process.pid is not None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:  # it has not made its group yet, or has just ended
            process.kill()
    process.join()


def _run(
    program: str,
    words: list[str],
    environment: dict[str, str],
    log: Path,
    torchrun: list[str],
    namespace: str | None,
) -> None:
    os.setsid()
    if namespace is not None:
        with open(f"/var/run/netns/{namespace}", "rb") as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _NEW_NETWORK) != 0:
                raise OSError(ctypes.get_errno(), f"no network namespace {namespace}")
    os.environ.clear()
    os.environ.update(environment)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if torchrun:
        _launch(torchrun, words)
    else:
        run_words(words, program=program)


def run_words(words: list[str], *, program: str = "inphase.cli") -> None:
    """Run a command in this process."""
    sys.argv = [program.split(".")[0], *words]
    import_module(program).main()


def _launch(torchrun: list[str], words: list[str]) -> None:
    """Do what torchrun does, except that its processes are forked from this one."""
    from dataclasses import replace

    import torch.distributed.run as command
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    def launch(config: LaunchConfig, entrypoint: str) -> Callable[..., object]:
        agent = elastic_launch(replace(config, start_method="fork"), run_words)
        return lambda *_: agent(words)

    vars(command)["elastic_launch"] = launch
    command.main([*torchrun, "-m", "inphase", *words])
