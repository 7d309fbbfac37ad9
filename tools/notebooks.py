"""Run the notebooks and write their outputs into them.

    python -m tools.notebooks                         # all; needs nbclient and ipykernel
    python -m tools.notebooks notebooks/methods.ipynb

Outputs stay small: images of 70 dots per inch, no widgets, no timestamps.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "notebooks"
MAX_BYTES = 600_000


def main() -> None:
    """Run the notebooks named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=Path)
    for file in parser.parse_args().notebooks or sorted(FOLDER.glob("*.ipynb")):
        run_notebook(file)
        print(f"{file}: {file.stat().st_size / 1000:.0f} kB")


def run_notebook(file: Path) -> None:
    """Run a notebook in an empty folder and write it with its outputs."""
    import nbformat
    from nbclient import NotebookClient

    notebook: Any = nbformat.read(file, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=600, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata.clear()
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    nbformat.write(notebook, file)
    if file.stat().st_size > MAX_BYTES:
        raise ValueError(f"{file} has {file.stat().st_size} bytes, more than {MAX_BYTES}: show less")


if __name__ == "__main__":
    main()
