"""The benchmark runs every work on every engine that is here, and the engines do the same work."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import checkpoints
import pytest
import readme
from rich.console import Console

SCRIPT = readme.ROOT / "examples" / "benchmark.py"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(SCRIPT.parent)
    return importlib.import_module("benchmark")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return checkpoints.random(tmp_path, n_embd=32, n_layer=2, n_head=2, n_positions=1024)


def test_the_benchmark_measures_each_engine_at_the_same_work(benchmark: Any, folder: Path) -> None:
    arguments = ["--model", folder, "--rounds", "1", "--dtype", "float32", "--json"]
    ran = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    measured = json.loads(ran.stdout)
    engines = benchmark.ENGINES.keys() - measured["missing"]
    assert {"gpt2cli", "transformers"} <= engines
    assert measured["weights per token"] == 50257 * 32 + 2 * (12 * 32 * 32 + 13 * 32) + 2 * 32
    ((made,),) = (r.values() for r in measured["rounds"])
    assert made.keys() == measured["memory"]["float32"].keys() == engines
    own = {"lookup repeats", "lookup does not", "lookup agrees", "bandwidth", "limit"}
    for engine, figures in made.items():
        works = {*benchmark.WORKS, "growth"}
        assert figures.keys() == works | {"ids"} | (own if engine == "gpt2cli" else set())
        assert all(figures[work] > 0 for work in works)
        assert measured["memory"]["float32"][engine] > 0
        # llama.cpp takes GELU from a table of float16, and may choose another of two tokens that are close.
        assert measured["agreeing"][engine] >= (8 if engine == "llama.cpp" else benchmark.NEW_TOKENS)
    assert made["gpt2cli"]["lookup agrees"]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8"])
def test_the_files_for_llama_cpp_hold_the_same_model(benchmark: Any, folder: Path, tmp_path: Path, dtype: str) -> None:
    pytest.importorskip("gguf")
    pytest.importorskip("llama_cpp")
    prompts = benchmark.prompts(3, 40)
    expected = benchmark.ENGINES["gpt2cli"].load(str(folder), "float32", 1)(prompts, 2, lambda: None)
    benchmark.prepare("llama.cpp", str(folder), dtype, str(tmp_path / "gguf"))
    assert benchmark.ENGINES["llama.cpp"].load(str(tmp_path / "gguf"), dtype, 1)(prompts, 2, lambda: None) == expected


def test_the_cost_of_rounding(benchmark: Any, folder: Path) -> None:
    changes = benchmark.quality(str(folder), ["float32", "bfloat16"])
    assert changes["float32"] == {
        "logit change": 0,
        "same top": 1,
        "loss change": 0,
        "loss": changes["bfloat16"]["loss"],
    }
    assert 0 < changes["bfloat16"]["logit change"] < 0.1
    assert 0.9 < changes["bfloat16"]["same top"] < 1
    assert abs(changes["bfloat16"]["loss change"]) < 0.01


def test_the_report(benchmark: Any) -> None:
    """Figures of two rounds, from which the ratios, medians and spreads can be worked out by hand."""

    def figures(seconds: float, rate: float) -> dict[str, Any]:
        return {n: rate if more_is_faster else seconds for n, (*_, more_is_faster) in benchmark.WORKS.items()}

    own = {"growth": 1.25, "bandwidth": 20e9, "limit": 40.0, "lookup agrees": True}
    lookups = {"lookup repeats": 1.9, "lookup does not": 0.98}
    measured = {
        "long": 1000,
        "weights": 10**9,
        "weights per token": 10**9,
        "cache per token": 10**5,
        "memory": {"int8": {"gpt2cli": 1500.0, "llama.cpp": 1100.0}},
        "quality model": "tinystories",
        "quality": {"int8": {"logit change": 0.0123, "same top": 0.995, "loss change": 0.001, "loss": 2.0}},
        "agreeing": {},
        "missing": ["CTranslate2"],
        "rounds": [
            {"int8": {"gpt2cli": figures(2, 20) | own | lookups, "llama.cpp": figures(4, 50) | {"growth": 1.5}}},
            {"int8": {"gpt2cli": figures(3, 30) | own | lookups, "llama.cpp": figures(4.5, 45) | {"growth": 1.7}}},
        ],
    }
    console = Console(width=104)
    with console.capture() as capture:
        for part in benchmark.report(measured):
            console.print(part)
    lines = [" ".join(line.split()) for line in capture.get().splitlines()]
    assert "times as fast as gpt2cli llama.cpp" in lines
    assert "start to first token 0.58×" in lines  # the median of 2 ÷ 4 and 3 ÷ 4.5
    assert "one text 2.00×" in lines  # of 50 ÷ 20 and 45 ÷ 30
    assert "first token after 32, ms 2500 [2000–3000] 4250 [4000–4500]" in lines
    assert "time of token 1,008 ÷ 64 1.25 [1.25–1.25] 1.6 [1.5–1.7]" in lines
    assert "bytes that it reads 1.37" in lines  # (1 + 0.0004 × 1008) ÷ (1 + 0.0004 × 64)
    assert "peak MB over imports 1500 1100" in lines
    assert "weights and cache 1335" in lines  # (10⁹ + 1000 × 10⁵ × 4) ÷ 2²⁰
    assert "one text, share of that limit 0.625 [0.5–0.75]" in lines
    assert "the same top token 99.50%" in lines
    assert "Not installed: CTranslate2; pip install '.[bench]' brings them." in lines
