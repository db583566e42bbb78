"""What was decided, as records: the newest of each key, and the parts of a rewrite."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from exactlog.broker.coordinator import decided_records
from exactlog.broker.coordinator.decided_records import batches_of, encode_records, newest_of_each


class Put(Struct, frozen=True):
    key: int
    value: int

    def encode_key(self):
        return b"%d" % self.key

    def encode_value(self):
        return b"%d" % self.value


puts = st.lists(st.builds(Put, st.integers(0, 3), st.integers(0, 9)), max_size=20)


@given(puts)
def test_the_newest_of_each_give_the_same_map_with_each_key_once(decided):
    records = encode_records(decided, now_ms=0)
    newest = newest_of_each(records)

    assert {record.key: record.value for record in newest} == {record.key: record.value for record in records}
    assert len({record.key for record in newest}) == len(newest)
    assert all(record.decided.encode_value() == record.value for record in newest)


@given(puts, st.integers(1, 7))
def test_the_parts_of_a_rewrite_are_all_of_it_in_order(decided, size):
    records = encode_records(decided, now_ms=0)
    whole, decided_records._BATCH_RECORDS = decided_records._BATCH_RECORDS, size
    try:
        parts = list(batches_of(records))
    finally:
        decided_records._BATCH_RECORDS = whole

    assert [record for part in parts for record in part] == records
    assert all(0 < len(part) <= size for part in parts)
