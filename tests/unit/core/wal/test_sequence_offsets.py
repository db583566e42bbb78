"""The mapping from sequences to offsets."""

from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.wal.region_topics import RegionTopics, endangering_settings, region_of_topic
from exactlog.core.wal.sequence_offsets import Run, SequenceOffsets

steps = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)), max_size=40)


def mapping_of(found):
    """The mapping after steps of sequence and offset, and a plain dictionary of it."""
    mapping, plain, sequence, offset = SequenceOffsets(), {}, 0, 0
    for sequence_step, offset_step in found:
        sequence, offset = sequence + sequence_step, offset + offset_step
        mapping.remember(sequence, offset)
        plain[sequence] = offset
    return mapping, plain


@given(steps, st.integers(0, 130))
def test_it_is_a_dictionary(found, asked):
    mapping, plain = mapping_of(found)

    assert dict(mapping) == plain
    assert len(mapping) == len(plain)
    assert mapping.offset_from(asked) == next((plain[each] for each in sorted(plain) if each >= asked), None)
    assert mapping.first_sequence_from(asked) == next((each for each in sorted(plain) if plain[each] >= asked), None)


@given(steps, st.integers(0, 130))
def test_what_is_pruned_is_gone_and_nothing_else(found, mark):
    mapping, plain = mapping_of(found)

    mapping.forget_below(mark)

    assert dict(mapping) == {sequence: offset for sequence, offset in plain.items() if sequence >= mark}


@given(steps, st.integers(1, 130), st.integers(0, 500))
def test_what_is_known_stays_where_it_was_found_first(found, sequence, offset):
    mapping, plain = mapping_of(found)
    if sequence > max(plain, default=0):
        return

    mapping.remember(sequence, offset)

    assert dict(mapping) == plain


@given(steps)
def test_its_runs_are_all_of_it(found):
    mapping, _ = mapping_of(found)

    assert SequenceOffsets.of_runs(mapping.runs()) == mapping


def test_what_was_written_together_is_one_run_however_long():
    mapping, _ = mapping_of([(1, 1)] * 1_000)

    assert mapping.runs() == (Run(1, 1, 1_000),)


def test_topics_are_called_by_namespace_and_region():
    topics = RegionTopics("ts", 42)

    assert (topics.data, topics.meta) == ("ts_data_42", "ts_meta_42")
    assert region_of_topic("ts", "ts_data_42") == region_of_topic("ts", "ts_meta_42") == 42
    for other in ("ts_data_042", "ts_data_x", "tsx_data_42", "ts_other_42", "ts_data_99999999999999999999"):
        assert region_of_topic("ts", other) is None


def test_settings_that_let_records_go_are_told():
    assert endangering_settings({"retention.ms": "604800000", "retention.bytes": "-1"}) == {"retention.ms": "604800000"}
    assert endangering_settings({"cleanup.policy": "compact"}) == {"cleanup.policy": "compact"}
