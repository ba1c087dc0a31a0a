"""LoCoMo: two persons, each session one of its own."""

from __future__ import annotations

from engrain.contracts.imports import Skipped
from formats.reading import events, fixture, read, skips, told


def test_sessions_speakers_pictures_and_dates_are_kept() -> None:
    items = read("locomo", fixture("locomo.json"))
    assert told(items) == [
        "session talk-1/session_1 | Inês and Tom, 1:56 pm on 8 January, 2024 | 1704722160000000",
        "--",
        "D1:1 Inês: I bought a kayak.",
        "D1:2 Tom: Which colour? [picture: a kayak shop]",
        "--",
        "3 Inês: Yellow.",
        "session talk-1/session_2 | Inês and Tom, 12:05 am on 1 Feb, 2024 | 1706745900000000",
        "--",
        "D2:1 Tom: Did the ferry run?",
        "--",
        "D2:2 Inês: [picture: a ferry in fog]",
        "session talk-1/session_3 | Inês and Tom, some day | None",
        "--",
        "D3:1 Tom: Hello again.",
    ]
    assert [item for item in items if isinstance(item, Skipped)] == [
        Skipped("talk-1/session_1:4", "not_an_object")
    ]
    assert skips(items) == {"not_an_object": 1}


def test_every_line_has_the_time_of_its_session() -> None:
    found = events(read("locomo", fixture("locomo.json")))
    assert found["talk-1/session_1:D1:2"].occurred_at == 1_704_722_160_000_000
    assert found["talk-1/session_3:D3:1"].occurred_at is None
