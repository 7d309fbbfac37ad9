from pathlib import Path

import pytest

from inphase.evaluation.evaluate import choose_data
from inphase.models import AudioEncoder, PoseEncoder, save_encoder
from inphase.runs import Run


def test_a_run_names_its_files(tmp_path: Path) -> None:
    run = Run(str(tmp_path))
    assert run == Run(tmp_path) == Run(run)
    assert Path(run) == tmp_path
    names = {
        run.recipe_file: "recipe.toml",
        run.encoder_file: "encoder.safetensors",
        run.audio_file: "audio.safetensors",
        run.state: "state.safetensors",
        run.metrics: "metrics.jsonl",
        run.features: "features",
        run.embeddings: "embeddings",
    }
    assert all(path == tmp_path / name for path, name in names.items())


def test_a_run_loads_its_recipe_and_its_encoders(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with pytest.raises(ValueError, match=r"holds no recipe\.toml: name the folder of a run"):
        _ = run.recipe
    with pytest.raises(ValueError, match=r"holds no encoder\.safetensors"):
        run.encoder()
    with pytest.raises(ValueError, match=r"holds no audio\.safetensors: .*whose recipe has a table \[audio\]"):
        run.audio_encoder()
    run.recipe_file.write_text("[run]\nsteps = 3\n")
    save_encoder(run.encoder_file, PoseEncoder(hidden=(8,), dimension=4))
    save_encoder(run.audio_file, AudioEncoder(hidden=(8,), dimension=4))
    assert run.recipe == {"run": {"steps": 3}}
    assert (run.encoder().modality, run.audio_encoder().modality) == ("pose", "audio")
    run.recipe_file.write_text("[run\n")
    with pytest.raises(ValueError, match=r"recipe\.toml is not valid TOML"):
        _ = run.recipe


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data = 3", r"recipe\.toml: data must be a table \[data\], got 3"),
        ('[data]\nname = "folder"\nroot = 3', r"recipe\.toml: data\.root must be the path of a folder, got 3"),
    ],
)
def test_a_damaged_recipe_of_a_run_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "recipe.toml").write_text(text)
    with pytest.raises(ValueError, match=message):
        choose_data(tmp_path)
