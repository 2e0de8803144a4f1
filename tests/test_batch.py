"""generate --batch: every row is there, in its place, with the text of its single run."""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import checkpoints
import pytest
from conftest import Cli, Ran, need_lone_rows, parse

import gpt2cli
from gpt2cli.batch import output as batch_output
from gpt2cli.batch.engine import Batch, Request
from gpt2cli.records import Completion, GenerationOptions, SamplingOptions

P5 = "The capital of France is"
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def ruler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Position q predicts token 1000 + q."""
    return checkpoints.ruler(tmp_path_factory.mktemp("ruler"), context_length=32)


@pytest.fixture(scope="module")
def varied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose choices depend on all that it sees, with a context short enough to slide."""
    folder = tmp_path_factory.mktemp("varied")
    return checkpoints.random(folder, n_layer=2, n_embd=32, n_positions=24, scale=0.3)


@pytest.fixture
def batch(cli: Cli, tmp_path: Path) -> Callable[..., Ran]:
    """Run a batch over these rows: objects, or lines as they stand."""

    def run(model: Path, rows: list[Any], *arguments: str | Path) -> Ran:
        source = tmp_path / "rows.jsonl"
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        source.write_bytes(b"".join(line.encode("utf-8", "surrogateescape") + b"\n" for line in lines))
        return cli("generate", "-m", model, "--batch", source, *arguments)

    return run


# Every row is its single run, whatever is beside it


@pytest.mark.parametrize("backend", ["native", "transformers"])
@pytest.mark.parametrize("batch_size", [1, 2, 3, 8])
def test_positions_do_not_count_what_other_rows_have(batch, ruler: Path, batch_size: int, backend: str) -> None:
    rows = [{"prompt": "Hello"}, {"prompt": "The capital of"}, {"prompt": P5}]
    ran = batch(ruler, rows, "-n", "4", "--batch-size", str(batch_size), "--backend", backend)
    assert [result["token_ids"] for result in ran.jsonl] == [
        [1000, 1001, 1002, 1003],
        [1002, 1003, 1004, 1005],
        [1004, 1005, 1006, 1007],
    ]


VARIED_ROWS: Rows = [
    {"prompt": "Once upon a time", "max_new_tokens": 40},
    {"prompt": "a", "max_new_tokens": 3},
    {"prompt": "b " * 20, "temperature": 0.9, "seed": 5, "max_new_tokens": 30},
    {"prompt": "b " * 20, "temperature": 0.9, "max_new_tokens": 1},
    {"prompt": "", "top_k": 5, "seed": 1},
    {"prompt": "x y z", "max_new_tokens": 50, "context_overflow": "stop"},
    {"prompt": "x y z", "max_new_tokens": 0},
    {"prompt": "penalty", "repetition_penalty": 1.7, "max_new_tokens": 12},
    {"prompt": "cut", "top_p": 0.5, "min_p": 0.01, "seed": 0},
    {"prompt": "Once upon a time", "temperature": 0, "top_k": 3},
    {"prompt": "<|endoftext|>", "temperature": 1.5},
]


def single_run(cli: Cli, model: Path, row: dict[str, Any], *arguments: str) -> dict[str, Any]:
    options = {name: value for name, value in row.items() if name != "prompt"}
    given = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    return cli("generate", "-m", model, "--json", *arguments, *given, "--", row["prompt"]).json


@pytest.mark.parametrize("batch_size", [1, 4, 16])
def test_a_row_is_its_single_run(cli: Cli, batch, varied: Path, batch_size: int) -> None:
    command = ["-n", "10", "--seed", "9", "--show-logits", "2"]
    alone = [single_run(cli, varied, row, *command) for row in VARIED_ROWS]
    assert {result["finish_reason"] for result in alone} == {"length", "context"}
    order = list(range(len(VARIED_ROWS)))
    random.Random(batch_size).shuffle(order)
    rows = [VARIED_ROWS[n] | {"id": n} for n in order]
    results = batch(varied, rows, *command, "--batch-size", str(batch_size)).jsonl
    for n, result in zip(order, results, strict=True):
        expected = alone[n]
        assert result.pop("id") == n
        # Where the processor's product of matrices depends on the number of rows, numbers may differ in their last
        # digits; ids, text and all else may not.
        assert [rounded(step) for step in result.pop("steps")] == [rounded(step) for step in expected.pop("steps")]
        assert result == expected


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return pytest.approx(value, rel=1e-4, abs=1e-4)
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


