import pytest

from exactlog.core.model.sequences import SEQUENCE_MAX, add_to_sequence, sequence_after


@pytest.mark.parametrize(
    ("sequence", "count", "expected"),
    [
        (0, 0, 0),
        (0, 1, 1),
        (SEQUENCE_MAX - 1, 1, SEQUENCE_MAX),
        (SEQUENCE_MAX, 1, 0),
        (SEQUENCE_MAX - 9, 19, 9),
        (SEQUENCE_MAX, SEQUENCE_MAX, SEQUENCE_MAX - 1),
    ],
)
def test_sequences_go_on_at_zero_behind_the_highest(sequence, count, expected):
    assert add_to_sequence(sequence, count) == expected


def kafkas_increment_sequence(sequence, increment):
    if sequence > SEQUENCE_MAX - increment:
        return increment - (SEQUENCE_MAX - sequence) - 1
    return sequence + increment


def test_the_rule_is_the_one_that_kafka_writes_as_two_cases():
    for sequence in (0, 1, 5, SEQUENCE_MAX - 5, SEQUENCE_MAX - 1, SEQUENCE_MAX):
        for count in (0, 1, 4, 5, 6, SEQUENCE_MAX):
            assert add_to_sequence(sequence, count) == kafkas_increment_sequence(sequence, count)


@pytest.mark.parametrize(("last", "following"), [(-1, 0), (0, 1), (SEQUENCE_MAX - 1, SEQUENCE_MAX), (SEQUENCE_MAX, 0)])
def test_one_sequence_follows_another(last, following):
    assert sequence_after(last) == following
