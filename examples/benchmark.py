"""How fast is gpt2cli beside other engines, on this machine, in this hour?

    python examples/benchmark.py                 GPT-2 small's shape with random weights: the cost is the same
    python examples/benchmark.py --model gpt2    a model by name

The engines take turns, each in a process of its own, so that a machine that slows down slows all of them. Compared are
gpt2cli, transformers, and CTranslate2 where it is installed (`pip install ctranslate2`). Figures are medians over the
rounds, with the smallest and the largest; ratios say how many times as fast as gpt2cli an engine is, so below 1 is
slower. Run it while nothing else runs.
"""

import importlib.util
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # as gpt2cli's own command does; read when torch is imported

import click
import torch
from rich.console import Console
from rich.table import Table
from safetensors.torch import save_file

import gpt2cli
from gpt2cli.batch.engine import Batch, Request
from gpt2cli.checkpoint import find_folder
from gpt2cli.model import GPT2Config, weight_shapes

SMALL = {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12}
NEW_TOKENS = 32
TEXTS = 16
# Tokens per second, or for prompts and starts, prompts and starts per second: more is always faster.
WORKS = {
    "start": "process start to first token",
    "prompt 32": "first token after 32",
    "prompt 1000": "first token after 1,000",
    "decode": "tokens, one text",
    "decode 16": f"tokens, {TEXTS} texts at once",
}

Generate = Callable[[list[list[int]], int], list[list[int]]]


