"""--backend transformers: the same numbers as the native backend, and other architectures."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import checkpoints
import pytest
import tokenizers
import torch
import transformers
from conftest import Cli, refused, spawn
from safetensors.torch import load_file, save_file
from test_tokenizer import HARD_TEXTS
from tokenizers import decoders, models, pre_tokenizers

from gpt2cli.tokenizer import BYTE_OF_CHARACTER, Tokenizer
from gpt2cli.transformers_backend import TransformersTokenizer

P5 = "The capital of France is"
THEIRS = ("--backend", "transformers")
V = checkpoints.BYTE_VOCAB


def steps(cli: Cli, folder: Path, *options: str) -> list[dict[str, Any]]:
    """The steps of a text of 40 tokens with the top of each row, and its result."""
    arguments = ("--format", "jsonl", "--show-logits", "5", "-n", "40", "--ignore-eos", *options, "a prompt")
    return cli("generate", "-m", folder, *arguments).jsonl


def assert_close(ours: Any, theirs: Any) -> None:
    """Equal but for the backend's name, and for small differences of numbers."""
    assert type(ours) is type(theirs)
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for name in ours.keys() - {"backend"}:
            assert_close(ours[name], theirs[name])
    elif isinstance(ours, list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_close(one, other)
    elif isinstance(ours, float):
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-4)
    else:
        assert ours == theirs


# GPT-2


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({}, ()),
        ({"tie_word_embeddings": False}, ("-t", "0.8", "-p", "0.9", "-s", "3")),
        ({"n_layer": 3, "n_head": 4, "n_inner": 12, "activation_function": "gelu"}, ("--repetition-penalty", "1.5")),
        ({"scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True}, ("-k", "5", "-s", "1")),
    ],
    ids=str,
)
def test_random_models_give_the_same_steps(fields: Any, options: tuple[str, ...], cli: Cli, tmp_path: Path) -> None:
    """Also past the context of 32 tokens, where the cache is built anew."""
    folder = checkpoints.tiny(tmp_path / "tiny", **fields)
    ours, theirs = steps(cli, folder, *options), steps(cli, folder, *THEIRS, *options)
    assert (ours[-1]["backend"], theirs[-1]["backend"]) == ("native", "transformers")
    assert_close(ours, theirs)


def test_scripted_models_give_the_same_text(cli: Cli, tmp_path: Path, gpt2_tokenizer: Tokenizer) -> None:
    text = " y is ? can 't do n't . !"
    folder = checkpoints.scripted(tmp_path / "scripted", gpt2_tokenizer.encode(text), 5)
    (folder / "tokenizer_config.json").write_text('{"clean_up_tokenization_spaces": true}')
    for backend in ("native", "transformers"):
        assert cli("generate", "-m", folder, "--backend", backend, P5).ok().out == f"{text}\n"


def test_the_ruler_reads_the_same_positions(cli: Cli, tmp_path: Path) -> None:
    folder = checkpoints.ruler(tmp_path / "ruler", context_length=16)
    for backend in ("native", "transformers"):
        result = cli("generate", "-m", folder, "--backend", backend, "--json", "-n", "20", P5).json
        # Of 16 tokens held, the oldest 8 go; the next is the 9th.
        assert result["token_ids"] == [*range(1004, 1016), *range(1008, 1016)]


def test_inspection_is_the_same(cli: Cli, tmp_path: Path) -> None:
    folder = checkpoints.tiny(tmp_path / "tiny")
    arguments = (
        "inspect-logits",
        "-m",
        folder,
        "--json",
        "--rows",
        "300",
        "--token",
        "e",
        "-t",
        "0.7",
        "-k",
        "9",
        "abc",
    )
    assert_close(cli(*arguments).json, cli(*arguments, *THEIRS).json)


@pytest.mark.parametrize("layout", ["vocab.json and merges.txt", "tokenizer.json"])
def test_tokenizers_agree(layout: str, gpt2_files: Path, tmp_path: Path, gpt2_tokenizer: Tokenizer) -> None:
    for path in gpt2_files.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    loaded = transformers.AutoTokenizer.from_pretrained(tmp_path)
    if layout == "tokenizer.json":
        loaded.save_pretrained(tmp_path / "saved")
        loaded = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
        assert Tokenizer.from_folder(tmp_path / "saved").special_tokens == {"<|endoftext|>": 50256}
    theirs = TransformersTokenizer(loaded)
    assert (theirs.vocab_size, theirs.eos_token_id) == (50257, 50256)
    assert theirs.special_tokens == gpt2_tokenizer.special_tokens
    assert all(theirs.token_bytes(n) == gpt2_tokenizer.token_bytes(n) for n in range(50257))
    for text in HARD_TEXTS:
        for special_tokens in (False, True):
            token_ids = gpt2_tokenizer.encode(text, special_tokens=special_tokens)
            assert theirs.encode(text, special_tokens=special_tokens) == token_ids
            assert theirs.decode(token_ids) == text


