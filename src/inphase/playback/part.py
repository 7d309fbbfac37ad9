"""The base class of every part of a playback: it checks the types of its fields and names the one that is wrong.

msgspec converts parts to and from plain dictionaries. Its errors are rewritten here into one line that names the field
by its place in the document, such as `tracks[1].duration must be a finite number, got 'x'`.
"""

import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from numbers import Integral, Real
from pathlib import PurePosixPath
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, get_args, get_origin

import msgspec
import numpy as np
from msgspec import structs
from numpy.typing import NDArray

# The media that browsers play, by file ending. The viewer serves nothing else: no page, no script, no SVG.
VIDEO_TYPES = dict.fromkeys((".mp4", ".m4v", ".mov"), "video/mp4") | {".webm": "video/webm", ".ogv": "video/ogg"}
AUDIO_TYPES = {".wav": "audio/wav", ".mp3": "audio/mpeg", ".m4a": "audio/mp4", ".flac": "audio/flac"}
AUDIO_TYPES |= dict.fromkeys((".ogg", ".opus"), "audio/ogg")
IMAGE_TYPES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp"}

# A part accepts arrays of any number type and stores the type of its annotation.
if TYPE_CHECKING:
    Knots: TypeAlias = NDArray[Any]
    Doubles: TypeAlias = NDArray[Any]
    Floats: TypeAlias = NDArray[Any]
    Halves: TypeAlias = NDArray[Any]
    Indices: TypeAlias = NDArray[Any]
else:
    Knots = tuple[float, ...]  # a list in the JSON; all other arrays are files
    Doubles = np.ndarray[Any, np.dtype[np.float64]]
    Floats = np.ndarray[Any, np.dtype[np.float32]]
    Halves = np.ndarray[Any, np.dtype[np.float16]]
    Indices = np.ndarray[Any, np.dtype[np.int32]]


def dtype_of(hint: Any) -> np.dtype[Any] | None:
    """Return the data type of an annotated array; None where the annotation is no array."""
    if hint == Knots:
        return np.dtype("float64")
    kinds = get_args(get_args(hint)[-1]) if get_origin(hint) is np.ndarray else ()
    return np.dtype(kinds[0]) if kinds else None


class PlaybackError(ValueError):
    """A playback that cannot be played; the message names the field and the fix."""


class Part(msgspec.Struct, frozen=True, eq=False, omit_defaults=True, forbid_unknown_fields=True):
    """A part of a playback: converts every field to its annotated type, then runs `check`."""

    # Fields that name a file of the folder, and the media types by ending that each may have.
    FILE_TYPES: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    # Arrays that may contain NaN.
    NAN_FIELDS: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        """Convert every field, or raise a PlaybackError that names it."""
        for field, kinds in fields_of(type(self)):
            name, value = field.name, getattr(self, field.name)
            # Plain numbers and text, of which a document may hold 100,000, need no conversion.
            if value is field.default or (
                (kind := type(value)) in kinds
                and (kind is not float or math.isfinite(value))
                and value != field.default
            ):
                continue
            if (dtype := dtype_of(field.type)) is not None:
                value = _as_array(name, value, dtype, nan=name in self.NAN_FIELDS)
            else:
                value = _converted(name, value, field.type)
                if name in self.FILE_TYPES and value is not None:
                    check_path(name, value, self.FILE_TYPES[name])
                if value == field.default:
                    value = field.default  # msgspec omits a default by identity
            structs.force_setattr(self, name, value)
        self.check()

    def check(self) -> None:
        """Raise if fields of valid types contradict each other."""

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, checked like a new part."""
        return structs.replace(self, **changes)

    def walk(self, place: str = "") -> Iterator[tuple[str, "Part"]]:
        """Yield this part and every part inside it, each with its place in the document."""
        yield place, self
        for name in self.__struct_fields__:
            value, below = getattr(self, name), join_place(place, name)
            if isinstance(value, Part):
                yield from value.walk(below)
            elif isinstance(value, tuple):
                for i, item in enumerate(value):
                    if isinstance(item, Part):
                        yield from item.walk(f"{below}[{i}]")


@cache
def fields_of(kind: type[Part]) -> tuple[tuple[structs.FieldInfo, frozenset[type]], ...]:
    """List the fields of a part, each with the plain types that it accepts as they are."""
    plain = {float, str, int}
    found = []
    for field in structs.fields(kind):
        hints = get_args(field.type) if get_origin(field.type) is UnionType else (field.type,)
        found.append((field, frozenset(() if field.name in kind.FILE_TYPES else plain.intersection(hints))))
    return tuple(found)


def join_place(place: str, name: str) -> str:
    """Join a place in the document and the name of a field there."""
    return f"{place}.{name}" if place else name


def explain(error: msgspec.ValidationError, hint: Any, value: Any, place: str = "") -> PlaybackError:
    """Rewrite the error that msgspec raised on converting `value`, found at `place`, to the type `hint`."""
    _, found, path = str(error).rpartition(" - at `$")
    path = path.removesuffix("`") if found else ""
    place = f"{place}{path}".removeprefix(".")
    if isinstance(error.__cause__, ValueError):  # raised by a part or by the reader of an array
        return PlaybackError(f"{place}: {error.__cause__}" if place else str(error.__cause__))
    for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", path):
        hint = _field_type(hint, name) if name else _item_type(hint, int(index))
        value = value[name] if name else value[int(index)]
    hint = _without_none(hint)
    if missing := re.search(r"missing required field `(\w+)`", str(error)):
        return PlaybackError(f"{join_place(place, missing[1])} is missing: add it")
    if "contains unknown field" in str(error):
        known = hint.__struct_fields__
        name = next(name for name in value if name not in known)
        name = name if name.isidentifier() else f"{name!r:.60}"
        return PlaybackError(f"{join_place(place, name)} is unknown: remove it; the fields here are {', '.join(known)}")
    return PlaybackError(f"{place or 'it'} must be {_describe(hint)}, got {value!r:.60}")


def check_path(name: str, path: str, endings: Mapping[str, str]) -> None:
    """Raise unless `path` names a file inside the folder that has one of the endings."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or path[1:2] == ":" or "\\" in path:
        raise PlaybackError(f"{name} is {path!r}: it must be relative to the playback's folder, with forward slashes")
    if path != "/".join(parts) or ".." in parts or any(part.startswith(".") for part in parts):
        raise PlaybackError(f"{name} is {path!r}: name a file inside the folder, without . or .., not hidden")
    if any(ord(letter) < 32 or ord(letter) == 127 or 0xD800 <= ord(letter) < 0xE000 for letter in path):
        raise PlaybackError(f"{name} is {path!r}: remove the control characters")
    if PurePosixPath(path).suffix.lower() not in endings:
        raise PlaybackError(f"{name} is {path!r}: convert the file to one of {', '.join(endings)}")


