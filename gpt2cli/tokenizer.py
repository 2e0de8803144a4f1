"""text ↔ token ids, with tiktoken; the bytes of each token."""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import tiktoken

from gpt2cli.errors import TokenizerError

# GPT-2's pre-tokenizer, from openai/gpt-2 src/encoder.py, in the possessive form that tiktoken uses
# (the same pieces, without backtracking).
GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
GPT2_MERGES_SHA256 = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"  # of its vocab.bpe
END_OF_TEXT = "<|endoftext|>"
# A run of what that pattern calls \s (Unicode's White_Space; Python's own \s is more). `\s+(?!\S)` does backtrack,
# and on some hundred thousand spaces before a word tiktoken runs out of stack.
_LONG_SPACE = re.compile("[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]{64,}")

_OTHER_FILES = ("tokenizer.model", "spiece.model", "vocab.txt")  # tokenizers of other kinds
_OTHER_BACKEND = "; try --backend transformers, which runs any tokenizer"


def _byte_characters() -> dict[str, int]:
    """The printable character that GPT-2's vocabulary files write for each byte (openai/gpt-2 encoder.py).

    The order is that of GPT-2's first 256 token ids: printable bytes first, then the rest.
    """
    printable = [b for b in range(256) if chr(b).isprintable() and chr(b) != " "]
    others = [b for b in range(256) if b not in printable]
    characters = {chr(b): b for b in printable}
    characters.update({chr(256 + n): b for n, b in enumerate(others)})
    return characters


BYTE_OF_CHARACTER = _byte_characters()


