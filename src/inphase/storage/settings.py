"""User-written settings: TOML files, and tables whose entries are keyword arguments.

The signatures that receive the entries are the schema. msgspec checks each entry against its annotation, so that
`steps = true` or `lr = nan` raises a one-line error before anything is built. An annotation with bounds, such as
`Width`, also bounds what can be allocated.
"""

import json
import math
import reprlib
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from inspect import Parameter, isclass, signature
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

Table = Mapping[str, Any]
Made = TypeVar("Made")

# Whole numbers that decide how much is allocated. The bounds are far above any sensible value.
Count = Annotated[int, Meta(ge=1, le=100_000)]
Threads = Annotated[int, Meta(ge=0, le=256)]
Width = Annotated[int, Meta(ge=1, le=65_536)]
Widths = Annotated[Sequence[Width], Meta(max_length=64)]
Grid = Annotated[int, Meta(ge=1, le=64)]
Pixels = Annotated[int, Meta(ge=1, le=16_384)]
Offsets = Annotated[Sequence[Annotated[int, Meta(ge=-1_000_000, le=1_000_000)]], Meta(min_length=1, max_length=1024)]

MAX_TOML_BYTES = 16 * 2**20
MAX_DEPTH = 32
MAX_ENTRIES = 10_000
# The largest whole number that float64, JSON and torch's sizes all hold.
MAX_INTEGER = 2**53


def read_toml(file: Path) -> dict[str, Any]:
    """Read a TOML file; raise a one-line error if it is damaged, too large or nested too deeply."""
    if not file.is_file():
        raise ValueError(f"{file} is not a file: name a TOML file")
    if file.stat().st_size > MAX_TOML_BYTES:
        raise ValueError(f"{file} has {file.stat().st_size:,} bytes, too many for settings: name a TOML file")
    try:
        return parse_toml(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is not valid TOML: {error}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML; raise `ValueError` also where it is nested too deeply."""
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep") from None
    level: list[Any] = [tables]
    for _ in range(MAX_DEPTH):
        level = [inner for value in level if isinstance(value, dict | list) for inner in _items(value)]
    if level:
        raise ValueError(f"it is nested more than {MAX_DEPTH} levels deep")
    return tables


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; raise `ValueError` also where it is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def call(make: Callable[..., Made], table: Table, *, where: str, **given: Any) -> Made:
    """Call `make` with the entries of a table; raise for an unknown key, with the known ones, and for a wrong type."""
    check_arguments(make, table, where=where, given=given)
    try:
        return make(**given, **table)
    except (TypeError, OverflowError, MemoryError) as error:
        raise ValueError(f"{where}: {_one_line(error)}; check the types and sizes of {dict(table)!r:.200}") from error
    except RuntimeError as error:  # torch has no class of its own for an allocation that fails on the CPU
        if "alloc" not in str(error):
            raise
        raise ValueError(f"{where}: {_one_line(error)}; lower the sizes in {dict(table)!r:.200}") from error


def check_arguments(
    make: Callable[..., Any], table: Table, *, where: str, given: Mapping[str, Any] | None = None
) -> None:
    """Raise if the entries of a table are not the keyword arguments that `make` takes beside those `given`."""
    parameters, given = signature(make).parameters, given or {}
    takes = [name for name, parameter in parameters.items() if parameter.kind is not Parameter.VAR_KEYWORD]
    accepted = [name for name in takes if name not in given]
    for key in table:
        if key not in accepted:
            near = get_close_matches(key, accepted, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ValueError(f"{where} does not take {key!r:.60}: {hint}it takes {', '.join(accepted) or 'nothing'}")
    missing = [name for name in accepted if parameters[name].default is Parameter.empty and name not in table]
    if missing:
        raise ValueError(f"{where} needs {', '.join(missing)}")
    hints = _hints(make)
    for key, value in table.items():
        check_value(f"{where} {key}", value, hints.get(key, Any))


def check_value(place: str, value: Any, hint: Any) -> None:
    """Raise unless a value is of an annotated type and its numbers are finite; other annotations are not checked."""
    if isinstance(value, Sequence | Mapping) and len(value) > MAX_ENTRIES:
        raise ValueError(f"{place} has {len(value):,} entries, more than {MAX_ENTRIES:,}: shorten it")
    value = _plain(value)
    for where, number in _numbers(place, value):
        if isinstance(number, float) and not math.isfinite(number):
            raise ValueError(f"{where} must be finite, got {number}")
        if isinstance(number, int) and abs(number) > MAX_INTEGER:
            raise ValueError(f"{where} must be at most {MAX_INTEGER:,}, got a number of {_digits(number):,} digits")
    if not _is_checkable(hint):
        return
    try:
        msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        raise ValueError(f"{place} must be {_describe(hint)}, got {reprlib.repr(value)}") from error


def choose(kinds: Mapping[str, Made], table: Table, *, where: str) -> tuple[Made, dict[str, Any]]:
    """Return the entry of a registry that a table names, and the rest of the table."""
    rest = dict(table)
    name = rest.pop("name", None)
    if not isinstance(name, str) or name not in kinds:
        fault = f"has the unknown name {name!r:.60}" if name is not None else "has no name"
        raise ValueError(f"[{where}] {fault}: choose one of {', '.join(kinds)}")
    return kinds[name], rest


def _hints(make: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of the arguments, or nothing where they name types that cannot be resolved."""
    try:
        return get_type_hints(make.__init__ if isclass(make) else make, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return {}


def _is_checkable(hint: Any) -> bool:
    """Report whether an annotation consists of types that TOML and JSON have."""
    origin = get_origin(hint)
    if origin is Literal or hint in (int, float, bool, str, None, NoneType):
        return True
    if origin is Annotated:
        return _is_checkable(get_args(hint)[0])
    kinds = [kind for kind in get_args(hint) if kind is not Ellipsis]
    if origin in (Union, UnionType, Sequence, Mapping, list, tuple, dict):
        return bool(kinds) and all(kind is Any or _is_checkable(kind) for kind in kinds)
    return False


def _describe(hint: Any) -> str:
    """Describe the values that an annotation accepts."""
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Any: "anything"}
    origin, kinds = get_origin(hint), get_args(hint)
    if origin is Annotated:
        meta, described = kinds[1], _describe(kinds[0])
        if meta.max_length is not None:
            return described.replace("a list", f"a list of {meta.min_length or 0} to {meta.max_length:,} entries", 1)
        return f"{described} from {meta.ge:,} to {meta.le:,}"
    if origin is Literal:
        return "one of " + ", ".join(map(repr, kinds))
    if origin in (Union, UnionType):
        return " or ".join(_describe(kind) for kind in kinds if kind is not NoneType)
    if origin in (Mapping, dict):
        return "a table"
    if origin in (Sequence, list, tuple):
        if origin is tuple and kinds[-1] is not Ellipsis:
            return f"a list of {len(kinds)} entries, each {_describe(kinds[0])}"
        return f"a list, each {_describe(kinds[0])}"
    return names.get(hint, "a value of another type")


def _plain(value: Any) -> Any:
    """Convert numbers of NumPy to Python's, and paths to text, also inside lists and tables."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def _numbers(place: str, value: Any) -> Iterator[tuple[str, int | float]]:
    """Yield the numbers in a value, each with its place."""
    if isinstance(value, int | float):
        yield place, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _numbers(f"{place}.{key}", inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _numbers(f"{place}[{index}]", inner)


def _items(value: dict[Any, Any] | list[Any]) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value


def _digits(number: int) -> int:
    return int(abs(number).bit_length() * math.log10(2)) + 1


def _one_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
