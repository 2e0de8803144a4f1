"""Train a small GPT-2 on a file of documents, on a CPU, and export it in Hugging Face layout.

    OMP_WAIT_POLICY=PASSIVE python examples/train_story_model.py stories.txt --output my-model --minutes 100

The vocabulary is GPT-2's own, so token ids mean what they mean to GPT-2. A small text uses a small part of it: tokens
that are rare there share one embedding row, and the loss counts that row as often as it will stand in the export. What
is trained is therefore exactly the exported model, at the price of the rows the text can teach.

Matrix products run in bfloat16 (autocast), which CPUs with AVX-512 or AMX do two to four times as fast as float32.
Needs torch 2.9 or newer, the first with Muon.

The file is read in the order of the work: text → documents → rows → windows → model → loss → optimisers → export.
"""

import itertools
import json
import lzma
import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import click
import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from gpt2cli.files import replacing
from gpt2cli.tokenizer import Tokenizer

VOCAB_SIZE = 50257
EOS_TOKEN_ID = 50256
SEPARATOR = "<|endoftext|>"
LAYER_NORM_EPSILON = 1e-5
# The logits of this many positions stay in the cache of a CPU, which makes the output layer twice as fast.
POSITIONS_AT_ONCE = 512
# The queries of this many positions look only at keys up to their own, which spares most of the masked half.
QUERIES_AT_ONCE = 128


@dataclass(frozen=True)
class Settings:
    """What decides the result: two runs with equal settings and equal text make equal models."""

    n_layer: int = 8
    n_head: int = 4
    n_embd: int = 192
    context_length: int = 512
    batch_size: int = 8
    dropout: float = 0.05
    held_out: int = 400
    min_count: int = 5
    learning_rate: float = 3e-3
    weight_decay: float = 0.1
    warm_up: int = 100
    ema_decay: float = 0.998
    seed: int = 0
    steps: int | None = None
    minutes: float | None = None

    def __post_init__(self) -> None:
        if self.n_embd % self.n_head:
            raise click.UsageError(f"--n-embd {self.n_embd} must be a multiple of --n-head {self.n_head}.")
        if self.steps is None and self.minutes is None:
            raise click.UsageError("Say when to stop: --steps N, --minutes M, or both (the first reached ends it).")


# ---------------------------------------------------------------------------------------------- text → rows → windows


def read_documents(path: Path) -> list[str]:
    """The documents of a text file (plain, or xz-compressed), stripped, without the empty ones."""
    try:
        text = (lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()).decode()
    except (lzma.LZMAError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path} is not a UTF-8 text file, plain or .xz: {error}") from error
    return [document.strip() for document in text.split(SEPARATOR) if document.strip()]


def encode_documents(tokenizer: Tokenizer, documents: list[str]) -> list[np.ndarray]:
    """Token ids of each document, ended by the end-of-text token."""
    return [np.array([*tokenizer.encode(text), EOS_TOKEN_ID]) for text in documents]


@dataclass(frozen=True)
class Rows:
    """Which embedding row each token has: frequent tokens one each, all the others the last one together."""

    row_of_token: np.ndarray  # [VOCAB_SIZE]
    sharing: int  # how many tokens share the last row

    @property
    def shared_row(self) -> int:
        return VOCAB_SIZE - self.sharing

    def log_multiplicity(self) -> Tensor:
        """[rows]: log of how many tokens have each row.

        Added to the logits, it makes their softmax that of the whole vocabulary.
        """
        multiplicity = torch.ones(self.shared_row + 1)
        multiplicity[-1] = self.sharing
        return multiplicity.log()


def assign_rows(documents: list[np.ndarray], min_count: int) -> Rows:
    """Give a row of its own to each token that occurs at least min_count times."""
    frequent = np.bincount(np.concatenate(documents), minlength=VOCAB_SIZE) >= min_count
    row_of_token = np.where(frequent, np.cumsum(frequent) - 1, frequent.sum())
    return Rows(row_of_token.astype(np.int64), int(VOCAB_SIZE - frequent.sum()))


