"""logits → token id, worked out by hand on vocabularies of five tokens."""

import math

import pytest
import torch

from gpt2cli.errors import LogitsError
from gpt2cli.records import SamplingOptions
from gpt2cli.sampling import adjust_logits, check_logits, choose_token, cut_logits, draw, greedy, sample_rng

FIVE = torch.tensor([2.0, 1.0, 0.0, -1.0, -2.0])
INF = float("inf")


def probabilities(logits: list[float] | torch.Tensor, **options: float) -> list[float]:
    sampling = SamplingOptions(**{"temperature": 1.0, **options})  # type: ignore[arg-type]
    adjusted = adjust_logits(torch.as_tensor(logits), sampling, seen_token_ids=())
    return cut_logits(adjusted, sampling).softmax(0).tolist()


def kept(logits: list[float], **options: float) -> list[int]:
    return [n for n, p in enumerate(probabilities(logits, **options)) if p > 0]


def logs(*values: float) -> list[float]:
    return [math.log(p) for p in values]


# e^2 + e^1 + 1 + e^-1 + e^-2 = 11.610378, so the first is 7.389056 / 11.610378 = 0.636409, and so on.
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.636409, 0.234122, 0.086129, 0.031685, 0.011656]),
        ({"temperature": 0.5}, [0.864704, 0.117025, 0.015838, 0.002143, 0.000290]),
        ({"top_k": 2}, [0.731059, 0.268941, 0, 0, 0]),
        ({"top_k": 2, "temperature": 0.5}, [0.880797, 0.119203, 0, 0, 0]),
        ({"min_p": 0.1}, [0.665241, 0.244728, 0.090031, 0, 0]),  # cuts below 0.0636409
    ],
)
def test_probabilities_by_hand(options: dict[str, float], expected: list[float]) -> None:
    assert probabilities(FIVE, **options) == pytest.approx(expected, abs=5e-7)


@pytest.mark.parametrize(("k", "expected"), [(0, 5), (1, 1), (2, 2), (3, 4), (4, 4), (5, 5), (6, 5), (10**9, 5)])
def test_top_k_keeps_all_that_tie_with_the_kth(k: int, expected: int) -> None:
    assert len(kept([3.0, 2.0, 1.0, 1.0, 0.0], top_k=k)) == expected


@pytest.mark.parametrize(
    ("p", "expected"),
    [(1.0, [0, 1, 2, 3]), (0.95, [0, 1, 2, 3]), (0.85, [0, 1, 2]), (0.81, [0, 1, 2]), (0.6, [0, 1]), (1e-8, [0])],
)
def test_top_p_keeps_the_smallest_set_that_reaches_p(p: float, expected: list[int]) -> None:
    assert kept(logs(0.5, 0.3, 0.1, 0.1), top_p=p) == expected


@pytest.mark.parametrize(("p", "expected"), [(0.5, [0]), (0.50001, [0, 1]), (0.75, [0, 1]), (0.875, [0, 1, 2])])
def test_a_set_that_reaches_top_p_exactly_is_enough(p: float, expected: list[int]) -> None:
    # Halves, so that the sums are exact.
    assert kept(logs(0.5, 0.25, 0.125, 0.125), top_p=p) == expected


def test_top_p_comes_after_temperature_and_top_k() -> None:
    logits = logs(0.5, 0.3, 0.1, 0.1)
    assert kept(logits, top_p=0.6) == [0, 1]
    assert kept(logits, top_p=0.6, temperature=0.5) == [0]  # squares: 0.25 of 0.36 is 0.694
    assert kept(logits, top_p=0.6, top_k=2) == [0]  # 0.5 of 0.8 is 0.625


def test_top_p_takes_the_lower_id_of_those_that_tie() -> None:
    assert kept([0.0, 0.0, 0.0, 0.0], top_p=0.5) == [0, 1]


def test_min_p_of_one_keeps_those_tied_for_first() -> None:
    assert kept([1.0, 2.0, 2.0, 0.0, -INF], min_p=1.0) == [1, 2]


def test_repetition_penalty_divides_positive_and_multiplies_negative_logits_of_tokens_seen() -> None:
    sampling = SamplingOptions(temperature=0.5, repetition_penalty=4)
    adjusted = adjust_logits(FIVE, sampling, seen_token_ids=[0, 0, 3])
    assert adjusted.tolist() == [2 / 4 * 2, 1 * 2, 0, -1 * 4 * 2, -2 * 2]


