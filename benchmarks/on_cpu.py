"""Measure on the CPU: the recursion against peers, threads, the first call, GTA and the hard path."""

import os
import subprocess
import sys
import tempfile
import time
from statistics import median

import numba
import torch

from benchmarks.correctness import Shape, random_cost, require_correct
from benchmarks.peers import GAMMA, Peer, load
from benchmarks.timing import Call, interleave, lay_out
from inphase import GTA
from inphase.align import accumulate, accumulate_with_drops, shortest_path

SHAPES: tuple[Shape, ...] = ((4, 20, 20), (32, 64, 64), (16, 256, 256), (4, 1000, 1000))
FIRST_CALL = """
import time
start = time.perf_counter()
import torch
after_torch = time.perf_counter()
import inphase.align
after_inphase = time.perf_counter()
inphase.align.accumulate(torch.rand(4, 20, 20, requires_grad=True)).sum().backward()
print(after_torch - start, after_inphase - after_torch, time.perf_counter() - after_inphase)
"""


def measure() -> str:
    """Measure everything, on one thread unless noted, and report it as Markdown."""
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    peers = load("cpu")
    for shape in SHAPES:
        require_correct(shape, peers, "cpu")
    return "\n\n".join(
        [_against_peers(peers), "\n".join([_threads(), _drops(), _gta(), _hard_path(), *_first_calls()])]
    )


def _against_peers(peers: list[Peer]) -> str:
    rows = []
    for shape in SHAPES:
        calls = {"inphase": ours(shape, "cpu")} | {peer.name: theirs(peer, shape, "cpu") for peer in peers}
        times = interleave(calls, seconds=2.0, clock=time.process_time)
        cells = shape[0] * shape[1] * shape[2]
        per_cell = [f"{time / cells * 1e9:.1f}" for time in times.values()]
        own = times.pop("inphase")
        ratio = f"{min(times.values()) / own:.1f}×" if times else "no peer here"
        rows.append(["×".join(map(str, shape)), *per_cell, ratio])
    head = ["ns of the processor per cell", "inphase", *[peer.name for peer in peers], "fastest peer / inphase"]
    return lay_out(head, rows)


def ours(shape: Shape, device: str) -> Call:
    """Accumulate with smoothMin and take a dense gradient of the whole table."""
    cost = random_cost(shape, device).requires_grad_()
    upstream = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(device)
    return lambda: torch.autograd.grad(accumulate(cost, gamma=GAMMA), cost, upstream)


def theirs(peer: Peer, shape: Shape, device: str) -> Call:
    """Align with a peer and take the gradient of the costs of the alignments."""
    cost = random_cost(shape, device).requires_grad_()
    upstream = torch.ones_like(peer.align(cost))
    return lambda: torch.autograd.grad(peer.align(cost), cost, upstream)


def with_drops(shape: Shape, device: str) -> Call:
    """Do the same as `ours` with drops, and take the gradients of the drop costs too."""
    cost = random_cost(shape, device).requires_grad_()
    upstream = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(device)
    drops = [torch.full((shape[0], length), 0.3, device=device, requires_grad=True) for length in shape[1:]]
    return lambda: torch.autograd.grad(accumulate_with_drops(cost, *drops, gamma=GAMMA), (cost, *drops), upstream)


def _drops() -> str:
    ratios = []
    for shape in SHAPES[1:]:
        calls = {"plain": ours(shape, "cpu"), "drops": with_drops(shape, "cpu")}
        times = interleave(calls, clock=time.process_time)
        ratios.append(f"{times['drops'] / times['plain']:.1f}× at {'×'.join(map(str, shape))}")
    return f"- With drops, against without: {', '.join(ratios)}."


def gta_pair(batch: int, device: str) -> Call:
    """Score sequences of 20 frames of 128 numbers with GTA and take the gradient of the loss."""
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(batch, 20, 128, generator=generator).to(device).requires_grad_() for _ in range(2))
    criterion = GTA()
    return lambda: torch.autograd.grad(criterion.pair(x, y)["loss"], (x, y))


def _threads() -> str:
    gains = []
    for shape in SHAPES[1:]:
        call = ours(shape, "cpu")

        def with_threads(count: int, call: Call = call) -> None:
            torch.set_num_threads(count)
            call()

        times = interleave({"one": lambda: with_threads(1), "two": lambda: with_threads(2)})
        gains.append(f"{times['one'] / times['two']:.2f}× at {'×'.join(map(str, shape))}")
    torch.set_num_threads(1)
    return f"- Two threads against one: {', '.join(gains)}."


def _gta() -> str:
    return f"- `GTA().pair` at 4×20×128: {interleave({'gta': gta_pair(4, 'cpu')})['gta'] * 1e3:.2f} ms."


def _hard_path() -> str:
    cost = torch.rand(5000, 5000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    calls: dict[str, Call] = {"inphase": lambda: shortest_path(cost)}
    try:
        from librosa.sequence import dtw
    except ImportError as reason:
        print(f"skipped librosa: {reason}")
    else:
        calls["librosa"] = lambda: dtw(C=cost.numpy(), backtrack=True)
        total = dtw(C=cost.numpy(), backtrack=False)[-1, -1]
        if abs(total - shortest_path(cost).cost) > 1e-9 * total:
            raise SystemExit(
                f"not comparable: librosa's path costs {total}, that of inphase {shortest_path(cost).cost}"
            )
    times = interleave(calls, burst=0)
    beside = ""
    if "librosa" in times:
        beside = f", librosa {times['librosa'] * 1e3:.0f} ms: {times['librosa'] / times['inphase']:.1f}×"
    return f"- Hard path from a 5000×5000 cost: {times['inphase'] * 1e3:.0f} ms{beside}."


def _first_calls() -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        compiling = _first_call(os.environ | {"NUMBA_CACHE_DIR": folder})
    _first_call(dict(os.environ))
    warm = [_first_call(dict(os.environ)) for _ in range(5)]
    torch_import, our_import, call = (median(times) for times in zip(*warm, strict=True))
    return [
        f"- A fresh process, kernels cached: `import torch` {torch_import:.2f} s, `import inphase.align`"
        f" {our_import:.2f} s more, the first forward and backward {call:.2f} s.",
        f"- The very first call after installation compiles its kernels: {compiling[2]:.0f} s.",
    ]


def _first_call(environment: dict[str, str]) -> list[float]:
    command = [sys.executable, "-c", FIRST_CALL]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [float(seconds) for seconds in done.stdout.split()]
