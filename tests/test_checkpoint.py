"""Checkpoints through the command line: every layout that holds a GPT-2, and every way in which one can be wrong."""

import errno
import json
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import checkpoints
import pytest
import torch
from conftest import Cli, refused
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import GPT2LMHeadModel

from gpt2cli import checkpoint
from gpt2cli.tokenizer import Tokenizer

P5 = "The capital of France is"
Weights = dict[str, Tensor]
V = checkpoints.BYTE_VOCAB


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return checkpoints.tiny(tmp_path / "tiny")


def row(cli: Cli, folder: Path | str, *options: str) -> list[dict[str, Any]]:
    """All candidates of the last row of a text."""
    return cli("inspect-logits", "-m", folder, "--json", "--rows", "1000", *options, "abc").json["candidates"]


def logits(candidates: list[dict[str, Any]]) -> Tensor:
    """[V], by token id."""
    return torch.tensor([c["logit"] for c in sorted(candidates, key=lambda c: c["token_id"])])


def reference_logits(folder: Path) -> Tensor:
    """[V] of the last position of "abc", by transformers."""
    token_ids = Tokenizer.from_folder(folder).encode("abc")
    with torch.inference_mode():
        return GPT2LMHeadModel.from_pretrained(folder).eval()(torch.tensor([token_ids])).logits[0, -1]


def rewrite(folder: Path, change: Callable[[Weights], Weights]) -> Path:
    """Replace the weights of a folder by change(weights)."""
    weights = change(load_file(folder / "model.safetensors"))
    save_file({n: t.contiguous().clone() for n, t in weights.items()}, folder / "model.safetensors", {"format": "pt"})
    return folder


def configure(folder: Path, **fields: Any) -> Path:
    config = json.loads((folder / "config.json").read_text()) | fields
    (folder / "config.json").write_text(json.dumps({n: v for n, v in config.items() if v is not ...}))
    return folder


