"""records → rich renderables. Prints nothing; text of tokens never goes through markup."""

from collections.abc import Iterator, Sequence
from itertools import accumulate

from rich.console import Group, RenderableType
from rich.text import Text

from gpt2cli.checkpoint import KnownModel
from gpt2cli.output import visible
from gpt2cli.records import (
    Candidate,
    Check,
    Lens,
    Row,
    ScaledRow,
    ScoredRow,
    Step,
    TemperatureRow,
    TokenGeometry,
    TokenText,
)
from gpt2cli.tables import GAP, TOKEN_WIDTHS, Column, Columns, name_of, number, probability, visible_token


def row_view(model: str, row: Row, width: int) -> Group:
    """The last row of a prompt: what it is, its candidates, and any tokens taken apart."""
    parts: list[RenderableType] = [_row_head(model, row), candidate_table(row.candidates, width, cumulative=True)]
    if row.tokens:
        parts += [Text(), *geometry_table(row.tokens, width)]
    return Group(*parts)


def step_view(step: Step, width: int) -> Group:
    """One step of generation: the row's top candidates, with the choice marked, wherever it ranked."""
    assert step.details is not None
    details = step.details
    head = Text.assemble(
        (f"step {step.step}", "bold"),
        f" · row {step.position} · entropy {number(details.entropy)} nats · margin {number(details.margin)} · chose ",
        _short(step.token),
    )
    shown = list(details.candidates)
    if not any(candidate.chosen for candidate in shown):
        shown.append(details.choice)
    return Group(head, candidate_table(shown, width, cumulative=False))


def candidate_table(candidates: Sequence[Candidate], width: int, *, cumulative: bool) -> Group:
    """Candidates by rank; with what sampling did to them, if it did; with a bar where the width allows one."""
    adjusted = any(c.adjusted_logit is not None for c in candidates)
    drawn = any(c.sampling_probability is not None for c in candidates)
    columns = [Column("", ["▶" if c.chosen else "" for c in candidates])] if any(c.chosen for c in candidates) else []
    columns += _candidate_columns(candidates)
    meaning = ["logit = h·w", "prob = softmax"]
    if cumulative:
        columns.append(Column("cumul", [probability(p) for p in accumulate(c.probability for c in candidates)]))
        meaning.append("cumul = sum")
    if adjusted:
        columns.append(Column("adjusted", [number(c.adjusted_logit) for c in candidates]))
        meaning.append("adjusted = ÷T")
    if drawn:
        cells = [probability(c.sampling_probability) if c.kept else "cut" for c in candidates]
        columns.append(Column("draw", cells))
        meaning.append("draw = after cuts")
    shown = [(c.sampling_probability if drawn else c.probability) or 0.0 for c in candidates]
    columns.append(Column("", shown, "fill"))
    styles = ["bold" if c.chosen else "" if c.kept else "dim" for c in candidates]
    return Group(Columns(columns, styles).table(width), _caption(", ".join(meaning)))


def geometry_table(tokens: Sequence[TokenGeometry], width: int) -> list[RenderableType]:
    """logit = ‖h‖ · ‖w‖ · cosine, for the tokens asked for."""
    candidates = [t.candidate for t in tokens]
    rank, token_id, token, logit, prob = _candidate_columns(candidates)
    columns = [
        *(rank, token_id, token, logit),
        Column("= ‖h‖", [number(t.hidden_norm) for t in tokens]),
        Column("· ‖w‖", [number(t.unembedding_norm) for t in tokens]),
        Column("· cosine", [number(t.cosine) for t in tokens]),
        prob,
    ]
    caption = "‖h‖ = length of the hidden state, ‖w‖ = of the token's vector; logit = h·w"
    return [Columns(columns).table(width), _caption(caption)]


