"""The engines that benchmark.py compares: how each makes a model ready, loads it, and continues texts greedily."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# Nothing heavy is imported above: a process is charged with the memory of the one that started it.

OnToken = Callable[[], object]  # called as each token of a text is made, where there is one text
Generate = Callable[[list[list[int]], int, OnToken], list[list[int]]]  # prompts, new tokens → new tokens of each
Load = Callable[[str, str, int], Generate]  # model, dtype, threads: as many as torch takes by itself
Prepare = Callable[[str, str, str], None]  # folder in Hugging Face layout, dtype, where to write the engine's format

# Bytes of a weight, and of a number in the cache.
TYPES = {"float32": (4, 4), "float16": (2, 2), "bfloat16": (2, 2), "int8": (1, 4)}


def load_gpt2cli(model: str, dtype: str, threads: int) -> Generate:
    import gpt2cli
    from gpt2cli.batch.engine import Batch, Request

    loaded = gpt2cli.load(model, dtype=dtype)

    def generate(prompts: list[list[int]], new_tokens: int, on_token: OnToken) -> list[list[int]]:
        options = gpt2cli_options(new_tokens)
        if len(prompts) == 1:
            for event in loaded.generate(prompts[0], options=options):
                if isinstance(event, gpt2cli.Completion):
                    return [list(event.token_ids)]
                on_token()
        batch: Batch[int] = Batch(loaded.model, loaded.tokenizer, len(prompts))
        for n, prompt in enumerate(prompts):
            batch.add(n, Request(prompt, gpt2cli.SamplingOptions(), options, seed=0))
        texts: dict[int, list[int]] = {}
        while not batch.is_empty:
            texts |= {n: list(end.token_ids) for n, end in batch.turn() if isinstance(end, gpt2cli.Completion)}
        return [texts[n] for n in range(len(prompts))]

    return generate


def gpt2cli_options(new_tokens: int, lookup: bool = False) -> Any:
    """Without prompt lookup unless it is asked for: the other engines have none, and random weights repeat a lot."""
    from gpt2cli import GenerationOptions

    return GenerationOptions(max_new_tokens=new_tokens, eos_token_ids=frozenset(), lookup=lookup)


def load_transformers(model: str, dtype: str, threads: int) -> Generate:
    import torch
    from transformers import GPT2LMHeadModel
    from transformers.generation.streamers import BaseStreamer

    transformer = GPT2LMHeadModel.from_pretrained(model, dtype=getattr(torch, dtype), use_safetensors=True).eval()

    class Streamer(BaseStreamer):
        def __init__(self, on_token: OnToken) -> None:
            self.on_token = on_token
            self.put = lambda prompt: setattr(self, "put", lambda token: on_token())  # the prompt comes first

        def end(self) -> None:
            pass

    @torch.inference_mode()
    def generate(prompts: list[list[int]], new_tokens: int, on_token: OnToken) -> list[list[int]]:
        ids = torch.tensor(prompts)
        made = transformer.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=new_tokens,
            min_new_tokens=new_tokens,
            do_sample=False,
            pad_token_id=0,
            streamer=Streamer(on_token),
        )
        return made[:, ids.shape[1] :].tolist()

    return generate


def prepare_ctranslate2(folder: str, dtype: str, converted: str) -> None:
    from ctranslate2.converters import TransformersConverter

    vocab_size = json.loads((Path(folder) / "config.json").read_text())["vocab_size"]
    vocabulary = {str(n): n for n in range(vocab_size)}  # the name of a token is its id

    class Converter(TransformersConverter):  # type: ignore[misc]
        def load_tokenizer(self, *_: Any, **__: Any) -> Any:
            names = dict.fromkeys(("bos_token", "eos_token", "unk_token"), str(vocab_size - 1))
            return SimpleNamespace(get_vocab=lambda: vocabulary, **names)

    Converter(folder).convert(converted, quantization=dtype)


def load_ctranslate2(model: str, dtype: str, threads: int) -> Generate:
    import ctranslate2

    generator = ctranslate2.Generator(model, compute_type=dtype, intra_threads=threads)

    def generate(prompts: list[list[int]], new_tokens: int, on_token: OnToken) -> list[list[int]]:
        results = generator.generate_batch(
            [[str(n) for n in prompt] for prompt in prompts],
            max_length=new_tokens,
            min_length=new_tokens,
            include_prompt_in_result=False,
            end_token=[],
            callback=lambda step: bool(on_token()) and False,
        )
        return [result.sequences_ids[0] for result in results]

    return generate


def prepare_llama_cpp(folder: str, dtype: str, file: str) -> None:
    import gguf

    from gpt2cli.checkpoint import fit_weights, read_config, read_weights
    from gpt2cli.model import GPT2Config, weight_shapes

    config = GPT2Config.from_json(read_config(Path(folder)))
    weights = fit_weights(read_weights(Path(folder)), weight_shapes(config), tied=config.tie_word_embeddings)
    quantised = gguf.GGMLQuantizationType[ENGINES["llama.cpp"].types[dtype]]
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GPT2, config.n_layer)
    writer = gguf.GGUFWriter(file, "gpt2")
    writer.add_context_length(config.context_length)
    writer.add_embedding_length(config.n_embd)
    writer.add_block_count(config.n_layer)
    writer.add_head_count(config.n_head)
    writer.add_feed_forward_length(config.n_inner)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)
    writer.add_tokenizer_model("gpt2")  # there has to be one: the name of a token is its id
    writer.add_token_list([str(n) for n in range(config.vocab_size)])
    writer.add_token_merges(["0 0"])
    for name, tensor in weights.items():
        rows = tensor.T if name.startswith("h.") and tensor.ndim == 2 else tensor  # [in, out] → [out, in]
        kind = quantised if tensor.ndim == 2 and name != "wpe.weight" else gguf.GGMLQuantizationType.F32
        data = gguf.quants.quantize(rows.float().contiguous().numpy(), kind)
        writer.add_tensor(names.get_name(name, (".weight", ".bias")), data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def load_llama_cpp(model: str, dtype: str, threads: int) -> Generate:
    """Over llama.cpp's own functions: llama-cpp-python's class runs one text at a time.

    Its defaults are kept: the cache is in float16, and the GELU of float32 is looked up in a table of float16.
    """
    import llama_cpp as llama
    import numpy as np

    loaded = llama.llama_model_load_from_file(model.encode(), llama.llama_model_default_params())
    vocab_size = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(loaded))

    @cache
    def context(texts: int) -> Any:
        params = llama.llama_context_default_params()
        params.n_seq_max = texts
        # All of the context for one text; several are short, and share what there is.
        params.n_ctx = llama.llama_model_n_ctx_train(loaded) if texts == 1 else 256 * texts
        params.n_threads = params.n_threads_batch = threads
        return llama.llama_init_from_model(loaded, params)

    def generate(prompts: list[list[int]], new_tokens: int, on_token: OnToken) -> list[list[int]]:
        running = context(len(prompts))
        llama.llama_memory_clear(llama.llama_get_memory(running), False)
        batch = llama.llama_batch_init(sum(map(len, prompts)), 0, 1)
        made: list[list[int]] = [[] for _ in prompts]
        for _ in range(new_tokens):
            last, batch.n_tokens = [], 0
            for text, (prompt, new) in enumerate(zip(prompts, made, strict=True)):
                first, tokens = (len(prompt) + len(new) - 1, new[-1:]) if new else (0, prompt)
                for position, token in enumerate(tokens, start=first):
                    n = batch.n_tokens
                    batch.token[n], batch.pos[n] = token, position
                    batch.n_seq_id[n], batch.seq_id[n][0] = 1, text
                    batch.logits[n] = position + 1 == first + len(tokens)
                    batch.n_tokens += 1
                last.append(batch.n_tokens - 1)
            if llama.llama_decode(running, batch):
                raise RuntimeError("llama_decode failed")
            for new, row in zip(made, last, strict=True):
                logits = np.ctypeslib.as_array(llama.llama_get_logits_ith(running, row), (vocab_size,))
                new.append(int(logits.argmax()))
            on_token()
        llama.llama_batch_free(batch)
        return made

    return generate


@dataclass(frozen=True)
class Engine:
    """types: our name of a type → the engine's.

    library: what a process imports before a model takes memory.
    start: a script for `start_command`; `model`, `dtype`, `tokens` and `threads` are filled in.
    distributions: what has to be installed.
    """

    load: Load
    types: dict[str, str]
    library: str
    start: str
    distributions: tuple[str, ...]
    prepare: Prepare | None = None


ENGINES = {
    "gpt2cli": Engine(load_gpt2cli, {name: name for name in TYPES}, "torch", "", ()),
    "transformers": Engine(
        load_transformers,
        {name: name for name in ("float32", "bfloat16")},  # a prompt in float16 would take minutes
        "torch",
        """
