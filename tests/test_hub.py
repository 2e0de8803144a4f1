"""Models from the Hugging Face hub: the cache, and a small HTTP server that stands in for the hub."""

import fcntl
import hashlib
import json
import os
import pty
import re
import shutil
import socket
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import checkpoints
import pytest
from conftest import Cli, Ran, program, refused, spawn
from huggingface_hub import constants

SHA = ("fedcba9876543210" * 3)[:40]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return checkpoints.tiny(tmp_path / "tiny")


def run(home: Path, *arguments: str | Path, **variables: str) -> Ran:
    """The program in a process of its own, with a Hugging Face home, and online as far as its variables allow."""
    ran = spawn(*arguments, env=environment(home, **variables), stdin=subprocess.DEVNULL)
    return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())


def environment(home: Path, **variables: str) -> dict[str, str]:
    kept = {n: v for n, v in os.environ.items() if not n.startswith("HF_") and "PROXY" not in n.upper()}
    chosen = {"HF_HOME": str(home), "HF_ENDPOINT": "http://127.0.0.1:9"} | variables
    return kept | {n: v for n, v in chosen.items() if v}


@pytest.fixture
def online(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """online(endpoint, …): the program in this process, against a stand-in, with a cache of its own."""

    def run_online(endpoint: str, *arguments: str | Path) -> Ran:
        template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        return cli(*arguments)

    return run_online


GENERATE = ("generate", "--json", "-n", "5", "--ignore-eos", "once")


# The cache


@pytest.fixture
def sealed(tmp_path: Path) -> dict[str, str]:
    """Variables under which a process notes and refuses every attempt to reach a network or to look up a name."""
    (tmp_path / "sealed").mkdir()
    (tmp_path / "sealed" / "sitecustomize.py").write_text(
        "import os, socket\n"
        "def refuse(*arguments, **options):\n"
        "    open(os.environ['ATTEMPTS'], 'a').write(f'{arguments}\\n')\n"
        "    raise OSError('sealed')\n"
        "socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse\n"
    )
    path = os.pathsep.join([str(tmp_path / "sealed"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYTHONPATH": path, "ATTEMPTS": str(tmp_path / "attempts")}


@pytest.mark.parametrize(
    ("name", "cached_as", "backend"),
    [
        ("gpt2", "openai-community/gpt2", "native"),
        ("gpt2", "openai-community/gpt2", "transformers"),
        ("gpt2", "gpt2", "native"),  # as it was called before the hub had user names for all
        ("someone/tiny", "someone/tiny", "native"),
    ],
)
def test_a_cached_model_runs_without_a_connection(
    name: str, cached_as: str, backend: str, tiny: Path, tmp_path: Path, sealed: dict[str, str]
) -> None:
    checkpoints.cache(tmp_path / "home" / "hub", cached_as, tiny)
    cached = run(tmp_path / "home", *GENERATE, "-m", name, "--backend", backend, **sealed)
    folder = run(tmp_path / "home", *GENERATE, "-m", tiny, "--backend", backend, **sealed)
    assert cached.json["token_ids"] == folder.json["token_ids"]
    assert not Path(sealed["ATTEMPTS"]).exists()


def test_the_seal_holds(tmp_path: Path, sealed: dict[str, str]) -> None:
    refused(run(tmp_path / "home", *GENERATE, "-m", "gpt2", **sealed), "openai-community/gpt2 is not in the cache")
    assert Path(sealed["ATTEMPTS"]).exists()


@pytest.mark.parametrize("where", ["HF_HUB_CACHE", "XDG_CACHE_HOME"])
def test_where_the_cache_is(where: str, tiny: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    checkpoints.cache(there if where == "HF_HUB_CACHE" else there / "huggingface" / "hub", "someone/tiny", tiny)
    home = {} if where == "HF_HUB_CACHE" else {"HF_HOME": ""}
    ran = run(tmp_path / "home", *GENERATE, "-m", "someone/tiny", HF_HUB_OFFLINE="1", **home, **{where: str(there)})
    assert len(ran.json["token_ids"]) == 5


def without_config(snapshot: Path) -> None:
    (snapshot / "config.json").unlink()


def without_weights(snapshot: Path) -> None:
    (snapshot / "model.safetensors").unlink()


def with_a_link_to_nothing(snapshot: Path) -> None:
    (snapshot / "model.safetensors").resolve().unlink()


def without_a_shard(snapshot: Path) -> None:
    (snapshot / "model.safetensors").unlink()
    index = {"weight_map": {"wte.weight": "model-00001-of-00002.safetensors"}}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))


def without_tokenizer(snapshot: Path) -> None:
    (snapshot / "vocab.json").unlink()
    (snapshot / "merges.txt").unlink()


def with_a_pickle_only(snapshot: Path) -> None:
    (snapshot / "model.safetensors").rename(snapshot / "pytorch_model.bin")


@pytest.mark.parametrize(
    "spoil",
    [without_config, without_weights, with_a_link_to_nothing, without_a_shard, without_tokenizer, with_a_pickle_only],
)
def test_what_is_cached_in_part_is_not_taken_for_the_whole(
    spoil: Callable[[Path], None], online: Callable[..., Ran], tiny: Path, tmp_path: Path
) -> None:
    spoil(checkpoints.cache(tmp_path / "home" / "hub", "someone/tiny", tiny))
    refused(online("http://127.0.0.1:9", *GENERATE, "-m", "someone/tiny"), "someone/tiny is not in the cache")


# No hub


def test_offline(tmp_path: Path) -> None:
    ran = run(tmp_path / "home", *GENERATE, "-m", "gpt2", HF_HUB_OFFLINE="1")
    home = str(tmp_path / "home" / "hub")
    refused(ran, "no model 'gpt2'", "openai-community/gpt2", home, "HF_HUB_OFFLINE is set", "--model tinystories")


@pytest.mark.parametrize("how", ["refuses", "is silent", "is behind a dead proxy", "is no address"])
def test_a_hub_that_does_not_answer(how: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        variables = {
            "refuses": {"HF_ENDPOINT": "http://127.0.0.1:9"},
            "is silent": {"HF_ENDPOINT": f"http://127.0.0.1:{port}"},
            "is behind a dead proxy": {"HF_ENDPOINT": "https://huggingface.co", "HTTPS_PROXY": "http://127.0.0.1:9"},
            "is no address": {"HF_ENDPOINT": "huggingface"},
        }[how]
        start = time.monotonic()
        ran = run(tmp_path / "home", *GENERATE, "-m", "gpt2", **variables)
        seconds = time.monotonic() - start
    refused(ran, "no model 'gpt2' here", "openai-community/gpt2", variables["HF_ENDPOINT"], "--model tinystories")
    assert seconds < 20  # 10 on a machine that is not busy


# A hub


class Hub:
    """A stand-in for the hub: the few answers that its client needs to fetch models."""

    def __init__(self) -> None:
        self.repos: dict[str, Path] = {}
        self.refusals: dict[str, tuple[int, dict[str, str]]] = {}  # by beginning of a path: status and headers
        self.requests: list[str] = []
        self.endpoint = ""

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body."""
        self.requests.append(path)
        for beginning, (status, headers) in self.refusals.items():
            if path.startswith(beginning):
                return status, headers, b"{}"
        for repo_id, folder in self.repos.items():
            files = sorted(folder.iterdir())
            if path in (f"/api/models/{repo_id}", f"/api/models/{repo_id}/revision/main"):
                siblings = [{"rfilename": file.name} for file in files]
                return self._json({"id": repo_id, "sha": SHA, "siblings": siblings})
            if path == f"/api/models/{repo_id}/tree/{SHA}":
                return self._json([self._listed(file) for file in files])
            resolved = re.fullmatch(f"/{repo_id}/resolve/[^/]+/(.+)", path)
            if resolved and (folder / resolved[1]).is_file():
                data = (folder / resolved[1]).read_bytes()
                return 200, {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Repo-Commit": SHA}, data
        return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"

    @staticmethod
    def _json(data: Any) -> tuple[int, dict[str, str], bytes]:
        # The hub's client logs what this header says.
        headers = {"Content-Type": "application/json", "X-HF-Warning": "Authentication; you have no token"}
        return 200, headers, json.dumps(data).encode()

    @staticmethod
    def _listed(file: Path) -> dict[str, Any]:
        oid = hashlib.sha1(file.read_bytes()).hexdigest()
        return {"type": "file", "path": file.name, "size": file.stat().st_size, "oid": oid}


@contextmanager
def serve(hub: Hub) -> Iterator[Hub]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status, headers, body = hub.answer(unquote(urlsplit(self.path).path))
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(body))}).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    yield hub
    server.shutdown()
    server.server_close()


@pytest.fixture
def hub(tiny: Path) -> Iterator[Hub]:
    with serve(Hub()) as hub:
        hub.repos["someone/tiny"] = tiny
        yield hub


def test_a_model_is_fetched_once(hub: Hub, tiny: Path, tmp_path: Path) -> None:
    (tiny / "pytorch_model.bin").write_bytes(b"a pickle")
    (tiny / "README.md").write_text("a page")
    home = tmp_path / "home"
    first = run(home, *GENERATE, "-m", "someone/tiny", HF_ENDPOINT=hub.endpoint)
    fetched = {path.rsplit("/", 1)[1] for path in hub.requests if "/resolve/" in path}
    assert fetched == {"config.json", "vocab.json", "merges.txt", "model.safetensors"}
    hub.requests.clear()
    second = run(home, *GENERATE, "-m", "someone/tiny", HF_ENDPOINT=hub.endpoint)
    assert hub.requests == []
    assert first.json["token_ids"] == second.json["token_ids"]


def test_shards_are_fetched(hub: Hub, online: Callable[..., Ran], tiny: Path, tmp_path: Path) -> None:
    expected = online(hub.endpoint, *GENERATE, "-m", tiny).json["token_ids"]
    (tiny / "model.safetensors").rename(tiny / "model-00001-of-00001.safetensors")
    index = {"weight_map": {"wte.weight": "model-00001-of-00001.safetensors"}}
    (tiny / "model.safetensors.index.json").write_text(json.dumps(index))
    assert online(hub.endpoint, *GENERATE, "-m", "someone/tiny").json["token_ids"] == expected


def test_a_model_that_has_no_tokenizer_is_known_to_have_none(
    hub: Hub, online: Callable[..., Ran], tmp_path: Path
) -> None:
    hub.repos["someone/plain"] = checkpoints.random(tmp_path / "plain", n_embd=2, n_positions=16)
    for _ in range(2):
        result = online(hub.endpoint, *GENERATE, "-m", "someone/plain").json
        assert result["prompt_token_ids"] == [27078]  # GPT-2's "once"
        hub.refusals["/"] = (500, {})


def test_progress_is_shown_on_a_terminal_only(hub: Hub, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    command = [*program(), *GENERATE, "-m", "someone/tiny"]
    shown: list[bytes] = []

    def read() -> None:
        try:
            while piece := os.read(ours, 4096):
                shown.append(piece)
        except OSError:  # Linux's way to say that the other end has been closed
            return

    reader = threading.Thread(target=read)
    reader.start()
    variables = environment(tmp_path / "home", HF_ENDPOINT=hub.endpoint, TERM="xterm")
    out = subprocess.run(command, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs).stdout
    os.close(theirs)
    reader.join()
    os.close(ours)
    assert len(json.loads(out)["token_ids"]) == 5
    text = b"".join(shown).decode()
    assert f"gpt2cli: fetching someone/tiny from {hub.endpoint}" in text
    assert "100%" in text, text
    assert "no token" not in text


@pytest.mark.parametrize(
    ("refusals", "said"),
    [
        (
            {"/api/models/": (404, {"X-Error-Code": "RepoNotFound"})},
            ["no model 'someone/tiny'", "has no public model someone/tiny", "`gpt2cli models`"],
        ),
        ({"/api/models/": (401, {"X-Error-Code": "RepoNotFound"})}, ["has no public model someone/tiny"]),
        (
            {"/api/models/": (403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Ask first."})},
            ["someone/tiny asks for its terms to be accepted", "/someone/tiny", "hf auth login"],
        ),
        ({"/someone/tiny/resolve/": (403, {"X-Error-Code": "GatedRepo"})}, ["asks for its terms to be accepted"]),
        ({"/api/models/": (500, {})}, ["could not be fetched from http://127.0.0.1", "500"]),
        ({"/api/models/someone/tiny/tree": (404, {})}, ["could not be fetched from http://127.0.0.1"]),
        ({"/someone/tiny/resolve/": (404, {})}, ["could not be fetched from http://127.0.0.1"]),
    ],
    ids=str,
)
def test_what_the_hub_refuses(refusals: Any, said: list[str], hub: Hub, online: Callable[..., Ran]) -> None:
    hub.refusals = refusals
    refused(online(hub.endpoint, *GENERATE, "-m", "someone/tiny"), *said)


def test_a_model_of_pickles_is_not_fetched(hub: Hub, online: Callable[..., Ran], tiny: Path) -> None:
    (tiny / "model.safetensors").rename(tiny / "pytorch_model.bin")
    ran = online(hub.endpoint, *GENERATE, "-m", "someone/tiny")
    refused(ran, "someone/tiny has no model.safetensors", "can run code when opened")
    assert not [path for path in hub.requests if "/resolve/" in path]


def test_a_fetch_that_breaks_off_is_finished_the_next_time(hub: Hub, online: Callable[..., Ran], tiny: Path) -> None:
    hub.refusals["/someone/tiny/resolve/" + SHA + "/model.safetensors"] = (404, {})
    refused(online(hub.endpoint, *GENERATE, "-m", "someone/tiny"), "could not be fetched")
    hub.refusals.clear()
    ran = online(hub.endpoint, *GENERATE, "-m", "someone/tiny")
    assert ran.json["token_ids"] == online(hub.endpoint, *GENERATE, "-m", tiny).json["token_ids"]


def test_a_cache_that_cannot_be_written(hub: Hub, online: Callable[..., Ran], tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file, not a folder")
    ran = online(hub.endpoint, *GENERATE, "-m", "someone/tiny")
    refused(ran, "no model 'someone/tiny' here", str(tmp_path / "home"))


def test_a_damaged_download_is_named(hub: Hub, online: Callable[..., Ran], tiny: Path) -> None:
    shutil.copy(tiny / "config.json", tiny / "model.safetensors")
    ran = online(hub.endpoint, *GENERATE, "-m", "someone/tiny")
    refused(ran, "model.safetensors is incomplete or not a safetensors file", "fetch it again")
