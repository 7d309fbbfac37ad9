"""Training and evaluation on a user's own keypoints."""

from pathlib import Path

import pytest

from inphase import evaluate
from inphase.models import load_encoder
from inphase.training import train
from tests.data.test_keypoints import JOINTS, swing, write_npz

RECIPE = """
[data]
name = "keypoints"
root = "{root}"

[encoder]
name = "pose"
hidden = [8]

[loss]
name = "gta"

[batch]
actions = 2
videos = 2
frames = 8

[augmentation]
flip = 0.5

[run]
steps = 2
accelerator = "cpu"
"""


@pytest.mark.slow
def test_own_keypoints_are_trained_on_and_measured_with_an_encoder_of_their_joints(tmp_path: Path) -> None:
    root = tmp_path / "keypoints"
    for action in ("serve", "smash"):
        for number in range(8):
            write_npz(root / action / f"{number}.npz", swing(number))
    names = [f"{action}/{number}.npz" for action in ("serve", "smash") for number in range(8)]
    lines = [f"{name},{'test' if int(name[-5]) > 4 else 'train'}" for name in names]
    (root / "splits.csv").write_text("\n".join(["video,split", *lines]))
    phases = [f"{name},{0.6 * half},{0.6 * half + 0.6},{half}" for name in names for half in (0, 1)]
    (root / "phases.csv").write_text("\n".join(["video,start,end,phase", *phases]))
    recipe = tmp_path / "own.toml"
    recipe.write_text(RECIPE.format(root=root.as_posix()))
    train(recipe, tmp_path / "run")
    assert tuple(load_encoder(tmp_path / "run").config["joints"]) == JOINTS
    report = evaluate(tmp_path / "run", tasks=["kendall_tau", "phase_classification"])
    assert "kendall_tau" in repr(report)
