"""Text from a memory, a file or a command line, made safe to show.

Content cannot move the cursor, colour or clear a terminal, ring its bell, or reorder what stands
around it: whatever a terminal would obey is shown as its code instead.
"""

from __future__ import annotations

import re
from typing import Final

_OBEYED = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and line feed
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction
    "\u2028\u2029\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb"  # invisible, line ends
    "\U000e0000-\U000e0fff\ud800-\udfff"  # tags; what no encoding holds
)
_UNSAFE: Final = re.compile(f"[{_OBEYED}]")


def visible(text: str) -> str:
    """Text of any number of lines, each of which holds only what it shows."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(_code, text.replace("\r\n", "\n"))


def visible_line(text: str) -> str:
    """The same as one line; runs of white space become one space."""
    return " ".join(visible(text).split())


def visible_json(text: str) -> str:
    """JSON that means the same and obeys the same rule; it loses nothing."""
    if text.isascii() and "\x7f" not in text:  # JSON escapes the other controls itself
        return text
    return _UNSAFE.sub(_json_code, text)


def _code(match: re.Match[str]) -> str:
    number = ord(match[0])
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _json_code(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
