"""Feed the readers of checkpoints, tokenizers, prompts and batches mutated files, for as long as you like.

    python tests/fuzz.py [SECONDS] [SEED]

Whatever a file holds, the program ends with exit code 0, 1 or 2, with at most one line on standard error, and with
none that is reported as unexpected. Anything else is printed, and the file that did it is kept. This is not part of
the test run; at its end it prints how many files of each kind it tried.
"""

import contextlib
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import checkpoints
import torch
from conftest import parse
from safetensors.torch import save_file

from gpt2cli.cli import run
from gpt2cli.model import GPT2Config, weight_shapes
from gpt2cli.tokenizer import BYTE_OF_CHARACTER, END_OF_TEXT

INTERESTING = [b"", b"\x00", b"\xff" * 8, b"null", b"-1", b"1e999", b"NaN", b"{}", b"[]", b'"', b"\\ud800", b"true"]

ROWS = [
    {"prompt": "hello é 😀", "id": "a", "max_new_tokens": 2, "temperature": 1.5, "top_k": 3, "seed": 7},
    {"prompt_token_ids": [1, 256, 258], "id": 2, "top_p": 0.5, "min_p": 0.1, "stop": ["x", "yz"]},
    {"prompt": "", "repetition_penalty": 1.2, "ignore_eos": True, "context_overflow": "stop"},
]


def seeds(folder: Path) -> dict[str, bytes]:
    """A whole small model, and a prompt: the files that are mutated, one at a time."""
    vocab = {c: n for n, c in enumerate(BYTE_OF_CHARACTER)} | {"he": 256, "hel": 257, END_OF_TEXT: 258}
    config = checkpoints.config_json(vocab_size=259, n_positions=16, n_embd=8, n_head=2, eos_token_id=258)
    shapes = weight_shapes(GPT2Config.from_json(config))
    save_file({f"transformer.{n}": torch.rand(s) for n, s in shapes.items()}, folder / "model.safetensors")
    weights = (folder / "model.safetensors").read_bytes()
    index = {"weight_map": {f"transformer.{n}": "model.safetensors" for n in shapes}}
    bpe = {
        "added_tokens": [{"id": 258, "content": END_OF_TEXT, "special": True}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": vocab, "merges": [["h", "e"], ["he", "l"]]},
    }
    return {
        "config.json": json.dumps(config).encode(),
        "generation_config.json": b'{"eos_token_id": [258]}',
        "model.safetensors": weights,
        "model.safetensors.index.json": json.dumps(index).encode(),
        "tokenizer.json": json.dumps(bpe).encode(),
        "vocab.json": json.dumps(vocab).encode(),
        "merges.txt": b"#version: 0.2\nh e\nhe l\n",
        "prompt.txt": "hello é 😀\r\n".encode(),
        "batch.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS).encode(),
    }


def mutate(data: bytes, rng: random.Random) -> bytes:
    """A few changes, mostly near the beginning, where headers are."""
    mutant = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4, 16])):
        at = rng.randrange(len(mutant) + 1) if rng.random() < 0.5 else rng.randrange(min(len(mutant), 600) + 1)
        match rng.randrange(5):
            case 0:
                mutant[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del mutant[at : at + rng.choice([1, 2, 8, 64, len(mutant)])]
            case 2:
                mutant[at:at] = rng.choice(INTERESTING)
            case 3:
                end = at + rng.randrange(1, 40)
                mutant[at:end] = rng.choice(INTERESTING)
            case 4:
                end = at + rng.randrange(1, 40)
                mutant[at:at] = mutant[at:end]
    return bytes(mutant)


def fault(folder: Path, source: list[str]) -> str | None:
    """What is wrong with how the program ends on these files; None if nothing is."""
    with tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as out, redirected(1, out), redirected(2, err):
        code = run(["generate", "-m", str(folder), *source, "-n", "3", "--truncate-prompt"])
        err.seek(0)
        said = err.read().decode(errors="replace")
        out.seek(0)
        written = out.read()
    if source[0] == "--batch":
        try:
            records = [parse(line) for line in written.decode().splitlines()]
        except Exception as error:
            return f"a record that is none: {error}"
        if any(record["type"] == "error" for record in records) != (code == 1):
            return f"exit code {code} with {written[:500]!r}"
    if code not in (0, 1, 2) or "error: unexpected" in said or said.count("\n") > 1 or (code == 0) != (said == ""):
        return f"exit code {code}: {said[:500]}"
    return None


@contextlib.contextmanager
def redirected(descriptor: int, file: IO[bytes]) -> Iterator[None]:
    before = os.dup(descriptor)
    os.dup2(file.fileno(), descriptor)
    try:
        yield
    finally:
        os.dup2(before, descriptor)
        os.close(before)


def main(seconds: float = 60, seed: int = 0) -> int:
    rng = random.Random(seed)
    sys.stdin = open(os.devnull)  # noqa: SIM115
    torch.set_num_threads(1)
    report = Path(tempfile.mkdtemp(prefix="fuzz-"))
    originals = seeds(report)
    tried: Counter[str] = Counter()
    found = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        name = rng.choice(list(originals))
        folder = report / "case"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        # Which files stand beside the mutant decides which of them are read at all.
        without = {"tokenizer.json"} if name in ("vocab.json", "merges.txt") else set()
        if name == "model.safetensors.index.json":
            without = {"model.safetensors"}
        for file, data in originals.items():
            if file not in without:
                (folder / file).write_bytes(mutate(data, rng) if file == name else data)
        tried[name] += 1
        source = ["--batch", "batch.jsonl"] if name == "batch.jsonl" else ["-f", "prompt.txt"]
        wrong = fault(folder, [source[0], str(folder / source[1])])
        if wrong:
            found += 1
            folder.rename(report / f"fault-{found}-{name}")
            print(f"{name}: {wrong} ({report}/fault-{found}-{name})")
    print(", ".join(f"{count} of {name}" for name, count in sorted(tried.items())) + f"; {found} faults")
    return found


if __name__ == "__main__":
    sys.exit(bool(main(*map(float, sys.argv[1:2]), *map(int, sys.argv[2:3]))))
