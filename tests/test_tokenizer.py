"""The tokenizer: GPT-2's own vocabulary, vocabularies from files, and files that are damaged.

The reference is the `tokenizers` library, whose byte-level BPE merges listed pairs and shares no code with tiktoken.
"""

import copy
import hashlib
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

import gpt2cli.tokenizer
from gpt2cli.errors import TokenizerError
from gpt2cli.tokenizer import BYTE_OF_CHARACTER, Tokenizer, from_vocab_and_merges

EOT = "<|endoftext|>"
HARD_TEXTS = [
    "",
    " ",
    "   ",
    "a  b   c    d",
    " leading and trailing ",
    "\n",
    "\n\n\n",
    "a\n\n b\r\n\r\nc\r",
    "\t\tx\t y \t",
    "\v\f\x1c\x1d\x1e\x1f\x85",
    "a\xa0b \xa0 c\xa0\xa0\n\xa0",
    "\u2003\u3000\u2028\u2029 \u200b\ufeff",
    "\x00\x01 \x00\x7f",
    "I'll we've they're he'd she's it'm can't",
    "I'LL WE'VE THEY'RE HE'D SHE'S 'T'S",
    "'s's 's ''s l'll 'tis",
    "0 1 12 123 1234567890 3.14 1,000 ½ ² ௧ ٣",
    "don’t “quote” … — –",
    "é é ñ ñ Ä Ä ổ ổ",
    "a\u0301\u0302\u0303\u0304b \u0301",
    "日本語のテキスト、中文文本。한국어",
    "नमस्ते العربية עברית ไทย",
    "😀 👨‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇫🇷",
    "�� \ufffe \U0010ffff \ue000",
    "ÿþ Ġ Ċ ĉ",  # characters that vocabulary files use for bytes
    EOT,
    f"hi{EOT}there",
    f"{EOT} {EOT}\n{EOT}",
    "<|endoftext|",
    "x" * 5000,
    "^" * 5000,
    "ab" * 3000,
    " " * 3000 + "x",
    "\n \t" * 2000 + "x" + " " * 100,
    "def f(x):\n    return {'a': [1, 2], \"b\": x ** 2}  # ok\n",
]


@pytest.fixture(scope="module")
def reference(gpt2_files: Path) -> tokenizers.Tokenizer:
    return byte_level(models.BPE.from_file(str(gpt2_files / "vocab.json"), str(gpt2_files / "merges.txt")))


def byte_level(model: models.BPE) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


# GPT-2's own vocabulary


def test_the_shipped_vocabulary_is_the_one_that_openai_published(gpt2_files: Path) -> None:
    """Its two files, rebuilt from the shipped ranks, have the published hashes."""
    published = {
        "vocab.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",  # encoder.json
        "merges.txt": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",  # vocab.bpe
    }
    assert {n: hashlib.sha256((gpt2_files / n).read_bytes()).hexdigest() for n in published} == published


@pytest.mark.parametrize("text", HARD_TEXTS)
def test_gpt2_ids_equal_the_reference(text: str, gpt2_tokenizer: Tokenizer, reference: tokenizers.Tokenizer) -> None:
    token_ids = gpt2_tokenizer.encode(text)
    assert token_ids == reference.encode(text).ids
    assert b"".join(gpt2_tokenizer.token_bytes(n) for n in token_ids) == text.encode()
    assert gpt2_tokenizer.decode(token_ids) == text


# Letters, digits, punctuation, all kinds of space, and any character at all.
TEXT = st.text(
    st.one_of(st.sampled_from("aeZ'stLV 019.,!\n\r\t\xa0\u3000é日😀\u0301"), st.characters(codec="utf-8")), max_size=60
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXT)
def test_gpt2_ids_equal_the_reference_on_any_text(
    text: str, gpt2_tokenizer: Tokenizer, reference: tokenizers.Tokenizer
) -> None:
    token_ids = gpt2_tokenizer.encode(text)
    assert token_ids == reference.encode(text).ids
    assert gpt2_tokenizer.decode(token_ids) == text


