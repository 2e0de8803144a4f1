"""A rich renderable → an HTML page or an SVG picture of it. Both stand alone: they load nothing when opened."""

import io
from html import escape
from typing import Literal

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme

Kind = Literal["html", "svg"]
EXPORT_WIDTH = 100
# Dark ink on white, so that it prints, and dimmed text stays readable.
_COLORS = [(0, 0, 0), (176, 0, 32), (24, 128, 56), (138, 90, 0), (26, 95, 180), (132, 32, 140), (0, 128, 150)]
_THEME = TerminalTheme((255, 255, 255), (32, 33, 36), [*_COLORS, (110, 110, 110)])
_FONT = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"
_TITLE = "gpt2cli inspect-logits"
_HTML = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{_TITLE}</title>
<style>
{{stylesheet}}
body {{{{ color: {{foreground}}; background: {{background}}; margin: 2em; }}}}
pre {{{{ font: 15px/1.35 {_FONT}; }}}}
</style>
</head>
<body>
<pre>{{code}}</pre>
</body>
</html>
"""
_CELL, _LINE, _BASE, _MARGIN = 9, 20, 15, 16  # pixels: a cell's width, a line's height, its baseline, the margin


def export(renderable: RenderableType, kind: Kind) -> str:
    """The renderable as it would look on a terminal with colours, as wide as it needs to be."""
    console = Console(
        file=io.StringIO(),
        record=True,
        width=EXPORT_WIDTH,
        force_terminal=True,
        color_system="truecolor",
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )
    console.width = max(EXPORT_WIDTH, console.measure(renderable).minimum)
    if kind == "svg":
        return _svg(console.render_lines(renderable, pad=False))
    console.print(renderable)
    return console.export_html(theme=_THEME, code_format=_HTML)


def _svg(lines: list[list[Segment]]) -> str:
    """Every segment at its own cell, stretched to its cells, so that columns line up in any font."""
    backgrounds, texts, widest = [], [], 0
    for row, line in enumerate(lines):
        column, top = 0, _MARGIN + row * _LINE
        for text, style, _ in line:
            cells, left = cell_len(text), _MARGIN + column * _CELL
            column += cells
            if style and style.bgcolor:
                fill = style.bgcolor.get_truecolor(_THEME, foreground=False).hex
                backgrounds.append(
                    f'<rect x="{left}" y="{top}" width="{cells * _CELL}" height="{_LINE}" fill="{fill}"/>'
                )
            if text.strip():
                texts.append(
                    f'<text x="{left}" y="{top + _BASE}" textLength="{cells * _CELL}" lengthAdjust="spacingAndGlyphs"'
                    f"{_ink(style or Style())}>{escape(text)}</text>"
                )
        widest = max(widest, column)
    width, height = 2 * _MARGIN + widest * _CELL, 2 * _MARGIN + len(lines) * _LINE
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
            f"<title>{_TITLE}</title>",
            f"<style>text {{ font: 15px {_FONT}; fill: {_THEME.foreground_color.hex}; white-space: pre }}</style>",
            f'<rect width="100%" height="100%" fill="{_THEME.background_color.hex}"/>',
            *backgrounds,
            *texts,
            "</svg>\n",
        ]
    )


def _ink(style: Style) -> str:
    """The attributes of a text. As `style`, because a rule of the style sheet beats a plain attribute."""
    rules = []
    if style.color and not style.color.is_default:
        rules.append(f"fill: {style.color.get_truecolor(_THEME).hex}")
    if style.bold:
        rules.append("font-weight: bold")
    if style.dim:
        rules.append("fill-opacity: 0.65")
    return f' style="{"; ".join(rules)}"' if rules else ""
