"""JSON at the edge: bounded reading, the stored bytes of an event, and bytes for digests.

Owns the JSON bounds (INV-06): they are checked by a scan at C speed before any parser runs, so
that no input can exhaust the stack or build numbers without end. Knows no file format.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, NoReturn

import msgspec
import rfc8785

from engrain.contracts import limits
from engrain.contracts.errors import Corrupt, InvalidJson, InvalidValue, LimitExceeded
from engrain.contracts.events import Event
from engrain.contracts.text import is_clean_text, repair_text

TextRule = Literal["refuse", "repair"]

_DIGITS_MAX: Final = len(str(limits.json_integer_min))
_SHAPE: Final = bytes.maketrans(b"123456789{}E", b"000000000[]e")
_SPACE_AND_SIGN: Final = b" \t\r\n+-"
_ALL_BUT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]"))
# A number in these shapes may leave 64 bits or the range of a float; others cannot.
_LONG_DIGITS: Final = b"0" * 19
_LONG_EXPONENT: Final = b"0e000"
_quick_decoder: Final = msgspec.json.Decoder()
_quick_encoder: Final = msgspec.json.Encoder()
_SUSPECT_ESCAPE: Final = re.compile(
    rb"\\u(?:0000|[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u)[dD][c-fC-F])"
)


def read_json(
    data: bytes | str,
    *,
    bytes_max: int,
    nodes_max: int = limits.json_nodes_max,
    depth_max: int = limits.json_depth_max,
    text: TextRule = "refuse",
) -> Any:
    """The value of one JSON document inside every bound (INV-06).

    A node is a value: a scalar, an array or an object; keys are not counted. Raises
    `LimitExceeded` past `bytes_max`, `nodes_max` or `depth_max` before anything is parsed, and
    `InvalidJson` for malformed text, NaN and infinities (1e999 too), a key twice in one object,
    and integers outside 64 bits. Text that breaks the text rule (INV-05) raises `InvalidValue`,
    or, with `text="repair"`, has its bad code points and bytes replaced by U+FFFD.
    """
    if len(data) > bytes_max:
        raise LimitExceeded("json_bytes_max", bytes_max, len(data))
    document, raw = _both_forms(data, text)
    if len(raw) > bytes_max:
        raise LimitExceeded("json_bytes_max", bytes_max, len(raw))
    if len(raw) <= nodes_max and (known := _read_obvious(raw, depth_max)) is not None:
        return known
    plain = raw.replace(rb"\\", b"  ") if b"\\" in raw else raw
    has_odd_number = _scan_shape(plain, nodes_max, depth_max)
    value = _parse(document, _CAREFUL if has_odd_number else _PLAIN)
    if _SUSPECT_ESCAPE.search(plain):
        value = _repaired(value) if text == "repair" else _require_clean(value)
    return value


def _read_obvious(raw: bytes, depth_max: int) -> Any:
    """The value of most documents that keep every bound; None when that takes a closer look.

    With fewer bytes than nodes are allowed, no more brackets than levels, no escape by number and
    no number of many digits, only a key that stands twice is left. It would be missing from what
    the value is written as.
    """
    if (
        b"\\u" in raw
        or raw.count(b"{") + raw.count(b"[") > depth_max
        or _LONG_DIGITS in raw.translate(_SHAPE)
    ):
        return None
    try:
        value = _quick_decoder.decode(raw)
        is_whole = _quick_encoder.encode(value) == msgspec.json.format(raw, indent=-1)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return value if is_whole else None


def _both_forms(data: bytes | str, text: TextRule) -> tuple[str, bytes]:
    """The document as text and as UTF-8, without a byte order mark."""
    if isinstance(data, str):
        try:
            return data, data.encode()
        except UnicodeEncodeError:
            if text == "refuse":
                raise InvalidValue("json", "holds a lone surrogate") from None
            data = repair_text(data)[0]
            return data, data.encode()
    raw = bytes(data).removeprefix(b"\xef\xbb\xbf")
    try:
        return raw.decode(errors="strict" if text == "refuse" else "replace"), raw
    except UnicodeDecodeError:
        raise InvalidJson("not UTF-8") from None


def _scan_shape(plain: bytes, nodes_max: int, depth_max: int) -> bool:
    """Checks nodes and depth; true when some number needs a closer look.

    `plain` has no escaped backslash, so that a backslash before a quote always escapes it.
    For malformed text the counts hold for the part that a parser reads before it gives up.
    """
    if b"\\" in plain:
        plain = plain.replace(b'\\"', b"  ")
    quotes = plain.count(b'"')
    if quotes > 4 * nodes_max + 2:  # each key and each value that is text has two
        raise LimitExceeded("json_nodes_max", nodes_max)
    outside = b'"'.join(plain.split(b'"')[::2]) if quotes else plain
    shape = outside.translate(_SHAPE, _SPACE_AND_SIGN)
    nodes = 1 + shape.count(b",") + shape.count(b"[") - shape.count(b"[]")
    if nodes > nodes_max:
        raise LimitExceeded("json_nodes_max", nodes_max, nodes)
    _scan_depth(shape.translate(None, _ALL_BUT_BRACKETS), depth_max)
    return _LONG_DIGITS in shape or _LONG_EXPONENT in shape


def _scan_depth(brackets: bytes, depth_max: int) -> None:
    """Takes the innermost pairs away, level by level; nothing may be left after `depth_max`."""
    for _ in range(depth_max):
        if not brackets:
            return
        brackets = brackets.replace(b"[]", b"")
    if b"[]" in brackets or brackets.count(b"[") > depth_max:
        raise LimitExceeded("json_depth_max", depth_max)
    if brackets:
        raise InvalidJson("brackets do not match")


def _parse(document: str, decoder: json.JSONDecoder) -> Any:
    try:
        return decoder.decode(document)
    except json.JSONDecodeError as error:
        raise InvalidJson(f"malformed at character {error.pos:,}") from None
    except RecursionError:
        raise LimitExceeded("json_depth_max", limits.json_depth_max) from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        raise InvalidJson("a key stands twice in one object")
    return record


def _bounded_integer(digits: str) -> int:
    if len(digits) > _DIGITS_MAX or not _is_bounded(value := int(digits)):
        raise InvalidJson("an integer outside 64 bits")
    return value


def _finite_float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise InvalidJson("a number outside the range of a float")
    return value


def _no_constant(name: str) -> NoReturn:
    raise InvalidJson(f"{name} is not a JSON number")


def _is_bounded(value: int) -> bool:
    return limits.json_integer_min <= value <= limits.json_integer_max


_PLAIN: Final = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_no_constant)
_CAREFUL: Final = json.JSONDecoder(
    object_pairs_hook=_unique_keys,
    parse_constant=_no_constant,
    parse_int=_bounded_integer,
    parse_float=_finite_float,
)


def _map_text(value: Any, change: Callable[[str], str]) -> Any:
    """The parsed value with every text, keys included, changed; its depth is already bounded."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_map_text(item, change) for item in value]
    if isinstance(value, dict):
        return _unique_keys([(change(k), _map_text(v, change)) for k, v in value.items()])
    return value


