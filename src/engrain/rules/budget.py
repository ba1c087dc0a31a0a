"""One token budget for a whole block: estimates, and which candidates fit (INV-22).

Owns the estimate that is stored with an episode and the choice under a budget. Knows nothing of
how a block looks: it is rendered and counted by what the caller hands in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from engrain.contracts.recall import FramedItem, Omission, TokenCounter

Render = Callable[[Sequence[FramedItem]], str]

SHARE_MAX: Final = 0.5
_ROUNDS_MAX: Final = 3

# Tokens of one character by class, in hundredths. Sums of such costs, rounded up, are subadditive.
# Against cl100k, o200k and Claude's published tokenizer no turn of 600 English ones came out below
# the real count, all of them together at 1.4 times it; random letters and digests come out below.
_COSTS: Final[tuple[tuple[int, bytes], ...]] = (
    (30, b"abcdefghijklmnopqrstuvwxyz"),
    (50, b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    (80, b"0123456789"),
    (15, b" "),
)
_OTHER_ASCII: Final = 100
_LEADS: Final[tuple[tuple[int, bytes], ...]] = (
    (100, bytes(range(0xC2, 0xE0))),
    (200, b"\xe0"),  # Thai, Lao and the scripts of India
    (150, bytes(range(0xE1, 0xF0))),
    (300, bytes(range(0xF0, 0xF5))),
)
_TRAILING: Final = bytes(range(0x80, 0xC0))


def estimate_tokens(text: str) -> int:
    """Tokens that `text` costs a model at most, for common tokenizers and ordinary text.

    A sum over characters, so that a joined text never costs more than its parts: the estimate of
    a + b is at most that of a plus that of b. Nothing else may be read from the number.
    """
    rest = text.encode(errors="surrogatepass")
    cost = 0
    for each, members in _COSTS:
        left = rest.translate(None, members)
        cost += each * (len(rest) - len(left))
        rest = left
    if not rest.isascii():
        rest = rest.translate(None, _TRAILING)
        for each, members in _LEADS:
            left = rest.translate(None, members)
            cost += each * (len(rest) - len(left))
            rest = left
    cost += _OTHER_ASCII * len(rest)
    return -(-cost // 100)


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """Something that may go into a block: what it shows, what it should cost, whose it is.

    `position` is the caller's name for it; `group` is the session or source whose share of the
    block is bounded.
    """

    position: int
    tokens: int
    group: object
    framed: FramedItem


class Filling(msgspec.Struct, frozen=True, kw_only=True):
    """The block's text, its exact cost, what is in it, and what is not and why."""

    text: str
    tokens: int
    chosen: tuple[Candidate, ...]
    left_out: tuple[Omission, ...]


def fill(
    candidates: Sequence[Candidate],
    budget_tokens: int,
    render: Render,
    counter: TokenCounter,
    *,
    overhead_tokens: int = 0,
    share_max: float = SHARE_MAX,
) -> Filling:
    """The best first candidates whose rendered block costs at most `budget_tokens`, exactly.

    Whatever the counter says, `counter(text) <= budget_tokens`, or the text is empty and costs 0
    (INV-22). Costs of candidates only guide the choice, corrected by each exact count. One too
    large is skipped for smaller ones after it. Where several groups compete, none gets more than
    `share_max` of the budget by those costs, save that a group may always place one.
    `overhead_tokens` is what the block costs beside its candidates: a good guess saves counts.
    What the counter raises goes through.
    """
    choice = _Choice(candidates, budget_tokens, share_max, overhead_tokens)
    for _ in range(_ROUNDS_MAX):
        extra = choice.pick_more()
        if not extra or not _settle(choice, extra, render, counter):
            break
    return choice.filling()


def _settle(choice: _Choice, extra: list[int], render: Render, counter: TokenCounter) -> bool:
    """Keeps as much of `extra` as fits by exact count, dropping from its end; false if none."""
    while extra:
        trial = sorted([*choice.chosen, *extra])
        text = render([choice.candidates[i].framed for i in trial])
        tokens = counter(text)
        if tokens <= choice.budget:
            choice.keep(trial, text, tokens)
            return True
        choice.learn(trial, tokens)
        _drop_excess(choice, extra, tokens - choice.budget)
    return False


def _drop_excess(choice: _Choice, extra: list[int], excess: int) -> None:
    """One at least, whatever the excess: a counter may answer what is no number (NaN)."""
    excess -= max(1, choice.cost(extra.pop()))
    while extra and excess > 0:
        excess -= max(1, choice.cost(extra.pop()))


class _Choice:
    """What is chosen so far, what it costs exactly, and how far stored costs are off."""

    def __init__(
        self, candidates: Sequence[Candidate], budget: int, share_max: float, overhead: int
    ) -> None:
        self.candidates = candidates
        self.budget = budget
        self.chosen: list[int] = []
        self._text = ""
        self._tokens = 0
        self._overhead = overhead
        self._scale = 1.0
        has_rivals = len({candidate.group for candidate in candidates}) > 1
        self._share = budget * share_max if has_rivals else float(budget)
        self._over_share: set[int] = set()

    def cost(self, index: int) -> int:
        return int(self.candidates[index].tokens * self._scale)

    def pick_more(self) -> list[int]:
        """Candidates, best first, that should fit beside those chosen."""
        room = self.budget - (self._tokens if self.chosen else self._overhead)
        spent = self._spent_by_group()
        taken = set(self.chosen)
        extra: list[int] = []
        self._over_share.clear()
        for index, candidate in enumerate(self.candidates):
            cost = self.cost(index)
            if index in taken or cost > room:
                continue
            before = spent.get(candidate.group)
            if before is not None and before + cost > self._share:
                self._over_share.add(index)
                continue
            spent[candidate.group] = (before or 0) + cost
            room -= cost
            extra.append(index)
        return extra

    def _spent_by_group(self) -> dict[object, int]:
        spent: dict[object, int] = {}
        for index in self.chosen:
            group = self.candidates[index].group
            spent[group] = spent.get(group, 0) + self.cost(index)
        return spent

    def keep(self, chosen: list[int], text: str, tokens: int) -> None:
        self.chosen, self._text, self._tokens = chosen, text, tokens
        self.learn(chosen, tokens)

    def learn(self, indexes: list[int], tokens: int) -> None:
        """Corrects later costs by how an exact count compares with the stored ones."""
        stored = sum(self.candidates[i].tokens for i in indexes)
        exact = tokens - self._overhead
        self._scale = min(10.0, max(0.1, exact / stored)) if stored else 1.0

    def filling(self) -> Filling:
        left = len(self.candidates) - len(self.chosen)
        over_share = len(self._over_share - set(self.chosen))
        reasons = (("budget", left - over_share), ("session_share", over_share))
        return Filling(
            text=self._text,
            tokens=self._tokens,
            chosen=tuple(self.candidates[i] for i in self.chosen),
            left_out=tuple(Omission(reason, count) for reason, count in reasons if count),
        )
