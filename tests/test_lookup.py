"""Drafts copied from the text so far: the same tokens and numbers, from fewer passes of the model."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import checkpoints
import pytest
import torch
from conftest import Cli, need_lone_rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gpt2cli
from gpt2cli.drafting import DraftedRows
from gpt2cli.errors import LogitsError
from gpt2cli.loading import LoadedModel
from gpt2cli.lookup import LONGEST, NGRAM, Lookup
from gpt2cli.model import FEW, GPT2
from gpt2cli.records import Completion, GenerationOptions, SamplingOptions, Step

EOS = checkpoints.EOS
ROUND = [11, 12, 13, 14, 15]
Passes = list[tuple[int, list[int]]]  # tokens in the cache before, tokens run


# The pure class.


@pytest.mark.parametrize(
    ("text", "limit", "draft"),
    [
        ([], 15, []),
        ([1, 2], 15, []),
        ([1, 2, 3], 15, []),
        ([1, 2, 3, 4, 5], 15, []),
        ([1, 2, 3, 4, 5, 6, 1, 2, 3], 15, [4, 5, 6]),
        ([1, 2, 3, 4, 5, 6, 1, 2, 3], 2, [4, 5]),
        ([1, 2, 3, 4, 5, 6, 1, 2, 3], 0, []),
        ([1, 2, 3, 4, 5, 6, 9, 2, 3], 15, []),  # two of the three
        ([1, 2, 3, 8, 8, 8, 1, 2, 3, 9, 9, 9, 1, 2, 3], 15, [9, 9, 9]),  # the last time counts
        ([1, 2, 1, 2, 1], 15, [2, 1, 2]),  # and goes on past its end
        ([7, 7, 7, 7], 15, [7, 7, 7]),
    ],
)
def test_a_draft_is_what_followed_the_last_three_tokens_before(text: list[int], limit: int, draft: list[int]) -> None:
    assert Lookup().draft(text, limit) == draft


def test_drafts_grow_while_they_come_true_and_shrink_when_they_do_not() -> None:
    lookup, text, lengths = Lookup(), [1, 1, 1, 1], []
    for comes_true in [True] * 4 + [False] * 4:
        draft = lookup.draft(text, 99)
        assert set(draft) == {1}
        lengths.append(len(draft))
        text += [*draft, 1] if comes_true else [1, 1, 2, 1, 1, 1, 1]  # two of it, then another
    assert lengths == [3, 7, 15, 15, 15, 7, 3, 3]


def test_each_failure_at_the_first_token_is_followed_by_a_longer_pause() -> None:
    lookup, text, steps = Lookup(), [1, 1, 1, 1], []
    for step in range(140):
        draft = lookup.draft(text, 99)
        if draft:
            steps.append(step)
            text += [2 + step, 1, 1, 1, 1]  # another token, and a text in which there is something to copy again
        else:
            text.append(1)
    assert steps == [0, 2, 6, 14, 30, 62, 94, 126]  # pauses of 1, 3, 7, 15, 31, 31, 31


def test_a_draft_that_begins_well_ends_the_pauses() -> None:
    lookup, text = Lookup(), [1, 1, 1, 1]
    assert lookup.draft(text, 99) == [1, 1, 1]
    text += [2, 1, 1, 1, 1]  # failed: a pause of 1
    assert lookup.draft(text, 99) == []
    text += [1]
    assert lookup.draft(text, 99) == [1, 1, 1]
    text += [1, 2, 1, 1, 1]  # one came true: no pause
    assert lookup.draft(text, 99) == [2, 1, 1]
    text += [5, 1, 1, 1]  # failed, for the first time again
    assert lookup.draft(text, 99) == []
    assert lookup.draft([*text, 1], 99) != []


@given(st.lists(st.integers(0, 2), max_size=60), st.integers(1, 60), st.integers(0, 20))
def test_drafts_are_those_of_a_search_through_the_text(text: list[int], known: int, limit: int) -> None:
    lookup, known = Lookup(), min(known, len(text))
    while True:
        draft, so_far = lookup.draft(text[:known], limit), text[:known]
        found = [n for n in range(NGRAM, known) if so_far[n - NGRAM : n] == so_far[-NGRAM:]]
        if draft:
            longer = list(so_far)
            for _ in draft:
                longer.append(longer[found[-1] - known + len(longer)])
            assert draft == longer[known:]
            assert len(draft) <= min(limit, LONGEST)
        if known >= len(text):
            break
        while draft and known < len(text) and text[known] == draft[0]:
            del draft[0]
            known += 1
        known = min(known + 1, len(text))


# The pass over several tokens.


@pytest.mark.parametrize(
    "fields",
    [
        {"n_inner": 3072, "n_embd": 192, "n_layer": 3},
        {"n_inner": 50},  # not a whole number of vectors
        {"n_inner": 100, "activation_function": "silu", "n_embd": 60, "n_head": 5},
        {"n_inner": 33, "activation_function": "quick_gelu", "tie_word_embeddings": False},
        {"reorder_and_upcast_attn": True, "scale_attn_by_inverse_layer_idx": True},
    ],
)
@pytest.mark.parametrize(("dtype", "threads"), [("float32", 1), ("float32", 3), ("float16", 2), ("int8", 2)])
def test_a_pass_over_several_tokens_gives_what_one_after_another_gives(
    tmp_path: Path, fields: dict[str, Any], dtype: str, threads: int
) -> None:
    folder = checkpoints.random(tmp_path, **{"n_layer": 2, "n_positions": 128} | fields)
    model = gpt2cli.load(str(folder), dtype=dtype).model
    assert isinstance(model, GPT2)
    need_lone_rows(model)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.inference_mode():
            for past, count in [(1, 1), (5, 2), (5, 4), (90, 7), (60, 16), (1, FEW)]:
                together, alone = model.new_cache(), model.new_cache()
                for cache in (together, alone):
                    model.hidden_states(list(range(past)), cache)
                token_ids = list(range(1000, 1000 + count))
                each = [model.hidden_states([token_id], alone) for token_id in token_ids]
                rows = model.hidden_states_one_by_one(token_ids, together)
                assert rows.shape == (count, model.config.n_embd)
                assert torch.equal(rows, torch.cat(each)), (past, count)
                assert torch.equal(model.logits(rows), torch.stack([model.logits(row[0]) for row in each]))
                assert together.length == alone.length == past + count
                for a, b in ((together.keys, alone.keys), (together.values, alone.values)):
                    assert torch.equal(a[:, :, : past + count], b[:, :, : past + count])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("backend", ["native", "transformers"])
def test_a_shortened_cache_is_that_of_the_shorter_text(tmp_path: Path, backend: str) -> None:
    model = gpt2cli.load(str(checkpoints.tiny(tmp_path)), backend=backend).model
    cache, shorter = model.new_cache(), model.new_cache()
    with torch.inference_mode():
        model.hidden_states([1, 2, 3], cache)
        model.hidden_states_one_by_one([4, 5, 6, 7], cache)
        assert cache.length == 7
        cache.shorten(5)
        model.hidden_states([1, 2, 3, 4, 5], shorter)
        rows = model.hidden_states_one_by_one([8, 9], cache)
        torch.testing.assert_close(rows, model.hidden_states([8, 9], shorter))
    assert cache.length == shorter.length == 7


def test_rows_of_other_backends_do_not_stand_alone(tmp_path: Path) -> None:
    folder = str(checkpoints.tiny(tmp_path))
    assert not gpt2cli.load(folder, backend="transformers").model.rows_stand_alone
    assert gpt2cli.load(folder).model.rows_stand_alone == torch.backends.mkldnn.is_available()
    assert LONGEST + 1 <= FEW


# Whole texts.


@pytest.fixture(scope="module")
def looping(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """Greedily, it falls into loops; 128 tokens of context."""
    return gpt2cli.load(str(checkpoints.tiny(tmp_path_factory.mktemp("looping"), n_positions=128, seed=2)))


@pytest.fixture
def scripted(tmp_path: Path) -> Callable[..., LoadedModel]:
    """A model that writes the given tokens after a prompt of 5, whatever it is."""

    def build(tokens: list[int], **options: int) -> LoadedModel:
        return gpt2cli.load(str(checkpoints.scripted(tmp_path / "scripted", tokens, 5, **options)))

    return build


def passes_of(
    loaded: LoadedModel,
    prompt: list[int],
    sampling: SamplingOptions,
    options: GenerationOptions,
    seed: int = 0,
    stop_before: int | None = None,
) -> tuple[list[Step | Completion], Passes]:
    """The events with lookup, which are those without it, and the passes that it made after the prompt's."""
    model: Any = loaded.model
    need_lone_rows(model)
    run, passes = type(model).hidden_states_one_by_one, []

    def watched(token_ids: list[int], cache: Any) -> torch.Tensor:
        assert cache.length + len(token_ids) <= model.context_length
        passes.append((cache.length, token_ids))
        return run(model, token_ids, cache)

    def made(lookup: bool) -> tuple[list[Step | Completion], int]:
        asked = 0

        def should_stop() -> bool:
            nonlocal asked
            asked += 1
            return asked - 1 == stop_before

        chosen = replace(options, details=True, candidates=3, lookup=lookup)
        return list(loaded.generate(prompt, sampling, chosen, seed=seed, should_stop=should_stop)), asked

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "hidden_states_one_by_one", watched, raising=False)
        expected = made(lookup=False)
        assert passes == []
        assert made(lookup=True) == expected
    return expected[0], passes