def gpt2cli_engine(folder: Path) -> Generate:
    loaded = gpt2cli.load(str(folder))

    def generate(prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
        options = gpt2cli.GenerationOptions(max_new_tokens=new_tokens, eos_token_ids=frozenset())
        batch: Batch[int] = Batch(loaded.model, loaded.tokenizer, len(prompts))
        for n, prompt in enumerate(prompts):
            batch.add(n, Request(prompt, gpt2cli.SamplingOptions(), options, seed=0))
        texts: dict[int, list[int]] = {}
        while not batch.is_empty:
            texts |= {ended.key: list(ended.outcome.token_ids) for ended in batch.turn()}
        return [texts[n] for n in range(len(prompts))]

    return generate


def transformers_engine(folder: Path) -> Generate:
    from transformers import GPT2LMHeadModel

    model = GPT2LMHeadModel.from_pretrained(folder, use_safetensors=True).eval()

    @torch.inference_mode()
    def generate(prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
        ids = torch.tensor(prompts)
        made = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new_tokens,
            min_new_tokens=new_tokens,
            do_sample=False,
            pad_token_id=0,
        )
        return made[:, ids.shape[1] :].tolist()

    return generate


def ctranslate2_engine(folder: Path) -> Generate:
    import ctranslate2
    from ctranslate2.converters import TransformersConverter

    vocab_size = json.loads((folder / "config.json").read_text())["vocab_size"]
    vocabulary = [str(n) for n in range(vocab_size)]  # the name of a token is its id

    class Converter(TransformersConverter):  # type: ignore[misc]
        def load_tokenizer(self, *_: Any, **__: Any) -> Any:
            names = dict.fromkeys(("bos_token", "eos_token", "unk_token"), vocabulary[-1])
            return SimpleNamespace(get_vocab=lambda: {token: n for n, token in enumerate(vocabulary)}, **names)

    converted = folder / "ctranslate2"
    if not converted.exists():
        Converter(str(folder)).convert(str(converted))
    generator = ctranslate2.Generator(str(converted), compute_type="float32", intra_threads=torch.get_num_threads())

    def generate(prompts: list[list[int]], new_tokens: int) -> list[list[int]]:
        results = generator.generate_batch(
            [[vocabulary[n] for n in prompt] for prompt in prompts],
            max_length=new_tokens,
            min_length=new_tokens,
            include_prompt_in_result=False,
            end_token=[],
        )
        return [result.sequences_ids[0] for result in results]

    return generate


ENGINES = {"gpt2cli": gpt2cli_engine, "transformers": transformers_engine, "ctranslate2": ctranslate2_engine}


def work(engine: str, folder: Path) -> dict[str, Any]:
    """All works of one engine, in this process: how many a second, the peak of memory, and the ids of one text."""
    rng = torch.Generator().manual_seed(0)
    generate = ENGINES[engine](folder)

    def prompts(count: int, length: int) -> list[list[int]]:
        return torch.randint(0, 50000, (count, length), generator=rng).tolist()

    def seconds(texts: list[list[int]], new_tokens: int) -> float:
        begun = time.perf_counter()
        generate(texts, new_tokens)
        return time.perf_counter() - begun

    one, several = prompts(1, 32), prompts(TEXTS, 32)
    made = generate(one, NEW_TOKENS)
    first = seconds(one, 1)
    return {
        "prompt 32": 1 / first,
        "prompt 1000": 1 / seconds(prompts(1, 1000), 1),
        "decode": (NEW_TOKENS - 1) / (seconds(one, NEW_TOKENS) - first),
        "decode 16": TEXTS * NEW_TOKENS / seconds(several, NEW_TOKENS),
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "ids": made[0],
    }


# What a user of the engine writes to see one token.
START = {
    "gpt2cli": ["-m", "gpt2cli", "generate", "-n", "1", "The", "-m"],
    "transformers": [
        "-c",
        "import sys, torch\nfrom transformers import GPT2LMHeadModel\n"
        "model = GPT2LMHeadModel.from_pretrained(sys.argv[1])\n"
        "print(model.generate(torch.tensor([[464]]), max_new_tokens=1, do_sample=False))",
    ],
    "ctranslate2": [
        "-c",
        "import sys, ctranslate2\ngenerator = ctranslate2.Generator(sys.argv[1] + '/ctranslate2')\n"
        "print(generator.generate_batch([['464']], max_length=1))",
    ],
}


def run(engine: str, folder: Path) -> dict[str, Any]:
    """One round of one engine: its works in a new process, and then the time from a start to the first token."""
    worker = [sys.executable, __file__, "--engine", engine, "--model", str(folder)]
    figures: dict[str, Any] = json.loads(quiet(worker).splitlines()[-1])
    begun = time.perf_counter()
    quiet([sys.executable, *START[engine], str(folder)])
    return figures | {"start": 1 / (time.perf_counter() - begun)}


def quiet(command: list[str]) -> bytes:
    """Its standard output. What it has to say is shown only if it fails."""
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    if ran.returncode:
        raise click.ClickException(f"{command[1:]} failed: {ran.stderr.decode(errors='replace')[-2000:]}")
    return ran.stdout


def random_model(folder: Path) -> Path:
    """GPT-2 small's shape with seeded random weights."""
    rng = torch.Generator().manual_seed(0)
    shapes = weight_shapes(GPT2Config.from_json(SMALL))
    weights = {f"transformer.{name}": torch.randn(shape, generator=rng) * 0.02 for name, shape in shapes.items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(SMALL | {"architectures": ["GPT2LMHeadModel"]}))
    return folder


def report(rounds: list[dict[str, dict[str, Any]]]) -> Table:
    """Medians [smallest–largest] and ratios, one line a work; ratios are of figures of one round."""
    engines = list(rounds[0])
    table = Table("a second", *engines, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, meaning in WORKS.items():
        cells = []
        for engine in engines:
            values = [r[engine][name] for r in rounds]
            ratio = statistics.median(r[engine][name] / r["gpt2cli"][name] for r in rounds)
            spread = f"{statistics.median(values):.2f} [{min(values):.2f}–{max(values):.2f}]"
            cells.append(spread if engine == "gpt2cli" else f"{ratio:.2f}×  {spread}")
        table.add_row(meaning, *cells)
    peaks = [statistics.median(r[engine]["peak MB"] for r in rounds) for engine in engines]
    table.add_row("peak memory of the process", *(f"{peak:.0f} MB" for peak in peaks))
    return table


@click.command(help=f"\b\n{__doc__}")
@click.option("--model", help="A model by name; without one, GPT-2 small's shape with random weights.")
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="The figures of every round as JSON.")
@click.option("--engine", type=click.Choice(list(ENGINES)), hidden=True)
def main(model: str | None, rounds: int, as_json: bool, engine: str | None) -> None:
    if engine is not None:
        print(json.dumps(work(engine, find_folder(model or ""))))
        return
    engines = [name for name in ENGINES if importlib.util.find_spec(name)]
    with tempfile.TemporaryDirectory() as scratch:
        folder = find_folder(model) if model else random_model(Path(scratch))
        made = [{name: run(name, folder) for name in engines} for _ in range(rounds)]
    agree = all(r[name]["ids"] == r["gpt2cli"]["ids"] for r in made for name in engines)
    if as_json:
        print(json.dumps({"machine": platform.machine(), "cores": os.cpu_count(), "agree": agree, "rounds": made}))
        return
    console = Console(width=120, highlight=False)
    console.print(f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}, float32, {rounds} rounds")
    console.print(report(made))
    console.print(f"the engines {'agree' if agree else 'DISAGREE'} on the greedy ids of one text")


if __name__ == "__main__":
    main()
