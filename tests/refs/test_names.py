"""Which names are allowed, and that what is allowed is safe as a file's path."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from refs.errors import InvalidRefName
from refs.names import (
    MAX_NAME_BYTES,
    MAX_REF_BYTES,
    MAX_REMOTE_NAME_BYTES,
    check_name,
    check_ref_name,
    conversation_ref,
    description_ref,
    fold_key,
    remote_ref,
    short_name,
    tag_ref,
)

GOOD = [
    "trip",
    "Trip-2",
    "a",
    "_",
    "team/trip",
    "a.b",
    "v1.0",
    "a/-b",
    "a@b",
    "abc",  # hex, but too short for a prefix
    "face-off",
    "deadbeeg",
    "reise-nach-köln",
    "旅行",
    "𝒳",
    "headless",
    "roots",
    "a/HEAD",
    "console",
    "com",
    "com0",
    "com10",
    "xcon",
    "a.con",
    "lock",
    "a.locks",
    "a" * MAX_NAME_BYTES,
    "ü" * (MAX_NAME_BYTES // 2),
    "f" * 65,
]

BAD = [
    ("", "empty"),
    ("a..b", "'..'"),
    ("..", "'..'"),
    ("../x", "'..'"),
    ("a/../b", "'..'"),
    ("a\x00b", "control"),
    ("a\nb", "control"),
    ("a\x7fb", "control"),
    ("a\x85b", "control"),
    ("a~1", "none of"),
    ("a^", "none of"),
    ("ab:c", "none of"),
    ("a?", "none of"),
    ("a*", "none of"),
    ("a[b", "none of"),
    ("a\\b", "backslash"),
    (".a", "starts with a dot"),
    ("a/.b", "starts with a dot"),
    (".", "starts with a dot"),
    ("a.lock", ".lock"),
    ("a.lock/b", ".lock"),
    ("a.LOCK", ".lock"),
    ("a@{1}", "reflog"),
    ("@", "'@' alone"),
    ("/a", "starts with a slash"),
    ("a/", "ends with a slash"),
    ("a//b", "empty component"),
    ("-a", "option"),
    ("abcd", "object id"),
    ("0123", "object id"),
    ("deadbeef", "object id"),
    ("f" * 64, "object id"),
    ("HEAD", "reserved"),
    ("head", "reserved"),
    ("root", "reserved"),
    ("Root", "reserved"),
    ("con", "device"),
    ("PRN", "device"),
    ("Aux", "device"),
    ("nul", "device"),
    ("COM1", "device"),
    ("com9", "device"),
    ("lpt1", "device"),
    ("LPT9", "device"),
    ("COM¹", "device"),
    ("con.txt", "device"),
    ("aux.tar.gz", "device"),
    ("a/con/b", "device"),
    ("a/nul.x", "device"),
    ("C:/x", "drive"),
    ("c:", "drive"),
    ("a.", "ends with a dot"),
    ("a./b", "ends with a dot"),
    ("a ", "spaces"),
    (" a", "spaces"),
    ("a b", "spaces"),
    ("a /b", "spaces"),
    ("a\u00a0b", "spaces"),
    ("a\u3000b", "spaces"),
    ("a\u2028b", "spaces"),
    ("a\u202eb", "invisible"),
    ("a\u2066b", "invisible"),
    ("a\u200eb", "invisible"),
    ("a\u200bb", "invisible"),
    ("a\u200db", "invisible"),
    ("a\u00adb", "invisible"),
    ("a\ufeffb", "invisible"),
    ("a\u3164b", "invisible"),
    ("a\ufe0f", "invisible"),
    ("a\U000e0041", "invisible"),
    ("a\ud800b", "surrogate"),
    ("a\udc80", "surrogate"),
    ("a" * (MAX_NAME_BYTES + 1), "longer than 200 bytes"),
    ("ü" * (MAX_NAME_BYTES // 2) + "a", "longer than 200 bytes"),
    ("ko\u0308ln", "NFC"),
    ("\u212a", "NFC"),
]


@pytest.mark.parametrize("name", GOOD)
def test_good_names_pass_unchanged(name):
    assert check_name(name) == name
    assert conversation_ref(name) == f"refs/conversations/{name}"
    assert check_ref_name(f"refs/tags/{name}") == tag_ref(name)


@pytest.mark.parametrize(("name", "rule"), BAD, ids=[f"{ascii(name)[:30]}-{rule}" for name, rule in BAD])
def test_each_rule_refuses_and_says_which_it_is(name, rule):
    with pytest.raises(InvalidRefName) as caught:
        check_name(name)
    assert rule in caught.value.reason
    assert caught.value.name == name
    with pytest.raises(InvalidRefName) as caught:
        check_ref_name(f"refs/tags/{name}")
    assert rule in caught.value.reason


@pytest.mark.parametrize(
    ("ref", "rule"),
    [
        ("", "refs/"),
        ("trip", "refs/"),
        ("HEAD", "refs/"),
        ("/refs/tags/a", "refs/"),
        ("Refs/tags/a", "refs/"),
        ("refs", "class and a name"),
        ("refs/tags", "class and a name"),
        ("refs/tags/", "empty"),
        ("refs//a", "one lower-case word"),
        ("refs/../a", "one lower-case word"),
        ("refs/Tags/a", "one lower-case word"),
        (f"refs/{'a' * 33}/a", "one lower-case word"),
        ("refs/remotes/origin", "the remote and a path"),
        ("refs/remotes/origin/", "empty"),
        ("refs/remotes//a", "empty"),
        ("refs/remotes/-x/a", "option"),
        ("refs/remotes/origin/a..b", "'..'"),
    ],
)
def test_a_whole_ref_path_has_rules_of_its_own(ref, rule):
    with pytest.raises(InvalidRefName) as caught:
        check_ref_name(ref)
    assert rule in caught.value.reason
    assert caught.value.name == ref


def test_a_class_that_a_newer_version_may_have_is_allowed():
    assert check_ref_name("refs/bookmarks/a") == "refs/bookmarks/a"


def test_the_longest_names_still_fit_beneath_a_remote():
    name = "n" * MAX_NAME_BYTES
    ref = remote_ref("r" * MAX_NAME_BYTES, f"conversations/{name}")
    assert ref.endswith(name)
    with pytest.raises(InvalidRefName, match=f"longer than {MAX_REMOTE_NAME_BYTES}"):
        remote_ref("r" * MAX_NAME_BYTES, "/".join("p" * 160 for _ in range(2)))
    longest = remote_ref("r" * 111, "p" * 200 + "/" + "q" * 199)
    assert len(longest) == MAX_REF_BYTES


@pytest.mark.parametrize(
    ("ref", "short"),
    [
        (conversation_ref("trip"), "trip"),
        (conversation_ref("team/trip"), "team/trip"),
        (tag_ref("v1"), "tags/v1"),
        (description_ref("trip"), "descriptions/trip"),
        (remote_ref("origin", "conversations/trip"), "remotes/origin/conversations/trip"),
        (conversation_ref("tags/v1"), "conversations/tags/v1"),
        (conversation_ref("refs/tags/v1"), "conversations/refs/tags/v1"),
        (check_ref_name("refs/bookmarks/a"), "refs/bookmarks/a"),
    ],
)
def test_no_two_refs_have_one_short_name(ref, short):
    assert short_name(ref) == short


@pytest.mark.parametrize(
    ("one", "other"),
    [("Trip", "trip"), ("KÖLN", "köln"), ("straße", "STRASSE"), ("ΣΑΣ", "σας"), ("\u0390", "\u1fd3")],
)
def test_names_that_differ_only_by_case_have_one_key(one, other):
    assert fold_key(one) == fold_key(other)


def test_different_names_have_different_keys():
    assert len({fold_key(name) for name in ("trip", "tripp", "köln", "koln")}) == 4


NASTY = st.text(alphabet=st.sampled_from(list("aA0/.~^:@{}\\-\x00\n\u202eée\u0301conlck \ud800")), max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.one_of(st.text(max_size=80), NASTY))
@example("a/../../b")
@example("trip")
def test_any_text_is_refused_or_is_a_file_inside_the_root(tmp_path: Path, text: str):
    try:
        ref = conversation_ref(text)
    except InvalidRefName as error:
        assert error.reason
        return
    root = tmp_path / "refs" / "conversations"
    path = tmp_path / ref
    assert path.resolve().is_relative_to(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    try:
        found = [str(file.relative_to(root)) for file in root.rglob("*") if file.is_file()]
        assert found == [text]
    finally:
        path.unlink()
        for folder in path.parents:
            if folder == root:
                break
            folder.rmdir()
