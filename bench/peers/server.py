"""Runs the peers' own packages, under their own interpreter, at the word of `peers/client.py`.

Every line on standard input is one request in JSON, every line on standard output its answer:

    {"open": "openai_turns", "arguments": {…}}   → {"opened": 0}
    {"block": 0, "count": 20}                    → {"ns": […]}, one number for each operation
    {"ask": 0, "about": "bytes"}                 → {"answer": …}

Only the operation itself is timed, here, without garbage collection, as on the other side.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

Contestant = Any


def _make(name: str) -> Callable[..., Contestant]:
    import langgraph_peer
    import openai_peer
    import rows_peer
    import tantivy_peer

    for module in (langgraph_peer, openai_peer, rows_peer, tantivy_peer):
        if found := module.CONTESTANTS.get(name):
            return found
    raise KeyError(name)


def _answer(request: dict[str, Any], opened: list[Contestant]) -> dict[str, Any]:
    if "open" in request:
        opened.append(_make(request["open"])(**request["arguments"]))
        return {"opened": len(opened) - 1}
    if "block" in request:
        contestant = opened[request["block"]]
        gc.collect(0)
        gc.disable()
        try:
            return {"ns": contestant.block(request["count"])}
        finally:
            gc.enable()
    return {"answer": getattr(opened[request["ask"]], request["about"])()}


def main() -> None:
    """Serves until standard input ends. What packages print goes to standard error."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    opened: list[Contestant] = []
    for line in sys.stdin:
        try:
            answer = _answer(json.loads(line), opened)
        except Exception:  # noqa: BLE001  (the other side raises it)
            answer = {"failed": traceback.format_exc()}
        replies.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
