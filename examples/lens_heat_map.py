"""A heat map of the logit lens: every layer's top tokens, shaded by their probability, as an SVG.

    gpt2cli inspect-logits --lens --json "Once upon a" > lens.json
    python examples/lens_heat_map.py lens.json > lens.svg

The last layer, which speaks for the model, is on top; its choice is framed wherever a layer ranks it.
"""

import json
import sys
from html import escape
from pathlib import Path

CELL, LINE, LEFT, TOP = 128, 32, 80, 56  # pixels
COLUMNS = 6


def main(path: str) -> None:
    lens = json.loads(Path(path).read_text(encoding="utf-8"))
    layers = lens["layers"][::-1]
    columns = min(COLUMNS, len(layers[0]["candidates"]))
    width, height = LEFT + columns * CELL + 16, TOP + len(layers) * LINE + 16
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">')
    print("<style>text { font: 13px monospace; white-space: pre } .head { font-weight: bold }</style>")
    print('<rect width="100%" height="100%" fill="white"/>')
    print(text(16, 22, f"{lens['model']}, position {lens['position']}: what each layer would choose", "head"))
    for column in range(columns):
        print(text(LEFT + column * CELL + 8, TOP - 8, f"rank {column + 1}", "head"))
    for line, layer in enumerate(layers):
        y = TOP + line * LINE
        print(text(16, y + 21, "embed" if layer["layer"] == 0 else f"layer {layer['layer']}"))
        for column, candidate in enumerate(layer["candidates"][:columns]):
            print(cell(LEFT + column * CELL, y, candidate))
    print("</svg>")


def cell(x: int, y: int, candidate: dict) -> str:
    probability = candidate["probability"] or 0.0
    ink = "white" if probability > 0.5 else "black"
    frame = ' stroke="#c00" stroke-width="2"' if candidate["chosen"] else ""
    shade = round(255 * (1 - probability))
    box = (
        f'<rect x="{x + 2}" y="{y + 2}" width="{CELL - 4}" height="{LINE - 4}" fill="rgb({shade},{shade},255)"{frame}/>'
    )
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in candidate["text"].replace(" ", "␣"))
    return box + text(x + 8, y + 21, f"{shown[:8]:<8} {probability:.3f}", ink=ink)


def text(x: int, y: int, content: str, kind: str = "", ink: str = "black") -> str:
    return f'<text x="{x}" y="{y}" class="{kind}" fill="{ink}">{escape(content)}</text>'


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: lens_heat_map.py LENS.json")
    main(sys.argv[1])
