"""The registry of encoders, and their files: safetensors with the configuration in the header, never a pickle."""

import hashlib
import json
from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import Parameter, signature
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from inphase.models.audio_encoder import AudioEncoder
from inphase.models.encoder import Encoder, require_device
from inphase.models.image_encoder import ImageEncoder
from inphase.models.joint_encoder import JointEncoder, MotionAppearanceEncoder
from inphase.models.motion_encoder import MotionEncoder, TransformerEncoder
from inphase.models.pose_encoder import FineTunedPoseEncoder, PoseArmsEncoder, PoseEncoder
from inphase.storage.errors import MediaError
from inphase.storage.files import CHECKSUM, atomic_write, verify_checksum, write_checksum
from inphase.storage.settings import call, check_arguments, check_value, parse_json

ENCODERS: dict[str, type[Encoder]] = {
    "audio": AudioEncoder,
    "both": JointEncoder,
    "image": ImageEncoder,
    "motion": MotionEncoder,
    "motion_appearance": MotionAppearanceEncoder,
    "pose": PoseEncoder,
    "pose_arms": PoseArmsEncoder,
    "pose_fine_tuned": FineTunedPoseEncoder,
    "transformer": TransformerEncoder,
}


def resolve_encoder(name: str) -> type[Encoder]:
    """Find an encoder class by its registered name, or import it by `package.module:Class`, and check its contract."""
    name = str(name)  # a recipe may hold a list, which no registry can be asked for
    if name in ENCODERS:
        return ENCODERS[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ValueError(
            f"no encoder {name!r}: choose one of {', '.join(ENCODERS)}, or name your own package.module:Class"
        )
    try:
        kind = import_module(module)
        for part in attribute.split("."):
            kind = getattr(kind, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"encoder {name!r} cannot be imported ({error}): check the path and PYTHONPATH") from error
    if not isinstance(kind, type) or not issubclass(kind, Encoder):
        raise ValueError(f"{name} is not an encoder: make it a subclass of inphase.models.Encoder")
    missing = [method for method in ("features", "combine") if getattr(kind, method) is getattr(Encoder, method)]
    from inphase.models.modality import MODALITIES  # it needs this module to load encoders

    if getattr(kind, "modality", None) not in MODALITIES:
        missing.append(f"modality (one of {', '.join(MODALITIES)})")
    if missing:
        raise ValueError(f"{name} is not a complete encoder: it lacks {', '.join(missing)}")
    return kind


def check_encoder(encoder: Encoder, *, name: str) -> None:
    """Raise if an encoder lacks what training, saving and embedding need; the error lists everything that is missing.

    `shape` of one frame, `head`, the module that `combine` trains, and a `config` of JSON values that are keyword
    arguments of the constructor, with the `dimension` of the embedding and, for poses, the names of the `joints`.
    """
    config = getattr(encoder, "config", {})
    missing = [f"self.{attribute}" for attribute in ("shape", "head") if not hasattr(encoder, attribute)]
    wanted = ("dimension", "joints") if encoder.modality == "pose" else ("dimension",)
    missing += [f"self.config[{key!r}]" for key in wanted if key not in config]
    parameters = signature(type(encoder)).parameters
    if not any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values()):
        missing += [f"a keyword argument {key!r} of its constructor" for key in config if key not in parameters]
    try:
        json.dumps(config)
    except TypeError as error:
        missing.append(f"a config of JSON values ({error})")
    if missing:
        raise ValueError(f"{name} is not a complete encoder: it lacks {', '.join(missing)}")


def set_route_weights(encoder: Encoder, weights: dict[str, float]) -> Encoder:
    """Set the weights of an encoder's routes, which are kept with its other weights."""
    known = {name: each for name, each in encoder.named_buffers(recurse=False) if not each.ndim}
    for name, weight in weights.items():
        if name not in known:
            names = ", ".join(known) or "none"
            raise ValueError(
                f"[encoder] route_weights names {name!r}, but routes of this encoder with a weight: {names}"
            )
        check_value(f"[encoder] route_weights.{name}", weight, float)
        if not weight > 0:
            raise ValueError(f"[encoder] route_weights.{name} must be above 0, got {weight}")
        known[name].fill_(weight)
    return encoder