def _converted(name: str, value: Any, hint: Any) -> Any:
    """Convert a value that is not an array to its annotated type."""
    value = _plain(value)
    try:
        converted = msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        raise explain(error, hint, value, name) from error
    if isinstance(converted, float) and not math.isfinite(converted):
        raise PlaybackError(f"{name} must be {_describe(float)}, got {converted}")
    return converted


def _plain(value: Any) -> Any:
    """Convert numbers of NumPy and of other libraries to Python's, also inside lists."""
    if isinstance(value, tuple | list):
        return tuple(map(_plain, value))
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    return float(value) if isinstance(value, Real) and not isinstance(value, bool) else value


def _as_array(name: str, value: Any, dtype: np.dtype[Any], *, nan: bool) -> NDArray[Any]:
    """Convert an array to its stored type; raise if that changes whole numbers or makes finite ones infinite."""
    try:
        given = np.asarray(value)
        with np.errstate(over="ignore", invalid="ignore"):
            # A view: each field has an array object of its own, also where two fields get the same array.
            array = np.ascontiguousarray(given, dtype=dtype).view()
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise PlaybackError(f"{name} must be an array of numbers ({error})") from error
    if dtype.kind == "i" and not np.array_equal(array, given):
        raise PlaybackError(f"{name} must contain whole numbers below {np.iinfo(dtype).max:,}")
    wrong = np.isinf(array) if nan else ~np.isfinite(array)
    if dtype.kind == "f" and wrong.any():
        place = [int(i) for i in np.argwhere(wrong)[0]]
        found = given[tuple(place)] if given.ndim else given[()]
        if isinstance(found, Real) and math.isfinite(found):
            raise PlaybackError(f"{name}{place} is {found:g}, too large for {dtype}: divide the whole array")
        raise PlaybackError(f"{name}{place} is {found}: it must be {'NaN or ' if nan else ''}a finite number")
    return array


def _describe(hint: Any) -> str:
    """Describe the values that a type accepts."""
    if isinstance(hint, type) and issubclass(hint, Part):
        return f"a {hint.__name__} (an object with {', '.join(hint.__struct_fields__)})"
    if get_origin(hint) is tuple:
        kinds = get_args(hint)
        return "a list" if kinds[-1] is Ellipsis else f"a list of {len(kinds)}"
    return {float: "a finite number", int: "a whole number", str: "text"}.get(hint, "an array")


def _field_type(kind: Any, name: str) -> Any:
    return next(field.type for field, _ in fields_of(_without_none(kind)) if field.name == name)


def _item_type(hint: Any, index: int) -> Any:
    kinds = get_args(_without_none(hint))
    return kinds[0] if kinds[-1] is Ellipsis else kinds[index]


def _without_none(hint: Any) -> Any:
    if get_origin(hint) is not UnionType:
        return hint
    return next(option for option in get_args(hint) if option is not NoneType)
