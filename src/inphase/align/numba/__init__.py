"""CPU kernels, compiled by numba, and what they share: compilation cached on disk, and vectors of eight numbers.

`LANES` is a type for compiled functions: eight float64, one register of AVX-512, two of AVX2, four of NEON. `load` and
`store` convert from and to arrays of either precision; arithmetic, comparisons and `select` work on each lane. A
compiler can vectorize a loop by itself, but then checks before every run through it that no two arrays overlap, which
took half the time of a loop over 32 rows.
"""

import logging
import math
import operator
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, models, overload, register_model

OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
INTERNAL: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function that releases the GIL; cache it on disk where numba finds a writable folder."""
    try:
        return njit(cache=True, **OPTIONS)(function)
    except RuntimeError:  # numba found no writable folder for its cache
        return njit(**OPTIONS)(function)


def internal(function: Callable[..., Any]) -> Any:
    """Compile a function that only compiled functions call: without the code to call it from Python."""
    return njit(**INTERNAL, **OPTIONS)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a function into each of its callers."""
    return njit(forceinline=True, **INTERNAL, **OPTIONS)(function)


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


WIDTH = 8
DOUBLES, BITS = ir.VectorType(ir.DoubleType(), WIDTH), ir.VectorType(ir.IntType(64), WIDTH)
INDICES = ir.VectorType(ir.IntType(32), WIDTH)


class Lanes(types.Type):  # type: ignore[misc]
    """Eight numbers, or eight results of a comparison."""


LANES, MASK = Lanes("lanes"), Lanes("mask")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Lanes) -> None:
        super().__init__(manager, kind, DOUBLES if kind is LANES else ir.VectorType(ir.IntType(1), WIDTH))


def _spread(builder: Any, value: Any) -> Any:
    """Copy a number to all lanes; leave lanes as they are."""
    if isinstance(value.type, ir.VectorType):
        return value
    one = builder.insert_element(ir.Constant(DOUBLES, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, one, ir.Constant(INDICES, [0] * WIDTH))


def _define(operation: Callable[..., Any], result: Lanes, emit: Callable[..., Any]) -> None:
    """Define an operation on lanes, or on lanes and a number, by the instruction that `emit` builds."""

    @intrinsic
    def lower(context, x, y):
        return result(x, y), lambda _, builder, __, args: emit(builder, *(_spread(builder, value) for value in args))

    @overload(operation)
    def choose(x, y):
        known = all(isinstance(each, Lanes) or each == types.float64 for each in (x, y))
        return (lambda x, y: lower(x, y)) if known and isinstance(x, Lanes) | isinstance(y, Lanes) else None


CONTRACT = ("contract",)  # a product and a sum may become one operation
_define(operator.add, LANES, lambda builder, x, y: builder.fadd(x, y, flags=CONTRACT))
_define(operator.sub, LANES, lambda builder, x, y: builder.fsub(x, y, flags=CONTRACT))
_define(operator.mul, LANES, lambda builder, x, y: builder.fmul(x, y, flags=CONTRACT))
_define(operator.truediv, LANES, lambda builder, x, y: builder.fdiv(x, y))
_define(operator.lt, MASK, lambda builder, x, y: builder.fcmp_ordered("<", x, y))
_define(operator.le, MASK, lambda builder, x, y: builder.fcmp_ordered("<=", x, y))
_define(operator.ne, MASK, lambda builder, x, y: builder.fcmp_unordered("!=", x, y))
_define(operator.and_, MASK, lambda builder, x, y: builder.and_(x, y))
_define(operator.or_, MASK, lambda builder, x, y: builder.or_(x, y))


@intrinsic
def select(context, mask, x, y):
    """Take x in lanes where the mask is set, y in the others."""

    def generate(context, builder, signature, args):
        return builder.select(args[0], _spread(builder, args[1]), _spread(builder, args[2]))

    return LANES(mask, x, y), generate


@intrinsic
def spread(context, number):
    """Copy a number to all lanes."""
    return LANES(number), lambda _, builder, __, args: _spread(builder, args[0])


@intrinsic
def shift(context, before, lanes):
    """Move all lanes up by one; the first is the last of those before."""
    order = ir.Constant(INDICES, [*range(WIDTH - 1, 2 * WIDTH - 1)])
    return LANES(before, lanes), lambda _, builder, __, args: builder.shuffle_vector(*args, order)


@intrinsic
def load(context, array, at):
    """Read eight numbers of an array from `at` on."""

    def generate(context, builder, signature, args):
        vector = ir.VectorType(context.get_data_type(array.dtype), WIDTH)
        value = builder.load(_address(context, builder, vector, array, *args), align=array.dtype.bitwidth // 8)
        return value if vector == DOUBLES else builder.fpext(value, DOUBLES)

    return LANES(array, types.intp), generate


@intrinsic
def store(context, array, at, lanes):
    """Write eight numbers to an array from `at` on."""

    def generate(context, builder, signature, args):
        vector = ir.VectorType(context.get_data_type(array.dtype), WIDTH)
        value = args[2] if vector == DOUBLES else builder.fptrunc(args[2], vector)
        builder.store(value, _address(context, builder, vector, array, *args[:2]), align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes), generate


@intrinsic
def prefetch(context, array, at):
    """Ask the caches for the numbers of an array at `at`."""

    def generate(context, builder, signature, args):
        number = ir.IntType(32)
        address = _address(context, builder, ir.IntType(8), array, *args)
        kind = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
        builder.call(function, [address, number(0), number(3), number(1)])  # to read, keep in all caches, data
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@intrinsic
def transpose(context, source, begin, stride, target, target_begin, target_stride):
    """Transpose 8 runs of 8 numbers: those at `begin`, `begin` + `stride`, … of one array to such runs of another."""

    def generate(context, builder, signature, args):
        vector, align = ir.VectorType(context.get_data_type(source.dtype), WIDTH), source.dtype.bitwidth // 8

        def run(k, kind, array, first, step):
            at = builder.add(first, builder.mul(step, step.type(k)))
            return _address(context, builder, vector, kind, array, at)

        rows = [builder.load(run(k, source, *args[:3]), align=align) for k in range(WIDTH)]
        for half in (4, 2, 1):  # exchange the quarters off the diagonal in blocks of 8, 4 and 2
            upper = ir.Constant(INDICES, [k if not k & half else k + WIDTH - half for k in range(WIDTH)])
            lower = ir.Constant(INDICES, [k + half if not k & half else k + WIDTH for k in range(WIDTH)])
            for k in (k for k in range(WIDTH) if not k & half):
                both = rows[k], rows[k + half]
                rows[k], rows[k + half] = builder.shuffle_vector(*both, upper), builder.shuffle_vector(*both, lower)
        for k in range(WIDTH):
            builder.store(rows[k], run(k, target, *args[3:]), align=align)
        return context.get_dummy_value()

    where = types.intp
    return types.void(source, where, where, target, where, where), generate


def _address(context: Any, builder: Any, target: Any, kind: Any, array: Any, at: Any) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), target.as_pointer())


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


