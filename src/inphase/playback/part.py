"""What every part of a playback has in common: its fields are what their annotations say, or an error names them."""

import math
from dataclasses import Field, dataclass, fields
from numbers import Integral, Real
from pathlib import PurePosixPath
from types import NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

# What browsers play and show, by the ending of the file. Nothing else is served: no page, no script, no SVG.
VIDEO = {".mp4": "video/mp4", ".m4v": "video/mp4", ".mov": "video/mp4", ".webm": "video/webm", ".ogv": "video/ogg"}
SOUND = {
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
    ".m4a": "audio/mp4",
    ".ogg": "audio/ogg",
    ".opus": "audio/ogg",
    ".flac": "audio/flac",
}
PICTURE = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp"}

# Arrays as they are stored; any array of numbers is taken and brought to its type.
Doubles = Annotated[NDArray[Any], "float64"]
Floats = Annotated[NDArray[Any], "float32"]
Halves = Annotated[NDArray[Any], "float16"]
Indices = Annotated[NDArray[Any], "int32"]


class PlaybackError(ValueError):
    """A playback is not one that can be played; the message says what is wrong and where."""


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a playback: checks the types of its fields, then what `check` adds.

    Arrays are brought to the type of their annotation. In a field's metadata, `file` holds the endings its path may
    have, `holes` that an array may hold NaN, `inline` that an array is written into the JSON and not beside it.
    """

    def __post_init__(self) -> None:
        """Bring every field to its annotated type, or say which one cannot be."""
        hints = hints_of(type(self))
        for field in fields(self):
            value = _coerced(field.name, hints[field.name], getattr(self, field.name), field)
            object.__setattr__(self, field.name, value)
        self.check()

    def check(self) -> None:
        """Refuse fields that do not belong together."""


def hints_of(kind: type) -> dict[str, Any]:
    """Give the annotations of a class."""
    return get_type_hints(kind, include_extras=True)


def optional(hint: Any) -> tuple[Any, bool]:
    """Separate `X | None` into X and whether None will do."""
    if get_origin(hint) is UnionType:
        (kind,) = (option for option in get_args(hint) if option is not NoneType)
        return kind, True
    return hint, False


def array_type(hint: Any) -> np.dtype[Any] | None:
    """Give the number type of an array's annotation, None for that of anything else."""
    return np.dtype(get_args(hint)[1]) if get_origin(hint) is Annotated else None


def _coerced(where: str, hint: Any, value: Any, field: Field[Any]) -> Any:
    """Bring a value to its annotation."""
    hint, may_miss = optional(hint)
    if value is None and may_miss:
        return None
    if (dtype := array_type(hint)) is not None:
        return _array(where, value, dtype, holes=field.metadata.get("holes", False))
    if get_origin(hint) is tuple:
        kinds = get_args(hint)
        if not isinstance(value, tuple | list) or (kinds[-1] is not Ellipsis and len(value) != len(kinds)):
            expected = "" if kinds[-1] is Ellipsis else f" of {len(kinds)}"
            raise PlaybackError(f"{where} must be a list{expected}, got {value!r:.60}")
        kinds = (kinds[0],) * len(value) if kinds[-1] is Ellipsis else kinds
        return tuple(
            _coerced(f"{where}[{i}]", kind, item, field)
            for i, (kind, item) in enumerate(zip(kinds, value, strict=True))
        )
    if hint is float and isinstance(value, Real) and not isinstance(value, bool | np.bool_):
        if not math.isfinite(value):
            raise PlaybackError(f"{where} is {value}: it must be a finite number")
        return float(value)
    if hint is int and isinstance(value, Integral) and not isinstance(value, bool | np.bool_):
        return int(value)
    if hint in (int, float) or not isinstance(value, hint):
        names = {float: "a number", int: "a whole number", str: "a text"}
        raise PlaybackError(f"{where} must be {names.get(hint, f'a {hint.__name__}')}, got {value!r:.60}")
    if hint is str and (endings := field.metadata.get("file")) is not None:
        check_path(where, value, endings)
    return value


def _array(where: str, value: Any, dtype: np.dtype[Any], *, holes: bool) -> NDArray[Any]:
    """Bring an array to its type without changing what it says."""
    try:
        given = np.asarray(value)
        with np.errstate(over="ignore", invalid="ignore"):
            array = np.ascontiguousarray(given, dtype=dtype)
    except (TypeError, ValueError, RuntimeError) as error:
        raise PlaybackError(f"{where} is not an array of numbers ({error})") from error
    if dtype.kind == "i" and not np.array_equal(array, given):
        raise PlaybackError(f"{where} must hold whole numbers below {np.iinfo(dtype).max:,}")
    wrong = np.isinf(array) if holes else ~np.isfinite(array)
    if dtype.kind == "f" and wrong.any():
        place = [int(i) for i in np.argwhere(wrong)[0]]
        found = given[tuple(place)]
        if np.isfinite(found):
            raise PlaybackError(f"{where}{place} is {found:g}, more than {dtype} can hold: divide all of it")
        raise PlaybackError(f"{where}{place} is {found}: {'NaN and ' if holes else ''}finite numbers only")
    return array


def check_path(where: str, path: str, endings: dict[str, str] | None = None) -> None:
    """Refuse a path that is not of a file inside the folder, or whose ending browsers do not play."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or path[1:2] == ":" or "\\" in path:
        raise PlaybackError(f"{where} is {path!r}: it must be relative to the playback's folder, with forward slashes")
    if path != "/".join(parts) or ".." in parts or any(part.startswith(".") for part in parts):
        raise PlaybackError(f"{where} is {path!r}: name a file inside the folder, without . or .., not hidden")
    if any(ord(letter) < 32 or ord(letter) == 127 or 0xD800 <= ord(letter) < 0xE000 for letter in path):
        raise PlaybackError(f"{where} is {path!r}: it must not hold control characters")
    if endings is not None and PurePosixPath(path).suffix.lower() not in endings:
        raise PlaybackError(f"{where} is {path!r}: browsers show {', '.join(endings)}; convert it to one of these")
