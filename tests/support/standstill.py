"""Where a broker of a test stands, for a test that has waited for it in vain: what nobody can ask any more later."""

from collections.abc import Iterator

from exactlog.testing import AsyncBroker, Broker


def brokers_of(funcargs: dict[str, object]) -> Iterator[Broker]:
    """The brokers among the fixtures of a test."""
    for fixture in funcargs.values():
        if isinstance(fixture, Broker):
            yield fixture
        elif isinstance(fixture, AsyncBroker):
            yield fixture._broker


def tell_standstill(broker: Broker) -> str:
    """Where its thread is, what its tasks wait for, how far rounds, connections and partitions are."""
    if broker._thread is None or broker._node is None:
        return "it does not run"
    parts = broker._node._parts
    lines = [broker._thread.describe()]
    if parts is not None:
        lines += (f"rounds: {_plain_state(parts.committer)}", f"topics: {_plain_state(parts.topics)}")
        lines += (
            f"connection {each.id} of {each.peer}: pauses {each._pauses}, reads {each._is_reading}, "
            f"has a turn {each._has_turn}, unanswered {len(each._replies)}"
            for each in tuple(parts.server._connections)
        )
        lines += (
            f"{each.topic_partition}: head {each._head.offset}, committed {each.committed.end_offset}, "
            f"in flight {len(each._in_flight)}, waiting {len(each._waiting._queue)} and "
            f"{len(each._waiting_for_version._queue)} for a version, failure {each.failure}"
            for each in parts.topics.open_partitions()
            if each._waiting or each._waiting_for_version or each._in_flight
        )
    return "\n".join(lines)


def _plain_state(part: object) -> dict[str, object]:
    """What it remembers, in few words."""
    sizes = {name: len(value) for name, value in vars(part).items() if isinstance(value, dict | set | list)}
    return {**sizes, **{name: value for name, value in vars(part).items() if isinstance(value, bool | int)}}
