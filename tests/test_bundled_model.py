"""The model that the package ships: it writes what it wrote when it was made, and any other reader agrees."""

from pathlib import Path

import pytest
import torch
from conftest import Cli

from gpt2cli.checkpoint import BUNDLED, find_folder

PROMPT = "Once upon a time"
GOLDEN = (
    ", there was a little girl named Lily. She loved to play with her toys and eat yummy food. One day, "
    "she found a big, red ball in her room. She was very happy"
)


@pytest.fixture
def folder() -> Path:
    return find_folder(BUNDLED)


def test_it_writes_its_own_story(cli: Cli) -> None:
    assert cli("generate", "-n", "40", PROMPT).ok().out == GOLDEN + "\n"


def test_transformers_reads_the_same_story_from_it(cli: Cli, folder: Path) -> None:
    from transformers import GPT2LMHeadModel

    ours = cli("generate", "-n", "40", "--json", PROMPT).json
    theirs = GPT2LMHeadModel.from_pretrained(folder, dtype=torch.float32, use_safetensors=True).eval()
    prompt = torch.tensor([ours["prompt_token_ids"]])
    made = theirs.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=40, do_sample=False)
    assert made[0, prompt.shape[1] :].tolist() == ours["token_ids"]


def test_it_is_small_and_has_a_card(folder: Path) -> None:
    assert sum(file.stat().st_size for file in folder.iterdir()) < 30_000_000
    card = (folder / "MODEL_CARD.md").read_text()
    for word in ("TinyStories", "CDLA-Sharing-1.0", "held-out", "training loss", "train_story_model.py", "seed"):
        assert word.lower() in card.lower()


def test_tokens_that_share_a_row_tie(cli: Cli, folder: Path) -> None:
    """Rare tokens have one embedding, so each has the same logit: ranks among them go by id."""
    from safetensors.torch import load_file

    rows = load_file(folder / "model.safetensors")["transformer.wte.weight"]
    shared = (rows == rows[188]).all(1).nonzero()[:, 0].tolist()  # 188 is the byte 0, which no story has
    assert len(shared) > 40_000
    run = ("inspect-logits", "--token", str(shared[0]), "--token", str(shared[1]), "--json", PROMPT)
    first, second = cli(*run).json["tokens"]
    assert first["logit"] == second["logit"]
    assert second["rank"] == first["rank"] + 1
