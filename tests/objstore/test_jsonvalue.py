"""JSON values: frozen copies, one way of writing, and suspicion while reading."""

from __future__ import annotations

import contextlib
import copy
import enum
import itertools
import json
import math
import pickle
import sys
import tracemalloc
import types
from collections import OrderedDict, UserString, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from objstore.jsonvalue import FloatFound, check_nesting, dumps, freeze, loads, loads_exactly, thaw
from objstore.limits import MAX_INT_DIGITS, MAX_NESTING
from refs.errors import InvalidValue
from tests import reference
from tests.strategies import ODD_FLOATS, ODD_INTEGERS, any_json, careless_json, floats, nested


@pytest.fixture
def few_digits_allowed():
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    yield 640
    sys.set_int_max_str_digits(before)


class TestWriting:
    @given(any_json)
    def test_is_what_the_standard_library_writes(self, value):
        assert dumps(freeze(value, "")) == reference.dumps(value)

    @given(any_json)
    def test_read_again_it_is_the_same_value(self, value):
        raw = dumps(freeze(value, ""))
        assert dumps(freeze(loads_exactly(raw), "")) == raw

    @pytest.mark.parametrize("value", [*ODD_FLOATS, *(-each for each in ODD_FLOATS), *ODD_INTEGERS])
    def test_number_at_an_edge_alone_and_inside(self, value):
        assert dumps(freeze(value, "")) == reference.dumps(value)
        assert dumps(freeze({"a": [value, "é"]}, "")) == reference.dumps({"a": [value, "é"]})

    @given(floats)
    def test_float_is_written_as_repr_writes_it(self, value):
        assert dumps(freeze([value], "")).decode() == f"[{value!r}]"

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_what_is_not_finite_is_never_written(self, value):
        with pytest.raises(InvalidValue):
            dumps([value])

    def test_integer_frozen_before_the_digit_limit_was_lowered_is_our_error(self, request):
        frozen = freeze([10**700], "")
        request.getfixturevalue("few_digits_allowed")
        with pytest.raises(InvalidValue):
            dumps(frozen)


