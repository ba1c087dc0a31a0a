"""Rows of a transcript that were changed behind the store's back: every change is found."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

import pytest

from engrain.contracts.errors import Corrupt
from engrain.contracts.sessions import Session
from engrain.contracts.transcript import AppendReceipt
from engrain.testing.contracts import ANA, begin, hold, say
from engrain.testing.engines import Engine, Stores


@pytest.mark.invariant("INV-11")
class TestTampering:
    """Events, batches and heads: changed, lost or swapped."""

    @pytest.mark.parametrize("column", ["payload", "salt", "commitment"])
    def test_any_flipped_byte_of_an_event_is_found(
        self, stores: Stores, engine: Engine, column: str
    ) -> None:
        session, _ = _converse(stores)
        (commitment, value) = _row_of(engine, f"commitment, {column}", "answer 2")
        where = bytes(commitment)
        for flipped in _flips(bytes(value)):
            engine.alter(
                f"UPDATE events SET {column} = :value WHERE commitment = :where",
                value=flipped,
                where=where,
            )
            where = flipped if column == "commitment" else where
            _is_corrupt(stores, session)

    @pytest.mark.parametrize("column", ["link", "operation_id"])
    def test_any_flipped_byte_of_a_batch_is_found(
        self, stores: Stores, engine: Engine, column: str
    ) -> None:
        session, receipts = _converse(stores)
        link = bytes.fromhex(receipts[1].link)
        value = link if column == "link" else receipts[1].operation_id.bytes
        where = value
        for flipped in _flips(value):
            statement = f"UPDATE batches SET {column} = :value WHERE {column} = :where"
            engine.alter(statement, value=flipped, where=where)
            where = flipped
            _is_corrupt(stores, session)

    @pytest.mark.parametrize(
        "change",
        [
            "turn = 1",
            "turn = 4",
            "kind = 'user_message'",
            "kind = 'system'",
            "payload = NULL, salt = NULL, kind = 'system'",
        ],
    )
    def test_changed_header_of_an_event_is_found(
        self, stores: Stores, engine: Engine, change: str
    ) -> None:
        session, _ = _converse(stores)
        (commitment,) = _row_of(engine, "commitment", "answer 2")
        engine.alter(
            f"UPDATE events SET {change} WHERE commitment = :where", where=bytes(commitment)
        )
        _is_corrupt(stores, session)

    @pytest.mark.parametrize("change", ["recorded_at = recorded_at + 1", "last_sequence = 3"])
    def test_changed_header_of_a_batch_is_found(
        self, stores: Stores, engine: Engine, change: str
    ) -> None:
        session, receipts = _converse(stores)
        engine.alter(
            f"UPDATE batches SET {change} WHERE operation_id = :where",
            where=receipts[1].operation_id.bytes,
        )
        _is_corrupt(stores, session)

    @pytest.mark.parametrize("change", ["last_sequence = 5", "last_sequence = 7", "link = :link"])
    def test_changed_head_of_the_session_is_found(
        self, stores: Stores, engine: Engine, change: str
    ) -> None:
        session, receipts = _converse(stores)
        parameters = {"link": bytes.fromhex(receipts[1].link)} if ":link" in change else {}
        engine.alter(
            f"UPDATE sessions SET {change} WHERE session_id = :where",
            where=session.id.bytes,
            **parameters,
        )
        _is_corrupt(stores, session)

    @pytest.mark.parametrize("number", [1, 2, 3])
    def test_lost_batch_is_found(self, stores: Stores, engine: Engine, number: int) -> None:
        session, receipts = _converse(stores)
        for words in (f"question {number}", f"answer {number}"):
            (commitment,) = _row_of(engine, "commitment", words)
            engine.alter("DELETE FROM events WHERE commitment = :it", it=bytes(commitment))
        operation_id = receipts[number - 1].operation_id
        engine.alter("DELETE FROM batches WHERE operation_id = :it", it=operation_id.bytes)
        _is_corrupt(stores, session)

    @pytest.mark.parametrize("words", ["question 1", "question 2", "answer 3"])
    def test_lost_event_is_found(self, stores: Stores, engine: Engine, words: str) -> None:
        session, _ = _converse(stores)
        (commitment,) = _row_of(engine, "commitment", words)
        engine.alter("DELETE FROM events WHERE commitment = :it", it=bytes(commitment))
        _is_corrupt(stores, session)

    def test_swapped_events_are_found(self, stores: Stores, engine: Engine) -> None:
        session, _ = _converse(stores)
        columns = ("commitment", "salt", "payload")
        one = [bytes(value) for value in _row_of(engine, ", ".join(columns), "question 1")]
        other = [bytes(value) for value in _row_of(engine, ", ".join(columns), "question 2")]
        statement = """UPDATE events SET commitment = :commitment, salt = :salt,
            payload = :payload WHERE commitment = :where"""
        spare = b"\0" * 32
        for values, where in (
            ((spare, *one[1:]), one[0]),
            (one, other[0]),
            (other, spare),
        ):
            engine.alter(statement, where=where, **dict(zip(columns, values, strict=True)))
        _is_corrupt(stores, session)

    def test_recomputed_commitment_does_not_hide_new_words(
        self, stores: Stores, engine: Engine
    ) -> None:
        session, _ = _converse(stores)
        commitment, salt, payload = _row_of(engine, "commitment, salt, payload", "answer 2")
        forged = bytes(payload).replace(b"answer", b"denial")
        mark = sha256(b"engrain event 1\0" + bytes(salt) + forged).digest()
        engine.alter(
            "UPDATE events SET commitment = :mark, payload = :payload WHERE commitment = :where",
            mark=mark,
            payload=forged,
            where=bytes(commitment),
        )
        _is_corrupt(stores, session)

    def test_damage_in_one_session_stops_no_other(self, stores: Stores, engine: Engine) -> None:
        whole, _ = _converse(stores)
        damaged = begin(stores)
        lease = hold(stores, damaged)
        say(stores, lease, "fragile")
        stores.leases.release(lease)
        (commitment,) = _row_of(engine, "commitment", "fragile")
        engine.alter("DELETE FROM events WHERE commitment = :it", it=bytes(commitment))
        _is_corrupt(stores, damaged)
        assert stores.transcript.verify(ANA, whole.id).event_count == 6


def _converse(stores: Stores) -> tuple[Session, list[AppendReceipt]]:
    session = begin(stores)
    lease = hold(stores, session)
    receipts = [say(stores, lease, f"question {n}", reply=f"answer {n}") for n in (1, 2, 3)]
    stores.leases.release(lease)
    assert stores.transcript.verify(ANA, session.id).event_count == 6
    return session, receipts


def _row_of(engine: Engine, columns: str, words: str) -> tuple[bytes, ...]:
    """Columns of the one event that holds the words."""
    rows = engine.alter(f"SELECT payload, {columns} FROM events")
    (row,) = [row for row in rows if words.encode() in bytes(row[0])]
    return tuple(row[1:])


def _flips(value: bytes) -> Iterator[bytes]:
    """The value with one bit of one byte turned, for every byte."""
    for at in range(len(value)):
        flipped = bytearray(value)
        flipped[at] ^= 1 << at % 8
        yield bytes(flipped)


def _is_corrupt(stores: Stores, session: Session) -> None:
    """Neither `verify` nor a replay takes the history for whole."""
    with pytest.raises(Corrupt):
        stores.transcript.verify(ANA, session.id)
    lease = stores.leases.claim(ANA, session.id)
    with pytest.raises(Corrupt):
        list(stores.transcript.replay(lease))
    stores.leases.release(lease)
