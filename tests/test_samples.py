"""Several samples of one prompt: the same as one after another, from one run of the prompt and shared passes."""

from pathlib import Path
from typing import Any

import checkpoints
import pytest
from conftest import Cli, need_lone_rows

import gpt2cli
from gpt2cli.batch.samples import IN_FLIGHT
from gpt2cli.errors import LogitsError
from gpt2cli.loading import LoadedModel
from gpt2cli.records import Completion, GenerationOptions, SamplingOptions, Step

PROMPT = [46, 31, 28]
DRAWN = SamplingOptions.of(temperature=1.5)


@pytest.fixture(scope="module", params=["float32", "float16", "int8"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = checkpoints.tiny(tmp_path_factory.mktemp("tiny"), n_positions=24)
    loaded = gpt2cli.load(str(folder), dtype=request.param)
    need_lone_rows(loaded.model)
    return loaded


@pytest.mark.parametrize(
    "options",
    [
        GenerationOptions(max_new_tokens=12, details=True, candidates=3),
        GenerationOptions(max_new_tokens=40),  # the context slides
        GenerationOptions(max_new_tokens=40, context_overflow="stop", stop=("ab", "e")),
        GenerationOptions(max_new_tokens=30, eos_token_ids=frozenset(range(0, 50257, 9))),
        GenerationOptions(max_new_tokens=1),
        GenerationOptions(max_new_tokens=0),
    ],
    ids=lambda options: f"{options.max_new_tokens}-{options.context_overflow}-{len(options.stop)}",
)
def test_samples_are_those_of_single_runs(model: LoadedModel, options: GenerationOptions) -> None:
    count = IN_FLIGHT + 4
    together = [list(events) for events in model.samples(PROMPT, DRAWN, options, count=count, seed=5)]
    alone = [list(model.generate(PROMPT, DRAWN, options, seed=5, sample=n)) for n in range(count)]
    assert together == alone
    assert len({events[-1].text for events in together}) > 1 or options.max_new_tokens == 0


def test_the_prompt_is_run_once_and_passes_are_shared(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[int] = []
    for name in ("hidden_states", "last_hidden_states"):
        run = getattr(model.model, name)

        def counted(tokens: list[Any], *rest: Any, run: Any = run) -> Any:
            passes.append(len(tokens))
            return run(tokens, *rest)

        monkeypatch.setattr(model.model, name, counted)
    options = GenerationOptions(max_new_tokens=5, eos_token_ids=frozenset())
    for events in model.samples(PROMPT, DRAWN, options, count=IN_FLIGHT):
        list(events)
    assert passes == [len(PROMPT)] + [IN_FLIGHT] * 4


def test_the_first_sample_is_told_as_it_is_made(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = 0
    run = model.model.last_hidden_states

    def counted(*arguments: Any) -> Any:
        nonlocal turns
        turns += 1
        return run(*arguments)

    monkeypatch.setattr(model.model, "last_hidden_states", counted)
    options = GenerationOptions(max_new_tokens=6, eos_token_ids=frozenset())
    for step, _ in zip(range(6), next(model.samples(PROMPT, DRAWN, options, count=4)), strict=False):
        assert turns == max(1, step)


@pytest.mark.parametrize("steps", [0, 3])
def test_an_interrupt_ends_the_sample_that_is_read(model: LoadedModel, steps: int) -> None:
    stop = False
    options = GenerationOptions(max_new_tokens=10, eos_token_ids=frozenset())
    samples = model.samples(PROMPT, DRAWN, options, count=3, seed=1, should_stop=lambda: stop)
    events = next(samples)
    told = [next(events) for _ in range(steps)]
    stop = True
    *rest, end = events
    assert isinstance(end, Completion)
    assert end.finish_reason == "interrupted"
    chosen = [event.token.token_id for event in [*told, *rest] if isinstance(event, Step)]
    assert list(end.token_ids) == chosen
    assert len(rest) <= 1


def test_a_row_without_a_choice_is_an_error(tmp_path: Path) -> None:
    loaded = gpt2cli.load(str(checkpoints.flat(tmp_path, {}, float("nan"))))
    with pytest.raises(LogitsError):
        list(next(loaded.samples([5], DRAWN, count=2)))


def test_a_backend_whose_rows_do_not_stand_alone_makes_one_after_another(tmp_path: Path, cli: Cli) -> None:
    folder = checkpoints.tiny(tmp_path)
    run = ("generate", "-m", folder, "--backend", "transformers", "-n", "5", "-t", "1", "-s", "2", "--json", "Once")
    assert cli(*run, "--num-samples", "3").jsonl[:1] == cli(*run).jsonl
