"""The training script: what it trains is what it exports, and a resumed training is the undisturbed one."""

import importlib.util
import json
import lzma
import math
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from torch import Tensor
from torch.nn import functional

pytestmark = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="the script needs torch 2.9 or newer")

SCRIPT = Path(__file__).parent.parent / "examples" / "train_story_model.py"
TEXT = "<|endoftext|>\n".join(
    f"Once upon a time, there was a {animal} named {name}. The {animal} liked to {verb} with {name}'s mom.\n"
    for animal in ("dog", "cat", "bird", "fish")
    for name in ("Lily", "Ben", "Tom")
    for verb in ("play", "run", "sing")
)
# Every animal occurs 18 times, so that animals share a row.
SIZES = {
    "n_layer": 2,
    "n_head": 2,
    "n_embd": 16,
    "context_length": 24,
    "batch_size": 2,
    "held_out": 4,
    "min_count": 19,
}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train_story_model", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # dataclasses look their module up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "stories.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def run(script: ModuleType, *arguments: object) -> Result:
    sizes = [f"--{name.replace('_', '-')}={value}" for name, value in SIZES.items()]
    return CliRunner().invoke(script.main, [*sizes, *map(str, arguments)])


def begin(script: ModuleType, text: Path, **settings: object) -> tuple[object, object]:
    """A training that has taken no step, and its corpus."""
    chosen = script.Settings(**{**SIZES, **settings})
    corpus = script.prepare(script.Tokenizer.gpt2(), (text,), chosen)
    return script.Training(chosen, corpus.rows), corpus


def take_steps(script: ModuleType, training: object, corpus: object, until: int) -> None:
    batches = script.training_batches(corpus.documents, training.settings, training.step)
    while training.step < until:
        training.take_step(next(batches))


def full_vocabulary_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """logits [windows, seq_len, vocab_size], targets [windows, seq_len] → the loss of each target, in nats."""
    return functional.cross_entropy(logits.mT, targets, reduction="none")


def test_exported_model_opens_in_transformers_with_the_logits_and_the_loss_of_the_training(
    script: ModuleType, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import GPT2LMHeadModel

    monkeypatch.setattr(script, "QUERIES_AT_ONCE", 10)  # so that a window of 24 is done in three parts
    folder = tmp_path / "exported"
    result = run(script, text, "-o", folder, "--steps=12")
    assert result.exit_code == 0, result.output
    theirs = GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float32).eval()
    training, corpus = begin(script, text, steps=12)
    take_steps(script, training, corpus, 12)
    training.average.load_state_dict({n: t.half() for n, t in training.average.state_dict().items()})

    row_of_token = torch.from_numpy(corpus.rows.row_of_token)
    documents = script.read_documents(text)
    script.random.Random(0).shuffle(documents)
    encoded = script.encode_documents(script.Tokenizer.gpt2(), documents[:4])
    token_ids = script.held_out_windows(encoded, 24)
    assert not (row_of_token[token_ids] == corpus.rows.shared_row).all()
    assert (row_of_token[token_ids] == corpus.rows.shared_row).any()
    with torch.no_grad():
        logits = theirs(token_ids).logits
        hidden_states = training.average(row_of_token[token_ids])
        ours = (hidden_states @ training.average.wte.weight.T)[..., row_of_token]
    torch.testing.assert_close(ours, logits, rtol=0, atol=1e-5)

    expected = full_vocabulary_loss(logits[:, :-1].double(), token_ids[:, 1:]).mean().item()
    assert script.held_out_loss(training.average, corpus.held_out, training.log_multiplicity) == pytest.approx(
        expected, abs=1e-4
    )
    printed = re.search(r"held-out loss ([\d.]+): ", result.output)
    assert printed is not None
    assert float(printed[1]) == pytest.approx(expected, abs=2e-4)
    assert json.loads((folder / "generation_config.json").read_text())["eos_token_id"] == 50256


