"""gpt2cli models: what can be named, and what is here."""

import json
import sys
from pathlib import Path

import checkpoints
import pytest
from conftest import Cli, Ran
from huggingface_hub import constants

from gpt2cli import output

OFFICIAL = [
    ("gpt2", "openai-community/gpt2", 124_439_808, 548),
    ("gpt2-medium", "openai-community/gpt2-medium", 354_823_168, 1520),
    ("gpt2-large", "openai-community/gpt2-large", 774_030_080, 3247),
    ("gpt2-xl", "openai-community/gpt2-xl", 1_557_611_200, 6432),
    ("distilgpt2", "distilbert/distilgpt2", 81_912_576, 353),
]
# tiny: embeddings of 257 tokens and 32 positions; two blocks of 8 to 24, 8 to 8, 8 to 32, 32 to 8; five norms.
TINY_PARAMETERS = (257 + 32) * 8 + 2 * (8 * 24 + 24 + 8 * 8 + 8 + 8 * 32 + 32 + 32 * 8 + 8) + 5 * 2 * 8


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def records(ran: Ran) -> dict[str, dict[str, object]]:
    return {record["name"]: record for record in map(json.loads, ran.ok().out.splitlines())}


def test_without_a_cache(cli: Cli, hub_cache: Path) -> None:
    weights = Path(checkpoints.__file__).parents[1] / "gpt2cli" / "data" / "tinystories" / "model.safetensors"
    lines = [f"tinystories\t\t13306944\t{weights.stat().st_size}\ttrue"]
    lines += [f"{name}\t{repo_id}\t{parameters}\t{size}000000\tfalse" for name, repo_id, parameters, size in OFFICIAL]
    expected = "\n".join(["name\trepo_id\tparameters\tbytes\there", *lines, ""])
    assert cli("models").ok().out == expected


def test_json_is_one_object_a_line(cli: Cli, hub_cache: Path) -> None:
    known = records(cli("models", "--json"))
    assert list(known) == ["tinystories", *(name for name, *_ in OFFICIAL)]
    assert known["gpt2"] == {
        "name": "gpt2",
        "repo_id": "openai-community/gpt2",
        "parameters": 124_439_808,
        "bytes": 548_000_000,
        "here": False,
    }
    assert known["tinystories"]["repo_id"] is None


def test_cached_models_are_listed(cli: Cli, hub_cache: Path, tmp_path: Path) -> None:
    tiny = checkpoints.tiny(tmp_path / "tiny")
    size = (tiny / "model.safetensors").stat().st_size
    checkpoints.cache(hub_cache, "openai-community/gpt2", tiny)
    checkpoints.cache(hub_cache, "distilgpt2", tiny)  # as it was called before the hub had user names for all
    checkpoints.cache(hub_cache, "someone/tiny", tiny)
    checkpoints.cache(hub_cache, "a/first", checkpoints.tiny(tmp_path / "untied", tie_word_embeddings=False))
    known = records(cli("models", "--json"))
    here = {name for name, record in known.items() if record["here"]}
    assert here == {"tinystories", "gpt2", "distilgpt2", "a/first", "someone/tiny"}
    assert list(known)[-2:] == ["a/first", "someone/tiny"]
    tiny_record = {"repo_id": "someone/tiny", "parameters": TINY_PARAMETERS, "bytes": size, "here": True}
    assert known["someone/tiny"] == {"name": "someone/tiny"} | tiny_record
    assert known["a/first"]["parameters"] == TINY_PARAMETERS + 257 * 8


def test_what_cannot_be_run_is_not_listed(cli: Cli, hub_cache: Path, tmp_path: Path) -> None:
    tiny = checkpoints.tiny(tmp_path / "tiny")
    (checkpoints.cache(hub_cache, "in/part", tiny) / "model.safetensors").unlink()
    (checkpoints.cache(hub_cache, "no/config", tiny) / "config.json").unlink()
    for name, config in (("a/llama", '{"model_type": "llama"}'), ("a/list", "[]"), ("half/json", "{")):
        path = checkpoints.cache(hub_cache, name, tiny) / "config.json"
        path.unlink()
        path.write_text(config)
    (hub_cache / "models--someone--empty").mkdir()
    (hub_cache / "models--someone--strange").write_text("a file")
    (hub_cache / "datasets--someone--data" / "snapshots").mkdir(parents=True)
    damaged = checkpoints.cache(hub_cache, "someone/damaged", tiny) / "model.safetensors"
    damaged.unlink()
    damaged.write_bytes(b"")
    known = records(cli("models", "--json"))
    assert list(known)[len(OFFICIAL) + 1 :] == ["someone/damaged"]
    assert (known["someone/damaged"]["parameters"], known["someone/damaged"]["bytes"]) == (None, None)


def test_a_file_in_place_of_the_cache(cli: Cli, hub_cache: Path) -> None:
    hub_cache.write_text("a file")
    assert len(cli("models").ok().out.splitlines()) == len(OFFICIAL) + 2


def test_a_table_on_a_terminal(cli: Cli, hub_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is cut, however narrow the terminal."""
    checkpoints.cache(hub_cache, "someone/with-a-long-name", checkpoints.tiny(tmp_path / "tiny"))
    monkeypatch.setattr(output, "is_terminal", lambda stream: stream is sys.stdout)
    monkeypatch.setenv("COLUMNS", "30")
    out = cli("models", "--color", "never").ok().out
    for shown in ("tinystories", "124,439,808", "548 MB", "fetched when it is first used", "someone/with-a-long-name"):
        assert shown in out
    assert f"{TINY_PARAMETERS:,}" in out
    assert "…" not in out
    assert "\t" not in out


def test_options(cli: Cli, hub_cache: Path) -> None:
    assert cli("models", "--quiet").ok().out == cli("models").ok().out
    assert cli("models", "surplus").code == 2
    assert "--json" in cli("models", "-h").ok().out
    assert json.loads(cli("models", "--json").ok().out.splitlines()[0])["here"] is True
