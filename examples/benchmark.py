"""How fast is gpt2cli beside other engines, on this machine, in this hour?

    python examples/benchmark.py                 GPT-2 small's shape with random weights: the cost is the same
    python examples/benchmark.py --model gpt2    a model by name

Compared are gpt2cli, transformers, CTranslate2 and llama.cpp, each in the types of number that it has; those that are
not installed are left out (`pip install '.[bench]'` brings them). In every round each engine runs once, in a process
of its own, so that a machine that slows down slows all of them. Figures are medians over the rounds, with the smallest
and the largest; ratios are taken within a round. Run it while nothing else runs: three rounds take about ten minutes.
"""

import json
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from benchmark_engines import ENGINES, TYPES, gpt2cli_options, start_command, versions
from rich.console import Console
from rich.table import Table

# Nothing heavy is imported above: a process is charged with the memory of the one that started it.

SMALL = {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12}
SHORT, LONG = 32, 1000  # tokens of a prompt; the long one is shorter where the context is
NEW_TOKENS, LATE_TOKENS, TEXTS = 64, 17, 16
QUALITY_TOKENS = 512  # or as many as the context holds
# What gpt2cli's own command sets before torch is imported, on an idle machine. Others run with their defaults.
QUIET_THREADS = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "10000"}

# A name, what it means, the unit that is shown, how many of it a second is, and whether more of it is faster.
WORKS = {
    "start": ("start to first token", "ms", 1000, False),
    "prompt short": ("first token after {short}", "ms", 1000, False),
    "prompt long": ("first token after {long:,}", "ms", 1000, False),
    "decode": ("one text", "tokens/s", 1, True),
    "decode several": (f"{TEXTS} texts at once", "tokens/s", 1, True),
}


# The jobs: each runs in a process of its own and returns what JSON can hold.


def describe(name: str | None, scratch: str) -> dict[str, Any]:
    """The machine as torch sees it, and the model: the one of this name, or a random one, made here."""
    import torch

    from gpt2cli.checkpoint import find_folder, read_config
    from gpt2cli.model import GPT2Config, weight_shapes

    folder = find_folder(name) if name else random_model(Path(scratch))
    config = GPT2Config.from_json(read_config(folder))
    shapes = {name: torch.Size(shape).numel() for name, shape in weight_shapes(config).items()}
    return {
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "folder": str(folder),
        "long": min(LONG, config.context_length - LATE_TOKENS),
        "weights": sum(shapes.values()),
        # A token reads each weight once, but of positions one row. (The tied embedding is read as unembedding.)
        "weights per token": sum(shapes.values()) - shapes["wpe.weight"],
        "cache per token": 2 * config.n_layer * config.n_embd,
    }


def random_model(folder: Path) -> Path:
    """GPT-2 small's shape with seeded random weights, as large as those that training begins with."""
    import torch
    from safetensors.torch import save_file

    from gpt2cli.model import GPT2Config, weight_shapes

    rng = torch.Generator().manual_seed(0)
    shapes = weight_shapes(GPT2Config.from_json(SMALL))
    weights = {name: torch.randn(shape, generator=rng) * 0.02 for name, shape in shapes.items()}
    weights |= {name: 1 + tensor for name, tensor in weights.items() if re.search(r"ln_\w+\.weight", name)}
    save_file({f"transformer.{n}": t for n, t in weights.items()}, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(SMALL | {"architectures": ["GPT2LMHeadModel"]}))
    return folder


def prepare(engine: str, folder: str, dtype: str, target: str) -> None:
    convert = ENGINES[engine].prepare
    assert convert is not None
    convert(folder, dtype, target)


def prompts(count: int, length: int) -> list[list[int]]:
    rng = random.Random(0)
    return [[rng.randrange(50_000) for _ in range(length)] for _ in range(count)]


