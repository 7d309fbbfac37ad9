"""Compile by numba: once per installation, and not in silence."""

import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit


def compiled(function: Callable[..., Any]) -> Any:
    """Compile without the interpreter lock; keep the result on disk where a place for it can be written."""
    options = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # numba found no writable folder for its cache
        return njit(**options)(function)


@cache
def announce_compilation(kernel: Any) -> None:
    """Say so when a kernel is about to be compiled, which takes seconds, once per installation."""
    folder, module = kernel.stats.cache_path, kernel.py_func.__module__.rpartition(".")[2]
    if folder is None or not any(Path(folder).glob(f"{module}.{kernel.__name__}-*.nbi")):
        _announce()


@cache
def _announce() -> None:
    logging.getLogger("inphase").warning("inphase compiles its alignment kernels for this processor: seconds, once")