def test_endoftext_is_ordinary_text_unless_asked_for(gpt2_tokenizer: Tokenizer) -> None:
    ordinary = [5303, 27, 91, 437, 1659, 5239, 91, 29, 8117]
    assert gpt2_tokenizer.encode(f"hi{EOT}there") == ordinary
    assert gpt2_tokenizer.encode(f"hi{EOT}there", special_tokens=True) == [5303, 50256, 8117]
    assert gpt2_tokenizer.encode(EOT * 2, special_tokens=True) == [50256, 50256]
    assert gpt2_tokenizer.encode("", special_tokens=True) == []
    assert gpt2_tokenizer.decode([5303, 50256, 8117]) == f"hi{EOT}there"
    assert gpt2_tokenizer.special_tokens == {EOT: 50256}
    assert (gpt2_tokenizer.eos_token_id, gpt2_tokenizer.vocab_size) == (50256, 50257)


def test_bytes_that_are_no_character_are_replaced_only_in_decoded_text(gpt2_tokenizer: Tokenizer) -> None:
    token_ids = gpt2_tokenizer.encode("a🦜")  # a, then three tokens for the four bytes of the parrot
    assert [gpt2_tokenizer.token_bytes(n) for n in token_ids] == [b"a", b"\xf0\x9f", b"\xa6", b"\x9c"]
    assert gpt2_tokenizer.decode(token_ids) == "a🦜"
    assert gpt2_tokenizer.decode(token_ids[:3]) == "a\ufffd"