def name_encoder(encoder: Encoder) -> str:
    """Return the name by which `resolve_encoder` finds an encoder's class again."""
    kind = type(encoder)
    for name, registered in ENCODERS.items():
        if registered is kind:
            return name
    name = f"{kind.__module__}:{kind.__qualname__}"
    try:
        importable = resolve_encoder(name) is kind
    except ValueError:
        importable = False
    if not importable:
        raise ValueError(
            f"{kind.__name__} is not an encoder that can be loaded again: "
            "define the class at the top level of a module that can be imported"
        )
    return name


def fingerprint(encoder: Encoder, *, source: str = "", head: bool = True) -> str:
    """Hash an encoder: its class, configuration and weights, and the `source` of its frames.

    Without the `head` the hash identifies the features only, whichever head is trained on them.
    """
    about = [type(encoder).__name__, encoder.config if head else [encoder.shape, encoder.config.get("grid")], source]
    digest = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16)
    omitted = () if head else (*encoder.head.parameters(), *encoder.head.buffers())
    ids = {id(tensor) for tensor in omitted}
    for name, tensor in sorted(encoder.state_dict(keep_vars=True).items()):
        if id(tensor) not in ids:
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


KEY = "inphase_encoder"
STATE_KEY = "inphase_state"
ENCODER_FILE = "encoder.safetensors"  # in a run folder
STATE_FILE = "state.safetensors"  # beside it: the checkpoint, from which encoder files are derived
SHIPPED = Path(__file__).parent / "shipped"

Description = dict[str, Any]  # in the header of a file; of an encoder: name, config and fingerprint


def describe_encoder(encoder: Encoder) -> Description:
    """Describe an encoder as its file does: the name and the configuration that build it, and its fingerprint."""
    return {"name": name_encoder(encoder), "config": encoder.config, "fingerprint": fingerprint(encoder)}


def save_encoder(path: Path | str, encoder: Encoder) -> None:
    """Write the weights and the configuration of an encoder to one file, atomically and with a checksum."""
    tensors = {name: value.detach().contiguous() for name, value in encoder.state_dict().items()}
    save_tensors(Path(path), tensors, key=KEY, description=describe_encoder(encoder))


def save_tensors(path: Path, tensors: Mapping[str, Tensor], *, key: str, description: Description) -> None:
    """Write a safetensors file atomically, with a description under `key` in its header and a checksum of its bytes."""
    # One key, since safetensors writes several in any order: equal contents give equal files.
    metadata = {key: json.dumps({**description, "checksum": CHECKSUM})}
    try:
        with atomic_write(path) as draft:
            save_file(dict(tensors), draft, metadata=metadata)
            write_checksum(draft)
    except SafetensorError as error:
        raise MediaError(
            f"{path} cannot be written ({error}): check the folder and whether the disk is full, then run this again"
        ) from error


# The shape of a tensor in a file, and whether it holds floating-point numbers.
Shape = tuple[list[int], bool]


