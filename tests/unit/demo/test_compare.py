"""What came back against what was sent."""

from demo.flight_table import Flight
from demo.flights import Comparison, compare

A, B, C = Flight(b"a", b"1"), Flight(b"a", b"2"), Flight(None, b"1")


def test_the_same_records_in_another_order_are_the_same() -> None:
    assert compare([A, B, B, C], [B, C, B, A]) == Comparison(duplicates=0, missing=0, strangers=0)


def test_a_record_that_came_too_often_is_a_duplicate() -> None:
    assert compare([A, B], [A, B, B, B]) == Comparison(duplicates=2, missing=0, strangers=0)


def test_a_record_that_came_too_seldom_is_missing() -> None:
    assert compare([A, B, B], [B]) == Comparison(duplicates=0, missing=2, strangers=0)


def test_a_record_under_another_key_is_a_stranger() -> None:
    assert compare([A], [C]) == Comparison(duplicates=0, missing=1, strangers=1)