def _repaired(value: Any) -> Any:
    return _map_text(value, lambda text: repair_text(text)[0])


def _clean(text: str) -> str:
    if not is_clean_text(text):
        raise InvalidValue("json", "holds NUL or a lone surrogate")
    return text


def _require_clean(value: Any) -> Any:
    return _map_text(value, _clean)


# Events ------------------------------------------------------------------------------------------


def _plain_text(value: object) -> str:
    """Lets an `Origin`, which is text of its own type, into an event."""
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"a {type(value).__name__} is not a value of an event")


_event_encoder: Final = msgspec.json.Encoder(enc_hook=_plain_text)
_event_decoder: Final = msgspec.json.Decoder(Event)


def encode_event(event: Event) -> bytes:
    """The stored bytes of an event; `decode_events` gives back equal ones.

    Raises `InvalidValue` when a field has the wrong type or breaks the text rule (INV-05), and
    `LimitExceeded` past `event_bytes_max`, for long text before it is encoded.
    """
    try:
        size = len(event.text) + len(getattr(event, "arguments", ""))
        if size > limits.event_bytes_max:
            raise LimitExceeded("event_bytes_max", limits.event_bytes_max, size)
        payload = _event_encoder.encode(event)
        is_whole = _event_decoder.decode(payload) == event
    except UnicodeEncodeError:
        raise InvalidValue(_unclean_field(event), "holds a lone surrogate") from None
    except (msgspec.ValidationError, AttributeError, TypeError, OverflowError) as error:
        raise InvalidValue("event", _without_content(error)) from None
    if len(payload) > limits.event_bytes_max:
        raise LimitExceeded("event_bytes_max", limits.event_bytes_max, len(payload))
    if not is_whole:
        raise InvalidValue("event", "a field has another type than its kind says")
    if b"\\" in payload and b"\\u0000" in payload and (field := _unclean_field(event)):
        raise InvalidValue(field, "holds NUL")
    return payload


