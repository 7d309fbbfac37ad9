"""Triton kernels for CUDA devices; this module, their launcher and buffer sizes, imports without a GPU or Triton.

Each program is one warp. It computes one strip of 32 rows of a pair, or all strips of a pair as a chain
(`recursion_triton.py`). `Launcher` inspects each kind of arguments only once.
"""

from collections.abc import Hashable
from functools import cache
from typing import Any

import torch
from torch import Tensor

KINDS = {"smooth": 0, "soft": 1, "hard": 2}
CHAINED = 3  # pairs per multiprocessor from which on a program does all strips of a pair


class Launcher:
    """Launch a kernel through its compiled handle, which takes a fraction of the time of `kernel[grid](…)`.

    Short sequences take the GPU less time than Python takes to launch. `alike` is the key of a
    compiled kernel: constants, specialized values, types and alignment of the caller's tensors. The device is added.
    `options` go to the compiler.
    """

    def __init__(self, kernel: Any, **options: object) -> None:
        """Start with an empty cache of compiled kernels."""
        self._kernel, self._options = kernel, options
        self._compiled: dict[Hashable, Any] = {}

    def __call__(self, programs: int, alike: Hashable, tensors: tuple[Tensor, ...], *rest: Any) -> None:
        """Launch with tensors, then numbers, on the tensors' device, which need not be the current one."""
        device = tensors[0].device
        if device.index == torch.cuda.current_device():
            self._launch(programs, (device.index, alike), tensors, rest)
        else:
            with torch.cuda.device(device):
                self._launch(programs, (device.index, alike), tensors, rest)

    def _launch(
        self, programs: int, key: tuple[int, Hashable], tensors: tuple[Tensor, ...], rest: tuple[Any, ...]
    ) -> None:
        compiled = self._compiled.get(key)
        if compiled is not None:
            stream = torch._C._cuda_getCurrentRawStream(key[0])
            addresses = [tensor.data_ptr() for tensor in tensors]
            handle = compiled.function, compiled.packed_metadata, None, None, None  # no launch hooks
            try:
                compiled.run(programs, 1, 1, stream, *handle, *addresses, *rest)
                return
            except TypeError:  # raised before the launch: other versions of Triton take other arguments
                pass
        self._compiled[key] = self._kernel[(programs,)](*tensors, *rest, num_warps=1, **self._options)


def aligned(tensor: Tensor) -> bool:
    """Test whether a tensor starts at a multiple of 16 bytes, as newly allocated ones do; Triton loads those faster."""
    return tensor.data_ptr() % 16 == 0


@cache
def two_floats(gamma: float) -> tuple[float, float]:
    """Split γ into its float32 value and the rest: kernels take no other floats. The hard minimum needs none."""
    gamma = gamma or 1.0
    rounded = float(torch.tensor(gamma, dtype=torch.float32))
    return rounded, gamma - rounded


def is_chained(cost: Tensor) -> bool:
    """Test whether one program computes all strips of a pair, as a chain.

    Chains take less time for two or three strips per pair and many pairs. They need N > 32: the first lane loads the
    row above one tile ahead, and the last lane of the strip above would not have written a shorter row yet.
    """
    batch, m, n = cost.shape
    return 32 < m <= 96 and n > 32 and batch >= CHAINED * _multiprocessors(cost.device)


@cache
def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def chain_width(n: int) -> int:
    """Count the steps between the starts of two strips of a chain: eight without a cell, and no fewer than lanes."""
    return max(-(-n // 8) * 8 + 8, 32)


def low_size(m: int, n: int, *, chained: bool) -> int:
    """Count the numbers of a pair that the backward pass needs: one for each lane and step, and a few more."""
    strips = -(-m // 32)
    if chained:
        return ((strips - 1) * chain_width(n) + -(-n // 8) * 8 + 40) * 32
    return strips * (-(-n // 8) * 8 + 40) * 32


def words(cost: Tensor, batch: int, strips: int, n: int, *, chained: bool) -> Tensor:
    """Allocate the rows of words that strips hand over.

    Programs of one strip draw a ticket from the first word and wait until the words they read are not 0, so all words
    begin as 0. A chain does neither: its words are not initialized.
    """
    if chained:
        size = 32 + batch * ((strips + 1) * chain_width(n) + 40)
        return torch.empty(size, dtype=torch.int64, device=cost.device)
    return torch.zeros(32 + batch * strips * (n + 40), dtype=torch.int64, device=cost.device)
