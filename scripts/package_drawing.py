"""Writes docs/explanation/packages.svg: the packages in their layers, and their imports.

Run it after adding a package or changing the layers; tests/docs/test_architecture.py fails until then."""

from __future__ import annotations

import ast
import textwrap
import tomllib
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).parents[1]
DRAWING = ROOT / "docs/explanation/packages.svg"
PACKAGE = ROOT / "src/tidemill"

WIDTH, MARGIN, GAP = 1000, 20, 14
TITLE_HEIGHT, LINE_HEIGHT, CHARACTER_WIDTH = 26, 15, 6.4
# Packages beside the layers: every layer above the core may use them.
BESIDE = ("stores", "telemetry")

BOX_STYLE = 'fill="#eef4fb" stroke="#4a6fa5"'
TITLE_STYLE = 'font-weight="bold" font-size="14" fill="#12284c"'
TEXT_STYLE = 'fill="#33445c"'

HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"
 font-family="system-ui, sans-serif" font-size="12">
<title>The packages of Tidemill in layers; a package imports packages of lower layers only</title>
<rect width="100%" height="100%" fill="#ffffff"/>
"""


def packages() -> list[str]:
    """Returns the sub-packages of tidemill."""
    return sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def layers() -> list[list[str]]:
    """Returns the layers that import-linter enforces, the highest first; then the packages beside them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    rows = next(one["layers"] for one in contracts if one["name"] == "layers")
    named = [[name.strip().removeprefix("tidemill.") for name in row.split("|")] for row in rows]
    return [*named, list(BESIDE)]


def imports(package: str) -> list[str]:
    """Returns the other packages that a package imports, including imports inside functions."""
    found = set()
    for file in (PACKAGE / package).rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tidemill."):
                found.add((node.module or "").split(".")[1])
    return sorted(found & set(packages()) - {package})


def box(name: str, x: float, y: float, width: float) -> tuple[str, float]:
    """Returns the drawing of one package, and its height."""
    if name == "tidemill_apps":
        names = "public names of tidemill only"
    else:
        names = ", ".join(imports(name)) or "nothing"
    lines = textwrap.wrap(f"imports {names}", int((width - 16) / CHARACTER_WIDTH))
    height = TITLE_HEIGHT + LINE_HEIGHT * len(lines) + 8
    left, first_line = x + 8, y + TITLE_HEIGHT + 0.8 * LINE_HEIGHT
    parts = [
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{{height:g}}" rx="6" {BOX_STYLE}/>',
        f'<text x="{left:g}" y="{y + 18:g}" {TITLE_STYLE}>{escape(name)}</text>',
        *(
            f'<text x="{left:g}" y="{first_line + LINE_HEIGHT * n:g}" {TEXT_STYLE}>{escape(line)}</text>'
            for n, line in enumerate(lines)
        ),
    ]
    return "\n".join(parts), height


def drawing() -> str:
    """Returns the whole drawing as SVG."""
    y, parts = float(MARGIN), []
    for row in layers():
        width = (WIDTH - 2 * MARGIN - GAP * (len(row) - 1)) / len(row)
        drawn = [box(name, MARGIN + n * (width + GAP), y, width) for n, name in enumerate(row)]
        height = max(one for _, one in drawn)
        parts += [text.replace("{height:g}", f"{height:g}") for text, _ in drawn]
        y += height + GAP
    return HEAD.format(width=WIDTH, height=f"{y:g}") + "\n".join(parts) + "\n</svg>\n"


if __name__ == "__main__":
    DRAWING.write_text(drawing(), encoding="utf-8")
