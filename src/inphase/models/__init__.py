"""Encoders, and `embed`, which embeds the frames of a recording."""

from inphase.models.audio_encoder import AudioEncoder
from inphase.models.embedding import Embedding, embed
from inphase.models.encoder import Encoder
from inphase.models.image_encoder import ImageEncoder
from inphase.models.motion_encoder import MotionEncoder
from inphase.models.pose_encoder import PoseEncoder
from inphase.models.weights import ENCODERS, load_encoder, load_shipped, resolve_encoder, save_encoder

__all__ = [
    "ENCODERS",
    "AudioEncoder",
    "Embedding",
    "Encoder",
    "ImageEncoder",
    "MotionEncoder",
    "PoseEncoder",
    "embed",
    "load_encoder",
    "load_shipped",
    "resolve_encoder",
    "save_encoder",
]