def check_caches(
    prompt: list[int], events: list[Step | Completion], passes: Passes, options: GenerationOptions
) -> None:
    """Of a text whose context does not slide: each pass begins where the text ends, and makes no row in vain."""
    text = prompt + [event.token.token_id for event in events if isinstance(event, Step)]
    ends = [*(length for length, _ in passes[1:]), len(text) - 1]
    assert passes[0][0] == len(prompt)
    for (length, run), end in zip(passes, ends, strict=True):
        assert length + len(run) <= len(prompt) + options.max_new_tokens - 1
        agreed = end - length
        assert 1 <= agreed <= len(run)
        assert run[:agreed] == text[length:end]
        if agreed < len(run) and (length, run) != passes[-1]:
            assert run[agreed] != text[end]


def test_a_text_that_repeats_takes_fewer_passes(looping: LoadedModel) -> None:
    options = GenerationOptions(max_new_tokens=100)
    events, passes = passes_of(looping, [1, 2, 3], SamplingOptions(), options)
    assert len(events) == 101
    assert len(passes) < 50
    check_caches([1, 2, 3], events, passes, options)


def test_a_text_that_does_not_repeat_takes_a_pass_for_each_token(tmp_path: Path) -> None:
    ruler = gpt2cli.load(str(checkpoints.ruler(tmp_path, context_length=64)))
    _, passes = passes_of(ruler, [1, 2, 3], SamplingOptions(), GenerationOptions(max_new_tokens=60))
    assert [(length, len(run)) for length, run in passes] == [(n, 1) for n in range(3, 62)]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    "sampling",
    [
        SamplingOptions(),
        SamplingOptions(repetition_penalty=1.05),
        SamplingOptions(temperature=1.0),
        SamplingOptions(temperature=0.1),
        SamplingOptions(temperature=0.3, top_k=5, top_p=0.9, min_p=0.01, repetition_penalty=0.9),
    ],
)
def test_the_events_are_those_without_it(looping: LoadedModel, sampling: SamplingOptions, seed: int) -> None:
    options = GenerationOptions(max_new_tokens=110)
    prompt = [seed, 7, 8, 9, 7, 8, 9, 7, 8, 9]
    events, passes = passes_of(looping, prompt, sampling, options, seed)
    assert any(len(run) > 1 for _, run in passes) or sampling.temperature == 1
    check_caches(prompt, events, passes, options)


