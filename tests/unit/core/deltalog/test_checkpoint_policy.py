import pytest

from exactlog.core.deltalog.checkpoint_policy import LastCheckpoint, decide_checkpoint, is_checkpoint_due

LAST = LastCheckpoint(written_ms=5_000, size_bytes=400)


def decided(version=20, *, last=LAST, now_ms=6_000, commit_bytes_since=400, min_interval_ms=1_000, interval=10) -> bool:
    return decide_checkpoint(
        version,
        interval=interval,
        min_interval_ms=min_interval_ms,
        last=last,
        commit_bytes_since=commit_bytes_since,
        now_ms=now_ms,
    )


def test_a_checkpoint_is_due_at_every_version_that_the_interval_divides():
    assert [version for version in range(31) if is_checkpoint_due(version, interval=10)] == [0, 10, 20, 30]
    assert all(is_checkpoint_due(version, interval=1) for version in range(5))


def test_none_is_written_where_none_is_due():
    assert not decided(21, min_interval_ms=0)
    assert not decided(21, last=None)


def test_the_first_due_one_is_written():
    assert decided(last=None, commit_bytes_since=0, now_ms=0)


@pytest.mark.parametrize(("now_ms", "is_written"), [(5_000, False), (5_999, False), (6_000, True), (4_000, False)])
def test_a_due_one_is_left_out_while_the_last_is_young(now_ms, is_written):
    assert decided(now_ms=now_ms) is is_written


@pytest.mark.parametrize(("commit_bytes_since", "is_written"), [(0, False), (399, False), (400, True), (401, True)])
def test_a_due_one_is_left_out_while_it_would_spare_less_than_the_last_one_holds(commit_bytes_since, is_written):
    assert decided(commit_bytes_since=commit_bytes_since) is is_written


def test_without_a_least_interval_every_due_one_is_written():
    assert decided(min_interval_ms=0, now_ms=5_000, commit_bytes_since=0)