class Tokenizer:
    """Byte-level BPE over one vocabulary."""

    def __init__(
        self,
        ranks: Mapping[bytes, int],
        tokens: Sequence[bytes],
        *,
        id_of_rank: Sequence[int] | None = None,
        special_tokens: Mapping[str, int],
        plain_tokens: Mapping[str, int] | None = None,
    ) -> None:
        """
        ranks: the tokens that merging makes, all 256 bytes among them, and their priorities from 0.
        tokens: the bytes of every token, by token id.
        id_of_rank: the token id of each rank; None where the rank is the id.
        special_tokens, plain_tokens: added tokens by text. They are found in a text before any merging: plain ones
        always, special ones where they are asked for.
        """
        self._encoding = tiktoken.Encoding(
            "gpt2cli", pat_str=GPT2_PATTERN, mergeable_ranks=dict(ranks), special_tokens={}
        )
        self._tokens = tokens
        self._id_of_rank = id_of_rank
        self._special_tokens = dict(special_tokens)
        self._plain_tokens = dict(plain_tokens or {})
        self.eos_token_id = special_tokens.get(END_OF_TEXT)

    @classmethod
    def gpt2(cls) -> "Tokenizer":
        """GPT-2's own vocabulary of 50,257 tokens, from the ranks shipped in this package."""
        lines = (files("gpt2cli") / "data" / "gpt2.tiktoken").read_bytes().splitlines()
        pairs = (line.split() for line in lines)
        ranks = {base64.b64decode(token): int(rank) for token, rank in pairs}
        return cls(ranks, [*ranks, END_OF_TEXT.encode()], special_tokens={END_OF_TEXT: len(ranks)})

    @classmethod
    def from_folder(cls, folder: Path) -> "Tokenizer | None":
        """The tokenizer of a model folder (tokenizer.json, or vocab.json + merges.txt); None if it has none.

        Raises TokenizerError where the files are damaged or are not byte-level BPE.
        """
        if (folder / "tokenizer.json").exists():
            return _from_tokenizer_json(folder / "tokenizer.json")
        vocab, merges, added = folder / "vocab.json", folder / "merges.txt", folder / "added_tokens.json"
        if vocab.exists() != merges.exists():
            there, absent = (vocab, merges) if vocab.exists() else (merges, vocab)
            raise TokenizerError(f"{there} is there but {absent.name} is missing; both are needed")
        if vocab.exists():
            lines = [line for line in _read_text(merges).split("\n") if line and not line.startswith("#version")]
            special_tokens = _token_ids(_read_json(added), added) if added.exists() else {}
            return from_vocab_and_merges(_read_json(vocab), lines, source=vocab, special_tokens=special_tokens)
        other = next((folder / name for name in _OTHER_FILES if (folder / name).exists()), None)
        if other:
            raise TokenizerError(f"{other} is not byte-level BPE" + _OTHER_BACKEND)
        return None

    @property
    def vocab_size(self) -> int:
        return len(self._tokens)

    @property
    def special_tokens(self) -> dict[str, int]:
        return dict(self._special_tokens)

    def encode(self, text: str, *, special_tokens: bool = False) -> list[int]:
        """Token ids of a text. `<|endoftext|>` is ordinary text unless `special_tokens` is set."""
        added = self._plain_tokens | self._special_tokens if special_tokens else self._plain_tokens
        if not added:
            return self._encode_ordinary(text)
        longest_first = sorted(added, key=len, reverse=True)
        parts = re.split("(" + "|".join(map(re.escape, longest_first)) + ")", text)
        return [
            token_id
            for n, part in enumerate(parts)
            for token_id in ([added[part]] if n % 2 else self._encode_ordinary(part))
        ]

    def _encode_ordinary(self, text: str) -> list[int]:
        # GPT-2 parts a run of spaces before its last character where a word follows, so there the text can be cut.
        ends = [run.end() - 1 for run in _LONG_SPACE.finditer(text) if run.end() < len(text)]
        pieces = [text[start:end] for start, end in pairwise([0, *ends, len(text)])]
        ranks = [rank for piece in pieces for rank in self._encoding.encode_ordinary(piece)]
        return ranks if self._id_of_rank is None else [self._id_of_rank[rank] for rank in ranks]

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; they need not be whole characters."""
        return self._tokens[token_id]

    def decode(self, token_ids: Iterable[int]) -> str:
        """The text of token ids; U+FFFD for bytes that are not UTF-8."""
        return b"".join(self.token_bytes(n) for n in token_ids).decode(errors="replace")


def from_vocab_and_merges(
    vocab: Any,
    merges: Iterable[Any],
    *,
    source: Path,
    special_tokens: Mapping[str, int],
    plain_tokens: Mapping[str, int] | None = None,
) -> Tokenizer:
    """A tokenizer from GPT-2's file format: token → id, and the merges (pairs, or "left right") by priority.

    Raises TokenizerError, which names `source`, where they are damaged or disagree.
    """
    token_ids = _token_ids(vocab, source)
    strange = sorted(set().union(*token_ids) - BYTE_OF_CHARACTER.keys())
    if strange:
        raise TokenizerError(f"{source}: {strange[0]!r} is no byte of byte-level BPE" + _OTHER_BACKEND)
    if BYTE_OF_CHARACTER.keys() - token_ids.keys():
        raise TokenizerError(f"{source}: the vocabulary lacks some of the 256 bytes" + _OTHER_BACKEND)
    pairs = [_pair(merge, source) for merge in merges]
    merged = [*BYTE_OF_CHARACTER, *(left + right for left, right in pairs)]
    absent = next((token for token in merged if token not in token_ids), None)
    if absent is not None:
        raise TokenizerError(f"{source}: the merges make {absent!r}, which the vocabulary lacks")
    _check_merges({token: rank for rank, token in enumerate(merged)}, pairs, source)

    special = {text: token_ids.get(text, n) for text, n in special_tokens.items()}
    plain = {text: token_ids.get(text, n) for text, n in (plain_tokens or {}).items()}
    table = str.maketrans({character: chr(byte) for character, byte in BYTE_OF_CHARACTER.items()})
    token_bytes = {token: token.translate(table).encode("latin-1") for token in token_ids}
    made = set(merged)
    if END_OF_TEXT in token_ids.keys() - made - plain.keys():
        special[END_OF_TEXT] = token_ids[END_OF_TEXT]
    # A token that is neither merged nor added can never come out of encoding, yet a model may generate it.
    added = special | plain
    by_id = [(n, token_bytes[token]) for token, n in token_ids.items() if token in made or token not in added]
    by_id += [(n, text.encode(errors="surrogatepass")) for text, n in added.items()]
    ids = [token_ids[token] for token in merged]
    return Tokenizer(
        {token_bytes[token]: rank for rank, token in enumerate(merged)},
        _in_order(by_id, source),
        id_of_rank=None if ids == list(range(len(ids))) else ids,
        special_tokens=special,
        plain_tokens=plain,
    )


def _check_merges(ranks: Mapping[str, int], pairs: Sequence[tuple[str, str]], source: Path) -> None:
    """Raises TokenizerError where merging any two neighbours that spell a token, as tiktoken does, could differ
    from merging only the pairs that are listed.

    It cannot where each token is made by one pair, of parts made earlier, and where the parts of a token, put side
    by side, are what the earlier merges alone leave of it. Every trained vocabulary is such.
    """
    file = "#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in pairs)
    if hashlib.sha256(file.encode()).hexdigest() == GPT2_MERGES_SHA256:
        return  # checked once and for all by a test; looking takes longer than all the rest
    parts = {left + right: (left, right) for left, right in pairs}
    for rank, (left, right) in enumerate(pairs, start=len(BYTE_OF_CHARACTER)):
        token = left + right
        known = ranks.get(left, rank) < rank and ranks.get(right, rank) < rank
        if not known or ranks[token] != rank or not _stay_apart(left, right, ranks, parts):
            raise TokenizerError(
                f"{source}: the merge of {left!r} and {right!r} can never be, or is not the only way to make {token!r}"
                + _OTHER_BACKEND
            )


def _stay_apart(left: str, right: str, ranks: Mapping[str, int], parts: Mapping[str, tuple[str, str]]) -> bool:
    """Whether no merge across the border comes before `left` and `right` are complete and merge with each other.

    Looks at the two tokens at the border and undoes their merges, the latest first.
    """
    limit = ranks[left + right]
    while ranks.get(left + right, limit) >= limit:
        if len(left) == len(right) == 1:
            return True
        if ranks[left] > ranks[right]:
            limit = ranks[left]
            left = parts[left][1]
        else:
            limit = ranks[right] + 1  # of two equal pairs the one on the left comes first, here the one across
            right = parts[right][0]
    return False


def _pair(merge: Any, source: Path) -> tuple[str, str]:
    match merge.split(" ") if isinstance(merge, str) else merge:
        case [str(left), str(right)] if left and right:
            return left, right
    raise TokenizerError(f"{source}: the merge {merge!r} is not a pair of tokens")


def _token_ids(vocab: Any, source: Path) -> dict[str, int]:
    if not isinstance(vocab, dict) or not all(token and type(n) is int for token, n in vocab.items()):
        raise TokenizerError(f"{source}: the vocabulary is not a JSON object of token ids")
    return vocab


def _in_order(by_id: Iterable[tuple[int, bytes]], source: Path) -> list[bytes]:
    """The bytes of the tokens of ids 0, 1, 2, …; raises TokenizerError where one is missing or used twice."""
    tokens: dict[int, bytes] = {}
    for token_id, token in by_id:
        if tokens.setdefault(token_id, token) != token:
            raise TokenizerError(f"{source}: token id {token_id} is used twice")
    missing = next((n for n in range(len(tokens)) if n not in tokens), None)
    if missing is not None:
        raise TokenizerError(f"{source}: the vocabulary has {len(tokens)} tokens, but token id {missing} is missing")
    return [tokens[n] for n in range(len(tokens))]


def _from_tokenizer_json(path: Path) -> Tokenizer:
    """tokenizer.json of the `tokenizers` library: byte-level BPE only, nothing of it ignored.

    What it adds around a whole text (post_processor, padding, truncation) is not tokenization, and not done here.
    """
    data = _read_json(path)
    if not isinstance(data, dict):
        raise TokenizerError(f"{path} is not a JSON object")
    model, pre_tokenizer, decoder = (_part(data, name, dict, path) for name in ("model", "pre_tokenizer", "decoder"))
    added = _part(data, "added_tokens", list, path)
    for token in added:
        if not isinstance(token, dict) or type(token.get("id")) is not int:
            raise TokenizerError(f"{path}: the added token {token!r} has no id")
        if not isinstance(token.get("content"), str) or not token["content"]:
            raise TokenizerError(f"{path}: the added token of id {token['id']} has no text")
    picky = next((t["content"] for t in added if t.get("lstrip") or t.get("rstrip") or t.get("single_word")), None)
    refusals = {
        f"model type {model.get('type', 'BPE')!r}": model.get("type", "BPE") != "BPE",
        f"pre_tokenizer {pre_tokenizer.get('type')!r}": pre_tokenizer.get("type") != "ByteLevel",
        f"decoder {decoder.get('type')!r}": bool(decoder) and decoder.get("type") != "ByteLevel",
        "add_prefix_space": pre_tokenizer.get("add_prefix_space", True) is not False,
        "use_regex: false": pre_tokenizer.get("use_regex", True) is not True,
        "a normalizer": data.get("normalizer") is not None,
        "ignore_merges": bool(model.get("ignore_merges")),
        "dropout": bool(model.get("dropout")),
        "continuing_subword_prefix": bool(model.get("continuing_subword_prefix")),
        "end_of_word_suffix": bool(model.get("end_of_word_suffix")),
        f"added token {picky!r} that looks at the text around it": picky is not None,
    }
    for what, refused in refusals.items():
        if refused:
            raise TokenizerError(f"{path}: {what} is not supported" + _OTHER_BACKEND)
    return from_vocab_and_merges(
        _part(model, "vocab", dict, path),
        _part(model, "merges", list, path),
        source=path,
        special_tokens={t["content"]: t["id"] for t in added if t.get("special")},
        plain_tokens={t["content"]: t["id"] for t in added if not t.get("special")},
    )


def _part(data: dict[str, Any], name: str, kind: type, path: Path) -> Any:
    """A field of a JSON object, empty where it is missing or null. Raises TokenizerError if it is no `kind`."""
    value = data.get(name)
    if value is not None and not isinstance(value, kind):
        raise TokenizerError(f"{path}: {name} is not a JSON {'object' if kind is dict else 'array'}")
    return kind() if value is None else value


def _read_text(path: Path) -> str:
    if not path.is_file():  # a pipe would wait for ever, and a device may never end
        raise TokenizerError(f"cannot read {path}: it is no file")
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(f"cannot read {path}: {error}") from None


def _read_json(path: Path) -> Any:
    try:
        return json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{path} is not JSON: {error}") from None
