"""records → rich renderables. Prints nothing; text of tokens never goes through markup."""

import math
from collections.abc import Sequence

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from gpt2cli.checkpoint import KnownModel
from gpt2cli.output import escape
from gpt2cli.records import Candidate, Row, Step, TokenGeometry, TokenText
from gpt2cli.serialize import escaped_token

TOKEN_WIDTH = 24  # longer token texts are shortened; numbers never are
BAR_WIDTH = range(8, 41)
_EIGHTHS = " ▏▎▍▌▋▊▉"


def visible_token(token: TokenText) -> Text:
    """A token on one line: a space shows as ␣, what cannot be seen as an escape, both dimmed."""
    text = Text(no_wrap=True)
    for c in escaped_token(token):
        if c == " ":
            text.append("␣", style="dim")
        else:
            text.append(c if c.isprintable() else escape(c))
    text.truncate(TOKEN_WIDTH, overflow="ellipsis")
    return text


def row_view(model: str, row: Row, width: int) -> Group:
    """The last row of a prompt: what it is, its candidates, and any tokens taken apart."""
    seq_len, vocab_size = row.shape
    head = Text.assemble(
        (model, "bold"),
        f" · logits [{seq_len}, {vocab_size}] · row {row.position}, after ",
        visible_token(row.token),
        f"\n‖h‖ {number(row.hidden_norm)} · entropy {number(row.entropy)} nats · margin {number(row.margin)}",
    )
    parts: list[Text | Table] = [head, candidate_table(row.candidates, width, cumulative=True)]
    if row.tokens:
        parts.append(geometry_table(row.tokens))
    return Group(*parts)


def step_view(step: Step, width: int) -> Group:
    """One step of generation: the row's top candidates, with the choice marked, wherever it ranked."""
    assert step.details is not None
    details = step.details
    head = Text.assemble(
        (f"step {step.step}", "bold"),
        f" · row {step.position} · entropy {number(details.entropy)} nats · margin {number(details.margin)} · chose ",
        visible_token(step.token),
    )
    shown = list(details.candidates)
    if not any(candidate.chosen for candidate in shown):
        shown.append(details.choice)
    return Group(head, candidate_table(shown, width, cumulative=False))


def candidate_table(candidates: Sequence[Candidate], width: int, *, cumulative: bool) -> Table:
    """Candidates by rank; with what sampling did to them, if it did; with a bar where the width allows one."""
    adjusted = any(c.adjusted_logit is not None for c in candidates)
    drawn = any(c.sampling_probability is not None for c in candidates)
    narrow = _candidate_table(candidates, cumulative, adjusted, drawn, bar_width=0)
    bar_width = width - Console(width=10_000).measure(narrow).maximum - 2
    if bar_width < BAR_WIDTH[0]:
        return narrow
    return _candidate_table(candidates, cumulative, adjusted, drawn, min(bar_width, BAR_WIDTH[-1]))


def _candidate_table(
    candidates: Sequence[Candidate], cumulative: bool, adjusted: bool, drawn: bool, bar_width: int
) -> Table:
    marks = any(c.chosen for c in candidates)
    table = _table(*[""] * marks, "rank", "id", "token", "logit", "prob")
    if cumulative:
        _columns(table, "cumul")
    if adjusted:
        _columns(table, "adjusted")
    if drawn:
        _columns(table, "draw")
    if bar_width:
        table.add_column("", no_wrap=True, min_width=bar_width)
    total = 0.0
    for c in candidates:
        total += c.probability
        cells: list[Text | str] = ["▶" if c.chosen else ""] if marks else []
        cells += [str(c.rank), str(c.token.token_id), visible_token(c.token), number(c.logit)]
        cells.append(probability(c.probability))
        if cumulative:
            cells.append(probability(total))
        if adjusted:
            cells.append(number(c.adjusted_logit))
        if drawn:
            cells.append(probability(c.sampling_probability) if c.kept else "cut")
        if bar_width:
            shown = c.sampling_probability if drawn else c.probability
            cells.append(bar(shown or 0.0, bar_width))
        table.add_row(*cells, style="bold" if c.chosen else None if c.kept else "dim")
    return table


def geometry_table(tokens: Sequence[TokenGeometry]) -> Table:
    """logit = ‖h‖ · ‖w‖ · cosine, for the tokens asked for."""
    table = _table("rank", "id", "token", "logit", "= ‖h‖", "· ‖w‖", "· cosine", "prob")
    for t in tokens:
        c = t.candidate
        table.add_row(
            str(c.rank),
            str(c.token.token_id),
            visible_token(c.token),
            number(c.logit),
            number(t.hidden_norm),
            number(t.unembedding_norm),
            number(t.cosine),
            probability(c.probability),
        )
    return table


def models_table(models: Sequence[KnownModel]) -> Table:
    """What --model can name."""
    table = _table()
    table.add_column("model", no_wrap=True)
    _columns(table, "parameters", "size")
    table.add_column("here", no_wrap=True)
    table.add_column("hub id", no_wrap=True)
    for model in models:
        parameters = "–" if model.parameters is None else f"{model.parameters:,}"
        size = "–" if model.size is None else f"{model.size / 1e6:,.0f} MB"
        here = "yes" if model.here else "no, fetched when first used"
        table.add_row(Text(model.name), parameters, size, here, Text(model.repo_id or "bundled"))
    table.min_width = Console(width=10_000).measure(table).maximum
    return table


def number(value: float | None) -> str:
    """Four decimals, so that columns of logits align; whatever does not fit that is written in full."""
    if value is None or not math.isfinite(value):
        return "–" if value is None else str(value)
    return f"{value:.4f}" if abs(value) < 1e6 else f"{value:.4e}"


def probability(value: float | None) -> str:
    """Six decimals, or scientific notation where those would show none of it."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.6f}" if value == 0 or value >= 1e-6 else f"{value:.2e}"


def bar(fraction: float, width: int) -> Text:
    """A bar of `width` cells for 1, in steps of an eighth of a cell."""
    eighths = round(fraction * width * 8) if math.isfinite(fraction) else 0
    return Text("█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip(), style="cyan", no_wrap=True)


def _table(*headers: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1), header_style="bold")
    _columns(table, *headers)
    return table


def _columns(table: Table, *headers: str) -> None:
    for header in headers:
        table.add_column(header, justify="left" if header == "token" else "right", no_wrap=True)
