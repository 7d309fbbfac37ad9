"""Launch Triton kernels, one warp to a program, without examining the same kind of arguments again and again."""

from collections.abc import Hashable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


class Launcher:
    """Launch a kernel through its compiled handle, which takes a third of the time of `kernel[grid](…)`.

    Short sequences take the GPU less time than Python takes to launch. `alike` names all that the kernel is compiled
    anew for: constants, what is specialised, types and alignment of what the caller was given. The device is added.
    """

    def __init__(self, kernel: Any) -> None:
        """Begin with nothing compiled."""
        self._kernel = kernel
        self._compiled: dict[Hashable, Any] = {}

    def __call__(self, programs: int, alike: Hashable, *arguments: Any) -> None:
        """Launch on the device of the first argument, a tensor, which need not be the current one."""
        device = arguments[0].device
        key = device.index, alike
        with _on(device):
            compiled = self._compiled.get(key)
            if compiled is not None:
                try:
                    compiled[(programs, 1, 1)](*arguments)
                    return
                except TypeError:  # raised before anything is launched: handles of older Tritons take no constants
                    pass
            self._compiled[key] = self._kernel[(programs,)](*arguments, num_warps=1)


def aligned(tensor: Tensor) -> bool:
    """Say whether a tensor begins where Triton may load words of 16 bytes; what was just allocated does."""
    return tensor.data_ptr() % 16 == 0


def _on(device: torch.device) -> AbstractContextManager[object]:
    return nullcontext() if device.index == torch.cuda.current_device() else torch.cuda.device(device)
