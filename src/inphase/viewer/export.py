"""Write a playback and its page as a folder: for any static host, and to open as a file."""

import base64
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from inphase.playback import INDEX, open_playback
from inphase.viewer.page import STATIC, bundle

# What the page loads when it is served, and what stands for it in a folder.
_SERVED = '<script type="module" src="static/main.js"></script>'
_WRITTEN = '<script defer src="data.js"></script>\n  <script defer src="static/viewer.js"></script>'


def export(folder: Path, out: Path, *, progress: Callable[[int, int], None] | None = None) -> Path:
    """Write the page, the playback and copies of its media to `out`, a new or empty folder; return the page.

    It appears once it is whole. The document and its arrays are written as a script, since a page opened as a file may
    not fetch: `index.html` works from a static host and from file:// alike.
    """
    opened = open_playback(folder)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is {'not empty' if out.is_dir() else 'a file'}: name a new folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as made:
        whole = Path(made) / "whole"
        (whole / "static").mkdir(parents=True)
        page = (STATIC / "index.html").read_text(encoding="utf-8")
        assert page.count(_SERVED) == 1, "index.html loads its modules in another way than export replaces"
        (whole / "index.html").write_text(page.replace(_SERVED, _WRITTEN), encoding="utf-8")
        (whole / "static" / "viewer.js").write_text(bundle(), encoding="utf-8")
        for name in ("style.css", "icon.svg"):
            shutil.copyfile(STATIC / name, whole / "static" / name)
        arrays = {path: file for path, file in opened.files.items() if path.endswith(".bin")}
        (whole / "data.js").write_text(_as_script(folder / INDEX, arrays), encoding="utf-8")
        media = {path: file for path, file in opened.files.items() if path not in arrays and path != INDEX}
        for number, (path, file) in enumerate(media.items(), start=1):
            target = whole / "data" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
            if progress is not None:
                progress(number, len(media))
        whole.replace(out)
    return out / "index.html"


def _as_script(index: Path, arrays: dict[str, Path]) -> str:
    """Write the document and its arrays as data that a page can load as a script."""
    content = {
        "document": json.loads(index.read_bytes()),
        "arrays": {path: base64.b64encode(file.read_bytes()).decode() for path, file in arrays.items()},
    }
    return f"window.INPHASE = {json.dumps(content)};\n"
