"""The web page of the viewer: its static files, and its export as a folder that opens without a server."""

import base64
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

from inphase.playback import INDEX, open_playback
from inphase.playback.part import AUDIO_TYPES, IMAGE_TYPES, VIDEO_TYPES
from inphase.progress import Progress, Summary, ignore_progress
from inphase.storage.files import atomic_write, scratch_folder

STATIC = Path(__file__).parent / "static"

# The script element of index.html and its replacement in an exported page.
_SERVED = '<script type="module" src="static/main.js"></script>'
_STYLE = '<link rel="stylesheet" href="static/style.css">'
_POLICY = "default-src 'self'; media-src 'self' blob:; object-src 'none'; base-uri 'none'; form-action 'none'"
_SINGLE_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; media-src blob:; "
    "base-uri 'none'; form-action 'none'"
)
_EXPORTED = '<script defer src="data.js"></script>\n  <script defer src="static/viewer.js"></script>'

# A browser decodes the media of a single page in memory.
MAX_SINGLE_BYTES = 200 * 2**20
_MEDIA_TYPES = VIDEO_TYPES | AUDIO_TYPES | IMAGE_TYPES

# The only forms of import and export that `bundle` parses.
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?function|class|const) (\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Exported:
    """A playback as a web page: text files, and the media files to copy beside them."""

    title: str
    page: Path  # what `export` wrote: index.html, a single page, or an archive
    texts: dict[str, str]  # path in the exported folder → content
    media: dict[str, Path]  # path in the exported folder → file to copy

    def summary(self) -> Summary:
        """Return how to open the page."""
        if self.page.name == "index.html":
            return Summary([f"Open {self.page}, or put {self.page.parent} on any static host."])
        size = f"{self.page.stat().st_size / 1e6:.1f} MB"
        if self.page.suffix.lower() == ".zip":
            return Summary([f"Send {self.page}, {size}: unpack it, and open index.html in any browser."])
        return Summary([f"Send {self.page}, {size}: any browser plays it."])

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

    def write_zip(self, file: Path | str, *, progress: Progress | None = None) -> Path:
        """Write all files to a zip archive, in a folder with its name, and return its path."""
        file, report = Path(file), progress or ignore_progress
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as part, ZipFile(part, "w", ZIP_DEFLATED) as archive:
            for path, text in self.texts.items():
                archive.writestr(f"{file.stem}/{path}", text)
            for number, (path, source) in enumerate(self.media.items(), start=1):
                archive.write(source, f"{file.stem}/{path}", compress_type=ZIP_STORED)  # videos are compressed
                report("copying media", number, len(self.media))
        return file

    def to_dict(self) -> dict[str, Any]:
        """Return the title, the page and the list of files, ready for JSON."""
        return {"title": self.title, "page": str(self.page), "files": sorted([*self.texts, *self.media])}


def export(
    folder: Path | str,
    out: Path | str,
    *,
    single: bool = False,
    zipped: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write the playback in `folder`, its media and the viewer to `out`, a new or empty folder.

    `out/index.html` works on any static host and when opened as a file. With `single` the page `out.html`, which holds
    the media too, is written in place of the folder; with `zipped` the archive `out.zip`.
    Browsers do not let a page opened as a file fetch data or load modules, so the document, its arrays and the modules
    are written as classic scripts.
    """
    folder, out = Path(folder), Path(out)
    if single and zipped:
        raise ValueError("choose a single page or a zip archive, not both: a single page needs no archive")
    opened = open_playback(folder)
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert page.count(_SERVED) == 1, "index.html must load its modules with the script element that export replaces"
    arrays = {path: file for path, file in opened.files.items() if path.endswith(".bin")}
    media = {path: file for path, file in opened.files.items() if path not in arrays and path != INDEX}
    if single:
        texts = {"index.html": _single_page(page, _as_script(folder / INDEX, arrays, media=media))}
        media = {}
    else:
        texts = {
            "index.html": page.replace(_SERVED, _EXPORTED),
            "data.js": _as_script(folder / INDEX, arrays),
            "static/viewer.js": bundle(),
            **{f"static/{name}": (STATIC / name).read_text(encoding="utf-8") for name in ("style.css", "icon.svg")},
        }
    target = out / "index.html"
    if single or zipped:
        ending = ".html" if single else ".zip"
        target = out if out.suffix.lower() == ending else out.with_name(out.name + ending)
    exported = Exported(opened.playback.title, target, texts, {f"data/{path}": file for path, file in media.items()})
    if single:
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(target) as part:
            part.write_text(texts["index.html"], encoding="utf-8")
    elif zipped:
        exported.write_zip(target, progress=progress)
    else:
        exported.write(out, progress=progress)
    return exported


def _single_page(page: str, data: str) -> str:
    """Put style, icon, scripts and data into the page, which then loads nothing."""
    icon = base64.b64encode((STATIC / "icon.svg").read_bytes()).decode()
    style = (STATIC / "style.css").read_text(encoding="utf-8")
    scripts = f"<script>\n{data}</script>\n<script>\n{bundle()}</script>\n</body>"
    replacements = {
        _SERVED: "",
        _STYLE: f"<style>\n{style}</style>",
        'href="static/icon.svg"': f'href="data:image/svg+xml;base64,{icon}"',
        'src="static/icon.svg"': f'src="data:image/svg+xml;base64,{icon}"',
        _POLICY: _SINGLE_POLICY,
        "</body>": scripts,
    }
    for old, new in replacements.items():
        assert page.count(old) == 1, f"index.html must have {old} once, which a single page replaces"
        page = page.replace(old, new)
    return page


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


def _as_script(index: Path, arrays: Mapping[str, Path], *, media: Mapping[str, Path] | None = None) -> str:
    """Write the document, its arrays and, if given, its media as a script that sets one global variable."""
    content: dict[str, Any] = {"document": json.loads(index.read_bytes()), "arrays": _encode_files(arrays)}
    if media is not None:
        size = sum(file.stat().st_size for file in media.values())
        if size > MAX_SINGLE_BYTES:
            raise ValueError(
                f"the media take {size / 2**20:.0f} MB, and a single page holds at most "
                f"{MAX_SINGLE_BYTES / 2**20:.0f}: export a folder or a zip archive, or shorter videos"
            )
        content["media"] = {
            path: [_MEDIA_TYPES[file.suffix.lower()], data]
            for (path, file), data in zip(media.items(), _encode_files(media).values(), strict=True)
        }
    # A script element ends at the first </script>, also inside a string.
    return f"window.INPHASE = {json.dumps(content).replace('<', chr(92) + 'u003c')};\n"


def _encode_files(files: Mapping[str, Path]) -> dict[str, str]:
    return {path: base64.b64encode(file.read_bytes()).decode() for path, file in files.items()}