def test_the_bits_of_a_row_do_not_depend_on_its_neighbours(batch, varied: Path) -> None:
    need_lone_rows(gpt2cli.load(str(varied)).model)
    one, many = (
        batch(varied, VARIED_ROWS, "--seed", "9", "--show-logits", "3", "--batch-size", size).ok().out
        for size in ("1", "11")
    )
    assert one == many


def test_a_prompt_longer_than_a_piece_is_its_single_run(tmp_path: Path) -> None:
    """Prompts of several pieces among texts that are being continued; the passes are shared, the texts are not."""
    model = gpt2cli.load(str(checkpoints.ruler(tmp_path / "long", context_length=1200)))
    lengths = [3, 1100, 7, 600, 512, 513, 1]
    batch: Batch[int] = Batch(model.model, model.tokenizer, 4)
    waiting, made = list(lengths), {}
    while waiting or not batch.is_empty:
        while waiting and not batch.is_full:
            length = waiting.pop(0)
            batch.add(length, Request([5] * length, SamplingOptions(), GenerationOptions(max_new_tokens=3), 0))
        made |= {key: event.token_ids for key, event in batch.turn() if isinstance(event, Completion)}
    assert made == {length: tuple(range(999 + length, 1002 + length)) for length in lengths}


def test_short_rows_do_not_wait_for_a_long_one(ruler: Path) -> None:
    model = gpt2cli.load(str(ruler))
    batch: Batch[int] = Batch(model.model, model.tokenizer, 2)
    turns, order, waiting = 0, [], [25] + [2] * 12
    while waiting or not batch.is_empty:
        while waiting and not batch.is_full:
            options = GenerationOptions(max_new_tokens=waiting.pop(0))
            batch.add(options.max_new_tokens, Request([5], SamplingOptions(), options, 0))
        order += [key for key, event in batch.turn() if isinstance(event, Completion)]
        turns += 1
    assert (turns, order) == (25, [2] * 12 + [25])


# The input


def test_rows_of_each_form(batch, ruler: Path) -> None:
    rows = [
        {"prompt": "Hello", "id": "x"},
        "",
        {"prompt_token_ids": [464, 3139, 286], "id": 7},
        "   \t",
        {"prompt": "Hello", "max_new_tokens": 5, "stop": "\u00e9", "temperature": None, "id": None},
        {"prompt": "Hello", "id": "x", "seed": 4, "stop": []},
    ]
    results = batch(ruler, rows, "-n", "2").jsonl
    shown = [[r["id"], r["prompt"], r["prompt_token_ids"], len(r["token_ids"]), r["seed"]] for r in results]
    assert shown == [
        ["x", "Hello", [15496], 2, None],
        [7, "The capital of", [464, 3139, 286], 2, None],
        [None, "Hello", [15496], 5, None],
        ["x", "Hello", [15496], 2, 4],
    ]
    assert list(results[0])[:4] == ["type", "schema", "id", "model"]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_plain_text_is_a_prompt_a_line(cli: Cli, ruler: Path, tmp_path: Path, line_end: str) -> None:
    source = tmp_path / "prompts.TXT"
    source.write_bytes(line_end.join(["\ufeffHello", "", " ", '{"prompt": 1}', P5]).encode())
    results = cli("generate", "-m", ruler, "-n", "1", "--batch", source).jsonl
    assert [r["prompt"] for r in results] == ["Hello", '{"prompt": 1}', P5]


def test_both_ends_of_a_pipe(cli: Cli, ruler: Path) -> None:
    row = b'{"prompt": "Hello"}'
    ran = cli("generate", "-m", ruler, "-n", "1", "--batch", "-", "--output", "-", stdin=b"\n" + row + b"\n" + row)
    assert [r["token_ids"] for r in ran.jsonl] == [[1000]] * 2