def cut_windows(documents: list[np.ndarray], context_length: int, rng: np.random.Generator) -> np.ndarray:
    """One epoch: the documents in a new order, end to end, cut into [windows, context_length + 1] in a new order.

    Where a window would begin inside a document, every second one steps back to its beginning: text is generated from
    beginnings, at position 0, with or without an end-of-text token before. No token is left out.
    """
    order = rng.permutation(len(documents))
    stream = np.concatenate([documents[number] for number in order])
    beginnings = np.cumsum([0, *(len(documents[number]) for number in order)])
    starts, position = [], 0
    while position + context_length < len(stream):
        beginning = beginnings[np.searchsorted(beginnings, position, side="right") - 1]
        if rng.random() < 0.5 and position - beginning < context_length // 2:
            position = max(0, beginning - int(rng.integers(2)))
        starts.append(position)
        position += context_length
    windows = stream[np.array(starts)[:, None] + np.arange(context_length + 1)]
    return windows[rng.permutation(len(windows))]


def training_batches(documents: list[np.ndarray], settings: Settings, first_step: int) -> Iterator[Tensor]:
    """[batch_size, context_length + 1] for each step from first_step on, the same wherever the training began."""
    step = 0
    for epoch in itertools.count():
        windows = cut_windows(documents, settings.context_length, np.random.default_rng([settings.seed, epoch]))
        if len(windows) < settings.batch_size:
            raise click.ClickException("The text is too short for one batch: lower --batch-size or --context-length.")
        for batch in range(len(windows) // settings.batch_size):
            if step >= first_step:
                yield torch.from_numpy(windows[batch * settings.batch_size :][: settings.batch_size])
            step += 1


def held_out_windows(documents: list[np.ndarray], context_length: int) -> Tensor:
    """[windows, context_length]: the held-out documents end to end, cut without overlap, the rest dropped."""
    stream = torch.from_numpy(np.concatenate(documents))
    if len(stream) < context_length:
        raise click.ClickException("The held-out text is shorter than one window: raise --held-out.")
    return stream[: len(stream) // context_length * context_length].view(-1, context_length)


# -------------------------------------------------------------------------------------------------------------- model


class Conv1D(nn.Module):
    """A linear layer with its weight as GPT-2 stores it, [in, out]."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n_in, n_out))
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, hidden_states: Tensor) -> Tensor:
        """[..., in] → [..., out]"""
        return functional.linear(hidden_states, self.weight.T, self.bias)


class Attention(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.n_head = settings.n_head
        self.c_attn = Conv1D(settings.n_embd, 3 * settings.n_embd)
        self.c_proj = Conv1D(settings.n_embd, settings.n_embd)

    def forward(self, hidden_states: Tensor, mask: Tensor) -> Tensor:
        """[batch, seq_len, n_embd] → the same shape

        Written out, because torch's fused kernel takes twice as long in bfloat16 on a CPU.
        """
        heads = self.c_attn(hidden_states).unflatten(-1, (3, self.n_head, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = heads  # each [batch, n_head, seq_len, n_embd / n_head]
        query, mask = query * query.shape[-1] ** -0.5, mask.to(query.dtype)
        mixed = []
        for start in range(0, len(mask), QUERIES_AT_ONCE):
            end = min(start + QUERIES_AT_ONCE, len(mask))
            attention = query[:, :, start:end] @ key[:, :, :end].mT + mask[start:end, :end]
            mixed.append(attention.softmax(-1) @ value[:, :, :end])
        return self.c_proj(torch.cat(mixed, 2).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.c_fc = Conv1D(settings.n_embd, 4 * settings.n_embd)
        self.c_proj = Conv1D(4 * settings.n_embd, settings.n_embd)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """[batch, seq_len, n_embd] → the same shape"""
        return self.c_proj(functional.gelu(self.c_fc(hidden_states), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(settings.n_embd, LAYER_NORM_EPSILON)
        self.attn = Attention(settings)
        self.ln_2 = nn.LayerNorm(settings.n_embd, LAYER_NORM_EPSILON)
        self.mlp = FeedForward(settings)

    def forward(self, hidden_states: Tensor, mask: Tensor, drop: Callable[[Tensor], Tensor]) -> Tensor:
        """[batch, seq_len, n_embd] → the same shape"""
        hidden_states = hidden_states + drop(self.attn(self.ln_1(hidden_states), mask))
        return hidden_states + drop(self.mlp(self.ln_2(hidden_states)))


class StoryModel(nn.Module):
    """GPT-2 up to its final hidden states, with parameters named as in GPT-2's checkpoints and shared rows in wte."""

    def __init__(self, settings: Settings, n_rows: int) -> None:
        super().__init__()
        self.wte = nn.Embedding(n_rows, settings.n_embd)
        self.wpe = nn.Embedding(settings.context_length, settings.n_embd)
        self.h = nn.ModuleList(Block(settings) for _ in range(settings.n_layer))
        self.ln_f = nn.LayerNorm(settings.n_embd, LAYER_NORM_EPSILON)

    def forward(self, rows: Tensor, drop: Callable[[Tensor], Tensor] = lambda branch: branch) -> Tensor:
        """rows [batch, seq_len] → final hidden states [batch, seq_len, n_embd]"""
        seq_len = rows.shape[1]
        mask = torch.full((seq_len, seq_len), -math.inf).triu(1)
        hidden_states = drop(self.wte(rows) + self.wpe.weight[:seq_len])
        for block in self.h:
            hidden_states = block(hidden_states, mask, drop)
        return self.ln_f(hidden_states)


@torch.no_grad()
def initialise(model: StoryModel, rng: torch.Generator) -> None:
    """As GPT-2: normal, 0.02; the projections into the residual stream smaller by the root of their number."""
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            deviation = 0.02 / math.sqrt(2 * len(model.h)) if name.endswith("c_proj.weight") else 0.02
            parameter.normal_(0, deviation, generator=rng)


def make_dropout(rate: float, rng: torch.Generator) -> Callable[[Tensor], Tensor]:
    """Dropout that drops a channel for a whole window: random numbers for each position would cost 15 % of a step."""

    def drop(branch: Tensor) -> Tensor:
        """[batch, seq_len, n_embd] → the same shape"""
        kept = torch.empty(branch.shape[0], 1, branch.shape[2], dtype=branch.dtype)
        return branch * kept.bernoulli_(1 - rate, generator=rng).div_(1 - rate)

    return drop if rate else lambda branch: branch


# --------------------------------------------------------------------------------------------------------------- loss


def backward(model: StoryModel, windows: Tensor, log_multiplicity: Tensor, drop: Callable[[Tensor], Tensor]) -> float:
    """Add the gradients of the mean loss of windows [batch, context_length + 1], given in rows; return the loss.

    A target of the shared row says only "some rare token". It is left out: learning it would make such tokens likelier
    in samples, where each is as good as noise.
    """
    shared_row = len(log_multiplicity) - 1
    inputs, targets = windows[:, :-1], windows[:, 1:].flatten()
    n_targets = (targets != shared_row).sum()
    total = 0.0
    with torch.autocast("cpu", torch.bfloat16):
        hidden_states = model(inputs, drop).flatten(0, 1)
        leaf = hidden_states.detach().requires_grad_()
        pieces = zip(torch.split(leaf, POSITIONS_AT_ONCE), torch.split(targets, POSITIONS_AT_ONCE), strict=True)
        for piece, piece_targets in pieces:
            logits = functional.linear(piece, model.wte.weight).float() + log_multiplicity
            loss = functional.cross_entropy(logits, piece_targets, ignore_index=shared_row, reduction="sum")
            (loss / n_targets).backward()
            total += loss.item() / int(n_targets)
    hidden_states.backward(leaf.grad)
    return total


@torch.no_grad()
def held_out_loss(model: StoryModel, windows: Tensor, log_multiplicity: Tensor) -> float:
    """Mean loss, in nats over the whole vocabulary and every target, of windows [windows, context_length] in rows."""
    total = 0.0
    for window in windows:
        logits = functional.linear(model(window[None])[0, :-1], model.wte.weight) + log_multiplicity
        targets = window[1:]
        # The shared row's probability is that of all its tokens; one of them has the part 1 / multiplicity.
        shares = log_multiplicity[targets].sum()
        total += (functional.cross_entropy(logits, targets, reduction="sum") + shares).item()
    return total / (windows.shape[0] * (windows.shape[1] - 1))


# ---------------------------------------------------------------------------------------------------------- optimisers


def make_optimizers(model: StoryModel, settings: Settings) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the blocks, AdamW for embeddings, norms and biases."""
    matrices = [parameter for parameter in model.h.parameters() if parameter.ndim == 2]
    embeddings = [model.wte.weight, model.wpe.weight]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim == 1]
    rate, decay = settings.learning_rate, settings.weight_decay
    groups = [{"params": embeddings, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
    return [
        torch.optim.Muon(matrices, lr=rate, weight_decay=decay, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), fused=True),
    ]


def learning_rate_factor(step: int, progress: float, warm_up: int) -> float:
    """Linear over warm_up steps, then a half cosine over progress (0 to 1), down to 5 %."""
    return min(1.0, (step + 1) / warm_up) * (0.05 + 0.95 * (1 + math.cos(math.pi * min(progress, 1.0))) / 2)


class Training:
    """A model in training, and everything a checkpoint must hold for the next step to be the same after a restart."""

    def __init__(self, settings: Settings, rows: Rows) -> None:
        self.settings = settings
        self.log_multiplicity = rows.log_multiplicity()
        self.model = StoryModel(settings, len(self.log_multiplicity))
        initialise(self.model, torch.Generator().manual_seed(settings.seed))
        self.average = StoryModel(settings, len(self.log_multiplicity)).requires_grad_(False)
        self.average.load_state_dict(self.model.state_dict())
        self.optimizers = make_optimizers(self.model, settings)
        self.step = 0
        self.seconds = 0.0
        self.loss = math.nan

    @property
    def progress(self) -> float:
        """From 0 to 1: the part of the steps or of the time that is spent, whichever is larger."""
        of_steps = self.step / self.settings.steps if self.settings.steps else 0.0
        of_time = self.seconds / (60 * self.settings.minutes) if self.settings.minutes else 0.0
        return max(of_steps, of_time)

    def take_step(self, windows: Tensor) -> None:
        """One step on windows [batch, context_length + 1], given in rows."""
        started = time.monotonic()
        rng = torch.Generator().manual_seed(self.settings.seed * 2**32 + self.step)
        loss = backward(self.model, windows, self.log_multiplicity, make_dropout(self.settings.dropout, rng))
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        factor = learning_rate_factor(self.step, self.progress, self.settings.warm_up)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.settings.learning_rate * factor
            optimizer.step()
            optimizer.zero_grad()
        # Early weights are far off, so the average is short at first: 1/10 of the steps so far.
        decay = min(self.settings.ema_decay, (self.step + 1) / (self.step + 10))
        torch._foreach_lerp_(list(self.average.parameters()), list(self.model.parameters()), 1 - decay)
        self.loss = loss if math.isnan(self.loss) else 0.99 * self.loss + 0.01 * loss
        self.step += 1
        self.seconds += time.monotonic() - started

    def save(self, path: Path) -> None:
        """Write a checkpoint so that a crash leaves either the old one or the new one."""
        state = {
            "settings": asdict(self.settings),
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "position": [self.step, self.seconds, self.loss],
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            torch.save(state, file)

    def load(self, path: Path) -> None:
        """Continue from a checkpoint of the same settings; only the end (steps, minutes) may differ."""
        state = torch.load(path, weights_only=True)
        for name in (field.name for field in fields(Settings) if field.name not in ("steps", "minutes")):
            saved, given = state["settings"][name], getattr(self.settings, name)
            if saved != given:
                raise click.ClickException(f"{path} was trained with {name} = {saved}, not {given}.")
        if len(state["model"]["wte.weight"]) != len(self.log_multiplicity):
            raise click.ClickException(f"{path} was trained on another text: give the same texts.")
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.seconds, self.loss = state["position"]


# ------------------------------------------------------------------------------------------------------------- export


def model_config(settings: Settings) -> dict[str, object]:
    """config.json, in the words of GPT-2's own."""
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": VOCAB_SIZE,
        "n_positions": settings.context_length,
        "n_ctx": settings.context_length,
        "n_embd": settings.n_embd,
        "n_layer": settings.n_layer,
        "n_head": settings.n_head,
        "layer_norm_epsilon": LAYER_NORM_EPSILON,
        "activation_function": "gelu_new",
        "resid_pdrop": settings.dropout,
        "embd_pdrop": settings.dropout,
        "attn_pdrop": 0.0,
        "bos_token_id": EOS_TOKEN_ID,
        "eos_token_id": EOS_TOKEN_ID,
        "tie_word_embeddings": True,
        "torch_dtype": "float16",
    }


def export(model: StoryModel, rows: Rows, settings: Settings, folder: Path) -> None:
    """Write config.json, generation_config.json and model.safetensors (float16, one embedding row for every token)."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"transformer.{name}": tensor.half() for name, tensor in model.state_dict().items()}
    tensors["transformer.wte.weight"] = tensors["transformer.wte.weight"][torch.from_numpy(rows.row_of_token)]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    contents = {
        "config.json": model_config(settings),
        "generation_config.json": {"bos_token_id": EOS_TOKEN_ID, "eos_token_id": EOS_TOKEN_ID},
    }
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


# ------------------------------------------------------------------------------------------------------- command line


@dataclass(frozen=True)
class Corpus:
    """Everything the texts give: training documents and held-out windows, both in rows."""

    rows: Rows
    documents: list[np.ndarray]
    held_out: Tensor  # [windows, context_length]


def prepare(tokenizer: Tokenizer, texts: tuple[Path, ...], settings: Settings) -> Corpus:
    """Hold out documents of the first text, chosen by a fixed shuffle; train on the rest and on the other texts."""
    first, *others = texts
    documents = read_documents(first)
    random.Random(0).shuffle(documents)
    held_out = encode_documents(tokenizer, documents[: settings.held_out])
    more = [document for path in others for document in read_documents(path)]
    training = encode_documents(tokenizer, documents[settings.held_out :] + more)
    if not training or not held_out:
        raise click.ClickException(f"{first} has {len(documents)} documents: hold out at least 1 and fewer than all.")
    rows = assign_rows(training, settings.min_count)
    windows = held_out_windows([rows.row_of_token[document] for document in held_out], settings.context_length)
    return Corpus(rows, [rows.row_of_token[document] for document in training], windows)


def train(training: Training, corpus: Corpus, console: Console, checkpoint: Path | None, every_minutes: float) -> None:
    """Take steps until the budget is spent; measure and save at intervals."""
    percentage = TextColumn("{task.percentage:>5.1f} %")
    columns = (TextColumn("{task.description}"), BarColumn(), percentage, TimeElapsedColumn())
    due = training.seconds + 60 * every_minutes
    with Progress(*columns, console=console) as progress_bar:
        task = progress_bar.add_task("training", total=1.0)
        for windows in training_batches(corpus.documents, training.settings, training.step):
            if training.progress >= 1:
                break
            training.take_step(windows)
            description = f"step {training.step}, training loss {training.loss:.3f}"
            progress_bar.update(task, completed=training.progress, description=description)
            if training.seconds >= due:
                due = training.seconds + 60 * every_minutes
                started = time.monotonic()
                loss = held_out_loss(training.average, corpus.held_out, training.log_multiplicity)
                training.seconds += time.monotonic() - started
                console.print(f"{description}, held-out loss {loss:.4f}, {training.seconds / 60:.1f} minutes")
                if checkpoint:
                    training.save(checkpoint)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.argument("texts", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder to fill.")
@click.option("--steps", type=click.IntRange(1), help="Stop after this many steps.")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), help="Stop after this much training time.")
@click.option("--n-layer", default=Settings.n_layer, type=click.IntRange(1), help="Blocks.")
@click.option("--n-head", default=Settings.n_head, type=click.IntRange(1), help="Attention heads in each block.")
@click.option("--n-embd", default=Settings.n_embd, type=click.IntRange(1), help="Size of a hidden state.")
@click.option("--context-length", default=Settings.context_length, type=click.IntRange(2), help="Tokens in a window.")
@click.option("--batch-size", default=Settings.batch_size, type=click.IntRange(1), help="Windows in a step.")
@click.option("--dropout", default=Settings.dropout, type=click.FloatRange(0, 1, max_open=True), help="Dropout rate.")
@click.option("--held-out", default=Settings.held_out, type=click.IntRange(1), help="Documents to measure the loss on.")
@click.option("--min-count", default=Settings.min_count, type=click.IntRange(1), help="Rarer tokens share a row.")
@click.option("--learning-rate", default=Settings.learning_rate, type=click.FloatRange(0), help="At its highest.")
@click.option("--weight-decay", default=Settings.weight_decay, type=click.FloatRange(0), help="Of all matrices.")
@click.option("--seed", default=Settings.seed, type=click.IntRange(0, 2**31 - 1), help="Of weights, order, dropout.")
@click.option("--threads", type=click.IntRange(1), help="CPU threads.  [default: torch's choice]")
@click.option("--checkpoint", type=click.Path(dir_okay=False, path_type=Path), help="File to save the training in.")
@click.option("--every", default=5.0, type=click.FloatRange(0, min_open=True), help="Minutes between two savings.")
@click.option("--resume", is_flag=True, help="Continue from the checkpoint.")
def main(
    texts: tuple[Path, ...],
    output: Path,
    threads: int | None,
    checkpoint: Path | None,
    every: float,
    resume: bool,
    **settings: int | float | None,
) -> None:
    """Train a small GPT-2 on TEXTS and export it to a folder.

    A text is a UTF-8 file (.txt, or .txt.xz) of documents separated by <|endoftext|>. Some documents of the first text
    are held out to measure the loss. With --minutes the learning rate follows the clock, so an interrupted and resumed
    training gives exactly the same model only under --steps.
    """
    if resume and not (checkpoint and checkpoint.exists()):
        raise click.UsageError("--resume continues from a saved training: name its file with --checkpoint.")
    if checkpoint and checkpoint.exists() and not resume:
        raise click.UsageError(f"{checkpoint} exists: continue it with --resume, or name another file.")
    if not hasattr(torch.optim, "Muon"):
        raise click.ClickException(f"torch {torch.__version__} has no Muon: install torch 2.9 or newer.")
    if threads:
        torch.set_num_threads(threads)
    console = Console(stderr=True, markup=False, highlight=False)
    chosen = Settings(**settings)  # type: ignore[arg-type]  # click has checked each against its option
    corpus = prepare(Tokenizer.gpt2(), texts, chosen)
    tokens = sum(map(len, corpus.documents))
    console.print(f"{len(corpus.documents)} documents, {tokens} tokens, {corpus.rows.shared_row} rows and a shared one")
    training = Training(chosen, corpus.rows)
    if resume and checkpoint:
        training.load(checkpoint)
    train(training, corpus, console, checkpoint, every)
    if checkpoint:
        training.save(checkpoint)
    # What is measured is what is written: weights rounded to float16.
    exported = StoryModel(chosen, corpus.rows.shared_row + 1)
    exported.load_state_dict({name: tensor.half() for name, tensor in training.average.state_dict().items()})
    loss = held_out_loss(exported, corpus.held_out, training.log_multiplicity)
    export(exported, corpus.rows, chosen, output)
    console.print(f"step {training.step}, training loss {training.loss:.4f}, held-out loss {loss:.4f}: {output}")


if __name__ == "__main__":
    main()
