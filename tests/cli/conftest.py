from pathlib import Path

import pytest

from inphase.models import save_encoder
from tests.models.test_embed_videos import small


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder with a model, and keep what is seen there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    save_encoder(tmp_path / "model.safetensors", small(context=(0,)))
    return tmp_path
