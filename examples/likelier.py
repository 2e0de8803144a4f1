"""Which of two texts does the model find likelier?

    gpt2cli inspect-logits --all --bos --json "Lily was very happy." > a.json
    gpt2cli inspect-logits --all --bos --json "Lily were very happy." > b.json
    python examples/likelier.py a.json b.json

Both as a whole (the sum of the surprisals: the log of the text's own probability) and per token (the mean, which does
not favour the shorter text). With --bos the first token counts too.
"""

import json
import sys
from pathlib import Path


def main(first: str, second: str) -> None:
    texts = [json.loads(Path(path).read_text(encoding="utf-8")) for path in (first, second)]
    surprisals = [[row["target"]["surprisal"] for row in text["rows"] if row["target"]] for text in texts]
    if not all(surprisals):
        sys.exit("a text of one token has nothing to compare; make it with --bos")
    if None in surprisals[0] + surprisals[1]:
        sys.exit("a text has a token whose probability is no number")
    for path, values in zip((first, second), surprisals, strict=True):
        print(
            f"{path}: log p = {-sum(values):.4f} over {len(values)} tokens, {sum(values) / len(values):.4f} nats each"
        )
    whole = [sum(values) for values in surprisals]
    each = [sum(values) / len(values) for values in surprisals]
    print(f"likelier as a whole: {verdict(first, second, whole)}")
    print(f"likelier per token:  {verdict(first, second, each)}")


def verdict(first: str, second: str, surprisals: list[float]) -> str:
    a, b = surprisals
    if a == b:
        return "neither"
    return f"{first if a < b else second}, by {abs(a - b):.4f} nats"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: likelier.py A.json B.json")
    main(*sys.argv[1:])
