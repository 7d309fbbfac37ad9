"""Which device a command works on."""


def choose_device(name: str) -> str:
    """Name the device that was asked for, or the best one there is."""
    import torch

    if name not in ("auto", "cpu", "cuda"):
        raise ValueError(f"--device must be auto, cpu or cuda, got {name!r}")
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: this machine has none that torch can use; say --device cpu")
    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name
