"""The views of inspect-logits → JSON objects and flat table rows. Pure."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import accumulate

from gpt2cli.records import (
    Candidate,
    Check,
    Lens,
    LensLayer,
    Row,
    SamplingOptions,
    ScaledRow,
    ScoredRow,
    Step,
    TemperatureRow,
    TokenGeometry,
)
from gpt2cli.serialize import (
    SCHEMA,
    JsonObject,
    candidate_json,
    flat_candidate,
    sampling_json,
    step_json,
    token_json,
)


def head_json(kind: str, model: str, prompt_token_ids: list[int]) -> JsonObject:
    """What every view begins with."""
    return {"type": kind, "schema": SCHEMA, "model": model, "prompt_token_ids": prompt_token_ids}


def steps_json(head: JsonObject, sampling: SamplingOptions, seed: int | None, steps: Sequence[Step]) -> JsonObject:
    return {**head, "sampling": sampling_json(sampling), "seed": seed, "steps": [step_json(step) for step in steps]}


def row_json(head: JsonObject, row: Row) -> JsonObject:
    record = {**head, **_row_figures(row), "candidates": [candidate_json(candidate) for candidate in row.candidates]}
    if row.tokens:
        record["tokens"] = [geometry_json(geometry) for geometry in row.tokens]
    return record


def geometry_json(geometry: TokenGeometry) -> JsonObject:
    return {
        **candidate_json(geometry.candidate),
        "hidden_norm": geometry.hidden_norm,
        "unembedding_norm": geometry.unembedding_norm,
        "cosine": geometry.cosine,
    }


def scaled_json(head: JsonObject, scaled: ScaledRow) -> JsonObject:
    """The row of the scaled hidden state; what its candidates were before it was scaled stands beside them."""
    pairs = zip(scaled.row.candidates, scaled.unscaled, strict=True)
    return {
        **head,
        "scale": scaled.scale,
        **_row_figures(scaled.row),
        "candidates": [candidate_json(candidate) | _unscaled(before) for candidate, before in pairs],
    }


def temperatures_json(head: JsonObject, compared: TemperatureRow) -> JsonObject:
    pairs = zip(compared.row.candidates, compared.probabilities, strict=True)
    return {
        **head,
        **_row_figures(compared.row),
        "temperatures": list(compared.temperatures),
        "entropies": list(compared.entropies),
        "candidates": [candidate_json(candidate) | {"probabilities": list(under)} for candidate, under in pairs],
    }


def scored_row_json(row: ScoredRow) -> JsonObject:
    target = None
    if row.target is not None:
        came = row.target.candidate
        target = {
            **token_json(came.token),
            "logit": came.logit,
            "probability": came.probability,
            "surprisal": row.target.surprisal,
            "rank": came.rank,
        }
    return {
        "position": row.position,
        **token_json(row.token),
        "context": row.context,
        "candidates": [candidate_json(candidate) for candidate in row.candidates],
        "target": target,
    }


def layer_json(layer: LensLayer) -> JsonObject:
    choice = layer.final_choice
    return {
        "layer": layer.layer,
        "candidates": [candidate_json(candidate) for candidate in layer.candidates],
        "final_choice": {
            **token_json(choice.token),
            "rank": choice.rank,
            "logit": choice.logit,
            "probability": choice.probability,
        },
    }


def lens_json(head: JsonObject, lens: Lens) -> JsonObject:
    return {
        **head,
        "position": lens.position,
        "shape": list(lens.shape),
        "layers": [layer_json(layer) for layer in lens.layers],
        "self_check": check_json(lens.self_check),
    }


def check_json(check: Check) -> JsonObject:
    return asdict(check)


def row_records(row: Row) -> list[JsonObject]:
    """A row as flat records for TSV and CSV: its candidates, then the tokens asked for, with the same columns."""
    lengths = dict.fromkeys(("hidden_norm", "unembedding_norm", "cosine")) if row.tokens else {}
    cumulative = accumulate(candidate.probability for candidate in row.candidates)
    records = [
        flat_candidate(candidate, cumulative_probability=total) | lengths
        for candidate, total in zip(row.candidates, cumulative, strict=True)
    ]
    for geometry in row.tokens:
        record = flat_candidate(geometry.candidate, cumulative_probability=None)
        records.append(record | {name: getattr(geometry, name) for name in lengths})
    return records


def step_records(step: Step) -> list[JsonObject]:
    """A step as flat records: its candidates, and its choice if that is not among them."""
    assert step.details is not None
    place = {"sample": step.sample, "step": step.step, "position": step.position}
    return _with_choice(place, step.details.candidates, step.details.choice)


def scaled_records(scaled: ScaledRow) -> list[JsonObject]:
    pairs = zip(scaled.row.candidates, scaled.unscaled, strict=True)
    return [flat_candidate(candidate) | _unscaled(before) for candidate, before in pairs]


def temperature_records(compared: TemperatureRow) -> list[JsonObject]:
    pairs = zip(compared.row.candidates, compared.probabilities, strict=True)
    names = [f"probability_at_{temperature:.15g}" for temperature in compared.temperatures]
    return [flat_candidate(candidate) | dict(zip(names, under, strict=True)) for candidate, under in pairs]


def scored_record(row: ScoredRow) -> JsonObject:
    """One line per row. logit, probability, surprisal and rank are those of the target, the token that came next."""
    came = row.target.candidate if row.target else None
    record: JsonObject = {
        "position": row.position,
        "token_id": row.token.token_id,
        "text": row.token,
        "context": row.context,
        "target_token_id": came.token.token_id if came else None,
        "target_text": came.token if came else None,
        "logit": came.logit if came else None,
        "probability": came.probability if came else None,
        "surprisal": row.target.surprisal if row.target else None,
        "rank": came.rank if came else None,
    }
    for candidate in row.candidates:
        top = f"top{candidate.rank}"
        record[f"{top}_token_id"], record[f"{top}_text"] = candidate.token.token_id, candidate.token
        record[f"{top}_logit"], record[f"{top}_probability"] = candidate.logit, candidate.probability
    return record


def layer_records(layer: LensLayer) -> list[JsonObject]:
    """A layer as flat records: its candidates, and the final choice, marked as chosen, if it is not among them."""
    return _with_choice({"layer": layer.layer}, layer.candidates, layer.final_choice)


def _with_choice(place: JsonObject, candidates: Sequence[Candidate], choice: Candidate) -> list[JsonObject]:
    shown = list(candidates) if any(candidate.chosen for candidate in candidates) else [*candidates, choice]
    return [place | flat_candidate(candidate) for candidate in shown]


def _row_figures(row: Row) -> JsonObject:
    return {
        "position": row.position,
        "shape": list(row.shape),
        "hidden_norm": row.hidden_norm,
        "entropy": row.entropy,
        "margin": row.margin,
    }


def _unscaled(before: Candidate) -> JsonObject:
    return {"unscaled_logit": before.logit, "unscaled_probability": before.probability}