def test_the_commands_prompt_options_are_for_all_rows(batch, ruler: Path) -> None:
    rows = [{"prompt": "hi<|endoftext|>there"}, {"prompt_token_ids": [50256, 5]}, {"prompt_token_ids": []}]
    plain, special = (batch(ruler, rows, "-n", "1", *flags).jsonl for flags in ([], ["--special-tokens", "--bos"]))
    ids = [5303, 27, 91, 437, 1659, 5239, 91, 29, 8117]
    assert [r["prompt_token_ids"] for r in plain] == [ids, [50256, 5], [50256]]
    assert [r["prompt_token_ids"] for r in special] == [[50256, 5303, 50256, 8117], [50256, 5], [50256]]
    long = batch(ruler, [{"prompt": "a b " * 40}], "-n", "1", "--truncate-prompt").jsonl
    assert [len(r["prompt_token_ids"]) for r in long] == [32]


HALF = "half of a surrogate pair (\\ud800 to \\udfff), which is no character"
FIELDS = (
    "a row may have id, max_new_tokens, temperature, top_k, top_p, min_p, repetition_penalty, seed, stop, "
    "ignore_eos, context_overflow"
)
BAD = [
    ("nonsense", None, "not JSON: Expecting value, at character 1"),
    ('{"prompt": "x"', None, "not JSON: Expecting ',' delimiter, at character 15"),
    ('{"prompt": "x"} {}', None, "not JSON: Extra data, at character 17"),
    ('{"prompt": "x", "top_p": NaN}', None, "NaN is not JSON"),
    ('{"prompt": "x", "top_p": -Infinity}', None, "-Infinity is not JSON"),
    ('{"prompt": "x", "seed": ' + "9" * 5000 + "}", None, "not a row: it has a number of thousands of digits"),
    ('{"prompt": ' + "[" * 100_000, None, "not a row: nested too deeply"),
    ('{"prompt": "x", "prompt": "y"}', None, 'the field "prompt" is there twice'),
    ('["x"]', None, 'not a JSON object such as {"prompt": "Once upon a time"} but a list'),
    ("null", None, 'not a JSON object such as {"prompt": "Once upon a time"} but null'),
    ('{"prompt": "caf\udce9 is", "id": 1}', None, None),  # a byte that is not UTF-8: checked below
    ("{}", None, "the row has neither prompt nor prompt_token_ids; give one of them"),
    ('{"id": 3}', 3, "the row has neither prompt nor prompt_token_ids; give one of them"),
    (
        '{"prompt": "x", "prompt_token_ids": [1]}',
        None,
        "the row has both prompt and prompt_token_ids; give one of them",
    ),
    ('{"prompt": null}', None, "prompt must be a text, not null"),
    ('{"prompt": 5, "id": "five"}', "five", "prompt must be a text, not 5"),
    ('{"prompt": ["x"]}', None, "prompt must be a text, not a list"),
    ('{"prompt": "\\ud83d"}', None, f"prompt has {HALF}"),
    ('{"prompt_token_ids": "1 2"}', None, 'prompt_token_ids must be a list of whole numbers, not "1 2"'),
    ('{"prompt_token_ids": [1, true]}', None, "prompt_token_ids must be whole numbers, not true"),
    ('{"prompt_token_ids": [1.0]}', None, "prompt_token_ids must be whole numbers, not 1.0"),
    ('{"prompt_token_ids": [[1]]}', None, "prompt_token_ids must be whole numbers, not a list"),
    ('{"prompt_token_ids": [50257]}', None, "token id 50257 is outside the vocabulary, 0 to 50256"),
    ('{"prompt_token_ids": [-1]}', None, "token id -1 is outside the vocabulary, 0 to 50256"),
    ('{"prompt": "x", "id": true}', None, "id must be a text or a whole number, not true"),
    ('{"prompt": "x", "id": {"a": 1}}', None, "id must be a text or a whole number, not an object"),
    ('{"prompt": "x", "id": "\\udc00"}', None, 'id must be a text or a whole number, not "\\udc00"'),
    ('{"prompt": "x", "text": "y"}', None, f'unknown field "text"; {FIELDS}'),
    ('{"prompt": "x", "top-k": 5}', None, 'unknown field "top-k"; write top_k'),
    ('{"prompt": "x", "max_new_tokens": -1}', None, "max_new_tokens must be a whole number, at least 0, not -1"),
    ('{"prompt": "x", "max_new_tokens": true}', None, "max_new_tokens must be a whole number, at least 0, not true"),
    ('{"prompt": "x", "temperature": "1"}', None, 'temperature must be a number, not "1"'),
    ('{"prompt": "x", "temperature": -1}', None, "temperature must be 0 (greedy) or from 1e-100 to 1e+100, not -1"),
    ('{"prompt": "x", "temperature": 1e999}', None, "temperature must be 0 (greedy) or from 1e-100 to 1e+100, not inf"),
    ('{"prompt": "x", "top_k": 2.5}', None, "top_k must be a whole number, not 2.5"),
    ('{"prompt": "x", "top_p": 0}', None, "top-p must be above 0 and at most 1, not 0"),
    ('{"prompt": "x", "min_p": false}', None, "min_p must be a number, not false"),
    ('{"prompt": "x", "seed": 9223372036854775808}', None, None),
    (
        '{"prompt": "x", "stop": ["a", ""]}',
        None,
        "stop must be a text or a list of texts, none of them empty, not a list",
    ),
    ('{"prompt": "x", "ignore_eos": 1}', None, "ignore_eos must be true or false, not 1"),
    ('{"prompt": "x", "context_overflow": "wrap"}', None, 'context_overflow must be slide or stop, not "wrap"'),
    (
        json.dumps({"prompt": "a b " * 40, "id": "long"}),
        "long",
        "the prompt has 81 tokens, more than the 32 that ruler can see; "
        "shorten it, or add --truncate-prompt to keep its end",
    ),
]


