"""How work is awaited here: plain functions beside the loop, and nothing abandoned half-way."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, ParamSpec, TypeVar

from engrain.contracts import limits

P = ParamSpec("P")
T = TypeVar("T")


async def run_either(
    function: Callable[P, T | Awaitable[T]], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Calls a coroutine function on the event loop, any other on a worker thread."""
    if inspect.iscoroutinefunction(function):
        outcome: T | Awaitable[T] = function(*args, **kwargs)
    else:
        outcome = await asyncio.to_thread(function, *args, **kwargs)
    return await outcome if inspect.isawaitable(outcome) else outcome


async def finish_all(works: Iterable[Awaitable[T]]) -> list[T]:
    """Awaits all of them side by side; every one has ended when it returns or raises."""
    outcomes = await asyncio.gather(*works, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes  # type: ignore[return-value]


async def finish_first(work: Coroutine[Any, Any, T]) -> T:
    """Awaits `work` to its end whatever cancels; the cancellation comes after it."""
    task = asyncio.create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return task.result()


async def finish_soon(work: Awaitable[T], stop: Callable[[], object] | None = None) -> T:
    """Awaits `work`; when cancelled it is told to `stop`, and a result that it still gives counts.

    Without `stop` the cancellation is passed on to it. Waits no longer than `cancel_grace_us` for
    what was told to stop; then it is left to itself.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        (stop or task.cancel)()
        await asyncio.wait([task], timeout=limits.cancel_grace_us / limits.SECOND_US)
        if not task.done():
            task.add_done_callback(_look_away)
            raise
        if task.cancelled():
            raise
        return task.result()


def _look_away(task: asyncio.Future[Any]) -> None:
    """Nobody waits for it any more, nor for its error."""
    if not task.cancelled():
        task.exception()
