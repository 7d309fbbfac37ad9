"""Launch Triton kernels, one warp to a program, without examining the same kind of arguments again and again."""

from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor


class Launcher:
    """Launch a kernel through its compiled handle, which takes a fraction of the time of `kernel[grid](…)`.

    Short sequences take the GPU less time than Python takes to launch. `alike` names all that the kernel is compiled
    anew for: constants, what is specialised, types and alignment of what the caller was given. The device is added.
    `options` are the compiler's.
    """

    def __init__(self, kernel: Any, **options: object) -> None:
        """Begin with nothing compiled."""
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
            handle = compiled.function, compiled.packed_metadata, None, None, None  # no one else is told
            try:
                compiled.run(programs, 1, 1, stream, *handle, *addresses, *rest)
                return
            except TypeError:  # raised before anything is launched: other Tritons take other arguments
                pass
        self._compiled[key] = self._kernel[(programs,)](*tensors, *rest, num_warps=1, **self._options)


def aligned(tensor: Tensor) -> bool:
    """Say whether a tensor begins where Triton may load words of 16 bytes; what was just allocated does."""
    return tensor.data_ptr() % 16 == 0
