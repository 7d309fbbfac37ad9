"""Cards of model files: all are listed, and a changed one is named."""

import json
from pathlib import Path

import pytest

import inphase
from inphase.models import cards
from inphase.models.cards import CHANGED, VERIFIED, list_models
from inphase.models.weights import SHIPPED
from tests.commands import check_output, type_command


def test_every_shipped_file_has_its_checksum() -> None:
    by_name = {card.name: card for card in list_models().models}
    shipped = {f"shipped/{path.name}" for path in SHIPPED.glob("*.safetensors")}
    assert shipped <= set(by_name)
    stale = [name for name in shipped if by_name[name].status != VERIFIED]
    assert not stale, f"{stale}: write their SHA-256 into {SHIPPED / 'checksums.toml'}"


def test_third_party_files_are_listed_with_license_and_publisher() -> None:
    listed = inphase.list_models()
    names = {card.name for card in listed.models}
    assert {"EfficientNet-Lite0", "pose_detection.tflite", "pose_landmark_full.tflite"} <= names
    assert all(card.license and card.publisher and len(card.sha256) == 64 for card in listed.models)


def test_a_changed_file_is_named_and_the_command_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in SHIPPED.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    with (tmp_path / "pose.safetensors").open("r+b") as file:
        file.seek(5000)
        file.write(b"\x00\x01")
    monkeypatch.setattr(cards, "SHIPPED", tmp_path)
    listed = list_models()
    assert [card.name for card in listed.models if card.status == CHANGED] == ["shipped/pose.safetensors"]
    assert not listed.whole
    assert type_command(monkeypatch, "models", "--json") == 1
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    check_output("models", document)
    assert document["models"][0]["status"] == CHANGED
    assert "pose.safetensors has changed" in printed.err
    (table,) = listed.write(tmp_path / "out")
    assert "shipped/pose.safetensors,changed," in table.read_text(encoding="utf-8")


def test_a_file_that_is_not_here_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INPHASE_POSE_MODELS", str(tmp_path))
    listed = list_models()
    status = {card.name: card.status for card in listed.models}
    assert status["pose_detection.tflite"] == cards.ABSENT
    assert listed.whole
