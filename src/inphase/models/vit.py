"""Vision transformers in plain torch, for weights in the layout of DINOv2 (Oquab et al., 2023).

A transformer maps images [N, 3, H, W] in [−1, 1] to the normalized features of its patches, [N, D, H/P, W/P]: what
DINOv2 calls `x_norm_patchtokens`. A file may hold register tokens (Darcet et al., ICLR 2024), which have no position,
and lack layer scale. Positions are interpolated to the grid of the image as in DINOv2: bicubic, with registers to its
size and antialiased, without them by a factor that adds 0.1 patches.
"""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from inphase.storage.files import check_own_weights

# Width and heads of the networks; all have 12 blocks, patches of 14 pixels and positions for 37 × 37 of them.
SIZES = {"vit_small_patch14": (384, 6), "vit_base_patch14": (768, 12)}
REGISTERS = "_reg4"
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
# Names in files of other releases.
_OTHER_NAMES = {"reg_token": "register_tokens"}
_IGNORED = ("mask_token", "head.")
_OFFSET = 0.1


def build_vit(name: str, *, weights: str | None) -> "VisionTransformer":
    """Build a transformer by name, such as "vit_small_patch14" or "vit_small_patch14_reg4" with four registers."""
    size = name.removesuffix(REGISTERS)
    if size not in SIZES:
        raise ValueError(f"no transformer {name!r}: choose one of {', '.join(SIZES)}, with {REGISTERS} for registers")
    if weights == "published":
        raise ValueError(
            f"the weights of {name} are not on PyPI: download a file of DINOv2, such as dinov2_vits14_pretrain.pth, "
            "and give its path as weights"
        )
    width, heads = SIZES[size]
    network = VisionTransformer(width=width, heads=heads, registers=4 if name.endswith(REGISTERS) else 0)
    if weights is not None:
        load_vit(network, weights)
    return network