def load_tensors(
    path: Path, *, prefix: str = "", check: Callable[[Mapping[str, Shape]], object] | None = None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors whose names begin with `prefix`, without it, and the metadata of a safetensors file.

    `check` is called with the shapes before any tensor is read. Raise ValueError with the reason, without the path, if
    the file is damaged or a tensor is not finite.
    """
    metadata = _read_metadata(path)
    try:
        if verify_checksum(path) is False:
            raise ValueError("damaged: its checksum does not match its contents")
        with safe_open(path, framework="pt") as file:
            names = {name.removeprefix(prefix): name for name in file.keys() if name.startswith(prefix)}  # noqa: SIM118
            if check is not None:
                check({name: _shape_of(file.get_slice(stored)) for name, stored in names.items()})
            tensors = {name: file.get_tensor(stored) for name, stored in names.items()}
    except SafetensorError as error:
        raise ValueError(str(error)) from error
    for name, value in tensors.items():
        if not value.isfinite().all():
            raise ValueError(f"{name!r} is not finite")
    return tensors, metadata


def _read_metadata(file: Path) -> dict[str, str]:
    """Read the metadata of a safetensors file; raise ValueError with the reason if it cannot be read."""
    if not file.is_file():  # a pipe would block for ever
        raise ValueError("it is not a file")
    try:
        with safe_open(file, framework="pt") as opened:
            return dict(opened.metadata() or {})
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def _shape_of(part: Any) -> Shape:
    return part.get_shape(), "F" in part.get_dtype()


def load_encoder(path: PathLike[str] | str, *, device: torch.device | str = "cpu") -> Encoder:
    """Load an encoder from its file, or from a run folder, in evaluation mode.

    In a run folder the checkpoint decides: an encoder file that is missing there, or older than the checkpoint since
    the process was killed between the two, is replaced by the weights in the checkpoint. The file of an encoder of your
    own names its module, which is imported: load only files that you trust.
    """
    path = Path(path)
    require_device(device)
    is_run = path.is_dir()
    file = path / ENCODER_FILE if is_run else path
    state = file.with_name(STATE_FILE)
    current = describe_state_encoders(state).get(file.name)
    if current is not None and current.get("fingerprint") != read_description(file).get("fingerprint"):
        try:
            return _build_encoder(current, file=state, prefix=f"network.{file.stem}.").to(device)
        except (ValueError, RuntimeError) as error:
            raise ValueError(f"{state} is damaged ({_first_line(error)}): remove it, or restore it") from error
    if not file.exists():
        if is_run:
            raise ValueError(
                f"{path} holds no {ENCODER_FILE}: it is not a run folder, or its run has saved nothing yet"
            )
        raise ValueError(f"{path} does not exist: name a run folder or an encoder file")
    try:
        metadata = _read_metadata(file)
        if KEY not in metadata:
            raise ValueError("it has no description of its encoder: write it with save_encoder")
        return _build_encoder(parse_json(metadata[KEY]), file=file).to(device)
    except (ValueError, RuntimeError) as error:
        fix = f"remove it, and it is taken from {state}" if current else "name a run folder or an encoder file"
        raise ValueError(f"{file} is not an encoder file ({_first_line(error)}): {fix}") from error


def describe_state_encoders(state: Path) -> dict[str, Description]:
    """Read from a checkpoint the descriptions of its encoders by file name; empty if it cannot be read."""
    found = read_description(state, key=STATE_KEY).get("encoders", {})
    return found if isinstance(found, dict) and all(isinstance(each, dict) for each in found.values()) else {}


def is_encoder_current(file: Path, encoder: Encoder) -> bool:
    """Report whether an encoder file is undamaged and holds the weights of `encoder`."""
    return read_description(file).get("fingerprint") == fingerprint(encoder) and verify_checksum(file) is True


def read_description(file: Path, *, key: str = KEY) -> Description:
    """Read a description from the header of a safetensors file; empty if it cannot be read."""
    try:
        found = parse_json(_read_metadata(file).get(key, "{}"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


class EncoderDescription(msgspec.Struct):
    """The name of an encoder's class and the keyword arguments of its constructor."""

    name: str
    config: dict[str, Any]


def _build_encoder(description: Any, *, file: Path, prefix: str = "") -> Encoder:
    """Build an encoder and load its weights, after the arguments and the shapes in the file are checked."""
    try:
        described = msgspec.convert(description, EncoderDescription)
    except ValueError as error:
        raise ValueError(f"its description is damaged: {error}") from error
    kind, config = resolve_encoder(described.name), described.config
    check_arguments(kind, config, where="the encoder")
    tensors, _ = load_tensors(file, prefix=prefix, check=lambda shapes: _check_shapes(kind, config, shapes))
    encoder = call(kind, config, where="the encoder")
    encoder.load_state_dict(tensors)
    return encoder.eval()


def _check_shapes(kind: type[Encoder], config: Mapping[str, Any], found: Mapping[str, Shape]) -> None:
    """Raise if the tensors of a file are not those of the encoder; the encoder is built without memory for them.

    A class of your own that cannot be built so is not checked here, but when its weights are loaded.
    """
    try:
        with torch.device("meta"):
            state = call(kind, config, where="the encoder").state_dict()
            wanted = {name: (list(value.shape), value.is_floating_point()) for name, value in state.items()}
    except Exception:
        if kind in ENCODERS.values():
            raise
        return
    for name in sorted({*wanted, *found}):
        if wanted.get(name) != found.get(name):
            raise ValueError(f"{name!r} is {_describe(found.get(name))}, and must be {_describe(wanted.get(name))}")


def _describe(shape: Shape | None) -> str:
    if shape is None:
        return "absent"
    return f"{shape[0]} of {'floating-point' if shape[1] else 'whole'} numbers"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def load_shipped(modality: str, *, device: torch.device | str = "cpu") -> Encoder:
    """Load the general encoder of a modality that ships with the package: `shipped/<modality>.safetensors`."""
    file = SHIPPED / f"{modality}.safetensors"
    if not file.is_file():
        raise FileNotFoundError(f"no {modality} encoder ships with this version: name a run of your own with --model")
    return load_encoder(file, device=device)
