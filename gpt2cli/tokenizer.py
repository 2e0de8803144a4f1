"""text ↔ token ids, with tiktoken; the bytes of each token."""

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import tiktoken

from gpt2cli.errors import TokenizerError

# GPT-2's pre-tokenizer, from openai/gpt-2 src/encoder.py, in the possessive form that tiktoken uses
# (the same pieces, without backtracking).
GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
END_OF_TEXT = "<|endoftext|>"

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
    """Byte-level BPE over one vocabulary.

    tiktoken takes a token's id as its merge priority. Where a vocabulary numbers its tokens otherwise,
    `token_ids` gives the id of each of tiktoken's ranks.
    """

    def __init__(
        self,
        ranks: Mapping[bytes, int],
        special_tokens: Mapping[str, int],
        *,
        pattern: str = GPT2_PATTERN,
        token_ids: Sequence[int] | None = None,
        plain_added_tokens: Iterable[str] = (),
        eos_token_id: int | None = None,
    ) -> None:
        """
        ranks: the bytes of every mergeable token and its merge priority, from 0.
        special_tokens: added tokens by text, with their token ids.
        token_ids: the token id of each rank; None where the rank is the id.
        plain_added_tokens: those of `special_tokens` that ordinary text spells too.
        Raises TokenizerError where an id is missing or used twice.
        """
        ids = token_ids if token_ids is not None else range(len(ranks))
        if token_ids is None:
            added = dict(special_tokens)
        else:
            added = {text: len(ranks) + n for n, text in enumerate(special_tokens)}
        self._encoding = tiktoken.Encoding(
            "gpt2cli", pat_str=pattern, mergeable_ranks=dict(ranks), special_tokens=added
        )
        self._id_of_rank = None if token_ids is None else [*ids, *special_tokens.values()]
        self._plain_added = set(plain_added_tokens)
        self._special_tokens = dict(special_tokens)
        by_id = {ids[rank]: token for token, rank in ranks.items()}
        by_id.update({token_id: text.encode() for text, token_id in special_tokens.items()})
        missing = next((n for n in range(len(by_id)) if n not in by_id), None)
        if missing is not None or len(by_id) != len(ranks) + len(special_tokens):
            raise TokenizerError(
                f"the vocabulary has {len(ranks) + len(special_tokens)} tokens, but token id "
                f"{missing if missing is not None else len(by_id)} is missing or used twice"
            )
        self._bytes = [by_id[n] for n in range(len(by_id))]
        self.eos_token_id = eos_token_id if eos_token_id is not None else special_tokens.get(END_OF_TEXT)

    @classmethod
    def gpt2(cls) -> "Tokenizer":
        """GPT-2's own vocabulary of 50,257 tokens, from the ranks shipped in this package."""
        lines = (files("gpt2cli") / "data" / "gpt2.tiktoken").read_bytes().splitlines()
        pairs = (line.split() for line in lines)
        ranks = {base64.b64decode(token): int(rank) for token, rank in pairs}
        return cls(ranks, {END_OF_TEXT: len(ranks)})

    @classmethod
    def from_folder(cls, folder: Path) -> "Tokenizer | None":
        """The tokenizer of a model folder (tokenizer.json, or vocab.json + merges.txt); None if it has none.

        Raises TokenizerError where the files are damaged or are not byte-level BPE.
        """
        if (folder / "tokenizer.json").exists():
            return _from_tokenizer_json(folder / "tokenizer.json")
        vocab, merges = folder / "vocab.json", folder / "merges.txt"
        if vocab.exists() != merges.exists():
            there, absent = (vocab, merges) if vocab.exists() else (merges, vocab)
            raise TokenizerError(f"{there} is there but {absent.name} is missing; both are needed")
        if not vocab.exists():
            return None
        lines = _read_text(merges).split("\n")
        pairs = [line.rstrip("\r") for line in lines if line.strip() and not line.startswith("#version")]
        return from_vocab_and_merges(_read_json(vocab), pairs, source=vocab)

    @property
    def vocab_size(self) -> int:
        return len(self._bytes)

    @property
    def special_tokens(self) -> dict[str, int]:
        return dict(self._special_tokens)

    def encode(self, text: str, *, special_tokens: bool = False) -> list[int]:
        """Token ids of a text. `<|endoftext|>` is ordinary text unless `special_tokens` is set."""
        allowed = set(self._special_tokens) if special_tokens else self._plain_added
        ranks = self._encoding.encode(text, allowed_special=allowed, disallowed_special=())
        return ranks if self._id_of_rank is None else [self._id_of_rank[rank] for rank in ranks]

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; they need not be whole characters."""
        return self._bytes[token_id]

    def decode(self, token_ids: Iterable[int]) -> str:
        """The text of token ids; U+FFFD for bytes that are not UTF-8."""
        return b"".join(self.token_bytes(n) for n in token_ids).decode(errors="replace")


def from_vocab_and_merges(
    vocab: Any,
    merges: Sequence[str | Sequence[str]],
    *,
    source: Path,
    added_tokens: Mapping[str, int] | None = None,
    plain_added_tokens: Iterable[str] = (),
    pattern: str = GPT2_PATTERN,
) -> Tokenizer:
    """A tokenizer from GPT-2's file format: token → id, and the merges in order of priority.

    Raises TokenizerError, which names `source`, where the two disagree.
    """
    if not isinstance(vocab, dict) or not all(type(n) is int for n in vocab.values()):
        raise TokenizerError(f"{source}: the vocabulary is not a JSON object of token ids")
    remaining = dict(vocab)
    added = dict(added_tokens or {})
    for text in [*added, END_OF_TEXT]:
        if text in remaining:
            added[text] = remaining.pop(text)
    order = [c for c in BYTE_OF_CHARACTER if c in remaining]
    order += ["".join(m if not isinstance(m, str) else m.split(" ")) for m in merges]
    absent = next((token for token in order if token not in remaining), None)
    if absent is not None:
        raise TokenizerError(f"{source}: the merges make {absent!r}, which the vocabulary lacks")
    order = list(dict.fromkeys(order))
    # A token that no merge makes can never come out of encoding, yet it has an id and may be generated.
    order += sorted(set(remaining).difference(order), key=remaining.__getitem__)
    try:
        ranks = {bytes(BYTE_OF_CHARACTER[c] for c in token): rank for rank, token in enumerate(order)}
    except KeyError as error:
        raise TokenizerError(f"{source}: {error.args[0]!r} is no byte of byte-level BPE" + _OTHER_BACKEND) from None
    ids = [remaining[token] for token in order]
    if len(BYTE_OF_CHARACTER.keys() - remaining.keys()) > 0:
        raise TokenizerError(f"{source}: the vocabulary lacks some of the 256 bytes" + _OTHER_BACKEND)
    plain_numbering = ids == list(range(len(ids))) and all(n >= len(ids) for n in added.values())
    try:
        return Tokenizer(
            ranks,
            added,
            pattern=pattern,
            token_ids=None if plain_numbering else ids,
            plain_added_tokens=plain_added_tokens,
        )
    except TokenizerError as error:
        raise TokenizerError(f"{source}: {error}") from None


def _from_tokenizer_json(path: Path) -> Tokenizer:
    """tokenizer.json of the `tokenizers` library: byte-level BPE only, nothing of it ignored."""
    data = _read_json(path)
    try:
        model, pre_tokenizer = data["model"], data.get("pre_tokenizer") or {}
        kind, vocab, merges = model.get("type", "BPE"), model["vocab"], model["merges"]
        added = list(data.get("added_tokens") or [])
        added_ids = {token["content"]: token["id"] for token in added}
    except (KeyError, TypeError, AttributeError) as error:
        raise TokenizerError(f"{path}: not a byte-level BPE tokenizer (no {error})" + _OTHER_BACKEND) from None
    trimming = next((t["content"] for t in added if t.get("lstrip") or t.get("rstrip")), None)
    refusals = {
        f"model type {kind!r}": kind != "BPE",
        f"pre_tokenizer {pre_tokenizer.get('type')!r}": pre_tokenizer.get("type") != "ByteLevel",
        "add_prefix_space": bool(pre_tokenizer.get("add_prefix_space")),
        "use_regex: false": pre_tokenizer.get("use_regex") is False,
        "a normalizer": data.get("normalizer") is not None,
        "ignore_merges": bool(model.get("ignore_merges")),
        "dropout": bool(model.get("dropout")),
        f"added token {trimming!r} that strips spaces": trimming is not None,
    }
    for what, refused in refusals.items():
        if refused:
            raise TokenizerError(f"{path}: {what} is not supported" + _OTHER_BACKEND)
    plain = [t["content"] for t in added if not t.get("special", False)]
    return from_vocab_and_merges(vocab, merges, source=path, added_tokens=added_ids, plain_added_tokens=plain)


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(f"cannot read {path}: {error}") from None


def _read_json(path: Path) -> Any:
    try:
        return json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{path} is not JSON: {error}") from None