def shard(folder: Path, shards: int = 3) -> Path:
    """model.safetensors as several files and an index."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    weight_map = {n: f"model-{i % shards + 1:05}-of-{shards:05}.safetensors" for i, n in enumerate(sorted(weights))}
    for name in set(weight_map.values()):
        save_file({n: weights[n] for n, file in weight_map.items() if file == name}, folder / name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


# Layouts that hold the same model


def without_prefix(weights: Weights) -> Weights:
    return {n.removeprefix("transformer."): t for n, t in weights.items()}


def with_mask_buffers(weights: Weights) -> Weights:
    mask = torch.ones(1, 1, 32, 32).tril()
    layers = range(2)
    return weights | {f"h.{n}.attn.bias": mask for n in layers} | {f"h.{n}.attn.masked_bias": mask[0] for n in layers}


LAYOUTS: dict[str, Callable[[Path], Path]] = {
    "as saved": lambda folder: folder,
    "without prefix": lambda folder: rewrite(folder, without_prefix),
    "as first uploaded": lambda folder: rewrite(folder, lambda w: with_mask_buffers(without_prefix(w))),
    "with an equal lm_head": lambda folder: rewrite(
        folder, lambda w: w | {"lm_head.weight": w["transformer.wte.weight"].clone()}
    ),
    "float64": lambda folder: rewrite(folder, lambda w: {n: t.double() for n, t in w.items()}),
    "in shards": shard,
    "in one shard": lambda folder: shard(folder, 1),
    "with a pickle beside it": lambda folder: (folder / "pytorch_model.bin").write_bytes(b"\x80\x04") and folder,
    "with files of other kinds": lambda folder: (folder / "README.md").write_text("hello") and folder,
    "without optional fields": lambda folder: configure(
        folder, model_type=..., bos_token_id=..., eos_token_id=..., architectures=...
    ),
    "n_inner spelled out": lambda folder: configure(folder, n_inner=32),
    "n_inner null": lambda folder: configure(folder, n_inner=None),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_one_model(layout: str, cli: Cli, tiny: Path) -> None:
    expected = reference_logits(tiny)
    candidates = row(cli, LAYOUTS[layout](tiny))
    assert len(candidates) == V
    torch.testing.assert_close(logits(candidates), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_files_of_half_precision_are_computed_in_float32(dtype: torch.dtype, cli: Cli, tiny: Path) -> None:
    rewrite(tiny, lambda w: {n: t.to(dtype) for n, t in w.items()})
    halved = row(cli, tiny)
    expected = row(cli, rewrite(tiny, lambda w: {n: t.float() for n, t in w.items()}))
    assert halved == expected


def test_layouts_give_the_same_text(cli: Cli, tmp_path: Path, gpt2_tokenizer: Tokenizer) -> None:
    """B35: as saved, with an equal head, and as first uploaded."""
    folder = checkpoints.scripted(tmp_path / "scripted", gpt2_tokenizer.encode(" Paris, of course."), 5)
    for layout in ("as saved", "with an equal lm_head", "without prefix", "in shards"):
        assert cli("generate", "-m", LAYOUTS[layout](folder), P5).ok().out == " Paris, of course.\n"


def test_an_untied_model_uses_its_own_head(cli: Cli, tmp_path: Path) -> None:
    folder = checkpoints.tiny(tmp_path / "untied", tie_word_embeddings=False)
    torch.testing.assert_close(logits(row(cli, folder)), reference_logits(folder), rtol=0, atol=1e-4)
    tied = rewrite(configure(folder, tie_word_embeddings=True), lambda w: w | {"lm_head.weight": w["lm_head.weight"]})
    torch.testing.assert_close(logits(row(cli, tied)), reference_logits(tied), rtol=0, atol=1e-4)


GELU_BY_TANH = ("gelu_new", "gelu_fast", "gelu_pytorch_tanh")


@pytest.mark.parametrize(
    "fields",
    [
        {"activation_function": "gelu"},
        {"activation_function": "gelu_new"},
        {"activation_function": "gelu_fast"},
        {"activation_function": "gelu_pytorch_tanh"},
        {"activation_function": "quick_gelu"},
        {"activation_function": "relu"},
        {"activation_function": "silu"},
        {"activation_function": "swish"},
        {"activation_function": "tanh"},
        {"scale_attn_weights": False},
        {"scale_attn_by_inverse_layer_idx": True},
        {"scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True},
        {"reorder_and_upcast_attn": True},
        {"reorder_and_upcast_attn": True, "scale_attn_by_inverse_layer_idx": True},
        {"layer_norm_epsilon": 0.5},
        {"layer_norm_epsilon": 0.0},
        {"n_inner": 7},
        {"n_head": 1},
        {"n_head": 8},
        {"n_layer": 5},
        {"n_positions": 3},
    ],
    ids=str,
)
def test_config_fields_are_honoured(fields: dict[str, Any], cli: Cli, tmp_path: Path) -> None:
    plain = row(cli, checkpoints.tiny(tmp_path / "plain"))
    folder = checkpoints.tiny(tmp_path / "model", **fields)
    ours = logits(row(cli, folder))
    torch.testing.assert_close(ours, reference_logits(folder), rtol=0, atol=1e-4)
    same = fields.get("activation_function") in GELU_BY_TANH or fields == {"reorder_and_upcast_attn": True}
    assert torch.allclose(ours, logits(plain), rtol=0, atol=1e-6) == same


# Vocabulary and padding


def test_rows_that_pad_the_embedding_are_no_tokens(cli: Cli, tmp_path: Path) -> None:
    """The padding rows have the largest logits, and are neither counted nor chosen."""
    folder = checkpoints.tiny(tmp_path / "padded")
    expected = row(cli, folder)
    rows = torch.full((63, 8), 100.0) * load_file(folder / "model.safetensors")["transformer.ln_f.weight"].sign()

    def pad(weights: Weights) -> Weights:
        return weights | {"transformer.wte.weight": torch.cat([weights["transformer.wte.weight"], rows, -rows])}

    configure(rewrite(folder, pad), vocab_size=V + 126)
    assert row(cli, folder) == expected
    record = cli("inspect-logits", "-m", folder, "--json", "abc").json
    assert record["shape"] == [3, V]
    sampled = cli("generate", "-m", folder, "--json", "-t", "5", "-s", "1", "-n", "25", "--ignore-eos", "abc").json
    assert max(sampled["token_ids"]) < V


def test_gpt2s_vocabulary_serves_a_folder_without_tokenizer_files(cli: Cli, tmp_path: Path) -> None:
    folder = checkpoints.random(tmp_path / "plain", n_embd=4, n_positions=8, vocab_size=50304)
    record = cli("inspect-logits", "-m", folder, "--json", P5).json
    assert record["prompt_token_ids"] == [464, 3139, 286, 4881, 318]
    assert record["shape"] == [5, 50257]


def test_a_tokenizer_larger_than_the_model_is_refused(cli: Cli, tiny: Path) -> None:
    rewrite(
        configure(tiny, vocab_size=200),
        lambda w: w | {"transformer.wte.weight": w["transformer.wte.weight"][:200]},
    )
    for backend in ("native", "transformers"):
        refused(cli("generate", "-m", tiny, "--backend", backend, "a"), str(tiny), "257 tokens", "only 200")


def test_a_damaged_tokenizer_is_refused(cli: Cli, tiny: Path) -> None:
    (tiny / "vocab.json").write_text("{")
    refused(cli("generate", "-m", tiny, "a"), str(tiny / "vocab.json"))


@pytest.mark.parametrize(
    ("eos", "generation", "tokens"),
    [
        (256, None, 0),
        (5, None, 4),
        ([7, 5], None, 4),
        (5, {"eos_token_id": 256}, 0),
        (5, {"eos_token_id": [256, 7]}, 0),
        (5, {"eos_token_id": None}, 4),
        (5, {}, 4),
        (None, None, 0),
        (-1, None, 0),
        (10**9, None, 0),
    ],
)
def test_where_the_end_of_a_text_is_defined(eos: Any, generation: Any, tokens: int, cli: Cli, tmp_path: Path) -> None:
    """The model says 1 2 3 4 and `<|endoftext|>`, or 5 where the text may end with that."""
    folder = tmp_path / "model"
    config = checkpoints.config_json(vocab_size=V, n_positions=8, n_embd=16, eos_token_id=eos)
    weights = checkpoints.blank(config)
    rows = torch.nn.functional.normalize(torch.randn(V, 16, generator=torch.Generator().manual_seed(0)), dim=1)
    script = [1, 2, 3, 4, 5, 6, 7, 8] if tokens else [256] * 8
    weights |= {"wte.weight": rows, "wpe.weight": 50 * rows[script], "ln_f.weight": torch.full((16,), 8.0)}
    checkpoints.byte_vocabulary(checkpoints.write(folder, config, weights))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    result = cli("generate", "-m", folder, "--json", "-n", "7", "a").json
    assert (result["token_ids"], result["finish_reason"]) == (script[:tokens], "eos")


# Weights that do not fit


def drop(name: str) -> Callable[[Weights], Weights]:
    return lambda weights: {n: t for n, t in weights.items() if n != name}


WRONG_WEIGHTS: dict[str, tuple[Callable[[Weights], Weights], str]] = {
    "no position embedding": (drop("transformer.wpe.weight"), "lacks wpe.weight"),
    "no bias in a block": (drop("transformer.h.1.mlp.c_fc.bias"), "lacks h.1.mlp.c_fc.bias"),
    "an unknown tensor": (lambda w: w | {"score.weight": torch.ones(2)}, "has unknown score.weight"),
    "a block too many": (
        lambda w: w | {f"transformer.h.2.{n[16:]}": t for n, t in w.items() if ".h.1." in n},
        "has unknown h.2.attn.c_attn.bias",
    ),
    "a matrix the other way round": (
        lambda w: w | {"transformer.h.0.mlp.c_fc.weight": w["transformer.h.0.mlp.c_fc.weight"].T},
        "h.0.mlp.c_fc.weight is [32, 8], not [8, 32]",
    ),
    "another width": (lambda w: w | {"transformer.ln_f.weight": torch.ones(9)}, "ln_f.weight is [9], not [8]"),
    "a scalar": (lambda w: w | {"transformer.ln_f.bias": torch.tensor(1.0)}, "ln_f.bias is [], not [8]"),
    "integers": (
        lambda w: w | {"transformer.ln_f.bias": torch.ones(8, dtype=torch.int8)},
        "ln_f.bias is torch.int8",
    ),
    "a tensor twice": (
        lambda w: w | {"ln_f.bias": torch.ones(8)},
        "holds twice, with and without `transformer.`: ln_f",
    ),
    "nothing": (lambda w: {}, "2, but"),
    "all of another model": (lambda w: {f"model.{n}": t for n, t in w.items()}, "lacks h.0.attn.c_attn.bias"),
}


@pytest.mark.parametrize("what", WRONG_WEIGHTS)
def test_weights_that_do_not_fit_are_named(what: str, cli: Cli, tiny: Path) -> None:
    change, said = WRONG_WEIGHTS[what]
    refused(cli("generate", "-m", rewrite(tiny, change), "a"), said)


def test_an_untied_model_without_a_head_is_refused(cli: Cli, tiny: Path) -> None:
    refused(cli("generate", "-m", configure(tiny, tie_word_embeddings=False), "a"), "lacks lm_head.weight")


def header(data: bytes, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(data) if length is None else length) + data


TERABYTES = b'{"a":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}}'
DAMAGED_WEIGHTS: dict[str, Callable[[bytes], bytes]] = {
    "half of it": lambda data: data[: len(data) // 2],
    "all but a byte": lambda data: data[:-1],
    "a byte too many": lambda data: data + b"\0",
    "empty": lambda data: b"",
    "seven bytes": lambda data: data[:7],
    "only the header's length": lambda data: data[:8],
    "a Git LFS pointer": lambda data: b"version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 548105171\n",
    "a web page": lambda data: b"<!doctype html><html>Sign in</html>" * 20,
    "a header of exabytes": lambda data: header(b"{}", 2**63),
    "a header of terabytes": lambda data: header(b"{}", 10**12),
    "a tensor of terabytes": lambda data: header(TERABYTES),
    "a header that is no JSON": lambda data: header(b"{]"),
    "a header that is a list": lambda data: header(b"[]"),
    "a header that is not UTF-8": lambda data: header(b'{"\xff":1}'),
    "an unknown dtype": lambda data: header(b'{"a":{"dtype":"F33","shape":[],"data_offsets":[0,0]}}'),
    "a negative shape": lambda data: header(b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}') + b"\0" * 4,
    "a shape that overflows": lambda data: header(
        b'{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}'
    ),
    "offsets the wrong way round": lambda data: header(b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}'),
    "a zip file": lambda data: b"PK\x03\x04" + b"\0" * 100,
}


@pytest.mark.parametrize("backend", ["native", "transformers"])
@pytest.mark.parametrize("what", DAMAGED_WEIGHTS)
def test_damaged_weights_are_named(what: str, backend: str, cli: Cli, tiny: Path) -> None:
    path = tiny / "model.safetensors"
    path.write_bytes(DAMAGED_WEIGHTS[what](path.read_bytes()))
    ran = cli("generate", "-m", tiny, "--backend", backend, "a")
    refused(ran, f"{path} is incomplete or not a safetensors file")


def test_weights_that_cannot_be_read_are_named(cli: Cli, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(path: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(checkpoint, "load_file", deny)
    refused(cli("generate", "-m", tiny, "a"), f"cannot read {tiny / 'model.safetensors'}", "Permission denied")


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "model.safetensors", "vocab.json"])
@pytest.mark.parametrize("kind", ["fifo", "device", "folder"])
def test_what_is_no_file_is_not_read(name: str, kind: str, cli: Cli, tiny: Path) -> None:
    """A pipe would wait for ever, and some devices never end."""
    path = tiny / name
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    refused(cli("generate", "-m", tiny, "a"), f"cannot read {path}: it is no file")


def test_a_folder_in_place_of_the_weights_is_named(cli: Cli, tiny: Path) -> None:
    (tiny / "model.safetensors").unlink()
    (tiny / "model.safetensors").mkdir()
    refused(cli("generate", "-m", tiny, "a"), str(tiny / "model.safetensors"))


def test_a_folder_without_weights(cli: Cli, tiny: Path) -> None:
    (tiny / "model.safetensors").unlink()
    refused(cli("generate", "-m", tiny, "a"), f"{tiny} has no model.safetensors")
    (tiny / "model.safetensors").symlink_to("../gone")
    refused(cli("generate", "-m", tiny, "a"), f"{tiny} has no model.safetensors")


def test_links_as_in_the_hugging_face_cache(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    expected = logits(row(cli, tiny))
    snapshot = tmp_path / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    for path in tiny.iterdir():
        (snapshot / path.name).symlink_to(path)
    torch.testing.assert_close(logits(row(cli, snapshot)), expected)
    shard(tiny)
    (snapshot / "model.safetensors").unlink()
    for path in tiny.glob("model*"):
        (snapshot / path.name).symlink_to(path)
    torch.testing.assert_close(logits(row(cli, snapshot)), expected)


# Shards


@pytest.mark.parametrize(
    "index",
    [
        {"weight_map": {"wte.weight": "../tiny/model-00001-of-00003.safetensors"}},
        {"weight_map": {"wte.weight": "/etc/passwd"}},
        {"weight_map": {"wte.weight": "sub/x.safetensors"}},
        {"weight_map": {"wte.weight": "pytorch_model.bin"}},
        {"weight_map": {"wte.weight": ""}},
        {"weight_map": {"wte.weight": 1}},
        {"weight_map": {"wte.weight": None}},
        {"weight_map": {"wte.weight": ["model-00001-of-00003.safetensors"]}},
        {"weight_map": {}},
        {"weight_map": ["model-00001-of-00003.safetensors"]},
        {"weight_map": None},
        {},
    ],
    ids=str,
)
def test_an_index_that_leads_elsewhere_is_refused(index: Any, cli: Cli, tiny: Path) -> None:
    shard(tiny)
    (tiny / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(cli("generate", "-m", tiny, "a"), str(tiny / "model.safetensors.index.json"), "of its own folder")


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, "\x00"])
def test_a_damaged_index_is_named(text: str, cli: Cli, tiny: Path) -> None:
    shard(tiny)
    (tiny / "model.safetensors.index.json").write_text(text)
    refused(cli("generate", "-m", tiny, "a"), str(tiny / "model.safetensors.index.json"))


@pytest.mark.parametrize("backend", ["native", "transformers"])
def test_a_missing_shard_is_named(backend: str, cli: Cli, tiny: Path) -> None:
    missing = shard(tiny) / "model-00002-of-00003.safetensors"
    missing.unlink()
    refused(cli("generate", "-m", tiny, "--backend", backend, "a"), f"{missing} is missing; the index names it")
    missing.write_bytes(b"")
    refused(cli("generate", "-m", tiny, "--backend", backend, "a"), f"{missing} is incomplete")


# Pickles are never opened


class Canary:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("backend", ["native", "transformers"])
@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "ckpt.pt", "model.pth", "model.ckpt", "pytorch_model-00001-of-00002.bin"]
)
def test_a_pickle_is_never_opened(name: str, backend: str, cli: Cli, tiny: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    pickled = pickle.dumps({"wte.weight": Canary(canary)})
    (tiny / name).write_bytes(pickled)
    good = cli("generate", "-m", tiny, "--backend", backend, "-n", "3", "a").ok()
    (tiny / "model.safetensors").unlink()
    refused(cli("generate", "-m", tiny, "--backend", backend, "a"), str(tiny), name, "convert it", "safetensors")
    assert not canary.exists()
    assert good.out
    pickle.loads(pickled)  # it would have sung
    assert canary.exists()


# config.json


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "7", '"gpt2"', "[" * 100_000, "\xff", '{"n_embd": ' + "9" * 5000 + "}"]
)
def test_a_config_that_is_no_json_object_is_named(text: str, cli: Cli, tiny: Path) -> None:
    (tiny / "config.json").write_text(text, encoding="latin-1")
    refused(cli("generate", "-m", tiny, "a"), str(tiny / "config.json"))


def test_a_folder_without_config(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    (tiny / "config.json").unlink()
    refused(cli("generate", "-m", tiny, "a"), f"{tiny} has no config.json")
    (tiny / "config.json").mkdir()
    refused(cli("generate", "-m", tiny, "a"), f"cannot read {tiny / 'config.json'}")


def test_a_damaged_generation_config_is_named(cli: Cli, tiny: Path) -> None:
    (tiny / "generation_config.json").write_text("[]")
    refused(cli("generate", "-m", tiny, "a"), str(tiny / "generation_config.json"))


SIZES = ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "n_inner")
FLAGS = ("scale_attn_weights", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "tie_word_embeddings")
WRONG = {
    **{name: ["8", True, 0, -1, 2**31, 10**40, 1.5, [8], {}] for name in SIZES},
    **{name: ["true", 0, 1, [True], {}] for name in FLAGS},
    "layer_norm_epsilon": ["1e-5", True, -1, 1, 10**400, float("nan"), float("inf"), [1e-5]],
    "activation_function": ["gelu2", 7, True, ["gelu"], {}, ""],
    "add_cross_attention": [True, 1, "yes"],
    "eos_token_id": ["256", 1.5, True, [256, "7"], [[256]], {}],
    "bos_token_id": ["256", 1.5, True, {}],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG.items() for value in values], ids=str
)
def test_a_wrong_config_field_is_named(name: str, value: Any, cli: Cli, tiny: Path) -> None:
    refused(cli("generate", "-m", configure(tiny, **{name: value}), "a"), name)


@pytest.mark.parametrize("name", [n for n in SIZES if n != "n_inner"])
def test_a_missing_config_field_is_named(name: str, cli: Cli, tiny: Path) -> None:
    for value in (None, ...):
        refused(cli("generate", "-m", configure(tiny, **{name: value}), "a"), f"config.json: {name} is missing")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"n_head": 3}, "n_embd 8 is not a multiple of n_head 3"),
        ({"n_layer": 2**31 - 1}, "n_layer is 2147483647"),
        ({"n_layer": 3}, "lacks h.2."),
        ({"n_layer": 1}, "has unknown h.1."),
        ({"n_positions": 2**31 - 1}, "wpe.weight is [32, 8], not [2147483647, 8]"),
        ({"n_embd": 2**20}, "not [257, 1048576]"),
        ({"vocab_size": 2**31 - 1}, "wte.weight is [257, 8], not [2147483647, 8]"),
        ({"model_type": "llama"}, "'llama' model; the native backend runs GPT-2: add --backend transformers"),
        ({"model_type": 7}, "--backend transformers"),
    ],
    ids=str,
)
def test_a_config_that_does_not_fit_is_refused(fields: dict[str, Any], said: str, cli: Cli, tiny: Path) -> None:
    refused(cli("generate", "-m", configure(tiny, **fields), "a"), said)


# Names


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("[/]", "no model '[/]'"),
        ("[bold]", "no model '[bold]'"),
        ("", "no model ''"),
        (" ", "no model ' '"),
        ("a b", "no model 'a b'"),
        ("../nowhere", "no model '../nowhere'"),
        ("./nowhere", "no model './nowhere'"),
        ("/no/where", "no model '/no/where'"),
        ("~nobody-here/model", "'~nobody-here/model'"),
        ("a/b/c", "no model 'a/b/c'"),
        ("a\x00b", "no model 'a\\x00b'"),
        ("a\nb", "no model 'a\\nb'"),
        ("\x1b[31mred", "no model '\\x1b[31mred'"),
        ("x" * 5000, "xxx"),
        ("someone/" + "x" * 500, "xxx"),
        ("日本", "no model '日本'"),
        ("--", "no model '--'"),
        ("a--b", "no model 'a--b'"),
        ("\udcff", "is not UTF-8; rename it"),
        ("nowhere", "no model 'nowhere' here"),
        ("some/nowhere", "HF_HUB_OFFLINE is set"),
    ],
)
def test_a_name_that_names_nothing(
    name: str, said: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(cli("generate", f"--model={name}", "a"), said)


def test_names_of_folders(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("a b", "[bold]x[/bold]", "日本", "a\nb", "~tilde", "gpt2", "a--b"):
        checkpoints.tiny(tmp_path / name)
        argument = f"./{name}" if name[0] == "~" else name
        assert cli("generate", "-m", argument, "-n", "2", "--json", "a").json["model"] == argument
    assert cli("generate", "-m", "~/gpt2", "-n", "2", "a").ok()
    assert cli("generate", "-m", "gpt2/", "-n", "2", "a").ok()


def test_a_file_is_no_folder(cli: Cli, tiny: Path) -> None:
    path = tiny / "model.safetensors"
    refused(cli("generate", "-m", path, "a"), f"{path} is a file; name the folder that holds it: --model {tiny}")
