"""CPU kernels, compiled by numba, and what they share: compilation cached on disk, and exp and log that vectorize.

`exp2` and `log` use arithmetic alone, since loops that call the C library's do not vectorize.
"""

import logging
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function that releases the GIL; cache it on disk where numba finds a writable folder."""
    options = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # numba found no writable folder for its cache
        return njit(**options)(function)


@cache
def announce_compilation(kernel: Any) -> None:
    """Log a warning before a kernel is compiled, which takes seconds, once per installation."""
    folder, module = kernel.stats.cache_path, kernel.py_func.__module__.rpartition(".")[2]
    if folder is None or not any(Path(folder).glob(f"{module}.{kernel.__name__}-*.nbi")):
        _announce()


@cache
def _announce() -> None:
    logging.getLogger("inphase").warning(
        "Compiling the alignment kernels for this CPU: a few seconds, at first use only"
    )


POWERS = tuple(math.log(2.0) ** k / math.factorial(k) for k in range(12))  # 2^f = Σ POWERS[k] f^k
# The same to 4e-11, by least squares on |f| ≤ ½: enough for costs and tables in single precision.
SHORT_POWERS = (
    0.9999999999619437,
    0.6931471807388329,
    0.24022651196252803,
    0.055504103194877946,
    0.009618027457972706,
    0.0013333950083569165,
    0.00015469236480496288,
    1.5195577505864318e-05,
)
ODD = tuple(1.0 / (2 * k + 1) for k in range(13))  # artanh(s) = s Σ ODD[k] s^2k
ROOT3, LOG_ROOT3 = math.sqrt(3.0), math.log(3.0) / 2


@compiled
def exp2(exponent):
    """Raise 2 to an exponent ≤ 0 in double precision."""
    exponent = -1000.0 if exponent < -1000.0 else exponent  # in this order NaN stays NaN
    # Adding 1.5 · 2⁵² rounds to an integer and leaves it in the low bits, from where it moves to the exponent's place.
    shifted = exponent + 6755399441055744.0
    f = exponent - (shifted - 6755399441055744.0)
    # The series of 2^f, |f| ≤ ½, summed as a tree: a cell waits for this, so depth matters more than operations.
    f2, c = f * f, POWERS
    f4 = f2 * f2
    low = (c[0] + c[1] * f) + (c[2] + c[3] * f) * f2
    middle = (c[4] + c[5] * f) + (c[6] + c[7] * f) * f2
    high = (c[8] + c[9] * f) + (c[10] + c[11] * f) * f2
    return _as_float(_as_bits(low + (middle + high * f4) * f4) + (_as_bits(shifted) << 52))


@compiled
def short_exp2(exponent):
    """Raise 2 to an exponent ≤ 0 with a relative error of 4e-11."""
    exponent = -1000.0 if exponent < -1000.0 else exponent
    shifted = exponent + 6755399441055744.0
    f = exponent - (shifted - 6755399441055744.0)
    f2, c = f * f, SHORT_POWERS
    low = (c[0] + c[1] * f) + (c[2] + c[3] * f) * f2
    high = (c[4] + c[5] * f) + (c[6] + c[7] * f) * f2
    return _as_float(_as_bits(low + high * (f2 * f2)) + (_as_bits(shifted) << 52))


def exp2_for(exponent, like):
    """Raise 2 to an exponent ≤ 0 with the precision of the type of `like`, an element of the table."""
    raise NotImplementedError("for compiled functions")


@overload(exp2_for)
def _choose_exp2(exponent, like):
    if like == types.float32:
        return lambda exponent, like: short_exp2(exponent)
    return lambda exponent, like: exp2(exponent)


@compiled
def log(z):
    """Take the logarithm of 1 ≤ z ≤ 3 as log √3 + 2 artanh((z − √3)/(z + √3))."""
    s = (z - ROOT3) / (z + ROOT3)
    q = s * s
    q2, c = q * q, ODD
    q4 = q2 * q2
    low = (c[0] + c[1] * q) + (c[2] + c[3] * q) * q2
    middle = (c[4] + c[5] * q) + (c[6] + c[7] * q) * q2
    high = (c[8] + c[9] * q) + (c[10] + c[11] * q) * q2
    return LOG_ROOT3 + 2.0 * s * (low + (middle + (high + c[12] * q4) * q4) * q4)


@intrinsic
def _as_bits(context, number):
    return types.int64(types.float64), lambda _, builder, __, args: builder.bitcast(args[0], ir.IntType(64))


@intrinsic
def _as_float(context, bits):
    return types.float64(types.int64), lambda _, builder, __, args: builder.bitcast(args[0], ir.DoubleType())