@pytest.mark.parametrize("context_overflow", ["slide", "stop"])
@pytest.mark.parametrize("temperature", [0.0, 0.2])
def test_drafts_end_with_the_context(looping: LoadedModel, context_overflow: Any, temperature: float) -> None:
    options = GenerationOptions(max_new_tokens=400, context_overflow=context_overflow)
    events, passes = passes_of(looping, [1, 2, 3], SamplingOptions(temperature=temperature), options)
    end = events[-1]
    assert isinstance(end, Completion)
    slides = context_overflow == "slide"
    assert (end.finish_reason, len(end.token_ids)) == (("length", 400) if slides else ("context", 126))
    assert max(length + len(run) for length, run in passes) == 128
    assert temperature or max(len(run) for _, run in passes) == 16


@pytest.mark.parametrize("number", range(1, 12))
def test_drafts_end_with_the_text(looping: LoadedModel, number: int) -> None:
    prompt, options = [7, 7, 7, 7, 7], GenerationOptions(max_new_tokens=number)
    events, passes = passes_of(looping, prompt, SamplingOptions(), options)
    assert len(events) == number + 1
    if passes:
        check_caches(prompt, events, passes, options)


def test_a_stop_text_may_end_in_a_draft(scripted: Callable[..., LoadedModel]) -> None:
    loaded = scripted(ROUND * 10)
    for known in range(15, 31):
        whole = loaded.tokenizer.decode((ROUND * 10)[:known])
        events, passes = passes_of(loaded, [1] * 5, SamplingOptions(), GenerationOptions(stop=(whole,)))
        assert isinstance(events[-1], Completion)
        assert (events[-1].finish_reason, events[-1].text, len(events)) == ("stop", "", known + 1)
        assert len(passes) < known - 5


