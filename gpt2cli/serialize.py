"""records → JSON objects and flat table rows, under the names that scripts rely on. Pure."""

import csv
import io
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gpt2cli.records import Candidate, Completion, SamplingOptions, Step, TokenText

SCHEMA = 1
JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """What every result says about how it was made."""

    model: str
    backend: str
    dtype: str
    device: str
    prompt: str
    prompt_token_ids: list[int]
    sampling: SamplingOptions
    seed: int | None


def json_line(data: JsonObject) -> str:
    """One line of JSON. Numbers that are not finite become null, characters that cannot be seen become escapes."""
    text = json.dumps(_finite(data), ensure_ascii=False, allow_nan=False)
    return "".join(c if c.isprintable() else _json_escape(c) for c in text) + "\n"


def result_json(run: Run, completion: Completion, steps: Sequence[Step] | None) -> JsonObject:
    result = {
        "type": "result",
        "schema": SCHEMA,
        "model": run.model,
        "backend": run.backend,
        "dtype": run.dtype,
        "device": run.device,
        "prompt": run.prompt,
        "prompt_token_ids": run.prompt_token_ids,
        "sample": completion.sample,
        "text": completion.text,
        "token_ids": list(completion.token_ids),
        "finish_reason": completion.finish_reason,
        "sampling": sampling_json(run.sampling),
        "seed": run.seed,
        "usage": {
            "prompt_tokens": len(run.prompt_token_ids),
            "completion_tokens": len(completion.token_ids),
        },
    }
    if steps is not None:
        result["steps"] = [step_json(step) for step in steps]
    return result


def error_json(row_id: str | int | None, line: int, error: str) -> JsonObject:
    """What stands in the place of a result that could not be made. line: of the input, from 1."""
    return {"type": "error", "schema": SCHEMA, "id": row_id, "line": line, "error": error}


def step_json(step: Step) -> JsonObject:
    """A step whose details were recorded."""
    assert step.details is not None
    details, choice = step.details, step.details.choice
    record = {
        "type": "step",
        "sample": step.sample,
        "step": step.step,
        "position": step.position,
        **token_json(step.token),
        "logit": choice.logit,
        "probability": choice.probability,
        "rank": choice.rank,
        "adjusted_logit": choice.adjusted_logit,
        "sampling_probability": choice.sampling_probability,
        "entropy": details.entropy,
        "margin": details.margin,
    }
    if details.candidates:
        record["candidates"] = [candidate_json(candidate) for candidate in details.candidates]
    return record


def candidate_json(candidate: Candidate) -> JsonObject:
    return {
        "rank": candidate.rank,
        **token_json(candidate.token),
        "logit": candidate.logit,
        "probability": candidate.probability,
        "adjusted_logit": candidate.adjusted_logit,
        "sampling_probability": candidate.sampling_probability,
        "kept": candidate.kept,
        "chosen": candidate.chosen,
    }


def separated(records: Iterable[JsonObject], kind: str, *, header: bool = True) -> str:
    """Records as TSV or CSV text with a header line, in full precision. Missing values are empty."""
    rows = [{name: _field(value, kind) for name, value in record.items()} for record in records]
    if not rows:
        return ""
    out = io.StringIO()
    if kind == "tsv":
        lines = [list(row.values()) for row in rows]
        out.writelines("\t".join(line) + "\n" for line in ([list(rows[0])] if header else []) + lines)
    else:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        if header:
            writer.writeheader()
        writer.writerows(rows)
    return out.getvalue()


def escaped_token(token: TokenText) -> str:
    """A token's text on one line: \\t, \\n, \\r, \\\\ and \\xNN for a byte that is not part of a character."""
    text = token.bytes.decode("utf-8", errors="surrogateescape")
    return "".join(_ESCAPES.get(c) or (f"\\x{ord(c) - 0xDC00:02x}" if "\udc80" <= c <= "\udcff" else c) for c in text)


_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}


def sampling_json(sampling: SamplingOptions) -> JsonObject:
    return asdict(sampling) | {"greedy": sampling.greedy}


def token_json(token: TokenText) -> JsonObject:
    return {"token_id": token.token_id, "text": token.text, "bytes": list(token.bytes)}


def flat_candidate(candidate: Candidate, **extra: float | None) -> JsonObject:
    return {
        "rank": candidate.rank,
        "token_id": candidate.token.token_id,
        "text": candidate.token,
        "logit": candidate.logit,
        "probability": candidate.probability,
        **extra,
        "adjusted_logit": candidate.adjusted_logit,
        "sampling_probability": candidate.sampling_probability,
        "kept": candidate.kept,
        "chosen": candidate.chosen,
    }


def _field(value: Any, kind: str) -> str:
    if isinstance(value, TokenText):
        return escaped_token(value) if kind == "tsv" else value.text
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return str(value)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value


def _json_escape(character: str) -> str:
    """\\uXXXX, as a surrogate pair where needed (RFC 8259 §7)."""
    data = character.encode("utf-16-be")
    return "".join(f"\\u{data[i]:02x}{data[i + 1]:02x}" for i in range(0, len(data), 2))
