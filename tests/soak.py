"""Does memory grow, and do many processes get in each other's way? Not part of the test run; prints what it saw.

python tests/soak.py [GENERATIONS] [PROCESSES]
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import checkpoints

import gpt2cli

MEGABYTE = 1 << 20


def resident() -> int:
    """Bytes of this process that are in memory now (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def grow(folder: Path, generations: int) -> None:
    """The same model, used again and again through the Python API."""
    model = gpt2cli.load(str(folder))
    sampling = gpt2cli.SamplingOptions.of(temperature=1.0, top_k=40, top_p=0.9)
    options = gpt2cli.GenerationOptions(max_new_tokens=8, details=True, candidates=5)
    settled = 0
    for n in range(generations):
        for _ in model.generate("Once upon a time", sampling, options, seed=n):
            pass
        model.inspect("Once upon a time", sampling)
        if n == generations // 10:
            settled = resident()
        if n and n % (generations // 10) == 0:
            print(f"{n} generations: {resident() / MEGABYTE:.1f} MB")
    growth = (resident() - settled) / MEGABYTE
    print(f"grown by {growth:.1f} MB since generation {generations // 10}")
    assert growth < 8, "memory grows with the number of generations"


def crowd(folder: Path, home: Path, processes: int) -> None:
    """Many processes at once that read one model from one Hugging Face cache."""
    snapshot = home / "hub" / "models--openai-community--gpt2" / "snapshots" / ("0" * 40)
    snapshot.parent.mkdir(parents=True)
    shutil.copytree(folder, snapshot)
    refs = snapshot.parent.parent / "refs"
    refs.mkdir()
    (refs / "main").write_text("0" * 40)
    command = [sys.executable, "-m", "gpt2cli", "generate", "-m", "gpt2", "-n", "4", "a"]
    environment = os.environ | {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    running = [
        subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        for _ in range(processes)
    ]
    results = {(process.communicate()[0], process.returncode) for process in running}
    print(f"{processes} processes at once: {len(results)} different results, {results}")
    assert len(results) == 1
    assert results.pop()[1] == 0


def main(generations: int = 2000, processes: int = 20) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = checkpoints.random(Path(scratch) / "model", n_embd=32, n_layer=2, n_head=4, n_positions=64)
        crowd(folder, Path(scratch) / "home", processes)
        grow(folder, generations)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