def test_training_loss_is_that_of_the_targets_with_rows_of_their_own(script: ModuleType, text: Path) -> None:
    training, corpus = begin(script, text, steps=1)
    windows = next(script.training_batches(corpus.documents, training.settings, 0))
    shared_row = corpus.rows.shared_row
    assert (windows == shared_row).any()
    # One token for each row but the last, which the rest of the vocabulary shares.
    token_of_row = torch.from_numpy(np.unique(corpus.rows.row_of_token, return_index=True)[1])
    with torch.no_grad():
        logits = training.model(windows[:, :-1]) @ training.model.wte.weight.T
        full = logits[..., torch.from_numpy(corpus.rows.row_of_token)]
        losses = full_vocabulary_loss(full, token_of_row[windows[:, 1:]])
    expected = losses[windows[:, 1:] != shared_row].mean().item()
    loss = script.backward(training.model, windows, training.log_multiplicity, lambda branch: branch)
    assert loss == pytest.approx(expected, abs=0.01)  # bfloat16
    assert all(parameter.grad is not None for parameter in training.model.parameters())


def test_resumed_training_equals_the_undisturbed_one(script: ModuleType, text: Path, tmp_path: Path) -> None:
    undisturbed, corpus = begin(script, text, steps=8, dropout=0.1)
    take_steps(script, undisturbed, corpus, 8)
    first_half, _ = begin(script, text, steps=8, dropout=0.1)
    take_steps(script, first_half, corpus, 5)
    first_half.save(tmp_path / "checkpoint.pt")
    resumed, _ = begin(script, text, steps=8, dropout=0.1)
    resumed.load(tmp_path / "checkpoint.pt")
    assert resumed.step == 5
    take_steps(script, resumed, corpus, 8)
    assert resumed.loss == undisturbed.loss
    for theirs, ours in ((undisturbed.model, resumed.model), (undisturbed.average, resumed.average)):
        for name, tensor in theirs.state_dict().items():
            assert torch.equal(tensor, ours.state_dict()[name]), name


def test_checkpoint_of_other_settings_is_refused(script: ModuleType, text: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint.pt"
    training, _ = begin(script, text, steps=1)
    training.save(checkpoint)
    again = run(script, text, "-o", tmp_path / "o", "--steps=1", "--checkpoint", checkpoint)
    assert again.exit_code == 2
    assert "--resume" in again.output
    other = run(script, text, "-o", tmp_path / "o", "--steps=1", "--checkpoint", checkpoint, "--resume", "--seed=9")
    assert other.exit_code == 1
    assert "seed = 0, not 9" in other.output
    assert not (tmp_path / "o").exists()


def test_a_run_without_an_end_is_a_usage_error(script: ModuleType, text: Path, tmp_path: Path) -> None:
    result = run(script, text, "-o", tmp_path / "o")
    assert result.exit_code == 2
    assert "--steps N" in result.output


def test_documents_are_the_same_plain_and_compressed(script: ModuleType, tmp_path: Path) -> None:
    content = b"\n One.\n<|endoftext|>\n\n<|endoftext|>\nTwo.\n\nThree."
    (tmp_path / "a.txt").write_bytes(content)
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(content))
    assert script.read_documents(tmp_path / "a.txt") == ["One.", "Two.\n\nThree."]
    assert script.read_documents(tmp_path / "a.txt.xz") == ["One.", "Two.\n\nThree."]


def test_windows_leave_no_token_out_and_often_begin_with_a_document(script: ModuleType) -> None:
    # Tokens are numbered through, so a window shows where it lies; document n begins with the token 10 * n.
    documents = [np.arange(10 * n, 10 * n + 10) for n in range(400)]
    windows = script.cut_windows(documents, 37, np.random.default_rng(1))
    assert windows.shape[1] == 38
    assert (np.diff(windows)[np.diff(windows) != 1] % 10 == 1).all()  # from one document's end to another's start
    assert len(np.unique(windows[:, 1:])) >= 4000 - 38
    at_beginning = np.mean(windows[:, 0] % 10 == 0)
    just_before = np.mean(windows[:, 0] % 10 == 9)
    # A quarter steps back to each of the two; of the windows that do not step back, a tenth happen to lie so.
    assert 0.15 < at_beginning < 0.5
    assert 0.15 < just_before < 0.5


def test_learning_rate_warms_up_and_falls_to_a_twentieth(script: ModuleType) -> None:
    assert script.learning_rate_factor(0, 0.0, 100) == pytest.approx(0.01)
    assert script.learning_rate_factor(99, 0.0, 100) == 1.0
    assert script.learning_rate_factor(5000, 0.5, 100) == pytest.approx(0.525)
    assert script.learning_rate_factor(9999, 1.0, 100) == pytest.approx(0.05)
    assert math.isclose(script.learning_rate_factor(9999, 1.2, 100), 0.05)
