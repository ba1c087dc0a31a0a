"""One document of a file: parsed inside the JSON bounds, and read leniently field by field.

Other programs change their files without notice, so a field of the wrong type counts as absent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import msgspec

from engrain.contracts import limits
from engrain.contracts.errors import EngrainError, InvalidJson, InvalidValue
from engrain.contracts.imports import ImportItem, Skipped, SourceFile
from engrain.contracts.text import cut_text, repair_text
from engrain.formats.json_stream import Piece, iter_elements
from engrain.rules.canonical import read_json

Record = dict[str, Any]

document_nodes_max: Final = 2_000_000
source_id_bytes_max: Final = 256
_NAME_CHARACTERS_MAX: Final = 60

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_YEAR_1_S: Final = -62_135_596_800
_YEAR_10000_S: Final = 253_402_300_800
_MONTHS: Final = [
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
]
_SPOKEN_TIME = re.compile(r"\s*(\d+):(\d\d) ([ap]m) on (\d+) (\w+),? (\d{4})\s*", re.IGNORECASE)


class Document(msgspec.Struct, frozen=True):
    """A parsed JSON object; `is_repaired` says that the text rule had to replace code points."""

    piece: Piece
    record: Record
    is_repaired: bool


def iter_documents(pieces: Iterable[Piece | Skipped], broken: str) -> Iterator[Document | Skipped]:
    """Each piece parsed; one that is no object inside the bounds is counted, never raised.

    `broken` is the word for malformed pieces; empty, it is the error's own code.
    """
    for piece in pieces:
        yield piece if isinstance(piece, Skipped) else _read_document(piece, broken)


def read_elements(
    file: SourceFile, read: Callable[[Document, str], Iterable[ImportItem]]
) -> Iterator[ImportItem]:
    """What `read` makes of each element of a JSON file, with what was skipped in its place.

    `read` also gets the element's place, the id of a conversation that has none of its own: the
    file's name and the element's number, so that two such files are two conversations.
    """
    name = repair_text(file.name)[0][-_NAME_CHARACTERS_MAX:]
    with closing(file.open()) as stream:
        for document in iter_documents(iter_elements(stream), broken=""):
            if isinstance(document, Skipped):
                yield document
            else:
                yield from read(document, f"{name}#{document.piece.number}")


def _read_document(piece: Piece, broken: str) -> Document | Skipped:
    try:
        value, is_repaired = _read_value(piece.data)
    except InvalidJson as error:
        return Skipped(piece.where, "torn" if piece.is_torn else broken or error.code)
    except EngrainError as error:
        return Skipped(piece.where, error.code)
    if not isinstance(value, dict):
        return Skipped(piece.where, "not_an_object")
    return Document(piece, value, is_repaired)


def _read_value(data: bytes) -> tuple[object, bool]:
    """The value and whether its text had to be repaired."""
    read = partial(read_json, data, bytes_max=3 * len(data), nodes_max=document_nodes_max)
    try:
        return read(), False
    except InvalidValue:
        return read(text="repair"), True
    except InvalidJson:
        if _is_utf8(data):
            raise
    return read(text="repair"), True


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


# Fields ------------------------------------------------------------------------------------------


def text_of(value: object) -> str:
    """`value` when it is text, else the empty text."""
    return value if isinstance(value, str) else ""


def record_of(value: object) -> Record:
    """`value` when it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[Any]:
    """`value` when it is an array, else an empty one."""
    return value if isinstance(value, list) else []


def records_of(value: object) -> list[Record]:
    """The objects of an array; whatever else it holds is left out."""
    return [item for item in list_of(value) if isinstance(item, dict)]


def id_of(value: object) -> str:
    """The original id in `value`, or the empty text where there is none that can be kept."""
    text = text_of(value).strip()
    return text if len(text.encode(errors="replace")) <= source_id_bytes_max else ""


def title_of(value: object) -> str | None:
    """A title inside the bound of titles, or None."""
    text = repair_text(text_of(value))[0].strip()
    return cut_text(text, limits.title_bytes_max) or None


def words(parts: Iterable[str]) -> str:
    """The parts that are not blank, as paragraphs."""
    return "\n\n".join(part for part in parts if part.strip())


def arguments_text(value: object) -> str:
    """A tool's arguments as the record takes them: JSON text of an object inside the bounds.

    Text that is such an object stays as it is, blank text says nothing; any other value, and an
    object outside the bounds, becomes the field `input` of one.
    """
    if isinstance(value, str):
        if not value.strip():
            return "{}"
        return value if _is_object_text(value) else _json_text({"input": repair_text(value)[0]})
    text = _json_text(value if isinstance(value, dict) else {"input": value})
    return text if _is_object_text(text) else _json_text({"input": text})


def _json_text(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _is_object_text(text: str) -> bool:
    try:
        return isinstance(read_json(text, bytes_max=limits.import_line_bytes_max), dict)
    except EngrainError:
        return False


# Times -------------------------------------------------------------------------------------------


def micros_of_iso(value: object) -> int | None:
    """UTC microseconds of an ISO 8601 time, one without a zone read as UTC; None if it is none."""
    try:
        return _micros(datetime.fromisoformat(text_of(value)))
    except (ValueError, OverflowError):
        return None


def micros_of_seconds(value: object) -> int | None:
    """UTC microseconds of Unix seconds; None for null and for what no calendar holds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return round(value * 1_000_000) if _YEAR_1_S <= value < _YEAR_10000_S else None


def micros_of_spoken(value: object) -> int | None:
    """UTC microseconds of "1:56 pm on 8 May, 2023", read as UTC; None if it is no such time."""
    found = _SPOKEN_TIME.fullmatch(text_of(value))
    if not found:
        return None
    hour, minute, half, day, month, year = found.groups()
    try:
        month_number = _MONTHS.index(month[:3].lower()) + 1
        hour_of_day = int(hour) % 12 + (12 if half.lower() == "pm" else 0)
        date = datetime(int(year), month_number, int(day), hour_of_day, int(minute), tzinfo=UTC)
    except ValueError:
        return None
    return _micros(date)


def _micros(time: datetime) -> int:
    return ((time if time.tzinfo else time.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
