"""Model files come from a folder, from an installed wheel that is not imported, or from their publisher, checked."""

import hashlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock, Timeout

from inphase.pose import networks
from inphase.pose.networks import (
    DETECTOR,
    LANDMARKS,
    MODEL_FOLDER_VARIABLE,
    ModelFile,
    find_model,
    open_network,
    read_graph,
)
from inphase.storage.cache import CPU_OPTIONS, compile_cached, default_cache_folder
from inphase.storage.errors import MediaError, MissingExtraError
from tests.pose.people import needs_networks

CONTENT = b"a network"
MODEL = ModelFile("toy.tflite", "17", hashlib.sha256(CONTENT).hexdigest(), ("Identity",))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def publisher() -> Iterator[tuple[str, list[str], list[bytes]]]:
    """Serve files on loopback: the address, the paths asked for, and the contents to answer with."""
    asked: list[str] = []
    answers: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(answers[0])))
            self.end_headers()
            self.wfile.write(answers[0])

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", asked, answers
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_file_is_downloaded_once(publisher: tuple[str, list[str], list[bytes]], tmp_path: Path) -> None:
    address, asked, answers = publisher
    answers.append(CONTENT)
    for _ in range(2):
        path = find_model(MODEL, publisher=address)
        assert path == tmp_path / "cache/inphase/models/toy.tflite"
        assert path.read_bytes() == CONTENT
    assert asked == ["/toy.tflite?generation=17"]
    path.write_bytes(b"damaged")
    assert find_model(MODEL, publisher=address).read_bytes() == CONTENT
    assert len(asked) == 2


def test_other_contents_are_refused(publisher: tuple[str, list[str], list[bytes]], tmp_path: Path) -> None:
    address, _, answers = publisher
    answers.append(b"another network")
    with pytest.raises(MediaError, match=rf"toy\.tflite.* has the SHA-256 \w+ instead of {MODEL.sha256}"):
        find_model(MODEL, publisher=address)
    assert not list(tmp_path.rglob("toy.tflite"))


def test_without_a_network_the_error_names_both_ways_out() -> None:
    with pytest.raises(
        MissingExtraError, match=rf"{MODEL_FOLDER_VARIABLE}, or pip install --no-deps mediapipe==0\.10\.14"
    ):
        find_model(MODEL, publisher="http://127.0.0.1:9/")


def test_a_folder_comes_first_and_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MODEL_FOLDER_VARIABLE, str(tmp_path))
    with pytest.raises(
        MissingExtraError, match=rf"toy\.tflite does not exist: put it there or unset {MODEL_FOLDER_VARIABLE}"
    ):
        find_model(MODEL)
    (tmp_path / "toy.tflite").write_bytes(CONTENT)
    assert find_model(MODEL) == tmp_path / "toy.tflite"
    (tmp_path / "toy.tflite").write_bytes(b"another network")
    with pytest.raises(ValueError, match=r"is not the published file.* put the published toy\.tflite there"):
        find_model(MODEL)


def test_an_installed_wheel_is_read_and_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mediapipe/modules").mkdir(parents=True)
    (tmp_path / "mediapipe/__init__.py").write_text("raise ImportError('this must not be imported')")
    (tmp_path / "mediapipe/modules/toy.tflite").write_bytes(CONTENT)
    about = tmp_path / "mediapipe-0.10.14.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mediapipe\nVersion: 0.10.14\n")
    (about / "RECORD").write_text("mediapipe/__init__.py,,\nmediapipe/modules/toy.tflite,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find_model(MODEL, publisher="http://127.0.0.1:9/") == tmp_path / "mediapipe/modules/toy.tflite"


@pytest.mark.slow
@needs_networks
def test_estimating_imports_no_mediapipe() -> None:
    code = """if True:
        import sys
        import numpy as np
        from inphase.pose.blazepose import BlazePose
        from inphase.pose.pose import Region
        estimator = BlazePose()
        image = np.zeros((64, 64, 3), np.uint8)
        assert estimator.find(image) == [] and estimator.read(image, Region(32, 32, 32)) is None
        print([name for name in ("mediapipe", "cv2", "jax") if name in sys.modules])
    """
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)
    assert (run.stdout.strip(), run.stderr) == ("[]", "")