def timed(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def work(engine: str, model: str, dtype: str, facts: dict[str, Any]) -> dict[str, Any]:
    """All works of one engine, and the ids of one text."""
    generate = ENGINES[engine].load(model, dtype, facts["threads"])

    def stamps(prompt: list[list[int]], new_tokens: int) -> list[float]:
        """When each token was there, in seconds from the beginning."""
        times = []
        begun = time.perf_counter()
        generate(prompt, new_tokens, lambda: times.append(time.perf_counter() - begun))
        return times

    def per_token(times: list[float]) -> float:
        return (times[-1] - times[0]) / (len(times) - 1)

    one, several = prompts(1, SHORT), prompts(TEXTS, SHORT)
    ids = generate(one, NEW_TOKENS, lambda: None)[0]  # also warms up, as the next line does
    generate(several, 2, lambda: None)
    first = statistics.median(stamps(one, 1)[0] for _ in range(3))
    early = stamps(one, NEW_TOKENS)
    late = stamps(prompts(1, facts["long"]), LATE_TOKENS)
    several_seconds = timed(lambda: generate(several, NEW_TOKENS, lambda: None))
    figures = {
        "prompt short": first,
        "prompt long": late[0],
        "decode": 1 / per_token(early),
        "decode several": TEXTS * NEW_TOKENS / several_seconds,
        "growth": per_token(late) / per_token(early),
        "ids": ids,
    }
    return figures | lookup_and_limit(model, dtype, facts["weights per token"]) if engine == "gpt2cli" else figures


def lookup_and_limit(model: str, dtype: str, weights_per_token: int) -> dict[str, Any]:
    """gpt2cli alone: what prompt lookup gains and costs, and how fast memory would let it be."""
    import torch

    import gpt2cli

    loaded = gpt2cli.load(model, dtype=dtype)

    def decode(prompt: list[int], sampling: gpt2cli.SamplingOptions, lookup: bool) -> tuple[list[int], float]:
        """The new tokens, and the seconds from the first of them to the last."""
        ids, times = [], []
        for event in loaded.generate(prompt, sampling, gpt2cli_options(NEW_TOKENS, lookup)):
            if isinstance(event, gpt2cli.Step):
                ids.append(event.token.token_id)
                times.append(time.perf_counter())
        return ids, times[-1] - times[0]

    greedy, drawn = gpt2cli.SamplingOptions(), gpt2cli.SamplingOptions.of(temperature=1)
    (prompt,) = prompts(1, SHORT)
    looped, _ = decode(prompt, greedy, False)  # greedy texts soon repeat themselves
    figures: dict[str, Any] = {"lookup agrees": True}
    for name, text, sampling in (("repeats", prompt + looped, greedy), ("does not", prompt, drawn)):
        ids, seconds = decode(text, sampling, False)
        same_ids, lookup_seconds = decode(text, sampling, True)
        figures[f"lookup {name}"] = seconds / lookup_seconds
        figures["lookup agrees"] &= ids == same_ids
    numbers = torch.ones(100_000_000)
    # Which of the two reads faster depends on the machine.
    reads = (numbers.sum, lambda: numbers.dot(numbers))
    figures["bandwidth"] = numbers.nbytes / min(timed(read) for read in reads for _ in range(5))
    figures["limit"] = figures["bandwidth"] / (weights_per_token * TYPES[dtype][0])
    return figures


def quality(model: str, dtypes: list[str]) -> dict[str, dict[str, float]]:
    """What rounding changes, on a text that the model itself draws in float32, at temperature 1.

    Of such texts the exact model has the lowest loss that there is, so the change is what rounding costs: an estimate
    of the Kullback–Leibler divergence.
    """
    import torch
    from torch.nn.functional import cross_entropy

    import gpt2cli

    exact = gpt2cli.load(model)
    new_tokens = min(QUALITY_TOKENS, exact.model.context_length) - 1
    options = gpt2cli_options(new_tokens)
    *_, completion = exact.generate("", gpt2cli.SamplingOptions.of(temperature=1), options)
    ids = [*exact.prompt_token_ids(""), *completion.token_ids]

    @torch.inference_mode()
    def logits_and_loss(loaded: Any) -> tuple[torch.Tensor, float]:
        """[T, V], and nats per token."""
        logits = loaded.model.logits(loaded.model.hidden_states(ids))
        return logits, cross_entropy(logits[:-1], torch.tensor(ids[1:])).item()

    logits, loss = logits_and_loss(exact)
    changes = {}
    for dtype in dtypes:
        rounded, rounded_loss = logits_and_loss(gpt2cli.load(model, dtype=dtype))
        changes[dtype] = {
            "logit change": (rounded - logits).abs().mean().item(),
            "same top": (rounded.argmax(1) == logits.argmax(1)).float().mean().item(),
            "loss change": rounded_loss - loss,
            "loss": loss,
        }
    return changes


# What the process that you started does: it starts the others, and makes a table of what they say.


@dataclass(frozen=True)
class Ran:
    output: bytes
    seconds: float
    peak_mb: float


def run(command: list[str], defaults: dict[str, str] | None = None) -> Ran:
    """A command, its time and its largest memory. What it has to say is shown only if it fails."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        begun = time.perf_counter()
        environment = (defaults or {}) | os.environ
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        if process.returncode:
            message = errors.read().decode(errors="replace")[-2000:]
            shown = " ".join(part[:80] for part in command)
            raise click.ClickException(f"{shown} ended with {process.returncode}: {message}")
        return Ran(output.read(), seconds, usage.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10))


def job(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a job returns, run in a process of its own."""
    command = [sys.executable, __file__, "--job", json.dumps([function.__name__, *arguments])]
    return json.loads(run(command, QUIET_THREADS if arguments[0] == "gpt2cli" else {}).output.splitlines()[-1])


def cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", info.read_text()) if info.exists() else []
    return names[0] if names else platform.processor() or platform.machine()


def measure(name: str | None, dtypes: list[str], rounds: int, scratch: Path) -> dict[str, Any]:
    def say(what: str) -> None:
        click.echo(what, err=True)

    say("preparing")
    facts = job(describe, name, str(scratch))
    found = {engine: versions(engine) for engine in ENGINES}
    pairs = [(e, d) for d in dtypes for e in ENGINES if found[e] is not None and d in ENGINES[e].types]
    models = dict.fromkeys(pairs, facts["folder"])
    for engine, dtype in pairs:
        if ENGINES[engine].prepare:
            models[engine, dtype] = str(scratch / f"{engine}.{dtype}")
            job(prepare, engine, facts["folder"], dtype, models[engine, dtype])

    def start(engine: str, dtype: str, tokens: int) -> Ran:
        return run(start_command(engine, models[engine, dtype], dtype, tokens, facts["threads"]))

    libraries = {ENGINES[engine].library for engine, _ in pairs}
    empty = {library: run([sys.executable, "-c", f"import {library}"]).peak_mb for library in libraries}
    memory: dict[str, dict[str, float]] = {dtype: {} for dtype in dtypes}
    for engine, dtype in pairs:
        memory[dtype][engine] = start(engine, dtype, facts["long"]).peak_mb - empty[ENGINES[engine].library]

    made = []
    for n in range(rounds):
        figures: dict[str, dict[str, Any]] = {dtype: {} for dtype in dtypes}
        for engine, dtype in pairs:
            say(f"round {n + 1} of {rounds}: {engine} {dtype}")
            figures[dtype][engine] = job(work, engine, models[engine, dtype], dtype, facts)
            figures[dtype][engine]["start"] = start(engine, dtype, 1).seconds
        made.append(figures)

    say("quality")
    rounded = [dtype for dtype in dtypes if dtype != "float32"]
    return {
        "cpu": cpu_name(),
        **facts,
        "versions": {n: v for engine in found.values() if engine for n, v in engine.items()},
        "missing": [engine for engine, there in found.items() if there is None],
        "model": name or "GPT-2 small's shape, random weights",
        "agreeing": agreeing(made[0]["float32"]) if "float32" in dtypes else {},
        "memory": memory,
        "quality model": name or "tinystories",
        "quality": job(quality, name or "tinystories", rounded) if rounded else {},
        "rounds": made,
    }


def agreeing(figures: dict[str, dict[str, Any]]) -> dict[str, int]:
    """How many ids of a greedy text, from its first, are gpt2cli's."""
    own = figures["gpt2cli"]["ids"]
    return {
        engine: next((n for n, (a, b) in enumerate(zip(own, other["ids"], strict=True)) if a != b), len(own))
        for engine, other in figures.items()
    }


Rounds = list[dict[str, dict[str, dict[str, Any]]]]  # of each round: type → engine → name → figure


def report(measured: dict[str, Any]) -> list[Table | str]:
    rounds, long, quality = measured["rounds"], measured["long"], measured["quality"]
    engines = [engine for engine in ENGINES if any(engine in figures for figures in rounds[0].values())]
    labels = {name: label.format(short=SHORT, long=long) for name, (label, *_) in WORKS.items()}
    parts: list[Table | str] = [
        speeds(rounds, engines[1:], labels),
        "Above 1× is faster than gpt2cli in the same type, below 1× is slower.",
        *(details(measured, dtype, labels) for dtype in rounds[0]),
        own(rounds),
    ]
    if not all(figures["gpt2cli"]["lookup agrees"] for r in rounds for figures in r.values()):
        parts.append("With lookup the ids are DIFFERENT.")
    if quality:
        table = new_table(f"what rounding changes in {measured['quality model']}", *quality)
        for label, name, form in (
            ("mean |Δlogit|", "logit change", ".5f"),
            ("the same top token", "same top", ".2%"),
            ("Δloss, nats per token", "loss change", "+.5f"),
        ):
            table.add_row(label, *(format(change[name], form) for change in quality.values()))
        parts.append(table)
    if agreeing := measured["agreeing"]:
        counts = ", ".join(f"{engine} {count}" for engine, count in agreeing.items() if engine != "gpt2cli")
        parts.append(f"Of {agreeing['gpt2cli']} ids of a greedy float32 text, as many are gpt2cli's: {counts}.")
    if measured["missing"]:
        parts.append(f"Not installed: {', '.join(measured['missing'])}; pip install '.\\[bench]' brings them.")
    return parts


def speeds(rounds: Rounds, engines: list[str], labels: dict[str, str]) -> Table:
    table = new_table("times as fast as gpt2cli", *engines)
    for dtype, figures in rounds[0].items():
        table.add_row(f"[b]{dtype}[/b]")
        for name, label in labels.items():
            cells = [f"{speed(rounds, dtype, e, name):.2f}×" if e in figures else "–" for e in engines]
            table.add_row(f"  {label}", *cells)
    return table


def speed(rounds: Rounds, dtype: str, engine: str, name: str) -> float:
    """How many times as fast as gpt2cli, by the figures of one round each."""
    *_, more_is_faster = WORKS[name]
    pairs = [(r[dtype][engine][name], r[dtype]["gpt2cli"][name]) for r in rounds]
    return statistics.median(its / ours if more_is_faster else ours / its for its, ours in pairs)


def details(measured: dict[str, Any], dtype: str, labels: dict[str, str]) -> Table:
    rounds, long, memory = measured["rounds"], measured["long"], measured["memory"][dtype]
    engines = list(rounds[0][dtype])
    weight_bytes, cache_bytes = TYPES[dtype]
    early, late = SHORT + NEW_TOKENS // 2, long + LATE_TOKENS // 2

    def row(label: str, name: str, scale: float = 1) -> None:
        table.add_row(label, *(spread([r[dtype][engine][name] * scale for r in rounds]) for engine in engines))

    table = new_table(f"{dtype}: median [smallest–largest]", *engines)
    for name, label in labels.items():
        _, unit, scale, _ = WORKS[name]
        row(f"{label}, {unit}", name, scale)
    # Beside the weights a token reads the keys and values of all tokens held: by that much its time has to grow.
    read = [
        measured["weights per token"] * weight_bytes + measured["cache per token"] * held * cache_bytes
        for held in (early, late)
    ]
    row(f"time of token {late:,} ÷ {early}", "growth")
    table.add_row("  bytes that it reads", short(read[1] / read[0]))
    needed = (measured["weights"] * weight_bytes + measured["cache per token"] * long * cache_bytes) / 2**20
    table.add_row("peak MB over imports", *(f"{memory[engine]:.0f}" for engine in engines))
    table.add_row("  weights and cache", f"{needed:.0f}")
    return table


def own(rounds: Rounds) -> Table:
    table = new_table("gpt2cli", *rounds[0])

    def row(label: str, figure: Callable[[dict[str, Any]], float]) -> None:
        table.add_row(label, *(spread([figure(r[dtype]["gpt2cli"]) for r in rounds]) for dtype in rounds[0]))

    row("memory, GB/s", lambda figures: figures["bandwidth"] / 1e9)
    row("limit: each weight read once a token, tokens/s", lambda figures: figures["limit"])
    row("one text, share of that limit", lambda figures: figures["decode"] / figures["limit"])
    row("with prompt lookup, times as fast: text that repeats", lambda figures: figures["lookup repeats"])
    row("                                   text that does not", lambda figures: figures["lookup does not"])
    return table


def new_table(title: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(title, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def spread(values: list[float]) -> str:
    middle = short(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} [{short(min(values))}–{short(max(values))}]"


def short(value: float) -> str:
    """Three digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


@click.command(help=f"\b\n{__doc__}")
@click.option("--model", help="A model by name; without one, GPT-2 small's shape with random weights.")
@click.option("--dtype", "dtypes", type=click.Choice(list(TYPES)), multiple=True, default=["float32", "int8"])
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="All figures of every round as JSON.")
@click.option("--job", "work_order", hidden=True)
def main(model: str | None, dtypes: tuple[str, ...], rounds: int, as_json: bool, work_order: str | None) -> None:
    if work_order is not None:
        name, *arguments = json.loads(work_order)
        print(json.dumps(globals()[name](*arguments)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        measured = measure(model, list(dict.fromkeys(dtypes)), rounds, Path(scratch))
    if as_json:
        print(json.dumps(measured))
        return
    console = Console(width=104, highlight=False)
    machine = "{cpu}, {cores} cores, {threads} threads, {instructions}".format(**measured)
    libraries = ", ".join(f"{name} {version}" for name, version in measured["versions"].items())
    console.print(
        f"{machine}\ntorch {measured['torch']}, {libraries}\n{measured['model']}, {rounds} rounds", markup=False
    )
    for part in report(measured):
        console.print()
        console.print(part)


if __name__ == "__main__":
    main()