def test_each_bad_row_has_an_error_in_its_place(batch, ruler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ruler.parent)
    good = '{"prompt": "Hello", "id": "good"}'
    lines = [good, *[line for bad, _, _ in BAD for line in (bad, good)]]
    ran = batch(Path(ruler.name), lines, "-n", "1")
    assert ran.code == 1
    assert ran.err == (
        f"gpt2cli: error: {len(BAD)} of {len(lines)} rows failed; their records, of type error, say why\n"
    )
    records = [parse(line) for line in ran.out.splitlines()]
    assert [r["token_ids"] for r in records[::2]] == [[1000]] * (len(BAD) + 1)
    known = {
        10: f"not UTF-8: byte 0xe9 at offset {sum(len(x.encode()) + 1 for x in lines[:21]) + 15} of the input; "
        "convert it first, for example with `iconv -f latin1 -t utf-8`",
        37: "seed must be a whole number from 0 to 2**63 - 1, not 9223372036854775808",
    }
    for n, ((_, row_id, message), record) in enumerate(zip(BAD, records[1::2], strict=True)):
        message = (message or known[n]).replace("that ruler", f"that {ruler.name}")
        assert record == {"type": "error", "schema": 1, "id": row_id, "line": 2 * n + 2, "error": message}


def test_a_huge_line_costs_its_row_and_no_other(batch, ruler: Path) -> None:
    lines = [{"prompt": "Hello"}, {"prompt": "^" * 10_000_000}, " " * 2 + "x" * 17_000_000, {"prompt": "Hello"}]
    ran = batch(ruler, lines, "-n", "1")
    records = [parse(line) for line in ran.out.splitlines()]
    assert [r["type"] for r in records] == ["result", "error", "error", "result"]
    assert "the prompt has 2500000 tokens, more than the 32" in records[1]["error"]
    assert records[2]["error"] == "the line is longer than 16 MiB, too long for any prompt"


def test_logits_that_are_no_numbers_cost_their_row_and_no_other(batch, tmp_path: Path) -> None:
    model = checkpoints.scripted(tmp_path / "nan", [995] * 20, 1, nan_at=4)
    rows = [{"prompt": "Hello", "max_new_tokens": n} for n in (3, 9, 4)]
    ran = batch(model, rows)
    short, failed, fits = [parse(line) for line in ran.out.splitlines()]
    assert (ran.code, short["token_ids"], fits["token_ids"]) == (1, [995] * 3, [995] * 4)
    assert failed["error"].startswith("the logits at position 4 are not numbers")


