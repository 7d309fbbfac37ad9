"""Parts of a playback ⇄ what JSON can hold, by the annotations of the parts; arrays lie in files of their own."""

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, TypeVar, get_args, get_origin

import numpy as np
from numpy.typing import NDArray

from inphase.playback.part import Part, PlaybackError, array_type, hints_of, optional

P = TypeVar("P", bound=Part)
Save = Callable[[str, NDArray[Any]], dict[str, Any]]  # name, array → how to find it
Load = Callable[[str, Any, "np.dtype[Any]"], NDArray[Any]]  # where, how to find it, type → array
Note = Callable[[str, str], None]  # where, path: a file that is referred to


def encode(part: Part, save: Save) -> dict[str, Any]:
    """Turn a part into dictionaries, lists and numbers; fields at their defaults are left out."""
    encoded = {}
    for field in fields(part):
        value = getattr(part, field.name)
        if isinstance(value, np.ndarray):
            encoded[field.name] = value.tolist() if field.metadata.get("inline") else save(field.name, value)
        elif field.default is MISSING or value != field.default:
            encoded[field.name] = _plain(value, save)
    return encoded


def _plain(value: Any, save: Save) -> Any:
    if isinstance(value, Part):
        return encode(value, save)
    return [_plain(item, save) for item in value] if isinstance(value, tuple) else value


def decode(kind: type[P], value: Any, where: str, *, load: Load, note: Note) -> P:
    """Build a part from what `encode` made of one; an error names the field by its way from the root, `where`."""
    if not isinstance(value, dict):
        raise PlaybackError(f"{where or 'it'} must be an object with fields, got {value!r:.60}")
    known = {field.name: field for field in fields(kind)}
    if unknown := [name for name in value if name not in known]:
        raise PlaybackError(f"{_below(where, unknown[0])} is unknown here; known are {', '.join(known)}")
    values = {}
    for name, field in known.items():
        place = _below(where, name)
        if name in value:
            values[name] = _built(hints_of(kind)[name], value[name], place, field.metadata, load=load, note=note)
        elif field.default is MISSING:
            raise PlaybackError(f"{place} is missing")
    try:
        part = kind(**values)
    except PlaybackError as error:
        raise PlaybackError(f"{where}: {error}" if where else str(error)) from error
    for name, field in known.items():
        if "file" in field.metadata and (path := getattr(part, name)) is not None:
            note(_below(where, name), path)
    return part


def _built(hint: Any, value: Any, where: str, metadata: Any, *, load: Load, note: Note) -> Any:
    """Build the value of one field; what does not fit its annotation is left for the part to refuse."""
    hint, may_miss = optional(hint)
    if value is None and may_miss:
        return None
    if (dtype := array_type(hint)) is not None:
        return value if metadata.get("inline") else load(where, value, dtype)
    if isinstance(hint, type) and issubclass(hint, Part):
        return decode(hint, value, where, load=load, note=note)
    if get_origin(hint) is tuple and isinstance(value, list):
        kind = get_args(hint)[0]
        return tuple(
            _built(kind, item, f"{where}[{i}]", metadata, load=load, note=note) for i, item in enumerate(value)
        )
    return value


def _below(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name
