from pathlib import Path

import pytest

from inphase.data import DATASETS


def test_every_collection_refuses_a_split_it_does_not_have(tmp_path: Path) -> None:
    for load in DATASETS.values():
        with pytest.raises(ValueError, match="split 'evening' does not exist here: choose one of train, "):
            load(tmp_path, split="evening")
