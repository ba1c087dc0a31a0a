"""Time and ids as the machine gives them."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

from engrain.system.clock import SystemClock
from engrain.system.ids import SystemIds

IDS = SystemIds()


def test_the_wall_clock_counts_microseconds_of_utc() -> None:
    before = time.time_ns() // 1_000
    now = SystemClock().now_us()
    assert before <= now <= time.time_ns() // 1_000


def test_the_steady_clock_never_goes_back() -> None:
    clock = SystemClock()
    seen = [clock.steady_s() for _ in range(1_000)]
    assert seen == sorted(seen)


def test_ids_are_uuids_of_version_7_in_the_order_they_were_made() -> None:
    made = [IDS.uuid7() for _ in range(10_000)]
    assert {(each.version, each.variant) for each in made} == {(7, "specified in RFC 4122")}
    assert made == sorted(made)


def test_an_id_tells_when_it_was_made() -> None:
    before = time.time_ns() // 1_000_000
    made_ms = IDS.uuid7().int >> 80
    assert before - 1 <= made_ms <= time.time_ns() // 1_000_000 + 1_000


def test_threads_never_make_the_same_id() -> None:
    with ThreadPoolExecutor(4) as pool:
        made = [each for ids in pool.map(_make, range(4)) for each in ids]
    assert len(set(made)) == 20_000


def _make(_thread: int) -> list[bytes]:
    return [IDS.uuid7().bytes for _ in range(5_000)]


def test_a_forked_child_never_makes_its_parents_ids() -> None:
    IDS.uuid7()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, b"".join(IDS.uuid7().bytes for _ in range(2_000)))
        os._exit(0)
    mine = {IDS.uuid7().bytes for _ in range(2_000)}
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    theirs = {told[at : at + 16] for at in range(0, len(told), 16)}
    assert len(mine) == len(theirs) == 2_000
    assert not mine & theirs


def test_scope_keys_are_random_positive_63_bit_numbers() -> None:
    keys = {IDS.scope_key() for _ in range(2_000)}
    assert len(keys) == 2_000
    assert all(0 < key < 2**63 for key in keys)
    assert max(keys) > 2**62


def test_random_bytes_are_as_many_as_asked_and_never_the_same() -> None:
    assert [len(IDS.random_bytes(count)) for count in (0, 16, 32)] == [0, 16, 32]
    assert IDS.random_bytes(16) != IDS.random_bytes(16)