@pytest.mark.parametrize("line", ["{}", '{"prompt": "Hello", "max_new_tokens": 9}'])
def test_strict_stops_at_the_first_bad_row(batch, tmp_path: Path, line: str) -> None:
    model = checkpoints.scripted(tmp_path / "nan", [995] * 20, 1, nan_at=4)
    good = {"prompt": "Hello", "max_new_tokens": 3}
    ran = batch(model, [good, good, line, good, "{}"], "--strict", "--batch-size", "4")
    assert (ran.code, [parse(x)["token_ids"] for x in ran.out.splitlines()]) == (1, [[995] * 3] * 2)
    assert re.fullmatch(r"gpt2cli: error: line 3 of the input: the (row has neither|logits at position 4).*\n", ran.err)


# The output


def test_records_come_in_the_order_of_the_input(batch, ruler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"prompt": "Hello", "max_new_tokens": n % 7 + (20 if n == 0 else 0), "id": n} for n in range(40)]
    assert [r["id"] for r in batch(ruler, rows).jsonl] == list(range(40))
    monkeypatch.setattr(batch_output, "MAX_WAITING_BYTES", 1)  # no row may begin while another waits
    assert [r["id"] for r in batch(ruler, rows).jsonl] == list(range(40))


def test_an_existing_output_is_refused_and_left_alone(batch, ruler: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    output.write_text("mine")
    ran = batch(ruler, [{"prompt": "Hello"}], "--output", output)
    message = f"gpt2cli: error: {output} is already there; add --resume to continue it, or name another --output\n"
    assert (ran.code, ran.out, ran.err, output.read_text()) == (1, "", message, "mine")


def test_the_input_is_never_the_output(batch, ruler: Path, tmp_path: Path) -> None:
    ran = batch(ruler, [{"prompt": "Hello"}], "--output", tmp_path / "rows.jsonl", "--resume")
    assert (ran.code, "is the input itself" in ran.err) == (1, True)
    assert (tmp_path / "rows.jsonl").read_text() == '{"prompt": "Hello"}\n'


RESUMED: list[Any] = [
    {"prompt": "Once", "id": 1},
    {"prompt": "Hello", "temperature": 1, "id": 2},
    "{}",
    {"prompt": "é" * 5, "max_new_tokens": 0},
    {"prompt": "Hello", "temperature": 0.5, "seed": 3},
    {"prompt": "Hello", "temperature": 1, "id": 6},
]


@pytest.mark.parametrize("details", [[], ["--show-logits", "1"]])
def test_resume_gives_the_file_of_an_undisturbed_run(
    batch, varied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, details: list[str]
) -> None:
    output = tmp_path / "out.jsonl"
    command = ["-n", "4", "--output", output, *details]
    undisturbed = batch(varied, RESUMED, *command)
    expected = output.read_bytes()
    ends = [0] + [m.end() for m in re.finditer(rb"\n", expected)]
    run_again: list[int] = []
    add = Batch.add
    monkeypatch.setattr(
        Batch, "add", lambda self, key, request: (run_again.append(key.number), add(self, key, request))
    )
    # After the second line, which tells the seed that was drawn, a run can be cut anywhere.
    for cut in [ends[2], ends[2] + 1, ends[3] - 1, ends[3], ends[4] + 200, ends[5], ends[6] - 1, ends[6]]:
        output.write_bytes(expected[:cut])
        run_again.clear()
        ran = batch(varied, RESUMED, *command, "--resume")
        assert (output.read_bytes(), ran) == (expected, undisturbed)
        whole = expected[:cut].count(b"\n")
        assert run_again == [n for n in range(whole, 6) if n != 2]


def test_resume_begins_where_there_is_nothing_yet(batch, ruler: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    for before in (None, "", '{"type": "resu'):
        if before is not None:
            output.write_text(before)
        batch(ruler, [{"prompt": "Hello"}], "-n", "1", "--output", output, "--resume").ok()
        assert json.loads(output.read_text())["token_ids"] == [1000]


@pytest.mark.parametrize(
    ("rows", "arguments", "message"),
    [
        ([{"prompt": "Bye"}], ["-n", "2"], "has another prompt than"),
        ([{"prompt": "Hello", "id": 1}], ["-n", "2"], "has another id than"),
        ([{"prompt": "Hello"}], ["-n", "3"], "has another max_new_tokens than"),
        ([{"prompt": "Hello"}], ["-n", "1"], "has another max_new_tokens than"),
        ([{"prompt": "Hello"}], ["-n", "2", "-t", "1"], "has another sampling than"),
        ([{"prompt": "Hello"}], ["-n", "2", "-s", "1"], "has another seed than"),
        ([{"prompt": "Hello"}], ["-n", "2", "--show-logits", "1"], "has another steps than"),
        ([{"prompt": "Hello"}], ["-n", "2", "--dtype", "bfloat16"], "has another dtype than"),
        (["{}"], ["-n", "2"], "is a result, but line 1 of the input is bad"),
        ([], ["-n", "2"], "has no row in the input"),
    ],
)
def test_resume_refuses_what_is_not_its_own(batch, ruler: Path, tmp_path: Path, rows, arguments, message) -> None:
    output = tmp_path / "out.jsonl"
    batch(ruler, [{"prompt": "Hello"}], "-n", "2", "--output", output).ok()
    before = output.read_text() + "torn"
    output.write_text(before)
    ran = batch(ruler, rows, *arguments, "--output", output, "--resume")
    assert (ran.code, ran.out, output.read_text()) == (1, "", before)
    assert ran.err.startswith(f"gpt2cli: error: cannot continue {output}: its line 1 {message}")
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("line", ["mine", "[]", "{}", '{"type": "result"}', '{"type": "error", "id": 3}', "\udcff"])
def test_resume_refuses_a_file_that_is_no_batch(batch, ruler: Path, tmp_path: Path, line: str) -> None:
    output = tmp_path / "out.jsonl"
    output.write_bytes(line.encode(errors="surrogateescape") + b"\n")
    before = output.read_bytes()
    ran = batch(ruler, [{"prompt": "Hello"}], "--output", output, "--resume")
    assert (ran.code, ran.err.startswith(f"gpt2cli: error: cannot continue {output}: its line 1 ")) == (1, True)
    assert output.read_bytes() == before


# The command line


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--batch", "-", "Hello"], "PROMPT"),
        (["--batch", "-", "--file", "x"], "--file"),
        (["--batch", "-", "--keep-newline"], "--keep-newline"),
        (["--batch", "-", "--num-samples", "2", "-t", "1"], "--num-samples"),
        (["--batch", "-", "--echo"], "--echo"),
        (["--batch", "-", "--separator", "x"], "--separator"),
        (["--batch", "-", "--format", "text"], "--format text"),
        (["--batch", "-", "--format", "jsonl"], "--format jsonl"),
        (["--batch", "-", "--resume"], "--resume"),
        (["--batch", "-", "--resume", "--output", "-"], "--resume"),
        (["--batch", "-", "--batch-size", "0"], "--batch-size"),
        (["--output", "x", "Hello"], "--output"),
        (["--batch-size", "3", "Hello"], "--batch-size"),
        (["--resume", "Hello"], "--resume"),
        (["--strict", "Hello"], "--strict"),
    ],
)
def test_options_that_would_be_ignored_are_usage_errors(cli: Cli, arguments: list[str], named: str) -> None:
    ran = cli("generate", *arguments)
    assert (ran.code, ran.out, named in ran.err, ran.err.count("\n")) == (2, "", True, 1)


@pytest.mark.parametrize("path", ["nowhere.jsonl", ".", "a\0b"])
def test_an_input_that_cannot_be_read_is_named(cli: Cli, tmp_path: Path, path: str) -> None:
    ran = cli("generate", "--batch", path, "--output", tmp_path / "out.jsonl")
    assert (ran.code, ran.out, repr(path) in ran.err) == (1, "", True)
    assert not (tmp_path / "out.jsonl").exists()


def test_an_output_in_no_folder_is_refused(batch, ruler: Path, tmp_path: Path) -> None:
    ran = batch(ruler, [{"prompt": "Hello"}], "--output", tmp_path / "nowhere" / "out.jsonl")
    message = f"gpt2cli: error: cannot write to {tmp_path}/nowhere/out.jsonl: there is no such folder\n"
    assert (ran.code, ran.err) == (1, message)


def test_an_empty_input_has_an_empty_output(batch, ruler: Path, tmp_path: Path) -> None:
    assert batch(ruler, ["", " "], "--output", tmp_path / "out.jsonl").ok().out == ""
    assert (tmp_path / "out.jsonl").read_bytes() == b""
