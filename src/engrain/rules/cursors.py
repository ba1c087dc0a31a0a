"""Sealed page cursors: they show no integer key and work in their own scope alone.

Owns the seal, not what a store puts into it. Synthetic IV style: the tag authenticates the fields
and seeds the key stream that hides them, so that equal pages have equal cursors.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from typing import Final

import msgspec

from engrain.contracts import limits
from engrain.contracts.errors import InvalidValue
from engrain.contracts.text import is_clean_text

_TAG_BYTES: Final = 16
_BLOCK_BYTES: Final = 32
_CURSOR_CHARS_MAX: Final = 4_096
_TAG_DOMAIN: Final = b"engrain.cursor.tag.v1\0"
_STREAM_DOMAIN: Final = b"engrain.cursor.stream.v1\0"

CursorFields = tuple[int | str, ...]

_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(CursorFields)


def seal(kind: str, fields: CursorFields, secret: bytes) -> str:
    """The cursor for `fields`: URL-safe, the same for the same input, meaningless to its holder.

    Fields are integers within 64 bits and clean text; others raise `InvalidValue`.
    """
    for field in fields:
        _require_field(field)
    clear = _encoder.encode(fields)
    clear += b" " * (-len(clear) % _TAG_BYTES)  # lengths of numbers must not show either
    tag = _tag(kind, clear, secret)
    cursor = urlsafe_b64encode(tag + _masked(clear, tag, secret)).rstrip(b"=").decode()
    if len(cursor) > _CURSOR_CHARS_MAX:
        raise InvalidValue("cursor", "would be too long")
    return cursor


def unseal(kind: str, cursor: str, secret: bytes) -> CursorFields:
    """The fields that `seal` was given with the same kind and secret.

    Anything else, another scope's cursor too, raises `InvalidValue` without saying why.
    """
    sealed = _decoded(cursor)
    tag, hidden = sealed[:_TAG_BYTES], sealed[_TAG_BYTES:]
    clear = _masked(hidden, tag, secret)
    if not hmac.compare_digest(tag, _tag(kind, clear, secret)):
        raise _unknown()
    return _decoder.decode(clear)


def _require_field(field: int | str) -> None:
    if isinstance(field, str):
        is_sound = is_clean_text(field)
    elif isinstance(field, bool) or not isinstance(field, int):
        is_sound = False
    else:
        is_sound = limits.json_integer_min <= field <= limits.json_integer_max
    if not is_sound:
        raise InvalidValue("cursor", "fields are 64-bit integers and clean text")


def _unknown() -> InvalidValue:
    return InvalidValue("cursor", "is not a cursor of this list")


def _decoded(cursor: str) -> bytes:
    if not isinstance(cursor, str) or len(cursor) > _CURSOR_CHARS_MAX:
        raise _unknown()
    try:
        sealed = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    except (Base64Error, ValueError):
        raise _unknown() from None
    is_canonical = urlsafe_b64encode(sealed).rstrip(b"=").decode() == cursor
    if not is_canonical or len(sealed) <= _TAG_BYTES:
        raise _unknown()
    return sealed


def _tag(kind: str, clear: bytes, secret: bytes) -> bytes:
    name = kind.encode()
    message = _TAG_DOMAIN + len(name).to_bytes(2, "big") + name + clear
    return hmac.digest(secret, message, "sha256")[:_TAG_BYTES]


def _masked(data: bytes, tag: bytes, secret: bytes) -> bytes:
    """`data` under the key stream of `tag`; masking twice gives it back."""
    blocks = range(-(-len(data) // _BLOCK_BYTES))
    seed = _STREAM_DOMAIN + tag
    stream = b"".join(hmac.digest(secret, seed + n.to_bytes(4, "big"), "sha256") for n in blocks)
    mask = int.from_bytes(stream[: len(data)], "big")
    return (int.from_bytes(data, "big") ^ mask).to_bytes(len(data), "big")