def test_padding_rows_are_no_tokens(cli: Cli, tmp_path: Path) -> None:
    folder = checkpoints.tiny(tmp_path / "padded", vocab_size=V + 7)
    record = cli("inspect-logits", "-m", folder, "--json", "--rows", "1000", *THEIRS, "abc").json
    assert record["shape"] == [3, V]
    assert len(record["candidates"]) == V


def rewrite(folder: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file({n: t.contiguous() for n, t in weights.items()}, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda w: w.pop("transformer.wpe.weight"), "missing keys: transformer.wpe.weight"),
        (lambda w: w.pop("transformer.h.1.ln_1.bias"), "missing keys: transformer.h.1.ln_1.bias"),
        (lambda w: w.update({"transformer.extra": torch.ones(1)}), "unexpected keys: transformer.extra"),
        (lambda w: w.update({"transformer.ln_f.weight": torch.ones(9)}), "mismatched keys: transformer.ln_f.weight"),
    ],
)
def test_nothing_is_filled_with_random_numbers(change: Any, said: str, cli: Cli, tmp_path: Path) -> None:
    refused(cli("generate", "-m", rewrite(checkpoints.tiny(tmp_path / "tiny"), change), *THEIRS, "a"), said)


@pytest.mark.parametrize("what", ["config", "tokenizer"])
def test_code_of_a_model_is_never_run(what: str, cli: Cli, tmp_path: Path) -> None:
    folder, canary = checkpoints.tiny(tmp_path / "tiny"), tmp_path / "canary"
    (folder / "code.py").write_text(f"open({str(canary)!r}, 'w')\nclass C: pass\n")
    if what == "config":
        mapped = dict.fromkeys(("AutoConfig", "AutoModel", "AutoModelForCausalLM", "AutoTokenizer"), "code.C")
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"model_type": "strange", "auto_map": mapped}))
        refused(cli("generate", "-m", folder, *THEIRS, "a"), f"transformers cannot load {folder}")
    else:
        (folder / "tokenizer_config.json").write_text(json.dumps({"auto_map": {"AutoTokenizer": ["code.C", "code.C"]}}))
        cli("generate", "-m", folder, *THEIRS, "a")
    assert not canary.exists()


@pytest.mark.parametrize("name", ["attn_implementation", "_attn_implementation"])
def test_code_of_the_hub_is_never_run(name: str, cli: Cli, tmp_path: Path) -> None:
    folder = checkpoints.tiny(tmp_path / "tiny", **{name: "kernels-community/flash-attn"})
    refused(cli("generate", "-m", folder, *THEIRS, "a"), "config.json asks for code from the hub")


# Other architectures

