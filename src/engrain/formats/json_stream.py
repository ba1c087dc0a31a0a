"""Documents out of a byte stream of any length, in bounded memory.

Owns where one document ends and the next begins: elements of a JSON array, whole objects, lines.
What a document says is parsed elsewhere; a document here may still be malformed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import BinaryIO, Final

import msgspec

from engrain.contracts import limits
from engrain.contracts.imports import Skipped

_CHUNK_BYTES: Final = 1 * limits.MIB
_BOM: Final = b"\xef\xbb\xbf"
_SPACE: Final = b" \t\r\n\0"

# A backslash takes the byte after it along, wherever it stands; outside of text only a malformed
# document has one. Possessive quantifiers would say this more simply; before Python 3.11.4 they
# match wrongly. Here no two parts begin alike, so that nothing is tried twice, and `_REPEATS`
# bounds what a match keeps in memory: it stops there, and the slicer goes on from there.
_REPEATS: Final = "{0,1000}"
_TEXT: Final = rf'[^"\\]*(?:\\.[^"\\]*){_REPEATS}'


def _up_to(stops: str) -> re.Pattern[bytes]:
    """Up to the next stop outside of text; text that ends inside the chunk is stepped over."""
    plain = rf'[^"\\{stops}]*'
    return re.compile(rf'{plain}(?:(?:"{_TEXT}"|\\.){plain}){_REPEATS}'.encode(), re.DOTALL)


_BETWEEN = re.compile(rb"[ \t\r\n\0,]*")
_TO_BRACKET = _up_to(r"\[\]{}")
_TO_SCALAR_END = _up_to(r",\[\]{} \t\r\n\0")
_TO_QUOTE = re.compile(_TEXT.encode(), re.DOTALL)

_STEPS_MAX: Final = 64
_LEAP_MIN: Final = 1 * limits.KIB
_LEAP_MAX: Final = 64 * limits.KIB
_ESCAPED: Final = (b'\\"', b"\\[", b"\\]", b"\\{", b"\\}")
_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_ALL_BUT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_UP_AND_DOWN: Final = bytes.maketrans(b"[]", b"\x01\xff")
_NESTED: Final = tuple(b"[" * levels + b"]" * levels for levels in (1_024, 64, 8, 1))


class Piece(msgspec.Struct, frozen=True):
    """The bytes of one document; `where` names its place, `is_torn` that the stream ended in it."""

    number: int
    where: str
    data: bytes
    is_torn: bool = False


def iter_elements(
    stream: BinaryIO, *, bytes_max: int = limits.import_line_bytes_max
) -> Iterator[Piece | Skipped]:
    """The elements of the array that the stream holds, or its objects where there is no array.

    An element of more than `bytes_max` is counted as `too_large` and never held; a stream that
    ends inside the array or an element is `torn`; what stands behind the array is `trailing`.
    """
    slicer = _Slicer(bytes_max)
    for chunk in _chunks(stream):
        yield from slicer.feed(chunk)
    yield from slicer.end()


def iter_lines(
    stream: BinaryIO, *, bytes_max: int = limits.import_line_bytes_max
) -> Iterator[Piece | Skipped]:
    """Lines that are not blank, without their ends, a byte order mark or a tail of NULs.

    A line of more than `bytes_max` is counted as `too_large` and never held. `is_torn` marks a
    last line that has no end: its writer may have stopped in the middle.
    """
    pending = _Held(bytes_max)
    number = 1
    for chunk in _chunks(stream):
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            pending.add(part)
            yield from _line(pending, number, is_torn=False)
            number += 1
        pending.add(rest)
    yield from _line(pending, number, is_torn=True)


def _line(pending: _Held, number: int, *, is_torn: bool) -> Iterator[Piece | Skipped]:
    where = f"line {number}"
    data = pending.take()
    if data is None:
        yield Skipped(where, "too_large")
    elif data := data.strip(_SPACE):
        yield Piece(number, where, data, is_torn)


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    """The stream without its byte order mark."""
    first = stream.read(_CHUNK_BYTES)
    while 0 < len(first) < len(_BOM) and (more := stream.read(_CHUNK_BYTES)):
        first += more
    yield first.removeprefix(_BOM)
    while chunk := stream.read(_CHUNK_BYTES):
        yield chunk


class _Held:
    """Bytes that are collected up to a bound; past it only the fact remains."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._bytes_max:
            self._parts.clear()
        elif part:
            self._parts.append(part)

    @property
    def is_empty(self) -> bool:
        return self._size == 0

    def take(self) -> bytes | None:
        """What was collected, or None when it was too much; begins anew."""
        data = None if self._size > self._bytes_max else b"".join(self._parts)
        self._parts, self._size = [], 0
        return data


