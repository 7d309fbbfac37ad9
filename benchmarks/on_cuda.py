"""Measure on a CUDA device: the recursion against dDTW, graph replay, memory, GTA and the error of gradients."""

import torch

from benchmarks.correctness import Shape, require_correct
from benchmarks.numerics import table, warped
from benchmarks.on_cpu import gta_pair, ours, theirs, with_drops
from benchmarks.peers import Peer, load
from benchmarks.timing import Call, interleave, lay_out

SHAPES: tuple[Shape, ...] = (
    (4, 20, 20),
    (64, 20, 20),
    (1024, 64, 64),
    (64, 256, 256),
    (32, 512, 512),
    (16, 1000, 1000),
)


def measure() -> str:
    """Measure everything and report it as Markdown."""
    peers = load("cuda")
    for shape in SHAPES:
        require_correct(shape, peers, "cuda")
    notes = [
        "- *alone*: the median of single calls, synchronized after each; *in a row*: 50 calls between synchronizations;"
        " *one thread*: the same under `torch.autograd.set_multithreading_enabled(False)`, where the backward pass"
        " needs no second thread; *replay*: a CUDA graph, 50 in a row. A peer that synchronizes inside its call, as"
        " dDTW does, cannot be captured in a graph; its best is the least of its three times.",
        _drops(),
        _least(),
        _gta(),
    ]
    errors = "Error of gradients by length, a motion and its warped copy (explained in docs/lab/numerics.md):"
    tables = [_against_peers(peers), _memory(peers), "\n".join(notes), errors, table(warped, "cuda", longest=256)]
    return "\n\n".join(tables)


def _against_peers(peers: list[Peer]) -> str:
    rows = []
    for shape in SHAPES:
        calls = {"inphase": ours(shape, "cuda")} | {peer.name: theirs(peer, shape, "cuda") for peer in peers}
        ways = [interleave(calls, burst=0, wait=torch.cuda.synchronize), _in_a_row(calls), _one_thread(calls)]
        replay = _in_a_row({"replay": _capture(calls["inphase"])})["replay"]
        row = ["×".join(map(str, shape)), *[f"{time * 1e6:.0f}" for time in (*_of("inphase", ways), replay)]]
        for peer in peers:
            times = _of(peer.name, ways)
            row += [f"{time * 1e6:.0f}" for time in times]
            row += [f"{way[peer.name] / way['inphase']:.1f}×" for way in ways[1:]]
            row.append(f"{min(times) / replay:.1f}×")
        rows.append(row)
    head = ["µs", "inphase alone", "in a row", "one thread", "replay"]
    for peer in peers:
        head += [f"{peer.name} alone", "in a row", "one thread"]
        head += ["ratio in a row", "one thread", "its best / our replay"]
    return lay_out(head, rows)


def _drops() -> str:
    """Measure the kernels with drops beside those without, both replayed as graphs."""
    ratios = []
    for shape in SHAPES[1:]:
        calls = {"plain": _capture(ours(shape, "cuda")), "drops": _capture(with_drops(shape, "cuda"))}
        times = _in_a_row(calls)
        ratios.append(f"{times['drops'] / times['plain']:.1f}× at {'×'.join(map(str, shape))}")
    return f"- With drops, against without, both replayed: {', '.join(ratios)}."


def _of(name: str, ways: list[dict[str, float]]) -> list[float]:
    return [way[name] for way in ways]


def _one_thread(calls: dict[str, Call]) -> dict[str, float]:
    """Measure the same with the backward pass on the calling thread."""
    with torch.autograd.set_multithreading_enabled(False):
        return _in_a_row(calls)


def _in_a_row(calls: dict[str, Call], times: int = 50) -> dict[str, float]:
    """Measure the seconds per call without synchronization between calls, as in training."""

    def repeated(call: Call) -> Call:
        def many() -> None:
            for _ in range(times):
                call()  # the result is released at once, as in training

        return many

    many = interleave({name: repeated(call) for name, call in calls.items()}, burst=0, wait=torch.cuda.synchronize)
    return {name: time / times for name, time in many.items()}


def _capture(call: Call) -> Call:
    """Record a call into a CUDA graph and return its replay."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = call()

    def replay(captured: object = captured) -> None:  # the graph writes into these tensors: keep a reference
        graph.replay()

    return replay


class _Nothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, cost: torch.Tensor) -> torch.Tensor:
        return cost.detach()

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
        return grad


def _least() -> str:
    """Measure the overhead of autograd: a lower bound for every call."""
    cost = torch.rand(SHAPES[0], device="cuda", requires_grad=True)
    upstream = torch.ones_like(cost)

    def nothing() -> object:
        return torch.autograd.grad(_Nothing.apply(cost), cost, upstream)  # type: ignore[no-untyped-call]

    calls: dict[str, Call] = {"nothing": nothing}
    in_a_row, one_thread = _in_a_row(calls)["nothing"], _one_thread(calls)["nothing"]
    return (
        "- Overhead of torch: an empty `autograd.Function`, forward and backward,"
        f" {in_a_row * 1e6:.0f} µs in a row and {one_thread * 1e6:.0f} on one thread. Replay avoids it."
    )


def _memory(peers: list[Peer]) -> str:
    rows = []
    for shape in SHAPES[2:]:
        row = ["×".join(map(str, shape)), *_peak(ours(shape, "cuda"), shape)]
        for peer in peers:
            row.append(_peak(theirs(peer, shape, "cuda"), shape)[0])
        rows.append(row)
    head = ["peak memory in cost matrices", "inphase, added by the call", "with cost and gradient given"]
    return lay_out([*head, *[f"{peer.name}, added by the call" for peer in peers]], rows)


def _peak(call: Call, shape: Shape) -> tuple[str, str]:
    """Measure the peak memory of a call without and with its inputs, in float32 cost matrices."""
    call()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = call()
    torch.cuda.synchronize()
    del result
    added = (torch.cuda.max_memory_allocated() - before) / (4 * shape[0] * shape[1] * shape[2])
    return f"{added:.2f}", f"{added + 2:.2f}"


def _gta() -> str:
    names = {f"{batch}×20×128": gta_pair(batch, "cuda") for batch in (4, 64)}
    alone = interleave(names, burst=0, wait=torch.cuda.synchronize)
    in_a_row, one_thread = _in_a_row(names), _one_thread(names)
    replay = interleave({name: _capture(call) for name, call in names.items()}, burst=0, wait=torch.cuda.synchronize)
    parts = [
        f"{name}: {alone[name] * 1e3:.2f} ms alone, {in_a_row[name] * 1e3:.2f} in a row,"
        f" {one_thread[name] * 1e3:.2f} on one thread, {time * 1e3:.2f} replayed"
        for name, time in replay.items()
    ]
    return f"- `GTA().pair`, forward + backward: {'; '.join(parts)}."
