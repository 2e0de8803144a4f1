"""gpt2cli generate, through the command line, on models whose output is known beforehand."""

from pathlib import Path

import checkpoints
import pytest
from conftest import Cli

from gpt2cli.tokenizer import Tokenizer

P5 = "The capital of France is"  # 5 tokens


@pytest.fixture
def scripted(tmp_path: Path, gpt2_tokenizer: Tokenizer):
    def build(text: str, prompt_tokens: int = 5) -> Path:
        return checkpoints.scripted(tmp_path / "scripted", gpt2_tokenizer.encode(text), prompt_tokens)

    return build


def test_text_is_the_completion_and_one_newline(cli: Cli, scripted) -> None:
    model = scripted(" y is ? can 't do n't . !")
    assert cli("generate", "-m", model, P5).ok().out == " y is ? can 't do n't . !\n"
