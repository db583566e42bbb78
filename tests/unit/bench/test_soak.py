"""What counts as no longer flat."""

from bench.soak import Round, judge

STEADY = Round(resident_mb=50, descriptors=20, p99_ms=4, commit_p99_ms=10)


def test_a_steady_server_has_no_complaints() -> None:
    assert judge([STEADY] * 9) == []


def test_growth_during_warm_up_is_no_complaint() -> None:
    assert judge([Round(10, 5, 90, 99), Round(30, 10, 50, 60), Round(45, 18, 20, 30), *[STEADY] * 6]) == []


def test_memory_descriptors_and_latency_that_grow_are_named() -> None:
    complaints = judge([*[STEADY] * 6, *[Round(resident_mb=60, descriptors=30, p99_ms=9, commit_p99_ms=21)] * 3])

    assert complaints == [
        "memory grew from 50.0 to 60.0 MB",
        "open descriptors grew from 20 to 30",
        "the P99 of a write grew from 4.0 to 9.0 ms",
        "the P99 of a commit grew from 10.0 to 21.0 ms",
    ]


def test_a_little_more_memory_is_noise() -> None:
    assert judge([*[STEADY] * 6, *[STEADY._replace(resident_mb=54)] * 3]) == []