def _unclean_field(event: Event) -> str:
    """Name of the first field that breaks the text rule; empty when none does."""
    for name in event.__struct_fields__:
        value = getattr(event, name)
        texts = value if isinstance(value, tuple) else (value,)
        if not all(is_clean_text(text) for text in texts if isinstance(text, str)):
            return name
    return ""


def _without_content(error: Exception) -> str:
    """What the libraries say about types, without a value that they may quote."""
    return re.sub(r"'[^']*'", "…", str(error))


def decode_events(payloads: Iterable[bytes]) -> list[Event]:
    """The events in stored bytes; raises `Corrupt` when some hold none."""
    try:
        return list(map(_event_decoder.decode, payloads))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise Corrupt("the stored bytes of an event do not decode") from None


# Digests -----------------------------------------------------------------------------------------

_EXACT_MAX: Final = 2**53 - 1
# No clean text holds NUL, so that no value of a caller looks like this tag.
_INTEGER_TAG: Final = "\0integer"


def canonical_bytes(
    value: Any,
    *,
    nodes_max: int = limits.json_nodes_max,
    depth_max: int = limits.json_depth_max,
) -> bytes:
    """The one byte string of a JSON value (RFC 8785), the same wherever it is computed.

    RFC 8785 knows integers up to 53 bits. A larger one, within 64, stands as an object whose
    single key holds NUL, `{"\\u0000integer": "<digits>"}`, which no clean value can contain.
    Raises `InvalidJson` for what JSON cannot say, `InvalidValue` for text that breaks the text
    rule, and `LimitExceeded` past the bounds (INV-06); cyclic values end there too.
    """
    return rfc8785.dumps(_Canonical(nodes_max, depth_max).plain(value, 1))


class _Canonical:
    """One walk over a value that counts nodes and tags large integers."""

    def __init__(self, nodes_max: int, depth_max: int) -> None:
        self._nodes_max = nodes_max
        self._depth_max = depth_max
        self._nodes = 0

    def plain(self, value: Any, depth: int) -> Any:
        self._nodes += 1
        if self._nodes > self._nodes_max:
            raise LimitExceeded("json_nodes_max", self._nodes_max)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return _clean(str(value))
        if isinstance(value, int):
            return _tagged_integer(int(value))
        if isinstance(value, float):
            return _finite(value)
        return self._plain_container(value, depth)

    def _plain_container(self, value: Any, depth: int) -> Any:
        if not isinstance(value, list | tuple | dict):
            raise InvalidJson(f"a {type(value).__name__} is not a JSON value")
        if depth > self._depth_max:
            raise LimitExceeded("json_depth_max", self._depth_max)
        if isinstance(value, dict):
            return {_key(k): self.plain(v, depth + 1) for k, v in value.items()}
        return [self.plain(item, depth + 1) for item in value]


def _tagged_integer(value: int) -> int | dict[str, str]:
    if not _is_bounded(value):
        raise InvalidJson("an integer outside 64 bits")
    return value if abs(value) <= _EXACT_MAX else {_INTEGER_TAG: str(value)}


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise InvalidJson("a number outside the range of a float")
    return value


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise InvalidJson("a key must be text")
    return _clean(str(key))
