"""`engrain import`: other programs' conversations come in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from engrain.apps.cli.errors import ExitCode, Halted, Interrupted
from engrain.apps.cli.options import DEFAULTS, Options, open_memory, scope_of
from engrain.apps.cli.output import Screen, give
from engrain.apps.cli.progress import Bar

if TYPE_CHECKING:
    from engrain.contracts.imports import ImportReport

Format = Literal["auto", "archive", "claude_code", "claude", "chatgpt", "locomo"]


def import_(
    path: str,
    /,
    *,
    format: Format = "auto",
    workspace: str | None = None,
    options: Options = DEFAULTS,
) -> int:
    """Bring conversations in: a file, a folder or a zip.

    Reads Claude.ai and ChatGPT exports, Claude Code transcripts, LoCoMo, and
    Engrain's own archive. The same path again changes nothing, a grown one adds
    what is new, and an import that was killed goes on where it stopped. Exits
    with 3 when something in it was broken and had to be left out.

    For example:

        $ engrain import ~/Downloads/claude-export.zip
        $ engrain import ~/.claude/projects --format claude_code
        $ engrain import team.jsonl --user ana --db postgresql://localhost/engrain

    Parameters
    ----------
    path
        File, folder or zip to read.
    format
        How it is written; `auto` finds out.
    workspace
        Name of the workspace that new sessions belong to [default: default].
    """
    from engrain.contracts.errors import EngrainError, NotFound, Refused
    from engrain.contracts.imports import ImportReport

    report = ImportReport()
    with open_memory(options) as memory, Bar(is_quiet=options.json) as bar:
        try:
            memory.imports.run(
                scope_of(options),
                path,
                format=format,
                workspace=memory.sessions.workspace(workspace),
                progress=bar,
                report=report,
            )
        except KeyboardInterrupt:
            raise Interrupted(_done_so_far(report), report=report) from None
        except (NotFound, Refused):  # the path is wrong: nothing of it was read
            raise
        except EngrainError as error:
            raise Halted(error, _done_so_far(report), report=report) from error
    give(report, lambda screen: _show(screen, path, report), is_json=options.json)
    return _exit_code(report)


def _exit_code(report: ImportReport) -> ExitCode:
    if report.is_whole:
        return ExitCode.DONE
    return ExitCode.FAILED if report.is_empty_handed else ExitCode.PARTIAL


def _done_so_far(report: ImportReport) -> str:
    return (
        f"{report.sessions_new:,} new sessions and {report.events_new:,} new events are kept; "
        "the same command again is safe and goes on from there"
    )


def _show(screen: Screen, path: str, report: ImportReport) -> None:
    pairs = [
        ("imported", path),
        ("files", f"{report.files:,}{_words(report.formats)}"),
        ("sessions", f"{report.sessions_new:,} new, {report.sessions_known:,} known"),
        ("events", f"{report.events_new:,} new, {report.events_known:,} known"),
        ("episodes", f"{report.episodes_new:,} new"),
        ("repaired", f"{report.events_repaired:,} events with characters that no text may hold"),
        ("skipped", f"{sum(report.skipped.values()):,}{_words(report.skipped)}"),
    ]
    optional = {"repaired": report.events_repaired, "skipped": len(report.skipped)}
    screen.facts([pair for pair in pairs if optional.get(pair[0], 1)])
    if report.places:
        screen.line()
        rows = [(place.file, place.where, place.why) for place in report.places]
        screen.table(("File", "=Where", "=Damage"), rows)
    if report.failed:
        screen.line()
        screen.table(("File", "=Could not be read"), report.failed)


def _words(counts: Mapping[str, int]) -> str:
    """ " (branch 3, torn 1)", or nothing."""
    inside = ", ".join(f"{word} {count:,}" for word, count in sorted(counts.items()))
    return f" ({inside})" if inside else ""
