"""The registry of encoders, and their files: safetensors with the configuration in the header, never a pickle."""

import hashlib
import json
from importlib import import_module
from inspect import Parameter, signature
from os import PathLike
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from inphase.models.audio_encoder import AudioEncoder
from inphase.models.encoder import Encoder
from inphase.models.image_encoder import ImageEncoder
from inphase.models.motion_encoder import MotionEncoder
from inphase.models.pose_encoder import PoseEncoder
from inphase.storage.errors import MediaError
from inphase.storage.files import atomic_write

ENCODERS: dict[str, type[Encoder]] = {
    "audio": AudioEncoder,
    "image": ImageEncoder,
    "motion": MotionEncoder,
    "pose": PoseEncoder,
}


def resolve_encoder(name: str) -> type[Encoder]:
    """Find an encoder class by its registered name, or import it by `package.module:Class`, and check its contract."""
    if name in ENCODERS:
        return ENCODERS[name]
    module, colon, attribute = str(name).partition(":")
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
ENCODER_FILE = "encoder.safetensors"  # in a run folder
SHIPPED = Path(__file__).parent / "shipped"


def save_encoder(path: Path | str, encoder: Encoder) -> None:
    """Write the weights and the configuration of an encoder to one file, atomically."""
    path = Path(path)
    description = json.dumps({"name": name_encoder(encoder), "config": encoder.config})
    tensors = {name: value.detach().contiguous() for name, value in encoder.state_dict().items()}
    try:
        with atomic_write(path) as draft:
            save_file(tensors, draft, metadata={KEY: description})
    except SafetensorError as error:
        raise MediaError(
            f"{path} cannot be written ({error}): check the folder and whether the disk is full, then run this again"
        ) from error


def load_encoder(path: PathLike[str] | str, *, device: torch.device | str = "cpu") -> Encoder:
    """Load an encoder from its file, or from a run folder, in evaluation mode.

    The file of an encoder of your own names its module, which is imported: load only files that you trust.
    """
    path = Path(path)
    if path.is_dir():
        if not (path / ENCODER_FILE).exists():
            raise ValueError(
                f"{path} holds no {ENCODER_FILE}: it is not a run folder, or its run has saved nothing yet"
            )
        path = path / ENCODER_FILE
    if not path.exists():
        raise ValueError(f"{path} does not exist: name a run folder or an encoder file")
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - the file is not a mapping
    except SafetensorError as error:
        raise ValueError(f"{path} is not an encoder file ({error}): name a run folder or an encoder file") from error
    if KEY not in metadata:
        raise ValueError(f"{path} has no description of its encoder: write it with save_encoder")
    description = json.loads(metadata[KEY])
    try:
        kind = resolve_encoder(description["name"])
    except ValueError as error:
        raise ValueError(f"{path} cannot be loaded: {error}") from error
    encoder = kind(**description["config"])
    encoder.load_state_dict(tensors)
    return encoder.to(device).eval()


def load_shipped(modality: str, *, device: torch.device | str = "cpu") -> Encoder:
    """Load the general encoder of a modality that ships with the package: `shipped/<modality>.safetensors`."""
    file = SHIPPED / f"{modality}.safetensors"
    if not file.is_file():
        raise FileNotFoundError(f"no {modality} encoder ships with this version: name a run of your own with --model")
    return load_encoder(file, device=device)
