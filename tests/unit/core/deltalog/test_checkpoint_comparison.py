from msgspec.structs import replace

from exactlog.core.deltalog.checkpoint_comparison import find_producers_difference, find_table_difference
from exactlog.core.deltalog.checkpoint_format import OpenTransactionEntry
from exactlog.core.deltalog.commit_format import TableMetadata
from exactlog.core.deltalog.table_state import TableSnapshot
from exactlog.core.log.producer_state import ProducerEntry, ProducerStates, RememberedBatch
from tests.support.partitions import TOPIC_ID

SNAPSHOT = TableSnapshot(
    version=3,
    timestamp="2025-11-07T18:15:02.883Z",
    next_offset=9,
    log_start_offset=0,
    last_stable_offset=9,
    leader_epoch=1,
    segments=(),
    origins=(),
    txn_ids=(),
    leader_epochs=(),
    metadata=TableMetadata(
        topic="orders",
        partition=0,
        topic_id=TOPIC_ID,
        created="2025-11-07T18:15:02.883Z",
        format_version=1,
        config={},
    ),
    chain_crc="00000000",
)
BATCHES = tuple(RememberedBatch(number, number, 10 + number, 10 + number, 5) for number in range(4))
PRODUCER = ProducerEntry(7, 2, coordinator_epoch=3, last_timestamp=5, batches=BATCHES)
IN_TRANSACTION = replace(PRODUCER, producer_id=8, txn_start_offset=11)
REPLAYED = ProducerStates([PRODUCER, IN_TRANSACTION])


OPEN = OpenTransactionEntry(producer_id=8, producer_epoch=2, first_offset=11)


def difference(*told, open_transactions=None):
    if open_transactions is None:
        open_transactions = [OPEN] if any(entry.producer_id == 8 for entry in told) else []
    return find_producers_difference(told, open_transactions, REPLAYED)


def test_equal_tables_do_not_differ():
    assert find_table_difference(SNAPSHOT, replace(SNAPSHOT)) is None


def test_the_field_that_differs_is_named_with_both_values():
    told = find_table_difference(replace(SNAPSHOT, leader_epoch=4), SNAPSHOT)

    assert told == "its leader_epoch is not what replaying the delta commits gives: 4, not 1"


def test_long_values_are_cut():
    told = find_table_difference(replace(SNAPSHOT, chain_crc="f" * 1000), SNAPSHOT)

    assert len(told) < 400


def test_the_producers_that_replay_gives_do_not_differ():
    assert difference(PRODUCER, IN_TRANSACTION) is None


def test_a_silent_producer_may_be_forgotten_but_not_one_in_a_transaction():
    assert difference(IN_TRANSACTION) is None
    assert "8, which has an open transaction" in difference(PRODUCER)


def test_of_a_producer_that_was_forgotten_and_wrote_again_the_latest_is_known():
    again = replace(PRODUCER, batches=BATCHES[2:], coordinator_epoch=-1)

    assert difference(again, IN_TRANSACTION) is None
    assert difference(replace(again, batches=()), IN_TRANSACTION) is None


def test_anything_else_that_is_told_of_a_producer_differs():
    for wrong in (
        replace(PRODUCER, producer_epoch=3),
        replace(PRODUCER, last_timestamp=6),
        replace(PRODUCER, txn_start_offset=1),
        replace(PRODUCER, coordinator_epoch=4),
        replace(PRODUCER, batches=BATCHES[:3]),
        replace(PRODUCER, batches=(*BATCHES, BATCHES[0])),
    ):
        assert "producer 7" in difference(wrong, IN_TRANSACTION)


def test_a_producer_that_has_written_nothing_differs():
    assert "producer 9, which has written nothing" in difference(
        PRODUCER, IN_TRANSACTION, replace(PRODUCER, producer_id=9)
    )


def test_open_transactions_must_be_those_of_the_producers():
    assert difference(PRODUCER, IN_TRANSACTION, open_transactions=[OPEN]) is None
    for wrong in (replace(OPEN, producer_id=7), replace(OPEN, producer_id=99)):
        assert "is open, which is not" in difference(PRODUCER, IN_TRANSACTION, open_transactions=[OPEN, wrong])
    wrong = replace(OPEN, first_offset=12)
    assert "is open, which is not" in difference(PRODUCER, IN_TRANSACTION, open_transactions=[wrong])


def test_each_open_transaction_must_be_listed():
    assert "does not list" in difference(PRODUCER, IN_TRANSACTION, open_transactions=[])
