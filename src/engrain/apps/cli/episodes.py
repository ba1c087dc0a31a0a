"""`engrain episodes`: the pieces that recall is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

from cyclopts import App, Parameter

from engrain.apps.cli.errors import ExitCode
from engrain.apps.cli.options import DEFAULTS, AnyText, Options, open_memory, scope_of
from engrain.apps.cli.output import Screen, give, local_time, note

if TYPE_CHECKING:
    from engrain.contracts.episodes import Episode, EpisodePage
    from engrain.services.enrichment import ExtractionReport

app: Final = App(name="episodes", help="Pieces of what happened.", help_format="plaintext")


@app.command(name="list")
def list_(
    *,
    session: UUID | None = None,
    limit: int = 50,
    cursor: AnyText = None,
    options: Options = DEFAULTS,
) -> None:
    """List episodes in the order in which they were kept.

    For example:

        $ engrain episodes list --session 0198c0de-0000-7000-8000-000000000000
        $ engrain episodes list --limit 200 --json

    Parameters
    ----------
    session
        Only those of this session.
    limit
        Most episodes to show.
    cursor
        Go on after an earlier page: its `next`.
    """
    from engrain.contracts.ids import SessionId

    with open_memory(options) as memory:
        page = memory.episodes.list(
            scope_of(options),
            session_id=None if session is None else SessionId(session),
            cursor=cursor,
            limit=limit,
        )
    give(page, lambda screen: _show_page(screen, page), is_json=options.json)


@app.command
def show(episode: UUID, /, *, options: Options = DEFAULTS) -> None:
    """Show one episode whole, with its source.

    For example:

        $ engrain episodes show 0198c0de-0000-8000-8000-000000000000

    Parameters
    ----------
    episode
        Its id.
    """
    from engrain.contracts.ids import EpisodeId

    with open_memory(options) as memory:
        found = memory.episodes.read(scope_of(options), EpisodeId(episode))
    give(found, lambda screen: _show_one(screen, found), is_json=options.json)


@app.command
def extract(session: UUID, /, *, options: Options = DEFAULTS) -> None:
    """Make episodes of what a session holds and that has none yet.

    An import does this by itself. Doing it twice changes nothing.

    For example:

        $ engrain episodes extract 0198c0de-0000-7000-8000-000000000000

    Parameters
    ----------
    session
        Its id.
    """
    from engrain.contracts.ids import SessionId

    with open_memory(options) as memory:
        report = memory.enrichment.extract(scope_of(options), SessionId(session))
    give(report, lambda screen: _show_report(screen, report), is_json=options.json)


@app.command
def forget(
    *episode: Annotated[UUID, Parameter(required=True)], options: Options = DEFAULTS
) -> ExitCode:
    """Forget episodes for ever: neither search nor recall finds them again.

    Their ids never come back. The events that they were made of stay in their
    sessions. Exits with 3 when some of several were not there.

    For example:

        $ engrain episodes forget 0198c0de-0000-8000-8000-000000000000

    Parameters
    ----------
    episode
        Its id; several may be given.
    """
    from engrain.contracts.errors import NotFound
    from engrain.contracts.ids import EpisodeId

    ids = list(dict.fromkeys(map(EpisodeId, episode)))
    with open_memory(options) as memory:
        count = memory.episodes.tombstone(scope_of(options), ids)
    if not count:
        raise NotFound("episode", ", ".join(map(str, ids)))
    missing = len(ids) - count
    said = f"forgot {count:,}" + (f", {missing:,} not found" if missing else "")
    give({"forgotten": count}, lambda screen: screen.line(said), is_json=options.json)
    return ExitCode.PARTIAL if missing else ExitCode.DONE


def _show_page(screen: Screen, page: EpisodePage) -> None:
    if not page.items:
        note("no episodes")
        return
    rows = [(str(one.id), local_time(one.occurred_from), one.text) for one in page.items]
    screen.table(("=Episode", "=When", "Text"), rows)
    if page.next is not None:
        note(f"more: --cursor {page.next}")


def _show_one(screen: Screen, episode: Episode) -> None:
    screen.facts(
        [
            ("episode", str(episode.id)),
            ("session", str(episode.session_id)),
            ("events", f"{episode.first_sequence} to {episode.last_sequence}"),
            ("happened", local_time(episode.occurred_from)),
            ("kept", local_time(episode.recorded_at)),
            ("speaker", episode.speaker or "-"),
            ("origin", episode.origin),
            ("sensitivity", episode.sensitivity.name.lower()),
            ("tokens", f"{episode.tokens:,}"),
        ]
    )
    screen.line()
    screen.text(episode.text, indent="    ")


def _show_report(screen: Screen, report: ExtractionReport) -> None:
    screen.facts(
        [
            ("events read", f"{report.events_read:,}"),
            ("episodes", f"{report.written:,} new, {report.known:,} known"),
            ("forgotten", f"{report.tombstoned:,} stay so"),
        ]
    )
