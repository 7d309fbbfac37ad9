"""Notebooks: their cells run, on smaller settings, and their stored outputs are small and free of errors."""

import json
import re
from pathlib import Path

import pytest

from tests.pose.people import skip_without_networks

pytestmark = pytest.mark.slow

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
QUICK = {"SIZE = 192": "SIZE = 64", "STEPS = 120": "STEPS = 3", "STEPS, VIDEOS = 150, 8": "STEPS, VIDEOS = 2, 4"}


def cells(notebook: Path) -> list[str]:
    """List the code of a notebook, without commands of IPython."""
    found = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]
    return [re.sub(r"^%.*$", "", text, flags=re.MULTILINE) for text in code]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_run(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.chdir(tmp_path)
    pyplot.switch_backend("agg")
    names: dict[str, object] = {}
    changed = 0
    try:
        for code in cells(notebook):
            for usual, quick in QUICK.items():
                changed += code.count(usual)
                code = code.replace(usual, quick)
            with skip_without_networks():
                exec(compile(code, notebook.name, "exec"), names)
        assert changed, "no setting was made smaller: the notebook has changed"
        assert len(pyplot.get_fignums()) >= 2
    finally:
        pyplot.close("all")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_stored_outputs_are_whole_and_small(notebook: Path) -> None:
    assert notebook.stat().st_size < 600_000
    text = notebook.read_text(encoding="utf-8")
    outputs = [output for cell in json.loads(text)["cells"] for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 2
    assert sum(output.get("name") == "stdout" for output in outputs) >= 2
    assert not re.search(r"/(tmp|home|work|root|Users)/", text), "a path of a machine"