class _Slicer:
    """Cuts a stream of chunks at the borders of its documents.

    `_depth` counts open brackets below the elements' level; `_is_inside` says that an element has
    begun, `_is_quoted` that its text reaches over the chunk's end. An element is followed bracket
    by bracket at first, and in leaps that double once it turns out to be long.
    """

    def __init__(self, bytes_max: int) -> None:
        self._held = _Held(bytes_max)
        self._number = 0
        self._depth = 0
        self._is_inside = False
        self._is_quoted = False
        self._is_escaped = False
        self._is_scalar = False
        self._array = "unknown"  # unknown → none | open → closed
        self._has_trailing = False

    def feed(self, chunk: bytes) -> Iterator[Piece | Skipped]:
        position = 0
        while position < len(chunk):
            if self._is_inside:
                start, position = position, self._follow(chunk, position)
                self._held.add(chunk[start:position])
                yield from self._given()
            else:
                position = self._begin(chunk, position)

    def _given(self) -> Iterator[Piece | Skipped]:
        """The element, when it has just ended."""
        if not self._is_inside:
            yield self._ended()

    def _follow(self, chunk: bytes, position: int) -> int:
        """How far the element reaches in this chunk; clears `_is_inside` where it ends."""
        steps_left = _STEPS_MAX if position else 0  # it may be long if it came from another chunk
        leap = _LEAP_MIN
        while self._is_inside and position < len(chunk):
            if steps_left:
                steps_left -= 1
                position = self._step(chunk, position)
            elif self._outlasts(chunk[position : position + leap]):
                position = min(position + leap, len(chunk))
                leap = min(2 * leap, _LEAP_MAX)
            elif leap > _LEAP_MIN:
                leap //= 2
            else:
                steps_left = _STEPS_MAX
        return position

    def end(self) -> Iterator[Piece | Skipped]:
        if self._is_inside and self._is_scalar and self._array == "none" and not self._is_quoted:
            self._is_inside = False
            yield self._ended()
        if self._is_inside:
            self._held.take()
            yield Skipped(f"element {self._number}", "torn")
        elif self._array == "open":
            yield Skipped(f"element {self._number + 1}", "torn")
        if self._has_trailing:
            yield Skipped("end", "trailing")

    def _begin(self, chunk: bytes, position: int) -> int:
        """Steps over what separates elements; enters the array or the next element."""
        position = _end(_BETWEEN, chunk, position)
        if position == len(chunk):
            return position
        byte = chunk[position : position + 1]
        if self._array == "closed":
            self._has_trailing = True
            return len(chunk)
        if self._array == "unknown":
            self._array = "open" if byte == b"[" else "none"
            if byte == b"[":
                return position + 1
        elif byte == b"]" and self._array == "open":
            self._array = "closed"
            return position + 1
        self._number += 1
        self._is_inside = True
        self._is_scalar = byte not in b"[{"
        return position

    def _outlasts(self, block: bytes) -> bool:
        """Steps over the block unless the element ends inside it; looks at no byte by itself."""
        if self._is_escaped:
            block = block[1:]
        if self._is_quoted and b'"' not in block:
            self._is_escaped = (len(block) - len(block.rstrip(b"\\"))) % 2 == 1
            return True
        is_escaped = False
        if b"\\" in block:
            block = block.replace(b"\\\\", b"")
            is_escaped = block.endswith(b"\\")
            for pair in _ESCAPED:
                block = block.replace(pair, b"")
        parts = block.replace(b'""', b"").split(b'"')  # nothing stands between these two
        if self._is_scalar:
            if not self._is_quoted or len(parts) > 1:
                return False
        else:
            outside = b"".join(parts[self._is_quoted :: 2])
            brackets = outside.translate(_SQUARE, _ALL_BUT_BRACKETS)
            closed = brackets.count(b"]")
            if closed >= self._depth and _lowest(brackets) + self._depth <= 0:
                return False
            self._depth += len(brackets) - 2 * closed
        self._is_quoted ^= len(parts) % 2 == 0
        self._is_escaped = is_escaped
        return True

    def _step(self, chunk: bytes, position: int) -> int:
        """Through the next bracket, or what stands before it; clears `_is_inside` at the end."""
        if self._is_escaped:
            self._is_escaped = False
            return position + 1
        if self._is_quoted:
            return self._through_text(chunk, position)
        if self._is_scalar:
            return self._through_scalar(chunk, position)
        position = _end(_TO_BRACKET, chunk, position)
        if position == len(chunk):
            return position
        byte = chunk[position]
        if byte in b'"\\':  # what it begins goes on in the next chunk
            self._begin_over(byte)
            return position + 1
        self._depth += 1 if byte in b"[{" else -1
        self._is_inside = self._depth > 0
        return position + 1

    def _begin_over(self, byte: int) -> None:
        self._is_quoted = byte == 0x22
        self._is_escaped = not self._is_quoted

    def _through_text(self, chunk: bytes, position: int) -> int:
        position = _end(_TO_QUOTE, chunk, position)
        if position == len(chunk):
            return position
        self._is_escaped = chunk[position] == 0x5C  # a backslash as the chunk's last byte
        self._is_quoted = self._is_escaped
        return position + 1

    def _through_scalar(self, chunk: bytes, position: int) -> int:
        """A number, a word or a text; a stray closing bracket is taken as one, and is malformed."""
        start, position = position, _end(_TO_SCALAR_END, chunk, position)
        if position == len(chunk):
            return position
        if chunk[position] in b'"\\':
            self._begin_over(chunk[position])
            return position + 1
        self._is_inside = False
        is_stray = position == start and chunk[position] in b"}]" and self._held.is_empty
        return position + 1 if is_stray else position

    def _ended(self) -> Piece | Skipped:
        where = f"element {self._number}"
        data = self._held.take()
        self._depth = 0
        return Skipped(where, "too_large") if data is None else Piece(self._number, where, data)


def _lowest(brackets: bytes) -> int:
    """The lowest depth that the brackets reach, seen from where they begin."""
    for nest in _NESTED:
        for _ in range(16):
            if nest not in brackets:
                break
            brackets = brackets.replace(nest, b"")
    if b"[]" not in brackets:  # what is left closes first, and then opens
        return -brackets.count(b"]")
    steps = memoryview(brackets.translate(_UP_AND_DOWN)).cast("b")
    return min(accumulate(steps))


def _end(pattern: re.Pattern[bytes], chunk: bytes, position: int) -> int:
    found = pattern.match(chunk, position)
    return found.end() if found else position
