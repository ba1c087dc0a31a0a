"""The clock that tests hold: it moves when it is told to, and only as told."""

from __future__ import annotations

from threading import Thread

import pytest

from engrain.testing.clock import HeldClock


def test_a_held_clock_stands_still() -> None:
    clock = HeldClock(1_000)
    assert [clock.now_us(), clock.now_us()] == [1_000, 1_000]
    assert clock.steady_s() == clock.steady_s() == 0.0


def test_time_that_passes_moves_both_clocks() -> None:
    clock = HeldClock(1_000)
    clock.advance(2_500_000)
    assert (clock.now_us(), clock.steady_s()) == (2_501_000, 2.5)


def test_a_step_moves_the_wall_clock_alone() -> None:
    clock = HeldClock(10_000)
    clock.step_back(4_000)
    assert (clock.now_us(), clock.steady_s()) == (6_000, 0.0)
    clock.step_ahead(5_000)
    assert (clock.now_us(), clock.steady_s()) == (11_000, 0.0)


def test_time_never_passes_backwards() -> None:
    with pytest.raises(AssertionError):
        HeldClock(0).advance(-1)


def test_threads_lose_no_step() -> None:
    clock = HeldClock(0)

    def pass_time() -> None:
        for _ in range(2_000):
            clock.advance(1)

    threads = [Thread(target=pass_time) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.now_us() == 8_000
