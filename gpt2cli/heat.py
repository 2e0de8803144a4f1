"""A scored text → the text itself, each token shaded by the probability that the model gave it.

Without shades of colour, a digit under each token says the same.
"""

import codecs
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Group
from rich.text import Text

from gpt2cli.output import escape
from gpt2cli.records import ScoredRow, TokenText
from gpt2cli.tables import name_of

# The classes and what each holds at least; the last holds the rest. Six steps of ColorBrewer's YlOrRd, which also
# differ in lightness alone, with the black or white that reads best on each.
LEAST = (0.5, 0.1, 0.01, 0.001, 0.0001, 0.0)
LEGEND = ("≥ 50 %", "≥ 10 %", "≥ 1 %", "≥ 0.1 %", "≥ 0.01 %", "below")
SHADES = (
    "#000000 on #ffffb2",
    "#000000 on #fed976",
    "#000000 on #feb24c",
    "#000000 on #fd8d3c",
    "#ffffff on #d7301f",
    "#ffffff on #7f0000",
)
UNSCORED = -math.inf  # in place of a surprisal


@dataclass(frozen=True)
class Piece:
    """The shortest run of tokens that is whole characters. probability: of all of it; None where it was not scored."""

    text: str
    probability: float | None

    @property
    def shown(self) -> str:
        """Its text on one line."""
        return self.text.replace("\n", "⏎")

    @property
    def cells(self) -> int:
        return cell_len(self.shown)

    @property
    def heat(self) -> int | None:
        """0 for the likeliest class; NaN is in the last."""
        if self.probability is None:
            return None
        return next((n for n, least in enumerate(LEAST) if self.probability >= least), len(LEAST) - 1)


def heat_view(model: str, rows: Sequence[ScoredRow], loss: Text, width: int, *, shades: bool) -> Group:
    """The text, wrapped to the width, with a legend.

    shades: colour the tokens; otherwise put the number of its class under each.
    """
    head = Text.assemble(name_of(model), " · each token by the probability that the model gave it")
    lines: list[Text] = []
    for line in wrapped(pieces(rows), width):
        lines.append(Text("", no_wrap=True).join(_shaded(piece, shades) for piece in line))
        if not shades:
            lines.append(Text(_marks(line), style="bold", no_wrap=True))
    return Group(head, Text(), *lines, Text(), _legend(shades), loss)


def pieces(rows: Iterable[ScoredRow]) -> Iterator[Piece]:
    """The tokens of a text, in order; a character that is made of several tokens is one piece."""
    held, surprisal = b"", 0.0
    for token, came in _tokens(rows):
        held += token.bytes
        surprisal += came
        decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        text = decoder.decode(held)
        if not decoder.getstate()[0]:  # no character is only begun
            yield _piece(text, surprisal)
            held, surprisal = b"", 0.0
    if held:
        yield _piece(held.decode(errors="surrogateescape"), surprisal)


def wrapped(text: Iterable[Piece], width: int) -> Iterator[list[Piece]]:
    """Lines of at most `width` cells, broken at line feeds and else between words; longer words between characters."""
    line: list[Piece] = []
    for piece in _split(text, width):
        while line and sum(p.cells for p in line) + piece.cells > width:
            # The last piece that begins a word, and what follows it, go to the next line.
            word = next((n for n in range(len(line) - 1, 0, -1) if line[n].text.startswith(" ")), len(line))
            end = len(line) if piece.text.startswith(" ") else word
            yield line[:end]
            line = line[end:]
        line.append(piece)
        if piece.text.endswith("\n"):
            yield line
            line = []
    if line:
        yield line


def _tokens(rows: Iterable[ScoredRow]) -> Iterator[tuple[TokenText, float]]:
    """The first token, which has no row before it, and every target."""
    for row in rows:
        if row.position == 0:
            yield row.token, UNSCORED
        if row.target is not None:
            yield row.target.candidate.token, row.target.surprisal


def _piece(text: str, surprisal: float) -> Piece:
    """Characters that a terminal would obey, or not show, become escapes; a line feed stays."""
    visible = "".join(_visible(c) for c in text)
    return Piece(visible, None if surprisal == UNSCORED else math.exp(-surprisal))


def _visible(character: str) -> str:
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character if character.isprintable() or character == "\n" else escape(character)


def _split(text: Iterable[Piece], width: int) -> Iterator[Piece]:
    """Pieces that end at a line feed, if they have one, and that each fit a line."""
    for piece in text:
        part = Piece("", piece.probability)
        for c in piece.text:
            longer = Piece(part.text + c, piece.probability)
            if part.text and (part.text.endswith("\n") or longer.cells > width):
                yield part
                longer = Piece(c, piece.probability)
            part = longer
        yield part


def _shaded(piece: Piece, shades: bool) -> Text:
    return Text(piece.shown, style=SHADES[piece.heat] if shades and piece.heat is not None else "")


def _marks(line: Sequence[Piece]) -> str:
    """The class of each piece under its first cell that is no space; · where it was not scored."""
    marks = ""
    for piece in line:
        indent = len(piece.text) - len(piece.text.lstrip(" ")) if piece.text.strip(" ") else 0
        mark = "·" if piece.heat is None else str(piece.heat)
        marks += (" " * indent + mark).ljust(piece.cells)[: piece.cells]
    return marks.rstrip()


def _legend(shades: bool) -> Text:
    legend = Text()
    for n, (meaning, shade) in enumerate(zip(LEGEND, SHADES, strict=True)):
        if n:
            legend.append("  ")
        legend.append(f" {meaning} " if shades else f"{n} {meaning}", style=shade if shades else "")
    return legend.append("" if shades else "  · unscored")