def scaled_view(model: str, scaled: ScaledRow, width: int) -> Group:
    """The row of the scaled hidden state beside what it was."""
    before = scaled.unscaled
    rank, token_id, token, logit, prob = _candidate_columns(scaled.row.candidates)
    factor = f"{scaled.scale:.15g}"
    columns = [
        *(rank, token_id, token),
        Column("logit", [number(c.logit) for c in before]),
        Column("prob", [probability(c.probability) for c in before]),
        Column("", [c.probability for c in before], "fill"),
        Column(f"logit ×{factor}", logit.cells),
        Column(f"prob ×{factor}", prob.cells),
        Column("", [c.probability for c in scaled.row.candidates], "fill"),
    ]
    caption = f"logit = h·w, prob = softmax of it; ×{factor} = of {factor}·h, the same direction"
    return Group(_row_head(model, scaled.row), Columns(columns).table(width), _caption(caption))


def temperature_view(model: str, compared: TemperatureRow, width: int) -> Group:
    """The same candidates under each temperature, side by side; in several tables where one is too wide."""
    row = compared.row
    rank, token_id, token, logit, _ = _candidate_columns(row.candidates)
    # A line of entropies closes the table.
    fixed = [
        Column("rank", [*rank.cells, ""]),
        Column("id", [*token_id.cells, ""]),
        Column("token", [*token.cells, Text("entropy", "dim")], "token"),
        Column("logit", [*logit.cells, Text("nats", "dim")]),
    ]
    under = []
    for n, temperature in enumerate(compared.temperatures):
        values = [probabilities[n] for probabilities in compared.probabilities]
        entropy = Text(number(compared.entropies[n]), "dim")
        under.append(Column(f"T {temperature:.15g}", [*map(probability, values), entropy]))
        under.append(Column("", [*values, ""], "fill"))
    least = sum(column.width(TOKEN_WIDTHS[-1]) + GAP for column in fixed)
    at_once = 2 * max(1, (width + GAP - least) // (GAP + max(column.width() for column in under)))
    tables: list[RenderableType] = []
    for n in range(0, len(under), at_once):
        tables += [Text()] * (n > 0) + [Columns([*fixed, *under[n : n + at_once]]).table(width)]
    caption = "logit = h·w; T = probability at that temperature, softmax(logit / T)"
    return Group(_row_head(model, row), *tables, _caption(caption))


def scored_view(model: str, shape: tuple[int, int], rows: Sequence[ScoredRow], width: int) -> Group:
    """Every row of a given text: the token that came next, and what the model thought of it."""
    lines = [(row, n) for row in rows for n in range(len(row.candidates))]
    firsts = [row if n == 0 else None for row, n in lines]
    targets = [row.target if row else None for row in firsts]
    # Scores stand in the line of the row that made them; further candidates have lines of their own.
    columns = [
        Column("row", [str(row.position) if row else "" for row in firsts]),
        Column("after", [visible_token(row.token) if row else "" for row in firsts], "token", "dim"),
        Column("next", [visible_token(t.candidate.token) if t else "" for t in targets], "token"),
        Column("logit", [number(t.candidate.logit) if t else "" for t in targets]),
        Column("prob", [probability(t.candidate.probability) if t else "" for t in targets]),
        Column("nats", [number(t.surprisal) if t else "" for t in targets]),
        Column("rank", [str(t.candidate.rank) if t else "" for t in targets]),
        Column("", [t.candidate.probability if t else 0.0 for t in targets], "fill"),
        Column("top", [visible_token(row.candidates[n].token) for row, n in lines], "token"),
        Column("prob", [probability(row.candidates[n].probability) for row, n in lines]),
    ]
    if any(row.context != row.position + 1 for row in rows):
        columns.insert(1, Column("seen", [str(row.context) if row else "" for row in firsts]))
    head = Text.assemble(name_of(model), f" · logits {list(shape)} · every row, and the token that came next")
    caption = "next = what came, its logit, prob, −log prob (nats), rank; top = the likeliest"
    return Group(head, Columns(columns).table(width), _caption(caption))


def loss_line(mean_loss: float | None, perplexity: float | None, scored_tokens: int) -> Text:
    if mean_loss is None:
        return Text("nothing scored: one token alone has no row before it; --bos puts one there")
    return Text.assemble(
        ("mean loss ", "bold"),
        f"{number(mean_loss)} nats · ",
        ("perplexity ", "bold"),
        f"{number(perplexity)} · {scored_tokens} tokens scored",
    )


def lens_view(model: str, lens: Lens, width: int) -> Group:
    """Every layer: the token it would choose, how far the final choice is, and what else ranks high."""
    layers, final = lens.layers, lens.layers[-1].final_choice
    tops = [layer.candidates[0] for layer in layers]
    columns = [
        Column("layer", ["embed", *(str(layer.layer) for layer in layers[1:])], "text"),
        Column("top", [visible_token(c.token) for c in tops], "token"),
        Column("logit", [number(c.logit) for c in tops]),
        Column("prob", [probability(c.probability) for c in tops]),
        Column("rank", [str(layer.final_choice.rank) for layer in layers], style="bold"),
        Column("logit", [number(layer.final_choice.logit) for layer in layers]),
        Column("prob", [probability(layer.final_choice.probability) for layer in layers]),
        Column("then", [_listed(layer.candidates[1:]) for layer in layers], "fill"),
    ]
    head = Text.assemble(
        name_of(model),
        f" · logit lens · logits {list(lens.shape)} · row {lens.position}, after ",
        _short(lens.token),
        "\nfinal choice ",
        (_short(final.token).plain, "bold"),
    )
    caption = "top = its own choice; rank, logit, prob = of the final choice; then = next ranks"
    return Group(head, Columns(columns).table(width), _caption(caption), _check_line(lens.self_check))


def verify_view(model: str, checks: Sequence[Check], width: int) -> Iterator[RenderableType]:
    yield Text.assemble(name_of(model), " · the output layer, checked on this model and this text")
    columns = [
        Column("", [str(n) for n in range(1, len(checks) + 1)]),
        Column("check", [check.name for check in checks], "text"),
        Column("figure", [_figure(check.figure) for check in checks]),
        Column("tolerance", [_figure(check.tolerance) for check in checks]),
        Column("", [_verdict(check) for check in checks], "text"),
    ]
    yield Columns(columns).table(width)
    yield _caption("figure = largest difference, count or share; passes up to the tolerance")
    for n, check in enumerate(checks, start=1):
        yield Text.assemble((f"{n} ", "bold"), visible(check.detail))


def models_view(models: Sequence[KnownModel]) -> Group:
    """What --model can name."""
    columns = [
        Column("model", [Text(model.name) for model in models], "text"),
        Column("parameters", ["–" if m.parameters is None else f"{m.parameters:,}" for m in models]),
        Column("size", ["–" if m.size is None else f"{m.size / 1e6:,.0f} MB" for m in models]),
        Column("here", ["yes" if model.here else "no" for model in models], "text"),
        Column("hub id", [Text(model.repo_id or "bundled") for model in models], "text"),
    ]
    return Group(Columns(columns).table(0), _caption("one that is not here is fetched when it is first used"))


def _row_head(model: str, row: Row) -> Text:
    return Text.assemble(
        name_of(model),
        f" · logits {list(row.shape)} · row {row.position}, after ",
        _short(row.token),
        f"\n‖h‖ {number(row.hidden_norm)} · entropy {number(row.entropy)} nats · margin {number(row.margin)}",
    )


def _candidate_columns(candidates: Sequence[Candidate]) -> tuple[Column, Column, Column, Column, Column]:
    return (
        Column("rank", [str(c.rank) for c in candidates]),
        Column("id", [str(c.token.token_id) for c in candidates]),
        Column("token", [visible_token(c.token) for c in candidates], "token"),
        Column("logit", [number(c.logit) for c in candidates]),
        Column("prob", [probability(c.probability) for c in candidates]),
    )


def _listed(candidates: Sequence[Candidate]) -> Text:
    return Text(" ").join(visible_token(c.token) for c in candidates)


def _short(token: TokenText) -> Text:
    text = visible_token(token)
    text.truncate(TOKEN_WIDTHS[0], overflow="ellipsis")
    return text


def _check_line(check: Check) -> Text:
    return Text.assemble(
        f"self-check: {check.detail} {_figure(check.figure)}, at most {_figure(check.tolerance)}: ",
        _verdict(check),
    )


def _verdict(check: Check) -> Text:
    if check.passed is None:
        return Text("not made", "yellow")
    return Text("pass", "green") if check.passed else Text("FAIL", "bold red")


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _caption(text: str) -> Text:
    return Text(text, style="dim")
