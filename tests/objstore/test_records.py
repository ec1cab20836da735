"""Calls, notes, descriptions and tombstones: every rule of every member."""

from __future__ import annotations

import copy
import dataclasses
import enum
import json
import pickle
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from objstore.codec import decode, decode_tombstone, encode
from objstore.jsonvalue import freeze
from objstore.kinds import Kind
from objstore.limits import MAX_NESTING, MAX_TEXT_FIELD_CHARS
from objstore.records import Call, Description, Note, Tombstone, check_time, check_ulid
from refs.errors import CorruptObject, InvalidValue, LimitExceeded
from tests import reference
from tests.strategies import any_json, nested, objects, texts

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "values.json").read_text("utf-8"))["records"]
A, B = "a" * 64, "b" * 64
ULID, AT = "01JGK7Z0M4T3X5V6B7N8P9Q0RS", "2026-01-02T03:04:05.678Z"
CALL = {"call": ULID, "model": "m", "head_input": A, "started_at": AT}
NOTE = {"note": ULID, "at": AT, "nodes": {A: {"source_id": "1"}}}
DESCRIPTION = {"description": "trip/brest", "created_at": AT}
TOMBSTONE = {"kind": "message", "id": A, "at": AT, "reason": "a key was in it"}
CLASSES = {Call: CALL, Note: NOTE, Description: DESCRIPTION}

NOT_OIDS = ["", "root ", "A" * 64, "a" * 63, 5, ["a"], {}]
NOT_NAMES = ["", 5, b"x", ["x"], "x" * (MAX_TEXT_FIELD_CHARS + 1)]
NOT_TEXTS = [5, b"x", ["x"], "x" * (MAX_TEXT_FIELD_CHARS + 1)]
NOT_COUNTS = [-1, 1.0, True, "1", 1 << 63, [1]]
NOT_OBJECTS = ["x", 5, [], [("a", 1)], {1: 2}, {"a": float("nan")}, {"a": {"b": b""}}]
NOT_TIMES = [
    "", "2026-01-02", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05.67Z", "2026-01-02T03:04:05.6789Z",
    "2026-01-02T03:04:05.678", "2026-01-02T03:04:05.678z", "2026-01-02t03:04:05.678Z", "2026-01-02 03:04:05.678Z",
    "2026-01-02T03:04:05.678+00:00", "2026-01-02T24:00:00.000Z", "2026-01-02T23:59:60.000Z",
    "2026-01-02T23:60:00.000Z",
    "2026-00-02T03:04:05.678Z", "2026-13-02T03:04:05.678Z", "2026-01-00T03:04:05.678Z", "2026-01-32T03:04:05.678Z",
    "2026-02-29T03:04:05.678Z", "2026-02-30T03:04:05.678Z", "2026-04-31T03:04:05.678Z", "0000-01-02T03:04:05.678Z",
    "2026-01-02T03:04:05.678Z\n", "٢٠٢٦-01-02T03:04:05.678Z", "-026-01-02T03:04:05.678Z", 1767323045, 1.5, b"2026",
]  # fmt: skip
NOT_ULIDS = [
    "", "01JGK7Z0M4T3X5V6B7N8P9Q0R", "01JGK7Z0M4T3X5V6B7N8P9Q0RSX", "01jgk7z0m4t3x5v6b7n8p9q0rs", 5,
    "81JGK7Z0M4T3X5V6B7N8P9Q0RS", "01JGK7Z0M4T3X5V6B7N8P9Q0RI", "01JGK7Z0M4T3X5V6B7N8P9Q0RL",
    "01JGK7Z0M4T3X5V6B7N8P9Q0RO", "01JGK7Z0M4T3X5V6B7N8P9Q0RU", "01JGK7Z0M4T3X5V6B7N8P9Q0RS\n", ULID.encode(),
]  # fmt: skip

