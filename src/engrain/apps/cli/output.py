"""What a command says: one JSON object a line for programs, tables for people.

Results go to standard output, errors and progress to standard error. Every word passes
`escaping` on its way; nothing is ever read as markup.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, TextIO

import msgspec

from engrain.apps.cli.escaping import visible, visible_json, visible_line

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_UNWRAPPED: Final = 1 << 14
"""Width of a table that goes to a file or a pipe: lines there are for programs to cut."""
_COLUMN_LEAST: Final = 12
"""A column of words that gets less room than this cannot be read."""
_GAP: Final = 2
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Screen:
    """Draws for people on standard output."""

    def __init__(self) -> None:
        self._drawn: Console | None = None

    @property
    def _console(self) -> Console:
        if self._drawn is None:
            self._drawn = _open_console(sys.stdout)
        return self._drawn

    def line(self, text: str = "") -> None:
        """One line, wrapped by the terminal alone."""
        _write(sys.stdout, visible_line(text) + "\n")

    def text(self, text: str, *, indent: str = "") -> None:
        """Lines as they are; none of them can pretend to stand outside of the indentation."""
        for line in visible(text).split("\n"):
            _write(sys.stdout, f"{indent}{line}\n" if line else "\n")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Rows under their headings. A column named `=x` never wraps, `>x` stands right.

        Where that needs more room than there is, each row is a list of facts: no id is cut.
        """
        from rich import box
        from rich.table import Table
        from rich.text import Text

        if _least_width(columns, rows) > self._console.width:
            self._list_rows(columns, rows)
            return
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
        for column in columns:
            table.add_column(
                Text(column.lstrip("=>")),
                no_wrap=column[0] in "=>",
                justify="right" if column[0] == ">" else "left",
                overflow="fold",
            )
        for row in rows:
            table.add_row(*(Text(visible_line(cell)) for cell in row))
        self._draw(table)

    def facts(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Names and what they stand for, one a line, in two columns where no word is cut by it."""
        from rich.table import Table
        from rich.text import Text

        shown = [(name, visible_line(value)) for name, value in pairs]
        room = self._console.width - _GAP - max(len(name) for name, _ in shown)
        if max(_longest_word(value) for _, value in shown) > room:
            self._list_facts(shown)
            return
        grid = Table.grid(padding=(0, _GAP, 0, 0))
        grid.add_column(no_wrap=True, style="bold")
        grid.add_column(overflow="fold")
        for name, value in shown:
            grid.add_row(Text(name), Text(value))
        self._draw(grid)

    def _list_rows(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        names = [column.lstrip("=>") for column in columns]
        for position, row in enumerate(rows):
            if position:
                self.line()
            self._list_facts(list(zip(names, map(visible_line, row), strict=True)))

    def _list_facts(self, pairs: Sequence[tuple[str, str]]) -> None:
        """`name: value`, wrapped between words; a word that is wider than the terminal stays whole.

        The terminal breaks such a word itself, and copies it as one.
        """
        from rich.text import Text

        for name, value in pairs:
            head, *rest = _wrapped(f"{name}:", value, self._console.width)
            line = Text(head)
            line.stylize("bold", 0, len(name) + 1)
            self._draw(Text("\n").join([line, *map(Text, rest)]), is_wrapped=True)

    def _draw(self, drawing: RenderableType, *, is_wrapped: bool = False) -> None:
        """Without the white space that fills a last column."""
        with self._console.capture() as drawn:
            self._console.print(drawing, soft_wrap=is_wrapped)
        for line in drawn.get().splitlines():
            _write(sys.stdout, line.rstrip() + "\n")


def give(value: object, show: Callable[[Screen], None], *, is_json: bool) -> None:
    """The result: `value` as one line of JSON, or what `show` draws of it."""
    if is_json:
        give_json(value)
    else:
        show(Screen())


def give_json(value: object) -> None:
    """One object as one line on standard output, at once, so that a stream is one."""
    _write(sys.stdout, _encode(value) + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """A line for people below the result, on standard error."""
    sys.stdout.flush()
    _say(text)


def complain(facts: dict[str, object], *, is_json: bool, trace: str | None = None) -> None:
    """One error on standard error: an object, or a sentence with its code."""
    if is_json:
        _write(sys.stderr, _encode(facts if trace is None else facts | {"trace": trace}) + "\n")
        return
    _say(f"engrain: {facts['message']} [{facts['code']}]")
    if isinstance(wait_s := facts.get("retry_after_s"), int | float):
        _say(f"try again in {wait_s:.1f} s")
    if trace is not None:
        _write(sys.stderr, visible(trace))


def _say(text: str) -> None:
    _write(sys.stderr, visible_line(text) + "\n")


def is_terminal(stream: TextIO) -> bool:
    """True when a person sees it as it comes."""
    return stream.isatty()


def local_time(at_us: int | None) -> str:
    """Local date and time to the minute, its zone named; a dash for none.

    At the calendar's ends, where a zone could lead out of it, UTC.
    """
    if at_us is None:
        return "-"
    try:
        moment = _EPOCH + timedelta(microseconds=at_us)
    except OverflowError:
        return "time unknown"
    with suppress(OverflowError, ValueError, OSError):
        moment = moment.astimezone()
    return f"{moment.year:04}-{moment:%m-%d %H:%M %Z}"


def survive_closed_streams() -> None:
    """Gives a stream that was closed before the start (`>&-`) the null device.

    Otherwise the next file that is opened, a database's lock say, would take its number.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is not None:
            continue
        null = os.open(os.devnull, os.O_RDWR)
        if null != number:
            os.dup2(null, number)
            os.close(null)
        stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)


def discard_results() -> None:
    """What standard output could not take goes nowhere, or Python tries again as it ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def survive_any_text() -> None:
    """Lets both streams write what their encoding cannot: as a code, never as an exception."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _open_console(stream: TextIO) -> Console:
    from rich.console import Console

    return Console(
        file=stream,
        width=None if is_terminal(stream) else _UNWRAPPED,
        markup=False,
        emoji=False,
        highlight=False,
        force_terminal=None if is_terminal(stream) else False,
    )


def _least_width(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """What a table needs so that no cell that may not wrap is cut, and the others can be read."""
    from rich.cells import cell_len

    names = [column.lstrip("=>") for column in columns]
    cells = zip(names, *rows, strict=True)
    widest = [[cell_len(visible_line(cell)) for cell in column] for column in cells]
    needed = [
        max(lengths) if column[0] in "=>" else min(max(lengths), _COLUMN_LEAST)
        for column, lengths in zip(columns, widest, strict=True)
    ]
    return sum(needed) + _GAP * (len(columns) - 1)


def _longest_word(text: str) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, text.split()), default=0)


def _wrapped(head: str, text: str, width: int) -> list[str]:
    """Lines between whose words the breaks are; a word that is too wide has its own, whole."""
    from rich.cells import cell_len

    lines = [head]
    for word in text.split():
        if cell_len(lines[-1]) + 1 + cell_len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _encode(value: object) -> str:
    try:
        return visible_json(msgspec.json.encode(value, enc_hook=str).decode())
    except UnicodeEncodeError:  # a file name that is no text
        return json.dumps(msgspec.to_builtins(value, enc_hook=str))


def _write(stream: TextIO, text: str) -> None:
    stream.write(text)
