"""The evaluation's measures and its reading of dirty evidence."""

from __future__ import annotations

import importlib
import json
import sys
from math import log2
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "bench"))
metrics = importlib.import_module("metrics")
locomo = importlib.import_module("locomo")


def test_recall_is_the_share_of_what_is_wanted_among_the_first():
    assert metrics.recall_at(2, "abcd", {"b", "c"}) == 0.5
    assert metrics.recall_at(3, "abcd", {"b", "c"}) == 1.0
    assert metrics.recall_at(10, "abcd", {"x"}) == 0.0
    assert metrics.recall_at(10, "aaaa", ["a", "a", "b"]) == 0.5


def test_ndcg_falls_with_the_place_of_what_is_wanted():
    assert metrics.ndcg_at(10, "abc", {"a"}) == 1.0
    assert metrics.ndcg_at(10, "abc", {"c"}) == pytest.approx(1 / log2(4))
    assert metrics.ndcg_at(10, "abc", {"a", "c"}) == pytest.approx(1.5 / (1 + 1 / log2(3)))
    assert metrics.ndcg_at(2, "abc", {"c"}) == 0.0


def test_ndcg_counts_nothing_twice_and_is_whole_when_the_first_places_are_right():
    assert metrics.ndcg_at(10, "aa", {"a"}) == 1.0
    assert metrics.ndcg_at(2, "abc", set("abc")) == 1.0


@pytest.mark.parametrize(
    ("evidence", "turns", "unknown"),
    [
        (["D1:1"], {(1, 1)}, 0),
        (["D1:1; D2:1"], {(1, 1), (2, 1)}, 0),
        (["D1:01", "D1:2 D2:1"], {(1, 1), (1, 2), (2, 1)}, 0),
        (["D:1:2"], {(1, 2)}, 0),
        (["D9:9", "D1:1"], {(1, 1)}, 1),
        ([], set(), 0),
        (["D"], set(), 0),
        (None, set(), 0),
        ("D1:2", {(1, 2)}, 0),
    ],
)
def test_dirty_evidence_is_read_leniently_and_what_names_no_turn_is_counted(
    tmp_path, evidence, turns, unknown
):
    sample = {
        "sample_id": "talk",
        "conversation": {
            "session_2": [{"speaker": "Ana", "dia_id": "D2:1", "text": "c"}],
            "session_1": [
                {"speaker": "Ana", "dia_id": "D1:1", "text": "a"},
                {"speaker": "Rui", "dia_id": "D1:2", "text": "b", "blip_caption": "a boat"},
            ],
            "session_1_date_time": "1:56 pm on 8 May, 2023",
        },
        "qa": [{"question": "who?", "category": 4, "evidence": evidence}],
    }
    (tmp_path / "file.json").write_text(json.dumps([sample]))
    (talk,) = locomo.read_locomo(tmp_path / "file.json")
    assert [turn.id for turn in talk.turns] == [(1, 1), (1, 2), (2, 1)]
    assert talk.turns[1].text == "b a boat"
    assert talk.questions[0].evidence == turns
    assert talk.questions[0].unknown == unknown
    assert len(talk.scored) == bool(turns)
