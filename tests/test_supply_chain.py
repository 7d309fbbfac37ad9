"""Dependencies are pinned and hashed, and what is promised about them is written down."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def read_hashed() -> dict[str, tuple[str, list[str]]]:
    """Read version and hashes by name."""
    text = (ROOT / "requirements-hashed.txt").read_text(encoding="utf-8").replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found = [
        re.fullmatch(r"([\w.-]+)==(\S+)( ; [^-]*?)?((?:\s+--hash=sha256:[0-9a-f]{64})+)\s*", line) for line in lines
    ]
    assert all(found), [line[:60] for line, match in zip(lines, found, strict=True) if not match]
    return {normalize(m[1]): (m[2], re.findall(r"[0-9a-f]{64}", m[4])) for m in found if m}


def test_every_pin_has_its_hashes() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    hashed = {name: version for name, (version, _) in read_hashed().items()}
    missing = [name for name, version in pins.items() if hashed.get(normalize(name)) != version]
    assert not missing, f"{', '.join(missing)}: run make lock"


def test_every_dependency_is_hashed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(each for name, part in extras.items() if name != "bench" for each in part)]
    names = {normalize(re.match(r"[\w.-]+", each)[0]) for each in wanted} - {"inphase"}  # type: ignore[index]
    missing = sorted(names - read_hashed().keys())
    assert not missing, f"{', '.join(missing)}: run make lock"


def test_the_policy_names_a_way_to_report_and_nobody() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "private security advisory in the repository" in text
    assert "@" not in text
