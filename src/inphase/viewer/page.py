"""The page as it lies in the package: an HTML file, a style sheet and plain ES modules."""

import re
from pathlib import Path

STATIC = Path(__file__).parent / "static"

# How the modules are written, and the only forms `bundle` understands.
_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?function|class|const) (\w+)", re.MULTILINE)


def static_files() -> list[str]:
    """List the files the page is made of."""
    return sorted(file.name for file in STATIC.iterdir() if file.suffix in {".js", ".css", ".svg"})


def bundle(entry: str = "main") -> str:
    """Write the modules as one classic script: browsers load no modules from file://.

    Each module becomes a function of its own scope, called after those it imports, that returns what it exports.
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