RULES = {
    Call: {
        "call": NOT_ULIDS, "conversation": NOT_NAMES, "duration_ms": NOT_COUNTS, "error": NOT_TEXTS,
        "head_input": NOT_OIDS, "head_output": [*NOT_OIDS, "root"], "input_tokens": NOT_COUNTS,
        "instructions": [*NOT_OIDS, "root"], "model": NOT_NAMES, "options": NOT_OBJECTS,
        "output_tokens": NOT_COUNTS, "request": NOT_OBJECTS, "resolved_model": NOT_NAMES, "response": NOT_OBJECTS,
        "started_at": NOT_TIMES, "token_details": NOT_OBJECTS, "tools": [*NOT_OIDS, "root"],
    },
    Note: {
        "note": NOT_ULIDS, "at": NOT_TIMES,
        "nodes": [*NOT_OBJECTS, {"x": {}}, {"root": {}}, {A: None}, {A: []}, {A: "x"}, {A.upper(): {}}],
    },
    Description: {
        "description": NOT_NAMES, "created_at": NOT_TIMES, "title": NOT_TEXTS, "model": NOT_NAMES,
        "forked_from": [*NOT_OIDS, "root"], "tags": ["x", {"x"}, {"a": 1}, [""], [5], [None], 5],
        "source": [*NOT_OBJECTS, {"format": 5}, {"format": None}, {"else": "x"}, {"importer": ["1"]}],
    },
}  # fmt: skip
CASES = [(cls, key, value) for cls, rules in RULES.items() for key, values in rules.items() for value in values]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in GOLDEN])
def test_record_has_the_bytes_and_id_written_down(case):
    value = decode(Kind(case["kind"]), case["canonical"].encode())
    kind, oid, raw = encode(value)
    assert (kind, oid, raw.decode()) == (case["kind"], case["sha256"], case["canonical"])


class TestMembers:
    def test_every_one_has_bad_values_here(self):
        for cls, rules in RULES.items():
            assert rules.keys() == {field.name for field in dataclasses.fields(cls)}

    @pytest.mark.parametrize("cls, key, value", CASES)
    def test_bad_value_is_refused_with_its_place(self, cls, key, value):
        for make in (
            lambda: cls(**CLASSES[cls] | {key: value}),
            lambda: cls.from_dict(CLASSES[cls] | {key: value}),
        ):
            with pytest.raises(InvalidValue) as caught:
                make()
            assert caught.value.path.split(".")[0].split("[")[0] == key

    @pytest.mark.parametrize("cls, key", [(cls, key) for cls, members in CLASSES.items() for key in members])
    def test_needed_one_that_is_missing_is_named(self, cls, key):
        rest = {name: value for name, value in CLASSES[cls].items() if name != key}
        with pytest.raises(InvalidValue, match=f"^{key}: missing"):
            cls.from_dict(rest)
        with pytest.raises(InvalidValue, match=f"^{key}: missing"):
            cls(**rest, **{key: None})

    @pytest.mark.parametrize("cls", CLASSES)
    def test_null_is_refused_in_json(self, cls):
        for key in RULES[cls]:
            with pytest.raises(
                InvalidValue, match="is left out rather than null" if key not in CLASSES[cls] else key
            ):
                cls.from_dict(CLASSES[cls] | {key: None})

    @pytest.mark.parametrize("cls", CLASSES)
    def test_unknown_one_is_refused(self, cls):
        for extra in ({"id": 1}, {5: 1, "id": 1}, {"Model": "x"}):
            with pytest.raises(InvalidValue, match="no such key"):
                cls.from_dict(CLASSES[cls] | extra)

    @pytest.mark.parametrize("cls", [*CLASSES, Tombstone])
    @pytest.mark.parametrize("value", [None, 5, "x", [], [("note", ULID)]])
    def test_record_that_is_no_object_is_refused(self, cls, value):
        with pytest.raises(InvalidValue):
            cls.from_dict(value)

    def test_call_may_start_from_nothing(self):
        assert Call(**CALL | {"head_input": "root"}).head_input == "root"

    def test_text_enum_is_taken_by_its_text(self):
        class Known(str, enum.Enum):  # noqa: UP042 - its str() is its name, not its text
            ID = A
            MODEL = "m"
            TIME = AT
            ULID = ULID

        call = Call(call=Known.ULID, model=Known.MODEL, head_input=Known.ID, started_at=Known.TIME)
        assert call == Call(**CALL) and {type(value) for value in call.to_dict().values()} == {str}

    def test_times_sorted_as_text_are_sorted_by_time(self):
        good = ["0001-01-01T00:00:00.000Z", "2024-02-29T23:59:59.999Z", AT, "9999-12-31T23:59:59.999Z"]
        assert [check_time(time, "") for time in reversed(good)][::-1] == sorted(good)

    def test_ulid_uses_all_of_its_alphabet(self):
        for good in ("0" * 26, "7" + "Z" * 25, ULID, "0123456789ABCDEFGHJKMNPQRS", "01JKMNPQRSTVWXYZ0000000000"):
            assert check_ulid(good, "") == good

    @pytest.mark.parametrize("levels, fits", [(MAX_NESTING, True), (MAX_NESTING + 1, False)])
    def test_nesting_is_bounded_alike_by_constructor_and_decoder(self, levels, fits):
        members = CALL | {"options": {"k": nested(levels - 2, "x")}}
        raw = reference.dumps(members)
        if fits:
            assert decode(Kind.CALL, raw) == Call(**members)
        else:
            with pytest.raises(InvalidValue, match="nested more than 128"):
                Call(**members)
            with pytest.raises(CorruptObject, match="nested more than 128"):
                decode(Kind.CALL, raw)


