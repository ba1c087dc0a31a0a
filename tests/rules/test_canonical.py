"""JSON comes in bounded, events go out exact, digests have one spelling."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engrain.contracts import limits
from engrain.contracts.errors import Corrupt, InvalidJson, InvalidValue, LimitExceeded
from engrain.contracts.events import Audit, Erased, Recall, ToolCall, ToolResult, UserMessage
from engrain.contracts.scope import Origin
from engrain.rules import canonical
from engrain.rules.canonical import canonical_bytes, decode_events, encode_event, read_json

MIB = limits.MIB
clean = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=20)
values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        clean,
        st.sampled_from(['"', "\\", '\\"', "[{", "}]", "\\u0000", ":,", "1e999"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(clean, inner, max_size=4)),
    max_leaves=20,
)


def read(data, **options):
    return read_json(data, bytes_max=MIB, **options)


@pytest.mark.invariant("INV-06")
@settings(max_examples=300)
@given(values, st.booleans(), st.sampled_from([None, 1]))
def test_valid_json_is_read_as_the_standard_parser_reads_it(value, ascii_only, indent):
    document = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert read(document) == value
    assert read(document.encode(), text="repair") == value


PIECES = (
    '{"a":', '{"b":', '"a":', "{", "}", "[", "]", ",", ":", " ", "1", "-0", "1.0", "1E5", "0.1",
    "true", "null", '"x"', '"é"', '"\\n"', '"\\/"', '"\\u00e9"', '"\\u0000"', '"{"',
    "9223372036854775808", "-9223372036854775808", "1e400", "NaN", "\t",
    "{}", "[]", '{"a":1,"a":2}', '{"a":{"b":1}}',
)  # fmt: skip


def outcome(document):
    try:
        value = read(document)
    except (InvalidJson, InvalidValue, LimitExceeded) as error:
        return type(error)
    return repr(value)


@pytest.mark.invariant("INV-06")
@settings(max_examples=1_000)
@given(
    st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
    | st.lists(st.sampled_from(PIECES), max_size=5).map(lambda items: f"[{','.join(items)}]")
)
def test_the_short_way_reads_what_the_long_way_reads(document):
    shortly = outcome(document)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canonical, "_read_obvious", lambda *_: None)
        assert outcome(document) == shortly


def nodes_of(value):
    if isinstance(value, list):
        return 1 + sum(map(nodes_of, value))
    if isinstance(value, dict):
        return 1 + sum(map(nodes_of, value.values()))
    return 1


def depth_of(value):
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    return 0


@pytest.mark.invariant("INV-06")
@settings(max_examples=200)
@given(values)
def test_nodes_and_depth_are_counted_exactly(value):
    document = json.dumps(value)
    nodes, depth = nodes_of(value), depth_of(value)
    read(document, nodes_max=nodes, depth_max=depth)
    with pytest.raises(LimitExceeded, match="json_nodes_max"):
        read(document, nodes_max=nodes - 1)
    if depth:
        with pytest.raises(LimitExceeded, match="json_depth_max"):
            read(document, depth_max=depth - 1)


@pytest.mark.invariant("INV-06")
@pytest.mark.parametrize(
    "document",
    [
        "NaN",
        "[Infinity]",
        "-Infinity",
        "1e999",
        "[-1E+0999]",
        "1" + "0" * 400 + ".5",
        '{"a":1,"a":2}',
        '{"a":1,"\\u0061":2}',
        "9223372036854775808",
        "[-9223372036854775809]",
        "1" * 100_000,
        "",
        " ",
        "[1,]",
        "[}",
        "]",
        "[1 2]",
        '"a\nb"',
        '"\x00"',
        "'a'",
        '"a',
        "01",
        b"\xff",
        b"[1]\x00",
        "[1]".encode("utf-16"),
    ],
)
def test_what_json_or_its_bounds_forbid_is_refused(document):
    with pytest.raises(InvalidJson):
        read(document)


@pytest.mark.invariant("INV-06")
@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 2**53 + 1, 0, -1])
def test_integers_within_64_bits_are_exact(number):
    assert read(f"[{number}]") == [number]


def test_long_fractions_are_numbers_and_a_byte_order_mark_is_no_content():
    assert read("0.12345678901234567890123") == 0.12345678901234567890123
    assert read(b"\xef\xbb\xbf[1]") == [1]


@pytest.mark.invariant("INV-06")
@pytest.mark.parametrize(
    "document",
    [
        pytest.param(b"[" * 100_000 + b"]" * 100_000, id="depth 100,000"),
        pytest.param(b'{"a":' * 100_000, id="open objects"),
        pytest.param(b" " * (200 * MIB), id="200 MiB"),
        pytest.param(b"[" * (60 * MIB), id="60 MiB of brackets"),
        pytest.param(b'"' * (60 * MIB), id="60 MiB of quotes"),
        pytest.param(b'\\"' * (30 * MIB), id="60 MiB of escaped quotes"),
        pytest.param(b"[" + b'"",' * (20 * MIB) + b'""]', id="20 million texts"),
        pytest.param(b"7" * (60 * MIB), id="one number of 60 MiB"),
    ],
)
def test_hostile_documents_are_refused_at_once(document):
    begin = time.perf_counter()
    with pytest.raises((LimitExceeded, InvalidJson)):
        read_json(document, bytes_max=limits.import_line_bytes_max)
    assert time.perf_counter() - begin < 2


@pytest.mark.invariant("INV-06")
def test_a_shallow_bound_holds_where_the_parser_would_reach_first():
    document = "[" * 70 + "1" + "]" * 70
    with pytest.raises(LimitExceeded, match="json_depth_max"):
        read(document)
    assert read(document, depth_max=70)


@pytest.mark.invariant("INV-05")
@pytest.mark.parametrize(
    ("document", "repaired"),
    [
        (r'["a\u0000b"]', ["a�b"]),
        (r'["\ud800"]', ["�"]),
        (r'["\udc00x"]', ["�x"]),
        (r'["\ud83d\\\ude00"]', ["�\\�"]),
        (r'["\\ud83d\ude00"]', ["\\ud83d�"]),
        (r'["\ud83d\ude00\ude00"]', ["😀�"]),
        (r'{"k\u0000":{"a":["\uD800"]}}', {"k�": {"a": ["�"]}}),
    ],
)
def test_broken_text_in_json_is_refused_or_repaired(document, repaired):
    assert read(document, text="repair") == repaired
    with pytest.raises(InvalidValue):
        read(document)


@pytest.mark.invariant("INV-05")
def test_raw_broken_code_points_and_bytes_are_refused_or_repaired():
    assert read('["\ud800"]', text="repair") == ["�"]
    assert read(b'["\xff"]', text="repair") == ["�"]
    with pytest.raises(InvalidValue):
        read('["\ud800"]')


@pytest.mark.invariant("INV-05")
def test_repair_that_makes_two_keys_one_is_refused():
    with pytest.raises(InvalidJson):
        read(r'{"\ud800":1,"\ud801":2}', text="repair")


@pytest.mark.parametrize("document", [r'["\ud83d\ude00"]', r'["\\u0000"]', r'["\\\\ud800"]'])
def test_sound_escapes_are_not_mistaken_for_broken_text(document):
    assert read(document) == json.loads(document)


@settings(max_examples=150)
@given(clean, st.none() | st.integers(-(2**63), 2**63 - 1), st.none() | clean)
def test_an_event_comes_back_as_it_was(text, occurred_at, speaker):
    for event in (
        UserMessage(text=text, occurred_at=occurred_at, speaker=speaker),
        ToolCall(call_id="c", name=text, arguments="{}"),
        ToolResult(call_id="c", text=text, status="missing"),
        Recall(text=text, episode_ids=("a", "b"), tokens=3),
    ):
        assert decode_events([encode_event(event)]) == [event]


def test_an_origin_is_stored_as_its_text():
    payload = encode_event(UserMessage(text="x", origin=Origin("tool:grep")))
    assert decode_events([payload]) == [UserMessage(text="x", origin="tool:grep")]


@pytest.mark.invariant("INV-05")
@pytest.mark.parametrize(
    ("event", "field"),
    [
        (UserMessage(text="a\0"), "text"),
        (UserMessage(text="\ud800"), "text"),
        (Audit(name="a\0"), "name"),
        (Recall(text="x", episode_ids=("a\0",)), "episode_ids"),
        (ToolCall(call_id="c", name="n", arguments="\udfff"), "arguments"),
    ],
)
def test_an_event_with_broken_text_is_refused_by_field(event, field):
    with pytest.raises(InvalidValue) as refused:
        encode_event(event)
    assert refused.value.field == field


def test_an_escaped_backslash_before_u0000_is_sound_text():
    event = UserMessage(text=r"a\u0000")
    assert decode_events([encode_event(event)]) == [event]


@pytest.mark.parametrize(
    "event",
    [
        UserMessage(text=None),
        UserMessage(text=b"abc"),
        UserMessage(text="x", occurred_at="now"),
        UserMessage(text="x", repaired=1),
        ToolResult(call_id="c", status="odd"),
        Recall(text="x", episode_ids=["a"]),
        Erased(was="user_message"),
        "hello",
        None,
    ],
)
def test_an_event_that_could_not_come_back_is_refused(event):
    with pytest.raises(InvalidValue) as refused:
        encode_event(event)
    assert "hello" not in str(refused.value)


@pytest.mark.parametrize("text", ["x" * (4 * MIB), "\x01" * MIB, "é" * (3 * MIB)])
def test_an_event_too_large_is_refused(text):
    with pytest.raises(LimitExceeded, match="event_bytes_max"):
        encode_event(UserMessage(text=text))


@pytest.mark.parametrize("payload", [b"", b"{}", b'{"kind":"odd"}', b"\xff", b'{"kind":"erased"}'])
def test_stored_bytes_that_hold_no_event_are_corrupt(payload):
    with pytest.raises(Corrupt):
        decode_events([payload])


@settings(max_examples=150)
@given(values)
def test_the_digest_form_outlives_storage_and_the_order_of_keys(value):
    form = canonical_bytes(value)
    assert canonical_bytes(json.loads(json.dumps(value, indent=1))) == form
    json.loads(form)
    if isinstance(value, dict):
        assert canonical_bytes(dict(reversed(value.items()))) == form


def test_the_digest_form_follows_rfc_8785():
    assert canonical_bytes({"b": [1.0, 1e21, True], "a": "é\n"}) == (
        '{"a":"é\\n","b":[1,1e+21,true]}'.encode()
    )


def test_integers_past_53_bits_have_a_form_of_their_own():
    assert canonical_bytes(2**53 - 1) == b"9007199254740991"
    assert canonical_bytes([2**53]) == b'[{"\\u0000integer":"9007199254740992"}]'
    assert canonical_bytes(2**63 - 1) != canonical_bytes(2**63 - 2)


@pytest.mark.invariant("INV-06")
@pytest.mark.parametrize(
    ("value", "error"),
    [
        (2**63, InvalidJson),
        (float("nan"), InvalidJson),
        (float("inf"), InvalidJson),
        ({1: 2}, InvalidJson),
        ({1, 2}, InvalidJson),
        (b"x", InvalidJson),
        ("\0", InvalidValue),
        ({"\ud800": 1}, InvalidValue),
        ([0] * 65_536, LimitExceeded),
    ],
)
def test_what_json_cannot_say_has_no_digest(value, error):
    with pytest.raises(error):
        canonical_bytes(value)


@pytest.mark.invariant("INV-06")
def test_a_cyclic_value_ends_at_the_depth_bound():
    cycle: list[object] = []
    cycle.append(cycle)
    with pytest.raises(LimitExceeded, match="json_depth_max"):
        canonical_bytes(cycle)
