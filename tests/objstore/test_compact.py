"""Compact tables say what dicts would say."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from objstore.compact import Keyed, Links, Texts

ANY_TEXT = st.text(st.characters(), max_size=20)


@given(st.lists(ANY_TEXT, unique=True, max_size=200))
def test_texts_are_numbered_in_the_order_of_their_arrival(texts):
    made = Texts()
    assert [made.add(text) for text in texts] == list(range(len(texts)))
    assert [made[number] for number in range(len(made))] == texts
    assert [made.find(text) for text in texts] == list(range(len(texts)))
    assert all(text in made for text in texts)
    assert ("not" * 10) not in made


@given(st.dictionaries(ANY_TEXT, st.integers(0, 1 << 30), max_size=200))
def test_places_are_found_by_their_keys(places):
    made = Keyed()
    for key, place in places.items():
        made.add(key, place)
    assert {key: made.find(key) for key in places} == places
    assert made.find("not" * 10) is None


def test_texts_of_equal_hashes_are_told_apart():
    class Same(str):
        def __hash__(self):
            return 7

        __eq__ = str.__eq__

    made = Texts()
    assert [made.add(Same(each)) for each in "abc"] == [0, 1, 2]
    assert [made.find(Same(each)) for each in "cba"] == [2, 1, 0]
    assert made.find(Same("d")) is None


def test_many_are_held_in_little_memory():
    # A dict of as many takes 20 MB, the texts not counted.
    tracemalloc.start()
    made = Texts()
    for i in range(100_000):
        made.add(f"{i:032x}")
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert taken < 9_000_000


@given(
    st.lists(st.tuples(st.integers(0, 60), st.none() | st.integers(0, 1 << 30) | st.just("delete")), max_size=80)
)
def test_links_are_a_dict_in_rising_order(steps):
    made, plain = Links(), {}
    for key, link in steps:
        if link == "delete":
            assert (made.pop(key, "none"), plain.pop(key, "none")).count("none") in (0, 2)
        else:
            made[key] = plain[key] = link
        assert len(made) == len(plain) and (key in made) == (key in plain)
    assert list(made.items()) == sorted(plain.items())
    assert list(made) == sorted(plain) and list(made.values()) == [plain[key] for key in sorted(plain)]
    assert made.get(99) is None and made.get(-1) is None and "x" not in made