json_objects = st.deferred(lambda: objects(any_json, max_size=3))
names = texts.filter(bool)
counts = st.integers(0, (1 << 63) - 1)
oids = st.binary(min_size=32, max_size=32).map(bytes.hex)
times = st.datetimes().map(lambda time: time.isoformat(timespec="milliseconds") + "Z")
calls = st.builds(
    lambda needed, more: Call(**needed, **more),
    st.fixed_dictionaries(
        {"call": st.just(ULID), "model": names, "head_input": oids | st.just("root"), "started_at": times}
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "head_output": oids, "conversation": names, "duration_ms": counts, "error": texts,
            "input_tokens": counts, "output_tokens": counts, "token_details": json_objects,
            "resolved_model": names, "instructions": oids, "tools": oids, "options": json_objects,
            "request": json_objects, "response": json_objects,
        },
    ),
)  # fmt: skip
notes = st.builds(
    lambda at, about: Note(note=ULID, at=at, nodes=about), times, st.dictionaries(oids, json_objects)
)
descriptions = st.builds(
    lambda needed, more: Description(**needed, **more),
    st.fixed_dictionaries({"description": names, "created_at": times}),
    st.fixed_dictionaries(
        {},
        optional={
            "title": texts, "model": names, "forked_from": oids, "tags": st.lists(names, max_size=3),
            "source": st.fixed_dictionaries({}, optional=dict.fromkeys(("format", "id", "importer"), texts)),
        },
    ),
)  # fmt: skip
records = st.deferred(lambda: calls | notes | descriptions)


class TestBytes:
    @given(records)
    def test_are_what_the_standard_library_writes_and_read_back_equal(self, record):
        kind, oid, raw = encode(record)
        assert raw == reference.dumps(record.to_dict())
        assert oid == sha256(raw).hexdigest()
        assert decode(kind, raw) == record == type(record).from_dict(record.to_dict())

    @given(records, records)
    def test_records_are_equal_exactly_when_their_ids_are(self, one, other):
        assert (one == other) == (encode(one)[:2] == encode(other)[:2])
        assert one == copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) and hash(one) == hash(copy.copy(one))

    @pytest.mark.parametrize("value", [1 << 64, -(1 << 63) - 1, 1e300, 1.8446744073709552e19, 1e-7, 0.1, 10**100])
    def test_number_that_readers_confuse_round_trips(self, value):
        record = Call(**CALL, options={"n": value, "more": [1 << 64, 0.5]})
        back = decode(Kind.CALL, encode(record)[2])
        assert back == record and type(back.options["n"]) is type(value)

    def test_one_is_not_true_and_not_one_point_zero(self):
        assert len({encode(Call(**CALL, options={"n": value}))[1] for value in (1, 1.0, True)}) == 3
        assert Call(**CALL, options={"n": 1}) != Call(**CALL, options={"n": True})

    @pytest.mark.parametrize("cls", CLASSES)
    def test_nothing_can_be_changed(self, cls):
        record = cls(**CLASSES[cls])
        for field in dataclasses.fields(record):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(record, field.name, "x")
        note = Note(**NOTE)
        with pytest.raises(TypeError):
            note.nodes[A].update(x=1)
        note.to_dict()["nodes"][A]["x"] = 1
        assert note == Note(**NOTE)

    def test_record_that_no_store_would_take_is_refused_both_ways(self, monkeypatch):
        record = Call(**CALL, request={"text": "x" * 1000})
        raw = encode(record)[2]
        monkeypatch.setattr("objstore.codec.MAX_OBJECT_BYTES", len(raw) - 1)
        with pytest.raises(LimitExceeded):
            encode(record)
        with pytest.raises(CorruptObject):
            decode(Kind.CALL, raw)

    def test_kinds_are_told_apart_by_where_they_stand(self):
        for cls, members in CLASSES.items():
            for kind in set(Kind) - {cls.kind, Kind.PAYLOAD}:
                with pytest.raises(CorruptObject):
                    decode(kind, reference.dumps(members))


