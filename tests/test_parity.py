"""The native model against transformers, on seeded random models: logits, hidden states, greedy ids, text."""

from pathlib import Path
from typing import Any

import checkpoints
import pytest
import torch
from conftest import Cli, refused

from gpt2cli.loading import load_folder
from gpt2cli.protocol import LanguageModel

SHAPES: list[dict[str, Any]] = [
    {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 48},
    {"n_embd": 48, "n_layer": 2, "n_head": 1, "n_positions": 40, "n_inner": 20},
    {"n_embd": 24, "n_layer": 4, "n_head": 8, "n_positions": 64, "layer_norm_epsilon": 1e-3},
    {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32, "tie_word_embeddings": False},
    {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32, "scale_attn_by_inverse_layer_idx": True},
    {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32, "scale_attn_weights": False},
    {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32, "reorder_and_upcast_attn": True},
    {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32, "activation_function": "relu"},
]


@pytest.fixture(scope="module", params=range(len(SHAPES)), ids=lambda n: "-".join(map(str, SHAPES[n].values())))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkpoints.random(tmp_path_factory.mktemp("random"), seed=request.param, **SHAPES[request.param])


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Any:
    from transformers import GPT2LMHeadModel

    return GPT2LMHeadModel.from_pretrained(folder, use_safetensors=True).eval()


@pytest.fixture(scope="module")
def ours(folder: Path) -> LanguageModel:
    return load_folder(folder, "random", backend="native", device="cpu", dtype="float32").model


def some_ids(count: int) -> list[int]:
    return torch.randint(0, checkpoints.GPT2_VOCAB, (count,), generator=torch.Generator().manual_seed(count)).tolist()


@torch.inference_mode()
def test_hidden_states_and_logits_of_every_row(ours: Any, theirs: Any) -> None:
    token_ids = some_ids(ours.context_length)
    output = theirs(torch.tensor([token_ids]), output_hidden_states=True)
    hidden_states = ours.hidden_states(token_ids)
    # Their last hidden state is already after the final norm, as ours is; the earlier ones are not.
    torch.testing.assert_close(hidden_states, output.hidden_states[-1][0], atol=2e-4, rtol=2e-4)
    for stream, expected in zip(ours.residual_streams(token_ids)[:-1], output.hidden_states[:-1], strict=True):
        torch.testing.assert_close(stream, expected[0], atol=2e-4, rtol=2e-4)
    torch.testing.assert_close(ours.logits(hidden_states), output.logits[0], atol=2e-3, rtol=2e-4)


@torch.inference_mode()
def test_the_cache_changes_nothing(ours: LanguageModel) -> None:
    token_ids = some_ids(20)
    whole = ours.hidden_states(token_ids)
    cache = ours.new_cache()
    pieces = [ours.hidden_states(token_ids[a:b], cache) for a, b in [(0, 1), (1, 2), (2, 9), (9, 10), (10, 20)]]
    torch.testing.assert_close(torch.cat(pieces), whole, atol=1e-4, rtol=1e-4)
    assert cache.length == 20


def test_greedy_ids(cli: Cli, folder: Path, theirs: Any) -> None:
    prompt = "The capital of France"
    prompt_ids = [464, 3139, 286, 4881]
    count = min(24, theirs.config.n_positions - len(prompt_ids))
    expected = theirs.generate(
        torch.tensor([prompt_ids]),
        attention_mask=torch.ones(1, 4),
        max_new_tokens=count,
        do_sample=False,
        pad_token_id=0,
        eos_token_id=-1,
    )[0, 4:].tolist()
    run = ("generate", "-m", folder, "-n", str(count), "--ignore-eos", "--json", prompt)
    assert cli(*run).json["token_ids"] == expected
    ran = cli(*run, "--backend", "transformers").json
    assert (ran["token_ids"], ran["backend"]) == (expected, "transformers")


@torch.inference_mode()
def test_an_overflowing_context_reads_as_a_new_text(cli: Cli, tmp_path: Path) -> None:
    """Each token after the context is full is what transformers says to the tokens that were kept."""
    from transformers import GPT2LMHeadModel

    folder = checkpoints.random(tmp_path, n_embd=16, n_layer=2, n_head=2, n_positions=12)
    theirs = GPT2LMHeadModel.from_pretrained(folder, use_safetensors=True).eval()
    run = ("generate", "-m", folder, "-n", "30", "--ignore-eos", "--json", "The capital of France")
    window = [464, 3139, 286, 4881]
    for token_id in cli(*run).json["token_ids"]:
        if len(window) > 12:
            window = window[6:]
        logits = theirs(torch.tensor([window])).logits[0, -1]
        # Equal up to rounding: where the two choices differ, they must have tied.
        assert logits.max() - logits[token_id] < 1e-3
        window.append(token_id)


