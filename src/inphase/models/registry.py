"""The registry of encoders, and the contract that an encoder of your own is checked against."""

import json
from importlib import import_module
from inspect import Parameter, signature

from inphase.models.audio_encoder import AudioEncoder
from inphase.models.encoder import Encoder
from inphase.models.image_encoder import ImageEncoder
from inphase.models.motion_encoder import MotionEncoder
from inphase.models.pose_encoder import PoseEncoder

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
