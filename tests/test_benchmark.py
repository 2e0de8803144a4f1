"""The benchmark runs every work on every engine that is here, and the engines do the same work."""

import json
import subprocess
import sys
from pathlib import Path

import checkpoints
import readme


def test_the_benchmark_measures_each_engine_at_the_same_work(tmp_path: Path) -> None:
    folder = checkpoints.random(tmp_path, n_embd=16, n_layer=2, n_head=2, n_positions=1024)
    script = readme.ROOT / "examples" / "benchmark.py"
    ran = subprocess.run(
        [sys.executable, script, "--model", folder, "--rounds", "1", "--json"], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert report["agree"]
    (made,) = report["rounds"]
    assert {"gpt2cli", "transformers"} <= made.keys()
    for figures in made.values():
        works = {"start", "prompt 32", "prompt 1000", "decode", "decode 16", "peak MB"}
        assert works | {"ids"} == figures.keys()
        assert all(figures[work] > 0 for work in works)
