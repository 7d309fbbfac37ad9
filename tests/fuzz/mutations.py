"""Damage files: bytes of any format, and values of JSON, TOML, CSV and safetensors files. A seed fixes the damage."""

import csv
import io
import json
import struct
import tomllib
from collections.abc import Callable
from random import Random
from typing import Any

import tomli_w

# Values that a careless program or a hostile person writes.
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 0.5, -0.0, 1e308, -1e308, float("nan"), float("inf"), 2**31, 2**63, 10**30, 10**400,
    "", " ", "x" * 5000, "\x00", "../../etc/passwd", "/dev/null", "/", ".", "<script>alert(1)</script>", "=1+1", "nan",
    "1e999", "😀\u202e", [], {}, [None], [[]], {"": None}, [0] * 3000, "squat", ["a", "a"],
)  # fmt: skip


def damage_bytes(data: bytes, rng: Random) -> bytes:
    """Change bytes, mostly near the beginning or the end, where formats keep their structure."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        data = rng.choice(_WAYS)(data, rng)
    return data


def _place(data: bytes, rng: Random) -> int:
    near = rng.random()
    if near < 0.4:
        return rng.randrange(min(len(data), 2048) or 1)
    if near < 0.7:
        return len(data) - 1 - rng.randrange(min(len(data), 4096) or 1) if data else 0
    return rng.randrange(len(data) or 1)


def _flip(data: bytes, rng: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 2, 8))):
        if changed:
            changed[max(0, _place(data, rng))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _overwrite(data: bytes, rng: Random) -> bytes:
    at, length = max(0, _place(data, rng)), rng.choice((1, 4, 8, 64, 512))
    new = rng.choice((bytes(length), b"\xff" * length, rng.randbytes(length), b"\x7f\xff\xff\xff" * (length // 4 or 1)))
    return data[:at] + new + data[at + len(new) :]


def _cut(data: bytes, rng: Random) -> bytes:
    return data[: max(0, _place(data, rng))]


def _remove(data: bytes, rng: Random) -> bytes:
    at = max(0, _place(data, rng))
    return data[:at] + data[at + rng.choice((1, 4, 16, 256)) :]


def _insert(data: bytes, rng: Random) -> bytes:
    at = max(0, _place(data, rng))
    return data[:at] + rng.randbytes(rng.choice((1, 4, 16, 256))) + data[at:]


def _repeat(data: bytes, rng: Random) -> bytes:
    at, length = max(0, _place(data, rng)), rng.choice((8, 64, 1024))
    return data[: at + length] + data[at : at + length] * rng.choice((1, 3)) + data[at + length :]


_WAYS: tuple[Callable[[bytes, Random], bytes], ...] = (_flip, _flip, _overwrite, _cut, _remove, _insert, _repeat)


def damage_value(value: Any, rng: Random) -> Any:
    """Replace, remove, rename, repeat or nest one of the values in lists and tables."""
    places = list(_places(value))
    if not places:
        return rng.choice(ODD)
    holder, key = rng.choice(places)
    way = rng.random()
    if way < 0.6:
        holder[key] = rng.choice(ODD)
    elif way < 0.75:
        del holder[key]
    elif way < 0.85:
        holder[key] = _nest(holder[key], rng.choice((1, 3, 60)))
    elif isinstance(holder, dict):
        holder[rng.choice(("", "x", "__class__", str(key).upper(), f"{key} "))] = holder.pop(key)
    else:
        holder.insert(key, rng.choice([holder[key], *ODD]))
    return value


def _places(value: Any) -> Any:
    items = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    for key, item in items:
        yield value, key
        yield from _places(item)


def _nest(value: Any, depth: int) -> Any:
    for _ in range(depth):
        value = [value]
    return value


def damage_json(data: bytes, rng: Random) -> bytes:
    """Damage the values of a JSON document, or sometimes its text."""
    if rng.random() < 0.25:
        return damage_bytes(data, rng)
    if rng.random() < 0.03:
        return b"[" * 50_000
    value = damage_value(json.loads(data), rng)
    return json.dumps(value, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def damage_lines(data: bytes, rng: Random) -> bytes:
    """Damage one of the JSON documents of a file that has one on every line."""
    lines = data.splitlines(keepends=True)
    number = rng.randrange(len(lines))
    lines[number] = damage_json(lines[number], rng) + rng.choice((b"\n", b"\n", b""))
    return b"".join(lines)


def damage_toml(data: bytes, rng: Random) -> bytes:
    """Damage the values of a TOML document, or sometimes its text."""
    if rng.random() < 0.25:
        return damage_bytes(data, rng)
    if rng.random() < 0.03:
        return b"a = " + b"[" * 50_000
    value = damage_value(tomllib.loads(data.decode()), rng)
    try:
        return tomli_w.dumps(value if isinstance(value, dict) else {"value": value}).encode()
    except (TypeError, ValueError):  # null, or a number that TOML cannot hold
        return data.replace(b"=", rng.choice((b"= null #", b"= 1979-05-27 #", b"==", b"=")), rng.randrange(1, 4))


def damage_recipe(data: bytes, rng: Random) -> bytes:
    """Damage a recipe, but leave the number of steps small: a million of them is a long run, and no hang."""
    damaged = damage_toml(data, rng)
    try:
        recipe = tomllib.loads(damaged.decode())
        steps = recipe["run"]["steps"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return damaged
    if isinstance(steps, (int, float)) and steps > 10:
        recipe["run"]["steps"] = 2
        return tomli_w.dumps(recipe).encode()
    return damaged


def damage_csv(data: bytes, rng: Random) -> bytes:
    """Damage cells, columns or lines of a table, or sometimes its text."""
    if rng.random() < 0.3:
        return damage_bytes(data, rng)
    rows = list(csv.reader(io.StringIO(data.decode())))
    row = rng.choice(rows)
    way = rng.random()
    if way < 0.6:
        row[rng.randrange(len(row))] = str(rng.choice(ODD))[:5000]
    elif way < 0.7:
        row.pop()
    elif way < 0.8:
        row.append(str(rng.choice(ODD))[:5000])
    elif way < 0.9:
        rows.insert(rng.randrange(len(rows) + 1), list(row))
    else:
        rows.remove(row)
    written = io.StringIO()
    csv.writer(written).writerows(rows)
    text = written.getvalue()
    return text.encode(rng.choice(("utf-8", "utf-8-sig", "utf-16")), "replace")


def damage_safetensors(data: bytes, rng: Random) -> bytes:
    """Damage the header of a safetensors file, which names types, shapes and places, or sometimes its bytes."""
    if rng.random() < 0.4:
        return damage_bytes(data, rng)
    (length,) = struct.unpack("<Q", data[:8])
    header, rest = json.loads(data[8 : 8 + length]), data[8 + length :]
    metadata = header.get("__metadata__", {})
    if metadata and rng.random() < 0.5:
        key = rng.choice(sorted(metadata))
        metadata[key] = (
            damage_json(metadata[key].encode(), rng).decode("utf-8", "replace") if rng.random() < 0.8 else "x"
        )
    else:
        header = damage_value(header, rng)
    text = json.dumps(header).encode()
    claimed = len(text) if rng.random() < 0.9 else rng.choice((0, 1, 2**62, len(text) - 1))
    return struct.pack("<Q", claimed) + text + rest
