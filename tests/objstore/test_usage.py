"""Sums of calls: each counted once, exactly, and priced only by what the table says."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from objstore.records import Call
from objstore.usage import By, Prices, Usage, token_details, usage
from refs.errors import InvalidValue
from refs.ids import ROOT

MILLION = 1_000_000


def call(number, model="m", tokens=(0, 0), **more):
    return Call(
        call=f"01J{number:023d}",
        model=model,
        head_input=ROOT,
        started_at=more.pop("at", "2026-01-02T23:59:59.999Z"),
        input_tokens=tokens[0],
        output_tokens=tokens[1],
        **more,
    )


def test_a_call_that_many_conversations_share_is_counted_once():
    shared = [call(i, tokens=(10, 1)) for i in range(5)]
    forks = [*shared, *shared, *shared[:3], call(9, tokens=(100, 10))]

    report = usage(forks)

    assert report.total.calls == 6
    assert report.total.input_tokens == 150
    assert report.total.output_tokens == 15


def test_calls_are_grouped_by_the_model_that_answered_by_day_and_by_conversation():
    calls = [
        call(1, "fast", (1, 0), resolved_model="fast-2026", conversation="trip"),
        call(2, "fast", (2, 0), at="2026-01-03T00:00:00.000Z", conversation="trip"),
        call(3, "slow", (4, 0), at="2026-01-03T00:00:00.000Z"),
    ]

    def tokens(by):
        return {name: group.input_tokens for name, group in usage(calls, by).groups.items()}

    assert tokens(By.MODEL) == {"fast": 2, "fast-2026": 1, "slow": 4}
    assert tokens(By.DAY) == {"2026-01-02": 1, "2026-01-03": 6}
    assert tokens(By.CONVERSATION) == {"": 4, "trip": 3}


def test_failed_calls_count_and_need_no_price_where_they_used_nothing():
    report = usage([call(1, error="overloaded"), call(2, "other", (3, 0))], prices=Prices())
    assert (report.total.calls, report.total.failed) == (2, 1)
    assert report.unpriced == ("other",)
    assert report.total.unpriced == 1


def test_counts_that_a_call_does_not_know_are_nothing():
    bare = Call(call=f"01J{1:023d}", model="m", head_input=ROOT, started_at="2026-01-02T00:00:00.000Z")
    assert usage([bare]).total == Usage(calls=1)


def test_cost_is_an_integer_of_millionths_rounded_once_half_up():
    prices = Prices.from_dict({"m": {"input": 2_500_000, "output": 10_000_000}})
    assert usage([call(1, tokens=(MILLION, MILLION))], prices=prices).total.cost == 12_500_000

    third = Prices.from_dict({"m": {"input": 500_000, "output": 0}})  # half a millionth a token
    assert usage([call(1, tokens=(1, 0))], prices=third).total.cost == 1
    assert usage([call(1, tokens=(1, 0)), call(2, tokens=(1, 0))], prices=third).total.cost == 1
    assert usage([call(1, tokens=(3, 0))], prices=third).total.exact_cost == 1_500_000


def test_details_have_a_price_within_or_beside_the_counts_where_the_table_has_one():
    prices = Prices.from_dict(
        {
            "inside": {"input": 10, "output": 20, "details": {"cached_tokens": {"price": 1, "within": "input"}}},
            "beside": {"input": 10, "output": 20, "details": {"cache_read_input_tokens": 1}},
        }
    )
    inside = call(1, "inside", (100, 5), token_details={"input_tokens_details": {"cached_tokens": 60}})
    beside = call(2, "beside", (40, 5), token_details={"cache_read_input_tokens": 60, "other": 7})

    report = usage([inside, beside], prices=prices)

    assert report.groups["inside"].exact_cost == report.groups["beside"].exact_cost == 40 * 10 + 60 + 5 * 20
    assert report.total.details == {
        "cache_read_input_tokens": 60,
        "input_tokens_details.cached_tokens": 60,
        "other": 7,
    }


def test_a_whole_path_is_more_exact_than_a_name():
    table = {"m": {"input": 0, "output": 0, "details": {"audio": 1, "out.audio": 5}}}
    spoken = call(1, tokens=(1, 1), token_details={"in": {"audio": 10}, "out": {"audio": 10}})
    assert usage([spoken], prices=Prices.from_dict(table)).total.exact_cost == 60


def test_a_detail_larger_than_what_it_is_part_of_makes_no_negative_price():
    table = {"m": {"input": 10, "output": 0, "details": {"cached": {"price": 1, "within": "input"}}}}
    odd = call(1, tokens=(5, 0), token_details={"cached": 50})
    assert usage([odd], prices=Prices.from_dict(table)).total.exact_cost == 5


@pytest.mark.parametrize(
    ("model", "resolved", "price"),
    [
        ("fast", None, 1),
        ("fast-mini", None, 3),
        ("fast-mini-2", None, 3),
        ("fast-2", None, 2),
        ("alias", "fast", 1),
        ("fast", "unheard-of", 1),
        ("fast", "fast-mini-2", 1),
    ],
)
def test_an_exact_name_is_taken_before_the_longest_glob(model, resolved, price):
    names = {"fast": 1, "fast*": 2, "fast-mini*": 3}
    prices = Prices.from_dict({name: {"input": each, "output": 0} for name, each in names.items()})
    assert usage([call(1, model, (1, 0), resolved_model=resolved)], prices=prices).total.exact_cost == price


@pytest.mark.parametrize(
    ("table", "path"),
    [
        ([], ""),
        ({"m": 3}, "m"),
        ({"m": {"input": 1}}, "m.output"),
        ({"m": {"input": 1.5, "output": 1}}, "m.input"),
        ({"m": {"input": True, "output": 1}}, "m.input"),
        ({"m": {"input": 1, "output": -1}}, "m.output"),
        ({"m": {"input": 1, "output": 1, "cached": 1}}, "m.cached"),
        ({"m": {"input": 1, "output": 1, "details": 1}}, "m.details"),
        ({"m": {"input": 1, "output": 1, "details": {"c": {"price": 1, "within": "in"}}}}, "m.details.c.within"),
    ],
)
def test_a_bad_price_table_is_refused_with_the_place(table, path):
    with pytest.raises(InvalidValue) as caught:
        Prices.from_dict(table)
    assert caught.value.path == path


def test_what_is_no_count_in_the_details_is_passed_over():
    odd = call(1, token_details={"tier": "flex", "n": -1, "yes": True, "list": [1], "deep": {"er": {"est": 2}}})
    assert list(token_details(odd)) == [("deep.er.est", 2)]


@given(st.lists(st.integers(0, 20), max_size=30))
def test_groups_add_up_to_the_total_whatever_is_given_twice(drawn):
    prices = Prices.from_dict({"m[01]": {"input": 333_333, "output": 7}})
    calls = [call(number, f"m{number % 3}", (number * 7, number)) for number in drawn]
    report = usage(calls, prices=prices)
    for name in ("calls", "input_tokens", "output_tokens", "exact_cost", "unpriced"):
        assert getattr(report.total, name) == sum(getattr(group, name) for group in report.groups.values())
    assert report.total.calls == len(set(drawn))


def test_the_price_table_in_the_documentation_is_one():
    page = (Path(__file__).parents[2] / "docs" / "calls.md").read_text()
    prices = Prices.from_dict(json.loads(page.partition("```json\n")[2].partition("```")[0]))
    asked = call(
        1, "gpt-4o-mini", (MILLION, 0), token_details={"prompt_tokens_details": {"cached_tokens": MILLION}}
    )
    assert usage([asked], prices=prices).total.cost == 1_250_000