class TestFreezing:
    @given(careless_json)
    def test_gives_a_value_that_can_be_written_or_invalid_value(self, value):
        try:
            frozen = freeze(value, "here")
        except InvalidValue as error:
            assert error.path.startswith("here")
        else:
            assert dumps(freeze(loads_exactly(dumps(frozen)), "")) == dumps(frozen)

    @pytest.mark.parametrize(
        "value, path",
        [
            ({"a": {"b": math.nan}}, "x.a.b"),
            ([0, [math.inf]], "x[1][0]"),
            ({"a": [{"": b"raw"}]}, "x.a[0]."),
            ({"a": {1: 2}}, "x.a"),
            ({"a": {None: 2}}, "x.a"),
            ({1, 2}, "x"),
            ([object()], "x[0]"),
            ([bytearray(b"x")], "x[0]"),
            ([1j], "x[0]"),
            ({"a": 10**MAX_INT_DIGITS}, "x.a"),
        ],
    )
    def test_error_says_where(self, value, path):
        with pytest.raises(InvalidValue) as caught:
            freeze(value, "x")
        assert caught.value.path == path

    def test_path_from_nowhere_begins_with_the_key(self):
        with pytest.raises(InvalidValue) as caught:
            freeze({"a": {"b": math.nan}}, "")
        assert str(caught.value) == "a.b: not a finite number"

    def test_integer_of_4300_digits_is_exact_and_one_more_is_refused(self):
        for sign in (1, -1):
            largest = sign * (10**MAX_INT_DIGITS - 1)
            assert dumps(freeze([largest], "")) == b"[%d]" % largest
            with pytest.raises(InvalidValue, match="more than 4300 digits"):
                freeze([largest + sign], "")

    def test_interpreter_that_allows_fewer_digits_refuses_sooner(self, few_digits_allowed):
        assert freeze(10**few_digits_allowed - 1, "") == 10**few_digits_allowed - 1
        with pytest.raises(InvalidValue, match="more than 640 digits"):
            freeze(10**few_digits_allowed, "")

    def test_interpreter_without_a_digit_limit_is_bound_all_the_same(self):
        before = sys.get_int_max_str_digits()
        sys.set_int_max_str_digits(0)
        try:
            with pytest.raises(InvalidValue, match="more than 4300 digits"):
                freeze(10**MAX_INT_DIGITS, "")
        finally:
            sys.set_int_max_str_digits(before)

    @pytest.mark.parametrize("cycle", ["list", "dict"])
    def test_value_that_holds_itself_is_nested_too_deep(self, cycle):
        value: list | dict = [] if cycle == "list" else {}
        value.append([value, value]) if isinstance(value, list) else value.update(me={"again": value})
        with pytest.raises(InvalidValue, match="nested more than 128 levels"):
            freeze(value, "x")

    def test_subclasses_become_plain(self):
        class Name(str):
            __slots__ = ()

        class Shade(str, enum.Enum):  # noqa: UP042 - its str() is its name, not its text
            RED = "red"

        class Level(enum.IntEnum):
            LOW = 3

        class Ratio(float):
            pass

        value = {Name("k"): [Shade.RED, Level.LOW, Ratio(0.5), Name("é"), True], Shade.RED: OrderedDict(b=1, a=2)}
        frozen = freeze(value, "")
        assert dumps(frozen) == '{"k":["red",3,0.5,"é",true],"red":{"a":2,"b":1}}'.encode()
        leaves = [*frozen, *frozen["k"]]
        assert {type(leaf) for leaf in leaves} == {str, int, float, bool}

    def test_other_mappings_and_sequences_are_taken(self):
        value = {"a": types.MappingProxyType({"x": 1}), "b": deque([1]), "c": (2, ()), "d": range(2)}
        assert freeze(value, "") == {"a": {"x": 1}, "b": [1], "c": [2, []], "d": [0, 1]}

    def test_string_like_sequence_of_itself_is_refused(self):
        with pytest.raises(InvalidValue):
            freeze(UserString("ab"), "")

    def test_copy_is_not_touched_by_later_changes(self):
        inner = [1]
        frozen = freeze({"a": inner}, "")
        inner.append(2)
        assert frozen == {"a": [1]}

    @pytest.mark.parametrize("change", [
        lambda d: d.update(x=1), lambda d: d.pop("a"), lambda d: d.popitem(), lambda d: d.clear(),
        lambda d: d.setdefault("z", 1), lambda d: d.__setitem__("a", 1), lambda d: d.__delitem__("a"),
        lambda d: d.__ior__({"z": 1}), lambda d: d.__init__(z=1),
        lambda d: d["a"].append(1), lambda d: d["a"].extend([1]), lambda d: d["a"].insert(0, 1),
        lambda d: d["a"].pop(), lambda d: d["a"].remove(1), lambda d: d["a"].clear(), lambda d: d["a"].sort(),
        lambda d: d["a"].reverse(), lambda d: d["a"].__setitem__(0, 1), lambda d: d["a"].__delitem__(0),
        lambda d: d["a"].__iadd__([1]), lambda d: d["a"].__imul__(2), lambda d: d["a"].__init__([9]),
        lambda d: d["a"][1].update(x=1),
    ])  # fmt: skip
    def test_nothing_in_it_can_be_changed(self, change):
        frozen = freeze({"a": [1, {"b": 2}]}, "")
        with pytest.raises(TypeError, match="can't be changed"):
            change(frozen)
        assert frozen == {"a": [1, {"b": 2}]}

    @given(any_json)
    def test_copies_and_pickles_are_equal_and_frozen(self, value):
        frozen = freeze(value, "")
        for other in (copy.copy(frozen), copy.deepcopy(frozen), pickle.loads(pickle.dumps(frozen))):
            assert dumps(other) == dumps(frozen)
            assert type(other) is type(frozen)

    def test_equal_values_have_equal_hashes(self):
        one, other = freeze({"b": 2, "a": [1, 1.5]}, ""), freeze({"a": [1, 1.5], "b": 2}, "")
        assert one == other and hash(one) == hash(other) and hash(one["a"]) == hash(other["a"])

    def test_thawed_it_is_plain_and_can_be_changed(self):
        plain = thaw(freeze({"a": [1, {"b": 2}]}, ""))
        plain["a"][1]["b"] = 3
        assert plain == {"a": [1, {"b": 3}]}
        assert [type(plain), type(plain["a"]), type(plain["a"][1])] == [dict, list, dict]

    def test_float_that_may_be_a_large_integer_is_told(self):
        for value in (float(1 << 63), -float(1 << 64), 1e300):
            with pytest.raises(FloatFound):
                freeze({"a": [value]}, "", tell_floats=True)
        assert freeze([0.5, -9e18], "", tell_floats=True) == [0.5, -9e18]


