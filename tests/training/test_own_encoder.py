"""An encoder that a user defines, from its recipe to the aligned pair."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from inphase.align import dtw
from inphase.data import stage_videos
from inphase.data.frame_source import open_frame_source
from inphase.evaluation import value_of
from inphase.evaluation.evaluate import evaluate
from inphase.models import embed, load_encoder
from inphase.training import read_recipe, train
from tests.models.test_registry import TOYS


def test_an_encoder_of_ones_own_trains_and_is_loaded_again(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toy_encoders.py").write_text(TOYS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "toy_encoders", raising=False)
    file = tmp_path / "own.toml"
    file.write_text(
        """
base = "demo_pose"
[data]
actions = ["squat", "kick"]
videos = 2
[encoder]
name = "toy_encoders:Toy"
dimension = 5
[batch]
actions = 2
videos = 2
frames = 6
[run]
steps = 2
"""
    )
    trained = train(file, out)
    assert trained.run.recipe["encoder"] == {"name": "toy_encoders:Toy", "dimension": 5}
    assert read_recipe(trained.run.recipe_file) == read_recipe(file)
    encoder = load_encoder(out)
    assert type(encoder).__name__ == "Toy"
    measured = evaluate(out, tasks=("kendall_tau",), compare=())
    assert -1 <= value_of(measured.scores, "tau") <= 1
    source = open_frame_source(encoder, stage_videos.load(split="test", actions=["squat"], videos=2))
    x, y = (embed(encoder, source.read(video, np.arange(source.frame_count(video)))).values for video in source.videos)
    assert x.shape[1] == 5
    path = dtw(torch.from_numpy(x), torch.from_numpy(y)).path
    assert tuple(path[0]) == (0, 0)
    assert tuple(path[-1]) == (len(x) - 1, len(y) - 1)