class TestTombstones:
    def test_of_a_message_stands_under_the_id_of_what_it_replaces(self):
        tombstone = Tombstone(**TOMBSTONE)
        kind, oid, raw = encode(tombstone)
        assert (kind, oid) == (Kind.MESSAGE, A)
        assert raw == reference.dumps({"tombstone": TOMBSTONE})
        assert decode(Kind.MESSAGE, raw) == decode_tombstone(Kind.MESSAGE, raw) == tombstone

    def test_of_a_payload_is_read_only_where_one_is_expected(self):
        raw = encode(Tombstone(**TOMBSTONE | {"kind": "payload"}))[2]
        assert decode_tombstone(Kind.PAYLOAD, raw).kind is Kind.PAYLOAD
        assert decode(Kind.PAYLOAD, raw) == raw  # a payload may look like anything

    @pytest.mark.parametrize("kind, other", [("message", Kind.PAYLOAD), ("payload", Kind.MESSAGE)])
    def test_of_another_kind_is_corrupt(self, kind, other):
        raw = encode(Tombstone(**TOMBSTONE | {"kind": kind}))[2]
        with pytest.raises(CorruptObject):
            decode_tombstone(other, raw)

    @pytest.mark.parametrize("kind", sorted(set(Kind) - {Kind.MESSAGE, Kind.PAYLOAD}))
    def test_of_anything_but_a_message_or_payload_is_refused(self, kind):
        with pytest.raises(InvalidValue):
            Tombstone(**TOMBSTONE | {"kind": kind})

    @pytest.mark.parametrize("key, bads", [
        ("kind", ["", "Message", 5, None, []]), ("id", [*NOT_OIDS, "root", None]), ("at", [*NOT_TIMES, None]),
        ("reason", [*NOT_TEXTS, None]),
    ])  # fmt: skip
    def test_bad_member_is_refused_with_its_place(self, key, bads):
        for bad in bads:
            with pytest.raises(InvalidValue) as caught:
                Tombstone.from_dict({"tombstone": TOMBSTONE | {key: bad}})
            assert caught.value.path == f"tombstone.{key}"

    @pytest.mark.parametrize("value", [
        {}, {"tombstone": None}, {"tombstone": {}}, {"tombstone": TOMBSTONE, "role": "u"},
        {"tombstone": TOMBSTONE | {"more": 1}}, {"tombstone": {"kind": "message", "id": A, "at": AT}},
    ])  # fmt: skip
    def test_other_shapes_are_refused(self, value):
        with pytest.raises(InvalidValue):
            Tombstone.from_dict(value)

    def test_are_frozen_and_copied_equal(self):
        tombstone = Tombstone(**TOMBSTONE)
        with pytest.raises(dataclasses.FrozenInstanceError):
            tombstone.reason = "x"
        for other in (copy.copy(tombstone), copy.deepcopy(tombstone), pickle.loads(pickle.dumps(tombstone))):
            assert other == tombstone and hash(other) == hash(tombstone)


def test_a_trusted_note_has_the_bytes_of_a_checked_one():
    about = [
        {"key": "a", "n": 1, "deep": freeze({"x": [1, 2.5, None, True], "é": "ü"}, "")},
        {"key": "b", "huge": 1 << 70},
        {"key": "c", "half": "\ud800"},
        {},
    ]
    for each in (about[:1], about):
        nodes = {f"{number:064x}": known for number, known in enumerate(each)}
        checked = Note(note="01J00000000000000000000000", at="2026-01-02T03:04:05.678Z", nodes=nodes)
        trusted = Note.trusted(checked.note, checked.at, nodes)
        assert trusted.canonical() == checked.canonical()
        assert trusted == checked and decode(Kind.NOTE, trusted.canonical()) == trusted