class TestReading:
    @pytest.mark.parametrize("levels, refused", [(MAX_NESTING, False), (MAX_NESTING + 1, True)])
    @pytest.mark.parametrize("inside", ["x", [], {}, 0.5, 1 << 70])
    def test_nesting_is_bounded_alike_on_bytes_and_on_values(self, levels, refused, inside):
        value = nested(levels - isinstance(inside, list | dict), inside)
        raw = json.dumps(value).encode()
        for attempt in (lambda: check_nesting(raw), lambda: freeze(value, ""), lambda: loads(raw)):
            if refused:
                with pytest.raises(InvalidValue, match="nested more than 128"):
                    attempt()
            else:
                attempt()

    @given(any_json)
    def test_nesting_is_counted_as_a_parser_counts_it(self, value):
        def depth(value):
            inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
            return 0 if inner is None else 1 + max(map(depth, inner), default=0)

        wide = [value, "[{" * 200, *([[]] * 200)]
        if depth(wide) <= MAX_NESTING:
            check_nesting(json.dumps(wide).encode())
        else:
            with pytest.raises(InvalidValue):
                check_nesting(json.dumps(wide).encode())

    @pytest.mark.parametrize("text", [r"\"", r"\\", r"\\\"", r"\\\\", r"\u005b", r"a\\", r"\"[", r"\\\"["])
    def test_brackets_in_strings_do_not_count_whatever_is_escaped(self, text):
        raw = b"[" + b",".join([b'"%b%b"' % (text.encode(), b"[" * 150)] * 3) + b"]"
        assert json.loads(raw)
        check_nesting(raw)

    @pytest.mark.parametrize("start", [b"", b'"x\\\\",', b'"\\"",', b'"\\\\\\"",'])
    def test_brackets_after_strings_do_count(self, start):
        with pytest.raises(InvalidValue):
            check_nesting(b"[" + start + b"[" * 200 + b"]" * 201)

    @pytest.mark.parametrize(
        "raw", [b'"' + b"\\" * 1001, b'["' + b"[" * 500, b"[" * 100_000, b'{"a":' * 100_000, b"]" * 300]
    )
    def test_deep_or_cut_text_is_our_error(self, raw):
        for read in (loads, loads_exactly):
            with pytest.raises(InvalidValue):
                read(raw)

    def test_a_long_string_of_escapes_costs_little_memory_to_check(self):
        raw = b'["' + b"\\n" * 2_000_000 + b'"' + b",[]" * 200 + b"]"
        tracemalloc.start()
        check_nesting(raw)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 4 * len(raw)

    @given(st.binary(max_size=60))
    def test_arbitrary_bytes_are_a_value_or_invalid_value(self, raw):
        for read in (loads, loads_exactly):
            with contextlib.suppress(InvalidValue):
                read(raw)

    @pytest.mark.parametrize("raw", [
        b"NaN", b"[Infinity]", b"-Infinity", b"\xef\xbb\xbf{}", b"{}{}", b"{} x", b"", b"'a'", b"[1,]", b"[01]",
        b"[+1]", b"[.5]", b"[1.]", b'"\x00"', b'"\t"', b'"\\x41"', b'"\\u12"', b"\xff", b'"\xed\xa0\x80"',
        b'{"a" 1}', b'{a:1}', b"[1 2]", b"\xfe\xff\x00{\x00}", b"nul", b"\x00",
    ])  # fmt: skip
    def test_what_is_not_json_is_refused(self, raw):
        for read in (loads, loads_exactly):
            with pytest.raises(InvalidValue):
                read(raw)

    def test_integers_and_surrogates_are_read_exactly(self):
        raw = rb'[18446744073709551616,-9223372036854775809,"\ud800",1e400]'
        value = loads_exactly(raw)
        assert value[:3] == [1 << 64, -(1 << 63) - 1, "\ud800"]
        with pytest.raises(InvalidValue, match="not a finite number"):
            freeze(value, "")

    @pytest.mark.parametrize("digits", [MAX_INT_DIGITS + 1, 100_000])
    def test_integer_of_too_many_digits_is_our_error(self, digits):
        with pytest.raises(InvalidValue):
            freeze(loads(b"[" + b"7" * digits + b"]"), "")

    def test_integer_that_the_interpreter_will_not_read_is_our_error(self, few_digits_allowed):
        with pytest.raises(InvalidValue):
            loads_exactly(b"7" * (few_digits_allowed + 1))


def test_all_short_backslash_and_quote_texts_are_judged_as_the_parser_judges_them():
    for letters in itertools.product('\\"n[', repeat=5):
        raw = ('["' + "".join(letters) + '",' + "[]," * 130 + "[]]").encode()
        try:
            json.loads(raw)
        except ValueError:
            continue
        check_nesting(raw)