class VisionTransformer(nn.Module):
    """A transformer over patches of an image, with a class token and any number of registers."""

    mean: Tensor
    deviation: Tensor

    def __init__(
        self, *, width: int, heads: int, depth: int = 12, patch: int = 14, grid: int = 37, registers: int = 0
    ) -> None:
        """Build the layers; `grid` is the number of patches per side that positions are stored for."""
        super().__init__()
        self.channels, self.patch, self.grid, self.registers = width, patch, grid, registers
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, width, patch, stride=patch)})
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, 1 + grid**2, width))
        self.register_tokens = nn.Parameter(torch.zeros(1, registers, width))
        self.blocks = nn.ModuleList(Block(width, heads=heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.register_buffer("mean", torch.tensor(MEAN).view(3, 1, 1), persistent=False)
        self.register_buffer("deviation", torch.tensor(DEVIATION).view(3, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Compute the features of the patches."""
        height, width = images.shape[-2:]
        if height % self.patch or width % self.patch:
            raise ValueError(f"images must have sides of a multiple of {self.patch} pixels, got {height} × {width}")
        maps: Tensor = self.patch_embed["proj"]((images / 2 + 0.5 - self.mean) / self.deviation)
        rows, columns = maps.shape[-2:]
        tokens = torch.cat([self.cls_token.expand(len(maps), -1, -1), maps.flatten(2).mT], 1)
        tokens = tokens + self.positions(rows, columns).to(tokens.dtype)
        registers = self.register_tokens.expand(len(maps), -1, -1)
        tokens = torch.cat([tokens[:, :1], registers, tokens[:, 1:]], 1)
        for block in self.blocks:
            tokens = block(tokens)
        patches: Tensor = self.norm(tokens)[:, 1 + self.registers :]
        return patches.mT.reshape(len(patches), -1, rows, columns)

    def positions(self, rows: int, columns: int) -> Tensor:
        """Interpolate the position vectors to a grid: [1, 1 + rows · columns, D]."""
        if (rows, columns) == (self.grid, self.grid):
            return self.pos_embed
        stored = self.pos_embed[:, 1:].mT.reshape(1, -1, self.grid, self.grid).float()
        if self.registers:
            found = F.interpolate(stored, size=(rows, columns), mode="bicubic", antialias=True)
        else:
            factors = ((rows + _OFFSET) / self.grid, (columns + _OFFSET) / self.grid)
            found = F.interpolate(stored, scale_factor=factors, mode="bicubic")
        return torch.cat([self.pos_embed[:, :1], found.flatten(2).mT.to(self.pos_embed.dtype)], 1)


class Block(nn.Module):
    """Attention and a two-layer network, each on normalized tokens, scaled per channel and added."""

    def __init__(self, width: int, *, heads: int) -> None:
        """Build the layers."""
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(width, eps=1e-6) for _ in range(2))
        self.attn = Attention(width, heads=heads)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, 4 * width), "fc2": nn.Linear(4 * width, width)})
        self.ls1, self.ls2 = (nn.ParameterDict({"gamma": torch.ones(width)}) for _ in range(2))

    def forward(self, tokens: Tensor) -> Tensor:
        """Transform tokens [N, L, D]."""
        tokens = tokens + self.ls1["gamma"] * self.attn(self.norm1(tokens))
        hidden = F.gelu(self.mlp["fc1"](self.norm2(tokens)))
        found: Tensor = tokens + self.ls2["gamma"] * self.mlp["fc2"](hidden)
        return found


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, width: int, *, heads: int) -> None:
        """Build the layers."""
        super().__init__()
        if width % heads:
            raise ValueError(f"a width of {width} cannot be divided into {heads} heads")
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Mix tokens [N, L, D]."""
        q, k, v = self.qkv(tokens).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v)
        found: Tensor = self.proj(mixed.transpose(1, 2).flatten(2))
        return found


def load_vit(network: VisionTransformer, path: Path | str) -> None:
    """Load weights in DINOv2's layout, .safetensors or .pth; positions of another grid are resampled."""
    saved = {_OTHER_NAMES.get(name, name): value for name, value in read_weights(path).items()}
    state = network.state_dict()
    scales = [name for name in state if name.endswith(".gamma")]
    if not any(name in saved for name in scales):
        saved |= {name: torch.ones_like(state[name]) for name in scales}
    if not network.registers:
        saved.setdefault("register_tokens", state["register_tokens"])
    absent = [name for name in state if name not in saved]
    unknown = [name for name in saved if name not in state and not name.startswith(_IGNORED)]
    if absent or unknown:
        what = f"no {absent[0]}" if absent else f"{unknown[0]}, which this network has not"
        raise ValueError(f"{path} has {what}: give weights of DINOv2 for a network of this size")
    saved["pos_embed"] = _resample_positions(saved["pos_embed"], network.grid, path)
    for name, tensor in state.items():
        if saved[name].shape != tensor.shape:
            shapes = f"{list(saved[name].shape)}, not {list(tensor.shape)}"
            raise ValueError(f"{path}: {name} is {shapes}: name the network of this file, with or without {REGISTERS}")
    network.load_state_dict({name: saved[name] for name in state})


def _resample_positions(stored: Tensor, grid: int, path: Path | str) -> Tensor:
    """Interpolate position vectors [1, 1 + g², D] to 1 + grid² of them."""
    side = round(max(0, stored.shape[1] - 1) ** 0.5) if stored.ndim == 3 else 0
    if not side or side**2 + 1 != stored.shape[1]:
        raise ValueError(f"{path}: pos_embed is {list(stored.shape)}: a class token and a square grid are needed")
    if side == grid:
        return stored
    maps = stored[:, 1:].mT.reshape(1, -1, side, side).float()
    found = F.interpolate(maps, size=(grid, grid), mode="bicubic", antialias=True)
    return torch.cat([stored[:, :1], found.flatten(2).mT.to(stored.dtype)], 1)


def read_weights(path: Path | str) -> dict[str, Tensor]:
    """Read named tensors from a file of safetensors or of torch; nothing else is unpickled."""
    path = check_own_weights(path)
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises errors of pickle, zip files and its own for files that are not its
        line = next(iter(str(error).splitlines()), type(error).__name__)
        kind = "safetensors" if isinstance(error, SafetensorError) else "weights of torch"
        raise ValueError(f"{path} holds no {kind} ({line}): name another file") from error
    saved = saved.get("state_dict", saved) if isinstance(saved, dict) else saved
    if not isinstance(saved, dict) or not all(isinstance(value, Tensor) for value in saved.values()):
        raise ValueError(f"{path} holds no table of tensors: name a file of weights")
    return saved
