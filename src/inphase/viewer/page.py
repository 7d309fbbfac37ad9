"""The web page of the viewer: its static files, and its export as a folder that opens without a server."""

import base64
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inphase.playback import INDEX, open_playback
from inphase.progress import Progress, ignore_progress
from inphase.storage.files import scratch_folder

STATIC = Path(__file__).parent / "static"

# The script element of index.html and its replacement in an exported page.
_SERVED = '<script type="module" src="static/main.js"></script>'
_EXPORTED = '<script defer src="data.js"></script>\n  <script defer src="static/viewer.js"></script>'

# The only forms of import and export that `bundle` parses.
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?function|class|const) (\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Exported:
    """A playback as a web page: text files, and the media files to copy beside them."""

    title: str
    page: Path  # the index.html that `export` wrote
    texts: dict[str, str]  # path in the exported folder → content
    media: dict[str, Path]  # path in the exported folder → file to copy

    def write(self, folder: Path | str, *, progress: Progress | None = None) -> Path:
        """Write all files to `folder`, which must be new or empty, and return the path of index.html.

        The folder appears when it is complete.
        """
        folder, report = Path(folder), progress or ignore_progress
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ValueError(f"{folder} is {'not empty' if folder.is_dir() else 'a file'}: name a new folder")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with scratch_folder(folder.parent) as made:
            whole = made / "whole"
            for path in (*self.texts, *self.media):
                (whole / path).parent.mkdir(parents=True, exist_ok=True)
            for path, text in self.texts.items():
                (whole / path).write_text(text, encoding="utf-8")
            for number, (path, file) in enumerate(self.media.items(), start=1):
                shutil.copyfile(file, whole / path)
                report("copying media", number, len(self.media))
            whole.replace(folder)
        return folder / "index.html"

    def to_dict(self) -> dict[str, Any]:
        """Return the title, the page and the list of files, ready for JSON."""
        return {"title": self.title, "page": str(self.page), "files": sorted([*self.texts, *self.media])}


def export(folder: Path | str, out: Path | str, *, progress: Progress | None = None) -> Exported:
    """Write the playback in `folder`, its media and the viewer to `out`, a new or empty folder.

    `out/index.html` works on any static host and when opened as a file. Browsers do not let a page opened as a file
    fetch data or load modules, so the document, its arrays and the modules are written as classic scripts.
    """
    folder, out = Path(folder), Path(out)
    opened = open_playback(folder)
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert page.count(_SERVED) == 1, "index.html must load its modules with the script element that export replaces"
    arrays = {path: file for path, file in opened.files.items() if path.endswith(".bin")}
    texts = {
        "index.html": page.replace(_SERVED, _EXPORTED),
        "data.js": _as_script(folder / INDEX, arrays),
        "static/viewer.js": bundle(),
        **{f"static/{name}": (STATIC / name).read_text(encoding="utf-8") for name in ("style.css", "icon.svg")},
    }
    media = {f"data/{path}": file for path, file in opened.files.items() if path not in arrays and path != INDEX}
    exported = Exported(opened.playback.title, out / "index.html", texts, media)
    exported.write(out, progress=progress)
    return exported


def static_files() -> list[str]:
    """List the files that index.html loads."""
    return sorted(file.name for file in STATIC.iterdir() if file.suffix in {".js", ".css", ".svg"})


def bundle(entry: str = "main") -> str:
    """Bundle the ES modules into one classic script, which browsers also load from file://.

    Each module becomes a function that is called after the modules it imports and returns its exports.
    """
    ordered: list[str] = []

    def visit(name: str) -> None:
        for _, needed in _IMPORT.findall(_source(name)):
            if needed not in ordered:
                visit(needed)
        ordered.append(name)

    visit(entry)
    return '"use strict";\nconst modules = {};\n' + "".join(_as_function(name) for name in ordered)


def _as_function(name: str) -> str:
    source = _source(name)
    exported = [found for _, found in _EXPORT.findall(source)]
    body = _IMPORT.sub(lambda found: f"const {{{found[1]}}} = modules.{found[2]};\n", source)
    body = _EXPORT.sub(r"\1 \2", body)
    return f"modules.{name} = (() => {{\n{body}\nreturn {{ {', '.join(exported)} }};\n}})();\n"


def _source(name: str) -> str:
    return (STATIC / f"{name}.js").read_text(encoding="utf-8")


def _as_script(index: Path, arrays: dict[str, Path]) -> str:
    """Write the document and its arrays as a script that sets one global variable."""
    content = {
        "document": json.loads(index.read_bytes()),
        "arrays": {path: base64.b64encode(file.read_bytes()).decode() for path, file in arrays.items()},
    }
    return f"window.INPHASE = {json.dumps(content)};\n"