@pytest.mark.parametrize(("dtype", "limit"), [("float16", 0.01), ("bfloat16", 0.06), ("int8", 0.03)])
@torch.inference_mode()
def test_short_types_stay_near(folder: Path, ours: LanguageModel, dtype: str, limit: float) -> None:
    short = load_folder(folder, "short", backend="native", device="cpu", dtype=dtype).model
    assert short.dtype == dtype
    token_ids = some_ids(16)
    exact, near = (m.logits(m.hidden_states(token_ids)) for m in (ours, short))
    assert near.dtype == torch.float32
    error = (near - exact).abs().mean() / exact.std()
    assert 0 < error < limit
    # The vector that a logit is said to be made with is the one that it is made with.
    h = short.hidden_states(token_ids)[-1:]
    for token_id in (0, 464, 50256):
        made = float(short.logits(h)[0, token_id])
        assert float(h[0].float() @ short.unembedding(token_id)) == pytest.approx(made, rel=2e-2, abs=2e-2)


@torch.inference_mode()
def test_a_long_prompt_in_pieces_is_one_prompt(tmp_path: Path) -> None:
    from gpt2cli.generation import PROMPT_CHUNK, last_hidden_state

    folder = checkpoints.random(tmp_path, n_embd=16, n_layer=2, n_head=2, n_positions=PROMPT_CHUNK + 40)
    model = load_folder(folder, "long", backend="native", device="cpu", dtype="float32").model
    token_ids = some_ids(PROMPT_CHUNK + 40)
    told: list[int] = []
    last = last_hidden_state(model, token_ids, model.new_cache(), told.append)
    torch.testing.assert_close(last, model.hidden_states(token_ids)[-1], atol=1e-4, rtol=1e-4)
    assert told == [PROMPT_CHUNK, PROMPT_CHUNK + 40]


# The published values of GPT-2 itself


@pytest.fixture(scope="module")
def gpt2() -> Path:
    from gpt2cli.checkpoint import OFFICIAL, cached_folder

    found = cached_folder(OFFICIAL["gpt2"].repo_id)
    if found is None:
        pytest.skip("GPT-2's weights are not in the Hugging Face cache; `gpt2cli generate -m gpt2` fetches them")
    return found


@pytest.mark.gpt2
@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        # transformers, tests/models/gpt2/test_modeling_gpt2.py
        (
            "The dog",
            [373, 1043, 287, 257, 2214, 1474, 262, 16246, 286, 2688, 290, 2688, 27262, 13, 198, 198, 464, 3290],
        ),
        ("Hello, my dog is a little", " bit of a mess. I'm not sure if he's going"),
        # picoGPT, README
        (
            "Alan Turing theorized that computers would one day become",
            " the most powerful machines on the planet.",
        ),
    ],
)
def test_published_greedy_texts(cli: Cli, gpt2: Path, prompt: str, expected: str | list[int]) -> None:
    result = cli("generate", "-m", gpt2, "-n", "18", "--json", prompt).json
    if isinstance(expected, str):
        assert result["text"].startswith(expected)
    else:
        assert result["token_ids"] == expected


@pytest.mark.gpt2
def test_published_surprisal(cli: Cli, gpt2: Path) -> None:
    # surprisal and lm-scorer: -log p("The" after <|endoftext|>) = 3.276
    from math import log

    row = cli("inspect-logits", "-m", gpt2, "", "--token", "The", "--json").json
    assert -log(row["tokens"][0]["probability"]) == pytest.approx(3.276, abs=0.005)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--device", "cuda"], "on the CPU alone, not on cuda"),
        (["--backend", "transformers"], "the native backend's own"),
    ],
)
def test_int8_is_refused_where_it_cannot_run(cli: Cli, options: list[str], said: str) -> None:
    refused(cli("generate", "--dtype", "int8", *options, "Once"), "--dtype int8", said)
    assert cli("generate", "--dtype", "int8", "-n", "4", "--json", "Once").json["dtype"] == "int8"
