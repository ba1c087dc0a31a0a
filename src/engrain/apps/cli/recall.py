"""`engrain recall` and `engrain search`: what the memory holds on a question."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from engrain.apps.cli.options import DEFAULTS, Flag, Options, open_memory, scope_of
from engrain.apps.cli.output import Screen, give, local_time, note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engrain.contracts.episodes import Episode, Hit
    from engrain.contracts.recall import RecallBlock

_SNIPPET_CHARS: Final = 240


def recall(
    question: str,
    /,
    *,
    budget: int = 800,
    explain: Flag = False,
    options: Options = DEFAULTS,
) -> None:
    """What a question calls to mind, framed as data and never above the budget.

    The block goes to standard output as it is meant for a model. Any text is a
    question, none is a syntax error.

    For example:

        $ engrain recall "what did I decide about the database?" --budget 800
        $ engrain recall "where does she live?" --explain
        $ engrain recall "onde mora a Ana?" --json

    Parameters
    ----------
    question
        The turn to recall for, in any words.
    budget
        Most tokens that the whole block may cost, its frame included.
    explain
        Say why each item is there, what it cost, and what was left out.
    """
    with open_memory(options) as memory:
        block = memory.recall(scope_of(options), question, budget_tokens=budget)
    give(block, lambda screen: _show_block(screen, block, explain), is_json=options.json)


def search(
    query: str,
    /,
    *,
    limit: int = 20,
    options: Options = DEFAULTS,
) -> None:
    """Find episodes by their words, best first.

    For example:

        $ engrain search porto
        $ engrain search "ceramics shop" --limit 5 --json

    Parameters
    ----------
    query
        Words to look for; any text is a query.
    limit
        Most hits to show.
    """
    with open_memory(options) as memory:
        hits = memory.episodes.search(scope_of(options), query, limit=limit)
    page = {"items": hits, "next": None}
    give(page, lambda screen: _show_hits(screen, hits), is_json=options.json)


def _show_block(screen: Screen, block: RecallBlock, explain: bool) -> None:
    if block.text:
        screen.text(block.text)
    else:
        note(_why_empty(block))
    if explain:
        _explain(screen, block)


def _why_empty(block: RecallBlock) -> str:
    """Nothing that matches is another thing than nothing that fits."""
    matched = sum(one.count for one in block.left_out)
    if not matched:
        return "nothing was recalled: no episode matches"
    found = "1 episode matches" if matched == 1 else f"{matched:,} episodes match"
    return f"nothing was recalled: {found}, none fits {block.budget_tokens:,} tokens (--budget)"


def _explain(screen: Screen, block: RecallBlock) -> None:
    rows = [
        (
            str(number),
            f"{item.score:.2f}",
            str(item.tokens),
            local_time(item.episode.occurred_from),
            _source(item.episode),
            f"{', '.join(item.reasons)}{_also_said(len(item.sources))}",
        )
        for number, item in enumerate(block.items, 1)
    ]
    if not rows and not block.left_out:
        return
    if rows:
        screen.line()
        screen.table((">#", ">Score", ">Tokens", "=When", "=Session and events", "Why"), rows)
    left_out = ", ".join(f"{one.count:,} {one.reason}" for one in block.left_out) or "nothing"
    if rows:
        screen.line()
    screen.facts(
        [
            ("spent", f"{block.tokens:,} of {block.budget_tokens:,} tokens"),
            ("left out", left_out),
        ]
    )


def _show_hits(screen: Screen, hits: Sequence[Hit]) -> None:
    if not hits:
        note("nothing was found")
    for position, hit in enumerate(hits):
        if position:
            screen.line()
        episode = hit.episode
        speaker = f" · {episode.speaker}" if episode.speaker else ""
        when = local_time(episode.occurred_from)
        also = _also_said(len(hit.sources))
        screen.line(f"{hit.score:.2f} · {when}{speaker} · {_source(episode)}{also}")
        screen.text(_snippet(episode.text), indent="    ")


def _source(episode: Episode) -> str:
    first, last = episode.first_sequence, episode.last_sequence
    events = f"#{first}" if first == last else f"#{first}-{last}"
    return f"{episode.session_id} {events}"


def _also_said(sources: int) -> str:
    return f" (said {sources:,} times)" if sources > 1 else ""


def _snippet(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _SNIPPET_CHARS else words[: _SNIPPET_CHARS - 1].rstrip() + "…"
