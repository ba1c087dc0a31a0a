"""Recall: what a turn calls to mind, framed as data, under one exact token budget."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from engrain.contracts import limits
from engrain.contracts.arguments import require_whole
from engrain.contracts.episodes import EpisodeStore, Hit
from engrain.contracts.errors import InvalidValue
from engrain.contracts.events import Recall as RecallEvent
from engrain.contracts.recall import (
    FramedItem,
    Omission,
    RecallBlock,
    RecallItem,
    TokenCounter,
)
from engrain.contracts.scope import Scope
from engrain.contracts.text import repair_text
from engrain.rules.budget import Candidate, estimate_tokens, fill
from engrain.rules.framing import frame, frame_head, frame_item, frame_tail
from engrain.rules.twins import Wording

if TYPE_CHECKING:
    from engrain.services.sessions import SessionWriter

CANDIDATES_MAX = 100
# Letters of one cost, so that what fits a budget is no matter of chance; without vowels no words.
_NONCE_LETTERS = "bcdfghjklmnpqrstvwxz"
_NONCE_LENGTH = 12
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Recall:
    """`memory.recall`: call it with a scope and a turn."""

    def __init__(self, episodes: EpisodeStore) -> None:
        self._episodes = episodes

    def __call__(
        self,
        scope: Scope,
        turn: str,
        *,
        budget_tokens: int,
        session: SessionWriter | None = None,
        counter: TokenCounter = estimate_tokens,
    ) -> RecallBlock:
        """The block for `turn`: framed, and never above the budget by `counter`'s own count.

        Any text is a turn, none is a syntax error; at a budget too small for one item the block is
        empty. With `session`, what was given is recorded there as a `recall` event, so that it is
        never learned again as fresh evidence.
        """
        require_whole(budget_tokens, "budget_tokens")
        if not isinstance(turn, str):
            raise InvalidValue("turn", "must be text")
        if session is not None:
            _check_session(session, scope)
        asked = repair_text(turn)[0][: limits.query_bytes_max // 4]
        hits = self._episodes.search(scope, asked, limit=CANDIDATES_MAX, with_neighbours=True)
        distinct = _without_near_duplicates(hits)
        block = _fill(distinct, budget_tokens, _checked(counter))
        if merged := len(hits) - len(distinct):
            block = _with_omission(block, Omission("near_duplicate", merged))
        if session is not None and block.items:
            session.append((_recorded(block),))
        return block


def _check_session(session: SessionWriter, scope: Scope) -> None:
    if not hasattr(session, "scope"):
        raise InvalidValue("session", "must be the writer that sessions.lease gave")
    if session.scope != scope:
        raise InvalidValue("session", "belongs to another scope")


def _checked(counter: TokenCounter) -> TokenCounter:
    """The counter, refused where it gives no number."""
    if not callable(counter):
        raise InvalidValue("counter", "must be callable: text to its number of tokens")

    def count(text: str) -> int:
        found = counter(text)
        if not hasattr(found, "__float__"):
            raise InvalidValue("counter", "must give a number of tokens")
        return found

    return counter if counter is estimate_tokens else count


def _fill(hits: Sequence[Hit], budget_tokens: int, counter: TokenCounter) -> RecallBlock:
    nonce = "".join(secrets.choice(_NONCE_LETTERS) for _ in range(_NONCE_LENGTH))
    candidates = [_candidate(position, hit) for position, hit in enumerate(hits)]
    filling = fill(
        candidates,
        budget_tokens,
        render=_renderer(nonce),
        counter=counter,
        overhead_tokens=counter(frame_head(nonce) + frame_tail(nonce)),
    )
    items = tuple(_item(hits[chosen.position], chosen.tokens) for chosen in filling.chosen)
    return RecallBlock(
        text=filling.text,
        items=items,
        tokens=filling.tokens,
        budget_tokens=budget_tokens,
        left_out=filling.left_out,
    )


def _renderer(nonce: str) -> Callable[[Sequence[FramedItem]], str]:
    return lambda items: frame(items, nonce)


def _candidate(position: int, hit: Hit) -> Candidate:
    framed = FramedItem(heading=heading_of(hit), text=hit.episode.text)
    return Candidate(
        position=position,
        tokens=estimate_tokens(frame_item(1, framed)),
        group=hit.episode.session_id,
        framed=framed,
    )


def heading_of(hit: Hit) -> str:
    """When it happened (UTC, as far as the source says) and who spoke."""
    episode = hit.episode
    speaker = f" {episode.speaker}" if episode.speaker else ""
    return f"{_day_of(episode.occurred_from)}{speaker}"


def _day_of(time_us: int | None) -> str:
    """The UTC day; a time that no calendar holds is no date."""
    if time_us is None:
        return "undated"
    try:
        return (_EPOCH + timedelta(microseconds=time_us)).date().isoformat()
    except OverflowError:
        return "undated"


def _item(hit: Hit, tokens: int) -> RecallItem:
    return RecallItem(
        episode=hit.episode,
        score=hit.score,
        tokens=tokens,
        reasons=hit.reasons,
        sources=hit.sources,
    )


def _without_near_duplicates(hits: Sequence[Hit]) -> list[Hit]:
    kept: list[tuple[Hit, Wording]] = []
    for hit in hits:
        wording = Wording(hit.episode.text, hit.episode.speaker)
        if not any(wording.is_near(other) for _, other in kept):
            kept.append((hit, wording))
    return [hit for hit, _ in kept]


def _with_omission(block: RecallBlock, omission: Omission) -> RecallBlock:
    return RecallBlock(
        text=block.text,
        items=block.items,
        tokens=block.tokens,
        budget_tokens=block.budget_tokens,
        left_out=(*block.left_out, omission),
    )


def _recorded(block: RecallBlock) -> RecallEvent:
    return RecallEvent(
        text=block.text,
        episode_ids=tuple(str(item.episode.id) for item in block.items),
        tokens=block.tokens,
    )
