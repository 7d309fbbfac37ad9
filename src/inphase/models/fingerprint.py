"""A name for what an encoder computes, by which what was computed is kept and found again."""

import hashlib
import json

import torch

from inphase.models.encoder import Encoder


def fingerprint(encoder: Encoder, *, source: str = "", head: bool = True) -> str:
    """Hash an encoder: its class, what builds it, its weights, and where its frames come from.

    Without the head it names the features alone: whatever is built on them finds them.
    """
    about = [type(encoder).__name__, encoder.config if head else [encoder.shape, encoder.config.get("grid")], source]
    digest = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16)
    left_out = () if head else (*encoder.head.parameters(), *encoder.head.buffers())
    ids = {id(tensor) for tensor in left_out}
    for name, tensor in sorted(encoder.state_dict(keep_vars=True).items()):
        if id(tensor) not in ids:
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
