"""Networks, and `embed`, which shows them a recording."""

from inphase.models.embed import Embedding, embed
from inphase.models.encoder import Encoder
from inphase.models.pose_encoder import PoseEncoder

ENCODERS: dict[str, type[Encoder]] = {
    "pose": PoseEncoder,
}

__all__ = ["ENCODERS", "Embedding", "Encoder", "PoseEncoder", "embed"]