@needs_networks
@pytest.mark.parametrize(("model", "side"), [(DETECTOR, 224), (LANDMARKS[1], 256)], ids=["detector", "landmarks"])
def test_torch_computes_the_same(tmp_path: Path, model: ModelFile, side: int) -> None:
    import openvino

    from inphase.pose.networks import BatchedNetwork, OpenVinoNetwork, convert, load_network

    graph = read_graph(openvino, find_model(model), outputs=model.outputs)
    network = convert(graph)
    network.save(tmp_path / "network.safetensors")
    images = np.random.default_rng(0).random((2, side, side, 3), dtype=np.float32)
    compiled = openvino.Core().compile_model(graph, "CPU", CPU_OPTIONS)
    expected = OpenVinoNetwork(compiled)(images)
    for given in (network, load_network(tmp_path / "network.safetensors")):
        outputs = BatchedNetwork(given, device="cpu")(images)
        for output, right in zip(outputs, expected, strict=True):
            assert output.shape == right.shape
            np.testing.assert_allclose(output, right, atol=1e-3 * np.abs(right).max())


@needs_networks
def test_an_operation_that_torch_lacks_is_named() -> None:
    from inphase.pose.networks import GraphNode, TorchNetwork

    with pytest.raises(ValueError, match="operations Roll have no counterpart in torch"):
        TorchNetwork([GraphNode("Parameter", (), {}), GraphNode("Roll", (0,), {})], {"0": torch.zeros(1)}, [1])


@needs_networks
def test_a_network_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    image = np.random.default_rng(0).random((1, 224, 224, 3), dtype=np.float32)
    networks._open_networks.by_name.clear()
    first = open_network(DETECTOR)
    assert open_network(DETECTOR) is first
    expected = first(image)

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("the file is read again")

    with monkeypatch.context() as patch:
        patch.setattr(networks, "read_graph", refuse)
        networks._open_networks.by_name.clear()  # as in another process
        assert_equal(open_network(DETECTOR)(image), expected)
    # A damaged model is made again.
    for file in (default_cache_folder() / "networks").glob("*/model.bin"):
        file.write_bytes(file.read_bytes()[:-100] + bytes(100))
    networks._open_networks.by_name.clear()
    assert_equal(open_network(DETECTOR)(image), expected)
    networks._open_networks.by_name.clear()


@needs_networks
def test_a_cache_that_cannot_be_written_does_no_harm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    find_model(DETECTOR)  # may be downloaded into the cache
    carried = find_model(DETECTOR)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(networks, "find_model", lambda _: carried)
    networks._open_networks.by_name.clear()
    boxes, _ = open_network(DETECTOR)(np.zeros((1, 224, 224, 3), np.float32))
    assert boxes.shape[0] == 1
    networks._open_networks.by_name.clear()


def assert_equal(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


FIRST_LOOKUPS = """
import sys, threading
import numpy as np, openvino
from openvino import opset8
from inphase.storage.cache import compile_cached

def build():
    image = opset8.parameter([1, 2], np.float32)
    return openvino.Model([opset8.relu(image)], [image], "toy")

def infer():
    compile_cached(openvino, "toy", build, {})
    barrier.wait()
    openvino.Type.f32.to_dtype()  # what the first inference begins with

barrier = threading.Barrier(8)
sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=infer) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@needs_networks
def test_the_first_inferences_of_several_threads_do_not_wait_for_each_other_forever() -> None:
    """OpenVINO's first lookup of a number type deadlocks in 10 of 12 processes if several threads make it at once."""
    for _ in range(2):
        subprocess.run([sys.executable, "-c", FIRST_LOOKUPS], check=True, timeout=120)


def test_one_process_at_a_time_compiles_a_cached_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenVINO maps the compiled form into memory: written again by another process, it would end this one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiled: list[bool] = []

    class Core:
        def compile_model(self, model: object, device: str, options: dict[str, object]) -> str:
            with pytest.raises(Timeout), FileLock(tmp_path / "inphase/networks/toy.lock", timeout=0):
                pass
            compiled.append("CACHE_DIR" in options)
            return "network"

    def save_model(model: object, file: Path, **options: object) -> None:
        file.write_text("<net/>", encoding="utf-8")
        file.with_suffix(".bin").write_bytes(b"weights")

    number = SimpleNamespace(f32=SimpleNamespace(to_dtype=lambda: None))
    openvino = SimpleNamespace(Core=Core, Type=number, save_model=save_model)
    for _ in range(2):
        assert compile_cached(openvino, "toy", object, {}) == "network"
    assert compiled == [True, True]