@pytest.mark.parametrize("space", [" ", "\n", "\t ", "\r\n", "\xa0\u3000"])
def test_a_very_long_run_of_spaces(space: str, gpt2_tokenizer: Tokenizer) -> None:
    """300,000 spaces before a word exhaust the stack of tiktoken's regex; a run is parted before its last space."""
    run = space * (300_000 // len(space))
    token_ids = gpt2_tokenizer.encode(f"{run}word {run}")
    assert token_ids == [n for part in (run[:-1], run[-1] + "word", f" {run}") for n in gpt2_tokenizer.encode(part)]
    assert gpt2_tokenizer.decode(token_ids) == f"{run}word {run}"


@pytest.mark.parametrize("length", [62, 63, 64, 65, 66, 1000])
@pytest.mark.parametrize("text", ["{}word", "{}", "a{}\xa0b", "a{}1 {}", "x{}\x1cy", "{}'s{}."])
def test_long_runs_of_spaces_equal_the_reference(
    text: str, length: int, gpt2_tokenizer: Tokenizer, reference: tokenizers.Tokenizer
) -> None:
    text = text.replace("{}", " " * length)
    assert gpt2_tokenizer.encode(text) == reference.encode(text).ids


# Vocabularies from files


@pytest.fixture(scope="module")
def trained() -> tokenizers.Tokenizer:
    """A vocabulary of its own: `<|endoftext|>` first, bytes in another order than GPT-2's, then the merges."""
    tokenizer = byte_level(models.BPE())
    text = [
        "the cat sat on the mat, and that is that; the hat ate the rat's 1234 tatters",
        "naïve café, déjà vu",
        "  \n\n",
    ]
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=[EOT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text * 5, trainer)
    return tokenizer


@pytest.fixture
def saved(tmp_path: Path, trained: tokenizers.Tokenizer) -> Callable[..., Path]:
    """saved(change) writes the trained tokenizer.json after change(its data)."""

    def save(change: Callable[[Any], Any] = lambda data: None) -> Path:
        data = json.loads(trained.to_str())
        replaced = change(data)
        (tmp_path / "tokenizer.json").write_text(json.dumps(data if replaced is None else replaced))
        return tmp_path

    return save


def load(folder: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_folder(folder)
    assert tokenizer is not None
    return tokenizer


def assert_alike(tokenizer: Tokenizer, reference: tokenizers.Tokenizer, texts: list[str] = HARD_TEXTS) -> None:
    """Equal ids, with special tokens and without; the bytes of the text come back."""
    assert tokenizer.vocab_size == reference.get_vocab_size()
    for text in [*texts, "the cat's hat\n", "that  rat", f"the{EOT}cat"]:
        for special_tokens in (False, True):
            reference.encode_special_tokens = not special_tokens
            token_ids = tokenizer.encode(text, special_tokens=special_tokens)
            assert token_ids == reference.encode(text, add_special_tokens=False).ids, repr(text)
            assert b"".join(map(tokenizer.token_bytes, token_ids)) == text.encode()


def test_gpt2_files_give_gpt2(gpt2_files: Path, gpt2_tokenizer: Tokenizer) -> None:
    tokenizer = load(gpt2_files)
    assert [tokenizer.token_bytes(n) for n in range(50257)] == [gpt2_tokenizer.token_bytes(n) for n in range(50257)]
    assert all(tokenizer.encode(text) == gpt2_tokenizer.encode(text) for text in HARD_TEXTS)
    assert tokenizer.special_tokens == {EOT: 50256}


def test_tokenizer_json_as_published_for_gpt2(gpt2_files: Path, tmp_path: Path, gpt2_tokenizer: Tokenizer) -> None:
    """Written by an early version of the library: no model type, no use_regex, merges as strings."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True}
    model = {
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": "",
        "fuse_unk": False,
        "vocab": json.loads((gpt2_files / "vocab.json").read_text()),
        "merges": (gpt2_files / "merges.txt").read_text().splitlines()[1:],
    }
    data = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": 50256, "special": True, "content": EOT, **flags}],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True},
        "model": model,
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    tokenizer = load(tmp_path)
    assert [tokenizer.token_bytes(n) for n in range(50257)] == [gpt2_tokenizer.token_bytes(n) for n in range(50257)]
    assert all(tokenizer.encode(text) == gpt2_tokenizer.encode(text) for text in HARD_TEXTS)
    assert tokenizer.special_tokens == {EOT: 50256}


def test_gpt2_merges_pass_the_check_that_they_are_spared(gpt2_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpt2cli.tokenizer, "GPT2_MERGES_SHA256", "")
    assert load(gpt2_files).vocab_size == 50257


def test_a_trained_tokenizer_json(saved: Callable[..., Path], trained: tokenizers.Tokenizer) -> None:
    tokenizer = load(saved())
    assert_alike(tokenizer, trained)
    assert tokenizer.special_tokens == {EOT: 0}
    assert tokenizer.eos_token_id == 0


def test_merges_may_be_strings(saved: Callable[..., Path], trained: tokenizers.Tokenizer) -> None:
    def as_strings(data: Any) -> None:
        data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]

    assert_alike(load(saved(as_strings)), trained)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("version", ["#version: 0.2", None])
def test_vocab_json_and_merges_txt(
    newline: str, version: str | None, tmp_path: Path, trained: tokenizers.Tokenizer
) -> None:
    model = json.loads(trained.to_str())["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]))
    lines = [*([version] if version else []), *(" ".join(pair) for pair in model["merges"]), ""]
    (tmp_path / "merges.txt").write_bytes(newline.join(lines).encode())
    assert_alike(load(tmp_path), trained)


def test_ids_in_any_order(tmp_path: Path, trained: tokenizers.Tokenizer) -> None:
    model = json.loads(trained.to_str())["model"]
    ids = list(range(len(model["vocab"])))
    random.Random(0).shuffle(ids)
    vocab = dict(zip(model["vocab"], ids, strict=True))
    other = byte_level(models.BPE(vocab=vocab, merges=[tuple(pair) for pair in model["merges"]]))
    other.add_special_tokens([EOT])
    other.save(str(tmp_path / "tokenizer.json"))
    assert_alike(load(tmp_path), other)


def test_added_tokens(tmp_path: Path, trained: tokenizers.Tokenizer) -> None:
    """Plain ones are found in any text, special ones when asked for; the longest at a place wins; some are in the
    vocabulary already."""
    tokenizer = tokenizers.Tokenizer.from_str(trained.to_str())
    tokenizer.add_special_tokens(["<pad>", "<pad><pad>", "the"])
    tokenizer.add_tokens(["\n\n", "日本", "cat", "cat's", AddedToken("[x](.*)", normalized=False)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    loaded = load(tmp_path)
    texts = [*HARD_TEXTS, "<pad><pad><pad>the<pad", "cat's 日本語\n\n\n[x](.*)cats", "[x](abc) c<pad>at"]
    assert_alike(loaded, tokenizer, texts)
    assert loaded.special_tokens.keys() == {EOT, "<pad>", "<pad><pad>", "the"}


def test_added_tokens_json_beside_vocab_json(gpt2_files: Path, tmp_path: Path) -> None:
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / name).symlink_to(gpt2_files / name)
    (tmp_path / "added_tokens.json").write_text('{"<pad>": 50257}')
    tokenizer = load(tmp_path)
    assert tokenizer.special_tokens == {EOT: 50256, "<pad>": 50257}
    assert tokenizer.encode("<pad>hi", special_tokens=True) == [50257, 5303]
    assert tokenizer.encode("<pad>") == [27, 15636, 29]


def test_a_token_that_no_merge_makes_is_never_encoded(saved: Callable[..., Path]) -> None:
    """tiktoken on its own would merge any neighbours that spell it, and take it for a whole word."""

    def add(data: Any) -> None:
        data["model"]["vocab"] |= {"Ġzebra": 300, "xq": 301}

    folder = saved(add)
    tokenizer, reference = load(folder), tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert_alike(tokenizer, reference, [" zebra", "xq", "a zebra xq xqxq"])
    assert tokenizer.token_bytes(300) == b" zebra"


def test_half_a_character_of_an_argument_is_replaced(gpt2_tokenizer: Tokenizer) -> None:
    """Python carries bytes that are not UTF-8 in a command line as lone surrogates."""
    for special_tokens in (False, True):
        token_ids = gpt2_tokenizer.encode("a\udcff", special_tokens=special_tokens)
        assert gpt2_tokenizer.decode(token_ids) == "a\ufffd"


def test_no_tokenizer_files() -> None:
    assert Tokenizer.from_folder(Path(__file__).parent) is None


# Pairs against neighbours: tiktoken merges whatever neighbours spell a token, the files list pairs


def vocabulary(merges: list[tuple[str, str]]) -> dict[str, int]:
    return {token: n for n, token in enumerate(dict.fromkeys([*BYTE_OF_CHARACTER, *(a + b for a, b in merges)]))}


@pytest.mark.parametrize(
    "merges",
    [
        [("a", "b"), ("b", "c"), ("a", "bc")],  # "abc" is ab c, and that pair is not listed
        [("a", "b"), ("b", "c"), ("ab", "c"), ("a", "bc")],  # made in two ways
        [("a", "b"), ("a", "b")],
        [("ab", "c"), ("a", "b")],  # made of a part that comes later
        [("a", "a"), ("a", "aa")],  # "aaa" is aa a
    ],
)
def test_merges_that_tiktoken_would_do_otherwise_are_refused(merges: list[tuple[str, str]]) -> None:
    with pytest.raises(TokenizerError, match=r"the merge of .* --backend transformers"):
        from_vocab_and_merges(vocabulary(merges), [list(m) for m in merges], source=Path("v"), special_tokens={})


def test_merges_that_are_accepted_encode_as_the_reference_does() -> None:
    """Random merges over two or three letters, most of which get in each other's way."""
    rng = random.Random(0)
    accepted = 0
    for _ in range(400):
        letters, merges = "abc"[: rng.choice([1, 2, 2, 3])], []
        tokens = list(letters)
        for _ in range(rng.randint(1, 8)):
            merges.append((rng.choice(tokens), rng.choice(tokens)))
            tokens.append("".join(merges[-1]))
        vocab = vocabulary(merges)
        try:
            ours = from_vocab_and_merges(vocab, [list(m) for m in merges], source=Path("v"), special_tokens={})
        except TokenizerError:
            continue
        accepted += 1
        reference = byte_level(models.BPE(vocab=vocab, merges=merges))
        for _ in range(30):
            text = "".join(rng.choices(letters, k=rng.randint(1, 20)))
            assert ours.encode(text) == reference.encode(text).ids, (merges, text)
    assert accepted > 50


# Files that are damaged or not byte-level BPE: one message that names the file and, where there is one, the way out


def change(*path: Any, to: Any) -> Callable[[Any], None]:
    def apply(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = to

    return apply


REFUSED = {
    "model type 'Unigram'": change("model", "type", to="Unigram"),
    "model type 7": change("model", "type", to=7),
    "pre_tokenizer 'Whitespace'": change("pre_tokenizer", to={"type": "Whitespace"}),
    "pre_tokenizer 'Sequence'": change("pre_tokenizer", to={"type": "Sequence", "pretokenizers": []}),
    "pre_tokenizer None": change("pre_tokenizer", to=None),
    "decoder 'WordPiece'": change("decoder", to={"type": "WordPiece"}),
    "add_prefix_space": change("pre_tokenizer", "add_prefix_space", to=True),
    "use_regex: false": change("pre_tokenizer", "use_regex", to=False),
    "a normalizer": change("normalizer", to={"type": "NFC"}),
    "ignore_merges": change("model", "ignore_merges", to=True),
    "dropout": change("model", "dropout", to=0.1),
    "end_of_word_suffix": change("model", "end_of_word_suffix", to="</w>"),
    "continuing_subword_prefix": change("model", "continuing_subword_prefix", to="##"),
    "looks at the text around it": change("added_tokens", 0, "lstrip", to=True),
    "'<|endoftext|>' that looks": change("added_tokens", 0, "single_word", to=True),
    "lacks some of the 256 bytes": lambda data: data["model"]["vocab"].update(Q2=data["model"]["vocab"].pop("Q")),
    "'▁' is no byte": change("model", "vocab", "▁the", to=320),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_byte_level_bpe_is_refused_by_name(what: str, saved: Callable[..., Path]) -> None:
    folder = saved(REFUSED[what])
    with pytest.raises(TokenizerError) as caught:
        Tokenizer.from_folder(folder)
    message = str(caught.value)
    assert what in message
    assert str(folder / "tokenizer.json") in message
    assert "--backend transformers" in message


def add_a_merged_token(data: Any) -> None:
    """An added token is text as it is, so this one is not the space and letter that the merges make under its id."""
    token, token_id = next((t, n) for t, n in data["model"]["vocab"].items() if t.startswith("Ġ") and len(t) > 1)
    data["added_tokens"].append({"id": token_id, "content": token})


DAMAGED = {
    "is not a JSON object": lambda data: [data],
    "model is not a JSON object": change("model", to=[]),
    "pre_tokenizer is not a JSON object": change("pre_tokenizer", to=["ByteLevel"]),
    "vocab is not a JSON object": change("model", "vocab", to=[["a", 1]]),
    "merges is not a JSON array": change("model", "merges", to={"a": "b"}),
    "the vocabulary is not": change("model", "vocab", "the", to=True),
    "not a JSON object of token ids": change("model", "vocab", "the", to=300.0),
    "of token ids": change("model", "vocab", "the", to="300"),
    "is missing": change("model", "vocab", "the", to=-1),
    "tokens, but token id": change("model", "vocab", "the", to=10**30),
    "token id 5 is used twice": change("model", "vocab", "the", to=5),
    "is used twice": add_a_merged_token,
    "the merges make 'zz', which": lambda data: data["model"]["merges"].append(["z", "z"]),
    "the merge ['z'] is not": lambda data: data["model"]["merges"].append(["z"]),
    "the merge 'a b c' is not": lambda data: data["model"]["merges"].append("a b c"),
    "the merge ['a', ''] is not": lambda data: data["model"]["merges"].append(["a", ""]),
    "the merge None is not": lambda data: data["model"]["merges"].append(None),
    "the merge ['a', 1] is not": lambda data: data["model"]["merges"].append(["a", 1]),
    "added_tokens is not a JSON array": change("added_tokens", to={}),
    "the added token '<pad>' has no id": change("added_tokens", 0, to="<pad>"),
    "has no id": change("added_tokens", 0, "id", to=True),
    "the added token of id 0 has no text": change("added_tokens", 0, "content", to=""),
    "of id 0 has no text": change("added_tokens", 0, "content", to=None),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_tokenizer_json_is_named(what: str, saved: Callable[..., Path]) -> None:
    folder = saved(DAMAGED[what])
    with pytest.raises(TokenizerError) as caught:
        Tokenizer.from_folder(folder)
    assert str(folder / "tokenizer.json") in str(caught.value)
    assert what in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"null",
        b"7",
        b'"text"',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"model": NaN}',
        b"9" * 5000,
        b"\xef\xbb\xbf{}",
    ],
)
@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.json", "merges.txt", "added_tokens.json"])
def test_a_file_that_is_no_json_is_named(name: str, content: bytes, tmp_path: Path) -> None:
    if name != "tokenizer.json":
        (tmp_path / "vocab.json").write_text(json.dumps({c: n for n, c in enumerate(BYTE_OF_CHARACTER)}))
        (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    (tmp_path / name).write_bytes(content)
    if name == "merges.txt" and content == b"":  # a vocabulary of bytes alone
        assert load(tmp_path).encode("hi") == [71, 72]
        return
    with pytest.raises(TokenizerError) as caught:
        Tokenizer.from_folder(tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(("there", "absent"), [("vocab.json", "merges.txt"), ("merges.txt", "vocab.json")])
def test_one_of_two_files_is_not_enough(there: str, absent: str, tmp_path: Path) -> None:
    (tmp_path / there).write_text("{}")
    with pytest.raises(TokenizerError, match=f"{there} is there but {absent} is missing"):
        Tokenizer.from_folder(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.model", "spiece.model", "vocab.txt"])
def test_a_tokenizer_of_another_kind_is_not_passed_over(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\n\x0e")
    with pytest.raises(TokenizerError, match=f"{name} is not byte-level BPE; try --backend transformers"):
        Tokenizer.from_folder(tmp_path)


def test_a_folder_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").mkdir()
    with pytest.raises(TokenizerError, match=r"cannot read .*tokenizer\.json"):
        Tokenizer.from_folder(tmp_path)


JUNK = [
    None,
    True,
    "\ud800",
    0,
    -1,
    10**30,
    1.5,
    sys.float_info.max,
    "",
    "a",
    "Ġ",
    "日",
    [],
    ["a"],
    ["a", "b"],
    {},
    {"type": 1},
]


def test_whatever_is_wrong_it_is_a_tokenizer_error(saved: Callable[..., Path], trained: tokenizers.Tokenizer) -> None:
    """Every field in turn, and items of the long ones at random, replaced by something of another kind."""
    whole = json.loads(trained.to_str())
    rng = random.Random(0)
    paths = list(_paths(whole))
    paths = [p for p in paths if len(p) < 3] + rng.sample([p for p in paths if len(p) >= 3], 60)
    for path in paths:
        for junk in rng.sample(JUNK, 5):
            try:
                load(saved(change(*path, to=copy.deepcopy(junk)))).encode(f"the cat{EOT} é", special_tokens=True)
            except TokenizerError:
                continue


def _paths(data: Any, path: tuple[Any, ...] = ()) -> Any:
    """The path to every value inside a JSON value."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from _paths(value, (*path, key))
