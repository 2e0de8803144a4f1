"""Cells and columns: numbers that line up, tokens on one line, and tables that fit the width they are given."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from gpt2cli.output import escape, visible
from gpt2cli.records import TokenText
from gpt2cli.serialize import escaped_token

# Token texts are shortened to something in between, as the width allows; numbers never are.
TOKEN_WIDTHS = range(24, 4, -1)
BAR_WIDTHS = range(8, 41)
GAP = 2
_EIGHTHS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True)
class Column:
    """A header and the cells below it.

    kind: text and tokens are set to the left, numbers to the right. Where the width is short, tokens give way.
    What is left of it goes to "fill" columns: bars, where the cells are fractions of 1, or as much of a text as fits.
    """

    header: str
    cells: Sequence[Text | str | float]
    kind: Literal["number", "text", "token", "fill"] = "number"
    style: str = ""

    @cached_property
    def _widest(self) -> int:
        return max((_cell_len(cell) for cell in self.cells if not isinstance(cell, float)), default=0)

    def width(self, limit: int = TOKEN_WIDTHS[0]) -> int:
        """At most `limit`, if this is a token, but never less than the header."""
        return max(len(self.header), min(self._widest, limit) if self.kind == "token" else self._widest)


@dataclass(frozen=True)
class Columns:
    """A table by its columns. styles: of its lines."""

    columns: Sequence[Column]
    styles: Sequence[str] = ()

    def table(self, width: int) -> Table:
        """The table, at most `width` wide if its numbers can be, with fill only if there is room for it."""
        solid = [column for column in self.columns if column.kind != "fill"]
        limit = next((n for n in TOKEN_WIDTHS if _total(solid, n) <= width), TOKEN_WIDTHS[-1])
        fills = len(self.columns) - len(solid)
        room = (width - _total(solid, limit)) // fills - GAP if fills else 0
        shown = solid if room < BAR_WIDTHS[0] else self.columns
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        cells = []
        for column in shown:
            least = _fill_width(column, room) if column.kind == "fill" else column.width(limit)
            justify: Literal["left", "right"] = "right" if column.kind == "number" else "left"
            table.add_column(Text(column.header), justify=justify, no_wrap=True, min_width=least, style=column.style)
            cells.append([_fitted(cell, room if column.kind == "fill" else least) for cell in column.cells])
        for n, line in enumerate(zip(*cells, strict=True)):
            table.add_row(*line, style=self.styles[n] if self.styles else None)
        return table


def _total(columns: Sequence[Column], limit: int) -> int:
    return sum(column.width(limit) for column in columns) + GAP * (len(columns) - 1)


def _fill_width(column: Column, room: int) -> int:
    bars = any(isinstance(cell, float) for cell in column.cells)
    return min(room, BAR_WIDTHS[-1] if bars else column.width())


def _cell_len(cell: Text | str) -> int:
    return cell.cell_len if isinstance(cell, Text) else cell_len(cell)


def _fitted(cell: Text | str | float, width: int) -> Text | str:
    if isinstance(cell, float):
        return bar(cell, min(width, BAR_WIDTHS[-1]))
    if _cell_len(cell) <= width:
        return cell
    text = Text.assemble(cell)
    text.truncate(width, overflow="ellipsis")
    return text


def name_of(model: str) -> tuple[str, str]:
    """A model's name for the head of a view. A folder may be called anything."""
    return visible(model), "bold"


def visible_token(token: TokenText) -> Text:
    """A token on one line: a space shows as ␣, what cannot be seen as an escape."""
    text = Text(no_wrap=True)
    for c in escaped_token(token):
        if c == " ":
            text.append("␣", style="dim")
        else:
            text.append(c if c.isprintable() else escape(c))
    return text


def number(value: float | None) -> str:
    """Four decimals, so that columns of logits align; whatever does not fit that is written in full."""
    if value is None or not math.isfinite(value):
        return "–" if value is None else str(value)
    return f"{value:.4f}" if abs(value) < 1e6 else f"{value:.4e}"


def probability(value: float | None) -> str:
    """Six decimals, or scientific notation where those would show none of it."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.6f}" if value == 0 or value >= 1e-6 else f"{value:.2e}"


def bar(fraction: float, width: int) -> Text:
    """A bar of `width` cells for 1, in steps of an eighth of a cell."""
    eighths = round(fraction * width * 8) if math.isfinite(fraction) else 0
    return Text("█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip(), style="cyan", no_wrap=True)