# 1.5 · 2⁵²: adding it rounds to an integer and leaves that in the low bits, which `_scale` moves to the exponent.
SHIFT = 6755399441055744.0


@inlined
def exp2_for(exponent, like):
    """Raise 2 to exponents ≤ 0 with the precision of an array `like`, the table."""
    exponent = select(exponent < -1000.0, -1000.0, exponent)  # in this order NaN stays NaN
    shifted = exponent + SHIFT
    return _scale(_root_for(exponent - (shifted - SHIFT), like), shifted)


@inlined
def split(x, like):
    """Split 2⁻ˣ into its exponent and the rest: return k, x rounded, and m = 2^(k − x)."""
    k = (x + SHIFT) - SHIFT
    return k, _root_for(k - x, like)


@inlined
def halve(m, times):
    """Multiply m by 2 to the power of integers ≤ 0."""
    shifted = times + SHIFT
    return _scale(m, select(shifted < SHIFT - 1000.0, SHIFT - 1000.0, shifted))


def _root_for(f, like):
    """Raise 2 to |f| ≤ ½ with the precision of an array `like`."""
    raise NotImplementedError("for compiled functions")


@overload(_root_for)
def _choose_series(f, like):
    if like.dtype == types.float32:
        return lambda f, like: _short_series(f)
    return lambda f, like: _series(f)


# The series of 2^f, |f| ≤ ½, summed as trees: a cell waits for this, so depth matters more than operations.


@inlined
def _series(f):
    f2, c = f * f, POWERS
    f4 = f2 * f2
    low = (c[1] * f + c[0]) + (c[3] * f + c[2]) * f2
    middle = (c[5] * f + c[4]) + (c[7] * f + c[6]) * f2
    high = (c[9] * f + c[8]) + (c[11] * f + c[10]) * f2
    return low + (middle + high * f4) * f4


@inlined
def _short_series(f):
    f2, c = f * f, SHORT_POWERS
    low = (c[1] * f + c[0]) + (c[3] * f + c[2]) * f2
    high = (c[5] * f + c[4]) + (c[7] * f + c[6]) * f2
    return low + high * (f2 * f2)


@inlined
def log(z):
    """Take the logarithm of 1 ≤ z ≤ 3 as log √3 + 2 artanh((z − √3)/(z + √3))."""
    s = (z - ROOT3) / (z + ROOT3)
    q = s * s
    q2, c = q * q, ODD
    q4 = q2 * q2
    low = (c[1] * q + c[0]) + (c[3] * q + c[2]) * q2
    middle = (c[5] * q + c[4]) + (c[7] * q + c[6]) * q2
    high = (c[9] * q + c[8]) + (c[11] * q + c[10]) * q2
    return 2.0 * s * (low + (middle + (high + c[12] * q4) * q4) * q4) + LOG_ROOT3


@intrinsic
def _scale(context, number, shifted):
    """Multiply by 2 to the power in the low bits of `shifted`, by adding it to the exponent."""

    def generate(context, builder, signature, args):
        bits, power = (builder.bitcast(value, BITS) for value in args)
        moved = builder.shl(power, ir.Constant(BITS, [52] * WIDTH))
        return builder.bitcast(builder.add(bits, moved), DOUBLES)

    return LANES(number, shifted), generate
