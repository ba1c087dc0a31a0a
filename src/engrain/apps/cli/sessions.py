"""`engrain sessions`: started, listed, shown, verified, forked and named."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

from cyclopts import App, Parameter
from cyclopts.validators import Number

from engrain.apps.cli.options import (
    DEFAULTS,
    AnyText,
    Flag,
    Options,
    current_directory,
    open_memory,
    scope_of,
)
from engrain.apps.cli.output import Screen, give, give_json, local_time, note

if TYPE_CHECKING:
    from engrain.contracts.events import Erased, Event, StoredEvent
    from engrain.contracts.journal import RecoveryReport
    from engrain.contracts.sessions import Session, SessionPage
    from engrain.contracts.transcript import Verification

app: Final = App(name="sessions", help="Conversations and runs.", help_format="plaintext")
_EVENTS_A_LINE: Final = 256
"""Events in one object of `show --json`: enough to be quick, few enough to stream."""
_TOOL_CHARS: Final = 2_000
"""Most characters of what a tool was given or gave back; people said the rest."""
_OWN: Final = ("speaker", "name", "status", "code", "was", "call_id")


@app.command(name="list")
def list_(
    *,
    all: Flag = False,
    workspace: str | None = None,
    limit: int = 50,
    cursor: AnyText = None,
    options: Options = DEFAULTS,
) -> None:
    """List the sessions of this workspace, most recently opened first.

    The workspace is the current directory, known by its identity and not by its
    path.

    For example:

        $ engrain sessions list
        $ engrain sessions list --all --limit 20
        $ engrain sessions list --workspace default --json

    Parameters
    ----------
    all
        Every session of the user, whatever its workspace.
    workspace
        A workspace by name instead; imported sessions are in `default`.
    limit
        Most sessions to show.
    cursor
        Go on after an earlier page: its `next`.
    """
    with open_memory(options) as memory:
        page = memory.sessions.list(
            scope_of(options),
            workspace=None if all else _or_here(workspace),
            cursor=cursor,
            limit=limit,
        )
    give(page, lambda screen: _show_page(screen, page, is_all=all), is_json=options.json)


@app.command
def show(
    session: UUID,
    /,
    *,
    limit: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    cursor: Annotated[int, Parameter(validator=Number(gte=0))] = 0,
    options: Options = DEFAULTS,
) -> None:
    """Show a session and its events, oldest first, as they are read.

    With --json, long sessions come as several objects, each a page of events.

    For example:

        $ engrain sessions show 0198c0de-0000-7000-8000-000000000000
        $ engrain sessions show 0198c0de-0000-7000-8000-000000000000 --cursor 200

    Parameters
    ----------
    session
        Its id.
    limit
        Most events to show [default: all].
    cursor
        Go on after this event: its number.
    """
    from engrain.contracts.ids import SessionId

    with open_memory(options) as memory:
        scope, wanted = scope_of(options), SessionId(session)
        found = memory.sessions.read(scope, wanted)
        events = memory.sessions.iter_events(scope, wanted, after=cursor, limit=limit)
        if options.json:
            _give_events(found, events)
        else:
            _show_events(Screen(), found, events)


@app.command
def verify(session: UUID, /, *, options: Options = DEFAULTS) -> None:
    """Recompute a session's hash chain; fails at the first link that is wrong.

    For example:

        $ engrain sessions verify 0198c0de-0000-7000-8000-000000000000

    Parameters
    ----------
    session
        Its id.
    """
    from engrain.contracts.ids import SessionId

    with open_memory(options) as memory:
        verified = memory.sessions.verify(scope_of(options), SessionId(session))
    give(verified, lambda screen: _show_verified(screen, verified), is_json=options.json)


@app.command
def fork(
    session: UUID,
    /,
    *,
    through: Annotated[int | None, Parameter(validator=Number(gte=1))] = None,
    title: AnyText = None,
    options: Options = DEFAULTS,
) -> None:
    """Make a new session from the verified beginning of another.

    For example:

        $ engrain sessions fork 0198c0de-0000-7000-8000-000000000000 --title again
        $ engrain sessions fork 0198c0de-0000-7000-8000-000000000000 --through 12

    Parameters
    ----------
    session
        Id of the source.
    through
        Number of the last event to take over; it must end a turn [default: all].
    title
        Name of the new session.
    """
    from engrain.contracts.ids import SessionId

    with open_memory(options) as memory:
        made = memory.sessions.fork(
            scope_of(options), SessionId(session), through=through, title=title
        )
    give(made, lambda screen: show_session(screen, made), is_json=options.json)


@app.command
def recover(
    session: UUID, /, *, accept_unknown_effects: Flag = False, options: Options = DEFAULTS
) -> None:
    """Close the agent turn that a killed process left open. Runs no tool.

    Results that were stored stay as they are; calls that were never started are
    kept as not executed. A call that was started and left no result may have
    had its effect: look up what it did, by its idempotency key, and accept it.

    For example:

        $ engrain sessions recover 0198c0de-0000-7000-8000-000000000000
        $ engrain sessions recover --accept-unknown-effects \\
            0198c0de-0000-7000-8000-000000000000

    Parameters
    ----------
    session
        Its id.
    accept_unknown_effects
        Close it although nobody knows what the calls in doubt did.
    """
    from engrain.contracts.ids import SessionId

    with open_memory(options) as memory:
        report = memory.recovery.recover(
            scope_of(options), SessionId(session), accept_unknown_effects=accept_unknown_effects
        )
    give(report, lambda screen: _show_recovered(screen, report), is_json=options.json)


@app.command
def title(session: UUID, title: str, /, *, options: Options = DEFAULTS) -> None:
    """Name a session anew.

    For example:

        $ engrain sessions title 0198c0de-0000-7000-8000-000000000000 Porto

    Parameters
    ----------
    session
        Its id.
    title
        The new name.
    """
    from engrain.contracts.ids import SessionId

    with open_memory(options) as memory:
        named = memory.sessions.set_title(scope_of(options), SessionId(session), title)
    give(named, lambda screen: show_session(screen, named), is_json=options.json)


@app.command
def start(
    *,
    title: AnyText = None,
    workspace: str | None = None,
    options: Options = DEFAULTS,
) -> None:
    """Start an empty session in this workspace; its id is printed once it is durable.

    For example:

        $ engrain sessions start --title "trip"
        $ engrain sessions start --workspace support --json

    Parameters
    ----------
    title
        Its name.
    workspace
        A workspace by name [default: the current directory].
    """
    with open_memory(options) as memory:
        started = memory.sessions.start(
            scope_of(options), title=title, workspace=_or_here(workspace)
        )
    give(started, lambda screen: show_session(screen, started), is_json=options.json)


def _or_here(workspace: str | None) -> str | Path:
    return current_directory() if workspace is None else workspace


def _show_page(screen: Screen, page: SessionPage, *, is_all: bool) -> None:
    if not page.items:
        note("no sessions" if is_all else "no sessions in this workspace; --all shows the others")
        return
    rows = [
        (str(one.id), one.title or "-", f"{one.event_count:,}", local_time(one.opened_at))
        for one in page.items
    ]
    screen.table(("=Session", "Title", ">Events", "=Opened"), rows)
    if page.next is not None:
        note(f"more: --cursor {page.next}")


def show_session(screen: Screen, session: Session) -> None:
    """What a session is, without its events."""
    pairs = [
        ("session", str(session.id)),
        ("title", session.title or "-"),
        ("workspace", session.workspace.name),
        ("events", f"{session.event_count:,}"),
        ("created", local_time(session.created_at)),
        ("opened", local_time(session.opened_at)),
    ]
    if session.forked_from is not None:
        origin = session.forked_from
        pairs.append(("forked from", f"{origin.session_id} after event {origin.sequence:,}"))
    screen.facts(pairs)


def _show_recovered(screen: Screen, report: RecoveryReport) -> None:
    if report.turn is None:
        note("no turn was open; there is nothing to recover")
        return
    outcomes = {
        "completed": report.completed,
        "not executed": report.not_executed,
        "unknown effect": report.unknown_effects,
    }
    pairs = [("turn", f"#{report.turn}, closed as interrupted")]
    pairs += [(what, ", ".join(calls)) for what, calls in outcomes.items() if calls]
    screen.facts(pairs)


def _show_verified(screen: Screen, verified: Verification) -> None:
    screen.facts(
        [
            ("verified", f"{verified.event_count:,} events, {verified.erased:,} erased"),
            ("link", verified.link),
        ]
    )


def _give_events(session: Session, events: Iterator[StoredEvent]) -> None:
    """Pages of events; each names the session, and in `next` where the one after it begins."""
    page = list(islice(events, _EVENTS_A_LINE))
    while True:
        following = list(islice(events, _EVENTS_A_LINE))
        last = page[-1].sequence if page else session.event_count
        more = str(last) if last < session.event_count else None
        give_json({"session": session, "items": page, "next": more})
        if not following:
            return
        page = following


def _show_events(screen: Screen, session: Session, events: Iterator[StoredEvent]) -> None:
    show_session(screen, session)
    last = session.event_count
    for stored in events:
        screen.line()
        screen.line(_heading(stored))
        if words := _words(stored.event):
            screen.text(words, indent="    ")
        last = stored.sequence
    if last < session.event_count:
        note(f"more: --cursor {last}")


def _heading(stored: StoredEvent) -> str:
    """Number, kind, time, who spoke, and what else the kind has, without the words."""
    event = stored.event
    at = stored.recorded_at if event.occurred_at is None else event.occurred_at
    when = local_time(at)
    own = [str(getattr(event, name, "") or "") for name in _OWN]
    kind = str(event.__struct_config__.tag)
    return " · ".join([f"#{stored.sequence}", when, kind, *filter(None, own)])


def _words(event: Event | Erased) -> str:
    """What was said, or what a tool was given or gave back, which may be a whole file."""
    kind = event.__struct_config__.tag
    if kind == "tool_call":
        return _beginning("\n".join(filter(None, (event.text, getattr(event, "arguments", "")))))
    return _beginning(event.text) if kind == "tool_result" else event.text


def _beginning(text: str) -> str:
    left_out = len(text) - _TOOL_CHARS
    if left_out <= 0:
        return text
    return f"{text[:_TOOL_CHARS]}…\n({left_out:,} more characters; --json shows them)"
