"""Damage to files that commands read, each kind by name and the same at every run.

A kind of damage is a function of the path of a valid file, which it changes in place or replaces.
"""

import json
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

Damage = Callable[[Path], None]
BRACKETS = 50_000


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors and the metadata of a safetensors file."""
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name).clone() for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118


def replace_bytes(change: Callable[[bytes], bytes]) -> Damage:
    """Change the bytes of a file."""

    def apply(path: Path) -> None:
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(change(content))

    return apply


def edit_tensors(change: Callable[[dict[str, Tensor], dict[str, str]], object]) -> Damage:
    """Change the tensors or the metadata of a safetensors file, and drop its checksum, which would show any change."""

    def apply(path: Path) -> None:
        tensors, metadata = read_tensors(path)
        for key, text in metadata.items():
            metadata[key] = json.dumps({name: value for name, value in json.loads(text).items() if name != "checksum"})
        change(tensors, metadata)
        path.unlink()
        save_file(tensors, path, metadata=metadata or None)

    return apply


def edit_json(key: str, change: Callable[[Any], Any]) -> Damage:
    """Change the JSON value in an entry of a safetensors file's metadata."""

    def edit(_: dict[str, Tensor], metadata: dict[str, str]) -> None:
        metadata[key] = json.dumps(change(json.loads(metadata[key])))

    return edit_tensors(edit)


def edit_config(**changes: Any) -> Damage:
    """Change entries of the configuration of an encoder file."""
    return edit_json(ENCODER, lambda value: {**value, "config": {**value["config"], **changes}})


def edit_first(change: Callable[[Tensor], Tensor | None]) -> Damage:
    """Replace the first matrix of a safetensors file, or remove it."""

    def edit(tensors: dict[str, Tensor], _: dict[str, str]) -> None:
        name = next(name for name, value in sorted(tensors.items()) if value.ndim == 2 and value.is_floating_point())
        changed = change(tensors.pop(name))
        if changed is not None:
            tensors[name] = changed

    return edit_tensors(edit)


def become_folder(path: Path) -> None:
    """Put a folder in the place of the file."""
    path.unlink()
    path.mkdir()


def become_pipe(path: Path) -> None:
    """Put a named pipe in the place of the file: a reader that opens it waits for ever."""
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes in folders")
    path.unlink()
    os.mkfifo(path)


def _raw(header: bytes, length: int | None = None) -> Damage:
    return replace_bytes(lambda _: struct.pack("<Q", len(header) if length is None else length) + header)


