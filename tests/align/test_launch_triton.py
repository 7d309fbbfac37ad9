"""Launching through handles, with a kernel that only notes how it was called: it takes neither a GPU nor Triton."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from inphase.align.triton import Launcher, aligned


class Kernel:
    """Note calls; give a handle that notes them too, or refuses its arguments as those of other Tritons do."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.calls: list[tuple[str, int, int]] = []
        self.options: list[dict[str, object]] = []
        self.refuses = refuses

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        def run(_: Tensor, size: int, **options: object) -> "Handle":
            self.calls.append(("kernel", grid[0], size))
            self.options.append(options)
            return Handle(self)

        return run


class Handle:
    function, packed_metadata = "function", "metadata"

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def run(self, x: int, y: int, z: int, stream: int, *rest: Any) -> None:
        if self.kernel.refuses:
            raise TypeError("function takes exactly 10 arguments (11 given)")
        *handle, address, size = rest
        assert (y, z, stream, handle) == (1, 1, 7, ["function", "metadata", None, None, None])
        assert isinstance(address, int)
        self.kernel.calls.append(("handle", x, size))


@pytest.fixture(autouse=True)
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: 7, raising=False)


def test_what_is_alike_goes_through_the_handle_and_nothing_else_does() -> None:
    kernel = Kernel()
    launch = Launcher(kernel)
    for programs, alike, size in [(3, "a", 1), (4, "a", 2), (4, "b", 3), (5, "b", 4), (6, "a", 5)]:
        launch(programs, alike, (torch.zeros(1),), size)
    assert kernel.calls == [
        ("kernel", 3, 1),
        ("handle", 4, 2),
        ("kernel", 4, 3),
        ("handle", 5, 4),
        ("handle", 6, 5),
    ]


def test_a_handle_that_refuses_the_arguments_is_not_used() -> None:
    kernel = Kernel(refuses=True)
    launch = Launcher(kernel)
    for size in range(3):
        launch(2, "a", (torch.zeros(1),), size)
    assert kernel.calls == [("kernel", 2, size) for size in range(3)]


def test_a_program_is_one_warp_and_other_options_are_passed_on() -> None:
    kernel = Kernel()
    Launcher(kernel, maxnreg=128)(2, "a", (torch.zeros(1),), 1)
    assert kernel.options == [{"num_warps": 1, "maxnreg": 128}]


def test_alignment_is_described() -> None:
    values = torch.zeros(8)
    assert [aligned(values[k:]) for k in (0, 1, 4)] == [True, False, True]