import torch
from transformers import GPT2LMHeadModel
model = GPT2LMHeadModel.from_pretrained({model!r}, dtype=torch.{dtype})
print(model.generate(torch.tensor([[262] * {tokens}]), max_new_tokens=1, do_sample=False)[0, -1])
""",
        ("transformers",),
    ),
    "CTranslate2": Engine(
        load_ctranslate2,
        {name: name for name in ("float32", "int8")},
        "ctranslate2",
        """
import ctranslate2
generator = ctranslate2.Generator({model!r}, intra_threads={threads})
print(generator.generate_batch([["262"] * {tokens}], max_length=1, include_prompt_in_result=False))
""",
        ("ctranslate2",),
        prepare_ctranslate2,
    ),
    "llama.cpp": Engine(
        load_llama_cpp,
        {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "int8": "Q8_0"},
        "llama_cpp",
        """
import llama_cpp
model = llama_cpp.Llama({model!r}, n_ctx=0, n_threads={threads}, verbose=False)
print(next(model.generate([262] * {tokens}, temp=0)))
""",
        ("llama-cpp-python", "gguf"),
        prepare_llama_cpp,
    ),
}


def start_command(engine: str, model: str, dtype: str, tokens: int, threads: int) -> list[str]:
    """What a user runs to see the token after so many times " the" (262)."""
    if engine == "gpt2cli":
        program = [sys.executable, "-m", "gpt2cli", "generate"]
        return [*program, "-n", "1", "--dtype", dtype, "-m", model, " the" * tokens]
    script = ENGINES[engine].start.format(model=model, dtype=dtype, tokens=tokens, threads=threads)
    return [sys.executable, "-c", script]


def versions(engine: str) -> dict[str, str] | None:
    """Of what the engine needs; None where that is not installed."""
    try:
        return {name: metadata.version(name) for name in ENGINES[engine].distributions}
    except metadata.PackageNotFoundError:
        return None