ENCODER, STATE = "inphase_encoder", "inphase_state"
BYTES: dict[str, Damage] = {
    "empty": replace_bytes(lambda _: b""),
    "three bytes": replace_bytes(lambda content: content[:3]),
    "cut in its header": replace_bytes(lambda content: content[:100]),
    "cut in half": replace_bytes(lambda content: content[: len(content) // 2]),
    "one byte short": replace_bytes(lambda content: content[:-1]),
    "one byte long": replace_bytes(lambda content: content + b"x"),
    "noise": replace_bytes(lambda content: bytes((i * 7919 + 13) % 256 for i in range(4096))),
    "a pickle": replace_bytes(lambda _: pickle.dumps({"a": [1]})),
    "a header of 2⁶³ bytes": _raw(b"{}", 2**63),
    "a header of 90 MB": _raw(b"{}", 90_000_000),
    "a header that is no JSON": _raw(b"{]      "),
    "a header of brackets": _raw(b"[" * BRACKETS),
    "a tensor of 2⁶⁰ numbers": _raw(
        json.dumps({"a": {"dtype": "F32", "shape": [2**60], "data_offsets": [0, 2**62]}}).encode()
    ),
    "a folder": become_folder,
    "a pipe": become_pipe,
}

MODELS: dict[str, Damage] = {
    **BYTES,
    "no metadata": edit_tensors(lambda _, metadata: metadata.clear()),
    "a description that is no JSON": edit_tensors(lambda _, metadata: metadata.update({ENCODER: "{"})),
    "a description of brackets": edit_tensors(lambda _, metadata: metadata.update({ENCODER: "[" * BRACKETS})),
    "a description that is a list": edit_json(ENCODER, lambda value: [value]),
    "a description that is null": edit_json(ENCODER, lambda _: None),
    "no name": edit_json(ENCODER, lambda value: {"config": value["config"]}),
    "a number as name": edit_json(ENCODER, lambda value: {**value, "name": 3}),
    "an unknown name": edit_json(ENCODER, lambda value: {**value, "name": "smell"}),
    "a function as name": edit_json(ENCODER, lambda value: {**value, "name": "os:system"}),
    "a module that is not there": edit_json(ENCODER, lambda value: {**value, "name": "nowhere.at.all:Thing"}),
    "no config": edit_json(ENCODER, lambda value: {"name": value["name"]}),
    "a list as config": edit_json(ENCODER, lambda value: {**value, "config": [1]}),
    "an unknown entry": edit_config(smell=3),
    "a dimension of 10⁹": edit_config(dimension=10**9),
    "a dimension of 10⁴⁰⁰": edit_config(dimension=10**400),
    "a dimension of -1": edit_config(dimension=-1),
    "a dimension of 0": edit_config(dimension=0),
    "a dimension of true": edit_config(dimension=True),
    "a dimension as text": edit_config(dimension="128"),
    "no context": edit_config(context=[]),
    "null in the context": edit_config(context=[0, None]),
    "a context of numbers": edit_config(context=3),
    "edges that are no word": edit_config(edges=[1]),
    "a rate of NaN": edit_config(rate=float("nan")),
    "a rate as text": edit_config(rate="30"),
    "no joints": edit_config(joints=[]),
    "joints that are numbers": edit_config(joints=[1, 2]),
    "a width of 10¹²": edit_config(hidden=[10**12]),
    "a million widths": edit_config(hidden=[4] * 1_000_000),
    "a width as text": edit_config(hidden=["4"]),
    "a matrix missing": edit_first(lambda _: None),
    "a tensor too many": edit_tensors(lambda tensors, _: tensors.update({"x\ny": torch.zeros(3)})),
    "a matrix of another shape": edit_first(lambda value: value[:-1].contiguous()),
    "a matrix of whole numbers": edit_first(lambda value: value.to(torch.int64)),
    "NaN in a matrix": edit_first(lambda value: value.fill_(float("nan"))),
    "infinity in a matrix": edit_first(lambda value: value.fill_(float("inf"))),
}

STATES: dict[str, Damage] = {
    **BYTES,
    "no metadata": edit_tensors(lambda _, metadata: metadata.clear()),
    "a description of brackets": edit_tensors(lambda _, metadata: metadata.update({STATE: "[" * BRACKETS})),
    "a description that is a list": edit_json(STATE, lambda value: [value]),
    "no step": edit_json(STATE, lambda value: {"groups": value["groups"]}),
    "a step as text": edit_json(STATE, lambda value: {**value, "step": "7"}),
    "a step of true": edit_json(STATE, lambda value: {**value, "step": True}),
    "a step of -1": edit_json(STATE, lambda value: {**value, "step": -1}),
    "no groups": edit_json(STATE, lambda value: {**value, "groups": []}),
    "groups of null": edit_json(STATE, lambda value: {**value, "groups": [None]}),
    "a group without its rate": edit_json(
        STATE, lambda value: {**value, "groups": [{"params": value["groups"][0]["params"]}]}
    ),
    "a group of other parameters": edit_json(
        STATE, lambda value: {**value, "groups": [{**value["groups"][0], "params": [0]}]}
    ),
    "a group with a rate of null": edit_json(
        STATE, lambda value: {**value, "groups": [{**value["groups"][0], "lr": None}]}
    ),
    "no RNG state": edit_tensors(lambda tensors, _: tensors.pop("rng_state")),
    "an empty RNG state": edit_tensors(
        lambda tensors, _: tensors.update(rng_state=torch.zeros(0, 5, dtype=torch.uint8))
    ),
    "a short RNG state": edit_tensors(
        lambda tensors, _: tensors.update(rng_state=tensors["rng_state"][:, :10].contiguous())
    ),
    "an RNG state of floats": edit_tensors(lambda tensors, _: tensors.update(rng_state=tensors["rng_state"].float())),
    "an RNG state of noise": edit_tensors(lambda tensors, _: tensors["rng_state"].fill_(255)),
    "a matrix missing": edit_first(lambda _: None),
    "a tensor too many": edit_tensors(lambda tensors, _: tensors.update({"network.x": torch.zeros(3)})),
    "a matrix of another shape": edit_first(lambda value: value[:-1].contiguous()),
    "NaN in a matrix": edit_first(lambda value: value.fill_(float("nan"))),
    "a moment without a number": edit_tensors(
        lambda tensors, _: tensors.update({"optimizer.x.exp_avg": torch.zeros(3)})
    ),
    "a moment of parameter 99": edit_tensors(
        lambda tensors, _: tensors.update({"optimizer.99.exp_avg": torch.zeros(3)})
    ),
    "a moment of another shape": edit_tensors(
        lambda tensors, _: tensors.update({"optimizer.0.exp_avg": torch.zeros(3)})
    ),
    "a moment missing": edit_tensors(lambda tensors, _: tensors.pop("optimizer.0.exp_avg")),
}

METRICS: dict[str, Damage] = {
    "empty": replace_bytes(lambda _: b""),
    "noise": BYTES["noise"],
    "a folder": become_folder,
    "a pipe": become_pipe,
    "a number in a line": replace_bytes(lambda content: content + b"3\n"),
    "a list in a line": replace_bytes(lambda content: content + b"[1]\n"),
    "null in a line": replace_bytes(lambda content: content + b"null\n"),
    "a row without its step": replace_bytes(lambda content: content + b'{"loss": 1}\n'),
    "a step as text": replace_bytes(lambda content: content + b'{"step": "7"}\n'),
    "a line of brackets": replace_bytes(lambda content: content + b"[" * BRACKETS + b"\n"),
    "a step of 400 digits": replace_bytes(lambda content: content + b'{"step": ' + b"9" * 5000 + b"}\n"),
    "a line cut in two": replace_bytes(lambda content: content[:-10]),
    "zeros": replace_bytes(lambda content: content + b"\0" * 1000),
}