@pytest.mark.parametrize("known", [8, 9, 11, 12, 16, 19, 20, 31])
def test_a_text_may_end_where_the_draft_goes_on(scripted: Callable[..., LoadedModel], known: int) -> None:
    events, passes = passes_of(scripted((ROUND * 10)[:known]), [1] * 5, SamplingOptions(), GenerationOptions())
    assert isinstance(events[-1], Completion)
    assert (events[-1].finish_reason, len(events[-1].token_ids)) == ("eos", known)
    # One token each up to the eighth, after which three are found again; then drafts of 3, 7 and 15.
    assert len(passes) == (8 if known < 12 else 9 if known < 20 else 10)


@pytest.mark.parametrize(("eos", "tokens"), [(None, 2), (frozenset(), 9)])
def test_a_draft_may_hold_the_end_of_the_text(
    scripted: Callable[..., LoadedModel], eos: frozenset[int] | None, tokens: int
) -> None:
    loaded = scripted([21, 22, EOS, 23, 20, 21, 22, EOS, 23])
    options = GenerationOptions(max_new_tokens=9, eos_token_ids=eos)
    prompt = [20, 21, 22, EOS, 20]  # the first step makes 21, the second 22, after which EOS came before
    events, passes = passes_of(loaded, prompt, SamplingOptions(), options)
    assert isinstance(events[-1], Completion)
    assert len(events[-1].token_ids) == tokens
    assert (6, [22, EOS, 20, 21]) in passes


@pytest.mark.parametrize("lookup", [True, False])
def test_a_row_of_no_numbers_in_a_draft_fails_at_its_own_step(
    scripted: Callable[..., LoadedModel], lookup: bool
) -> None:
    events = scripted(ROUND * 10, nan_at=20).generate([1] * 5, options=GenerationOptions(lookup=lookup))
    for token_id in (ROUND * 10)[:16]:  # from the rows of the positions 4 to 19
        event = next(events)
        assert isinstance(event, Step)
        assert event.token.token_id == token_id
    with pytest.raises(LogitsError, match="position 20"):
        next(events)


def test_an_interrupt_ends_a_text_between_two_drafted_tokens(looping: LoadedModel) -> None:
    for stop_before in range(40):
        options = GenerationOptions(max_new_tokens=40)
        events, _ = passes_of(looping, [7, 7, 7, 7, 7], SamplingOptions(), options, stop_before=stop_before)
        assert len(events) == stop_before + 1
        assert isinstance(events[-1], Completion)
        assert events[-1].finish_reason == "interrupted"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    prompt=st.lists(st.integers(0, 256), min_size=1, max_size=3).flatmap(
        lambda part: st.integers(1, 8).map(lambda times: part * times)
    ),
    temperature=st.sampled_from([0.0, 0.05, 0.2, 1.0]),
    penalty=st.sampled_from([1.0, 0.8, 1.1]),
    seed=st.integers(0, 99),
    number=st.integers(0, 150),
    stop=st.lists(st.sampled_from(["ab", "\x01", "e", " "]), max_size=1),
)
def test_any_text_is_that_without_it(
    looping: LoadedModel, prompt: list[int], temperature: float, penalty: float, seed: int, number: int, stop: list[str]
) -> None:
    sampling = SamplingOptions(temperature=temperature, repetition_penalty=penalty)
    passes_of(looping, prompt, sampling, GenerationOptions(max_new_tokens=number, stop=tuple(stop)), seed)


def test_where_rows_do_not_stand_alone_each_token_has_a_pass(
    looping: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looping.model, "rows_stand_alone", False)
    monkeypatch.delattr(DraftedRows, "next_row")
    assert len(list(looping.generate([7, 7, 7, 7]))) == 65


@pytest.mark.parametrize("style", ["text", "json", "jsonl"])
def test_no_lookup_writes_the_same(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, style: str) -> None:
    folder = checkpoints.tiny(tmp_path, n_positions=128, seed=2)
    arguments = ["generate", "-m", folder, "-n", "90", "-t", "0.2", "-s", "5", "--format", style, "abcabcabc"]
    out = cli(*arguments).ok().out
    monkeypatch.delattr(DraftedRows, "next_row")
    assert cli(*arguments, "--no-lookup").ok().out == out