SIZES = {"vocab_size": V + 3, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
LONG = {"intermediate_size": 32, "max_position_embeddings": 64}
ENDS = {"bos_token_id": V - 1, "eos_token_id": V - 1}
ARCHITECTURES = {
    "llama": lambda: transformers.LlamaConfig(**SIZES, **LONG, **ENDS, num_key_value_heads=1),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(**SIZES, **LONG, **ENDS),
    "bloom": lambda: transformers.BloomConfig(vocab_size=V + 3, hidden_size=16, n_layer=2, n_head=2, **ENDS),
    "gptj": lambda: transformers.GPTJConfig(
        vocab_size=V + 3, n_positions=64, n_embd=16, n_layer=2, n_head=2, rotary_dim=4, **ENDS
    ),
}


def build(folder: Path, config: Any, tokenizer: tokenizers.Tokenizer) -> Path:
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>").save_pretrained(folder)
    return folder


def bytes_only() -> tokenizers.Tokenizer:
    vocab = {token: n for n, token in enumerate([*BYTE_OF_CHARACTER, "<|endoftext|>"])}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_other_architectures(architecture: str, cli: Cli, tmp_path: Path) -> None:
    folder = build(tmp_path / "model", ARCHITECTURES[architecture](), bytes_only())
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    token_ids = [64, 65, 66]  # a b c
    with torch.inference_mode():
        rows = [model(torch.tensor([token_ids])).logits[0, -1, :V]]
        for _ in range(8):
            token_ids.append(int(rows[-1].argmax()))
            rows.append(model(torch.tensor([token_ids])).logits[0, -1, :V])
    row = cli("inspect-logits", "-m", folder, *THEIRS, "--json", "--rows", "1000", "abc").json
    found = torch.tensor([c["logit"] for c in sorted(row["candidates"], key=lambda c: c["token_id"])])
    torch.testing.assert_close(found, rows[0], rtol=0, atol=1e-4)
    result = cli("generate", "-m", folder, *THEIRS, "--json", "-n", "8", "--ignore-eos", "abc").json
    assert result["token_ids"] == token_ids[3:]
    refused(cli("generate", "-m", folder, "abc"), f"{architecture!r} model", "--backend transformers")


def test_a_tokenizer_with_gaps_and_settings_for_training(cli: Cli, tmp_path: Path) -> None:
    vocab = {token: n for n, token in enumerate([*BYTE_OF_CHARACTER, "<|endoftext|>"])} | {"日": V + 1}
    tokenizer = bytes_only()
    tokenizer.model = models.BPE(vocab=vocab, merges=[])
    tokenizer.enable_truncation(2)  # for training; a prompt is never cut in silence
    tokenizer.enable_padding(length=8, pad_id=V - 1, pad_token="<|endoftext|>")
    folder = build(tmp_path / "model", ARCHITECTURES["llama"](), tokenizer)
    result = cli("inspect-logits", "-m", folder, *THEIRS, "--json", "--rows", "1000", "abc").json
    assert result["shape"] == [3, V + 2]
    found = {c["token_id"]: bytes(c["bytes"]) for c in result["candidates"]}
    assert (found[64], found[V - 1], found[V], found[V + 1]) == (b"a", b"<|endoftext|>", b"", "日".encode())


def test_standard_error_stays_empty(tmp_path: Path) -> None:
    """No bars, no reports, no warnings of the libraries; in a process of its own, where nobody captures them."""
    folder = build(tmp_path / "model", ARCHITECTURES["llama"](), bytes_only())
    ran = spawn("generate", "-m", folder, *THEIRS, "-n", "20", "a", stdin=subprocess.DEVNULL)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_a_tokenizer_with_visible_spaces_and_byte_tokens(cli: Cli, tmp_path: Path) -> None:
    """As SentencePiece's: ▁ is a space, <0xNN> a byte."""
    tokens = ["<|endoftext|>", *(f"<0x{b:02X}>" for b in range(256)), "▁", "c", "a", "t", "at", "▁c", "▁cat"]
    merges = [("a", "t"), ("▁", "c"), ("▁c", "at")]
    tokenizer = tokenizers.Tokenizer(models.BPE({t: n for n, t in enumerate(tokens)}, merges, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    config = transformers.LlamaConfig(**(SIZES | {"vocab_size": len(tokens)}), **LONG, bos_token_id=0, eos_token_id=0)
    folder = build(tmp_path / "model", config, tokenizer)
    result = cli("inspect-logits", "-m", folder, *THEIRS, "--json", "--rows", "1000", "cat é").json
    assert result["prompt_token_ids"] == [263, 257, 1 + 0xC3, 1 + 0xA9]
    found = {c["token_id"]: bytes(c["bytes"]) for c in result["candidates"]}
    assert found == {
        0: b"<|endoftext|>",
        257: b" ",
        258: b"c",
        259: b"a",
        260: b"t",
        261: b"at",
        262: b" c",
        263: b" cat",
    } | {1 + b: bytes([b]) for b in range(256)}


def test_a_model_that_changes_its_logits_is_refused(cli: Cli, tmp_path: Path) -> None:
    """What this program shows as logits would not be what the model chooses by."""
    config = transformers.Gemma2Config(
        **SIZES, **LONG, **ENDS, num_key_value_heads=1, head_dim=8, final_logit_softcapping=0.01
    )
    folder = build(tmp_path / "model", config, bytes_only())
    refused(cli("generate", "-m", folder, *THEIRS, "abc"), "changes its logits after the unembedding")


def test_what_no_library_knows_is_refused(cli: Cli, tmp_path: Path) -> None:
    folder = checkpoints.tiny(tmp_path / "tiny")
    config = json.loads((folder / "config.json").read_text())
    for fields in (
        {"model_type": "strange"},
        {"model_type": "bert"},
        {"n_head": 3},
        {"n_embd": "8"},
        {"vocab_size": -1},
    ):
        (folder / "config.json").write_text(json.dumps(config | fields))
        refused(cli("generate", "-m", folder, *THEIRS, "a"), str(folder))
