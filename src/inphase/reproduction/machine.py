"""What a study runs on, in words."""

import os
import platform
import re
from pathlib import Path


def describe_machine() -> str:
    """Name the processor and how many of its cores there are, and the GPU where torch finds one."""
    import torch

    parts = [f"{cores()} × {_processor()}"]
    if torch.cuda.is_available():
        parts.append(f"{torch.cuda.device_count()} × {torch.cuda.get_device_name()}")
    return ", ".join(parts)


def cores() -> int:
    """Count the cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    """Name the processor; platform does not know it on Linux."""
    known = Path("/proc/cpuinfo")
    text = known.read_text(encoding="utf-8", errors="replace") if known.is_file() else ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()