def test_nothing_that_is_given_is_changed() -> None:
    logits = FIVE.clone()
    sampling = SamplingOptions(temperature=0.5, top_k=2, top_p=0.9, min_p=0.1, repetition_penalty=2)
    adjusted = adjust_logits(logits, sampling, [0, 1])
    before = adjusted.clone()
    cut_logits(adjusted, sampling)
    assert torch.equal(logits, FIVE)
    assert torch.equal(adjusted, before)


@pytest.mark.parametrize(("logits", "expected"), [([1, 3, 3, 2], 1), ([5, 5, 5, 5], 0), ([-INF, -INF, -1, -1], 2)])
def test_greedy_takes_the_lowest_id_of_those_that_tie(logits: list[float], expected: int) -> None:
    assert greedy(torch.tensor(logits)) == expected


@pytest.mark.parametrize("temperature", [1e-100, 1e-45, 1e-3, 1, 1e38, 1e100])
def test_any_temperature_gives_probabilities(temperature: float) -> None:
    result = probabilities(FIVE * 1000, temperature=temperature)
    assert sum(result) == pytest.approx(1)
    assert result[0] == pytest.approx(1.0 if temperature <= 1 else 0.2, abs=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -1},
        {"temperature": math.nan},
        {"temperature": INF},
        {"temperature": 1e-320},
        {"top_k": -1},
        {"top_p": 0},
        {"top_p": 1.5},
        {"top_p": -0.1},
        {"top_p": math.nan},
        {"min_p": -0.1},
        {"min_p": 1.1},
        {"min_p": math.nan},
        {"repetition_penalty": 0},
        {"repetition_penalty": -1},
        {"repetition_penalty": math.nan},
        {"repetition_penalty": INF},
    ],
)
def test_settings_out_of_range_are_refused_by_name(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options)).replace("_", "-")):
        SamplingOptions(**options)  # type: ignore[arg-type]


def test_draws_follow_the_probabilities() -> None:
    p = torch.tensor([0.5, 0.3, 0.15, 0.05, 0.0], dtype=torch.float64)
    rng = sample_rng(seed=1, sample=0)
    n = 20_000
    counts = torch.bincount(torch.tensor([draw(p, rng) for _ in range(n)]), minlength=5)
    # Pearson's chi-square with 3 degrees of freedom; the 99.9 % quantile is 16.27.
    chi_square = float(((counts - n * p)[:4] ** 2 / (n * p)[:4]).sum())
    assert chi_square < 16.27
    assert counts[4] == 0


def test_a_draw_never_gives_a_token_without_probability() -> None:
    class LastPoint(torch.Generator):
        pass

    p = torch.tensor([0.0, 0.1, 0.2, 0.7 - 2**-53, 0.0], dtype=torch.float64)
    rng = LastPoint()
    largest = torch.tensor(1 - 2**-53, dtype=torch.float64)
    for point in (torch.tensor(0.0, dtype=torch.float64), largest):
        original, torch.rand = torch.rand, lambda *a, point=point, **k: point  # type: ignore[assignment]
        try:
            assert p[draw(p, rng)] > 0
        finally:
            torch.rand = original


def test_a_sample_depends_on_seed_and_number_alone() -> None:
    def first(seed: int, sample: int) -> float:
        return float(torch.rand((), generator=sample_rng(seed, sample)))

    assert first(7, 3) == first(7, 3)
    # Bits above the 32nd, which torch's generator by itself would drop, count too.
    pairs = [(seed, sample) for seed in (0, 1, 2**32, 2**62, 2**63 - 1) for sample in range(4)]
    assert len({first(*pair) for pair in pairs}) == len(pairs)


def test_the_seed_of_the_process_is_left_alone() -> None:
    before = torch.get_rng_state()
    choose_token(FIVE, SamplingOptions(temperature=1), (), sample_rng(0, 0))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("bad", [[1.0, math.nan], [1.0, INF], [-INF, -INF]])
def test_a_row_without_a_choice_is_an_error_that_names_the_position(bad: list[float]) -> None:
    with pytest.raises(LogitsError, match="position 41 "):
        check_logits(torch.tensor(bad), position=41)


def test_impossible_tokens_are_no_error() -> None:
    check_logits(torch.tensor([1.0, -INF]), position=0)
    assert probabilities([1.0, -INF, 1.0]) == pytest.approx([0.5, 0, 0.5])
