"""Two members of one consumer group read the flights; one is killed, the other takes over where it had committed."""

import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from demo.exchange import CLIENT_SECONDS_MAX, PARTITIONS, SILENT, TOPIC
from demo.flight_table import Flight
from demo.group_member import NOTE
from demo.served_broker import ServedBroker
from demo.story import DemoFailedError, Story
from demo.talking_program import TalkingProgram

GROUP: Final = "flight-readers"
KILL_AFTER: Final = 0.3
"""Of all records committed: then one of the two is killed."""

LOOK_SECONDS: Final = 0.05
MEMBER_SECONDS_MAX: Final = 60


class GroupReading(NamedTuple):
    """What the two noted."""

    records: int
    read_again: int
    away_seconds: float


class GroupMember(TalkingProgram):
    """A member, and what it was assigned last."""

    def __init__(self, address: str, notes: Path) -> None:
        self.notes = notes
        self.assigned: list[int] = []
        super().__init__("demo.group_member", [address, TOPIC, GROUP, str(notes)])

    def start_reading(self) -> None:
        """Tell it to."""
        self.say("go")

    def on_told(self, told: dict[str, Any]) -> None:
        """It was assigned other partitions."""
        self.assigned = told["assigned"]


def read_as_group(
    story: Story, broker: ServedBroker, partitions: Sequence[Sequence[Flight]], *, folder: Path
) -> GroupReading:
    """All records of all partitions, by a group of two of which one is killed.

    Raises:
        DemoFailedError: not every record was read, one was read that is not there, or the group does not get on.
    """
    total = sum(map(len, partitions))
    with ExitStack() as stack:
        members = [GroupMember(broker.address, folder / f"member-{number}") for number in (1, 2)]
        for member in members:
            stack.callback(member.stop)
        wait_until(
            lambda: all(len(member.assigned) == PARTITIONS // 2 for member in members), "the two share the partitions"
        )
        shares = " and ".join(f"partitions {', '.join(map(str, member.assigned))}" for member in members)
        story.tell(f"group {GROUP}: {shares}")
        for member in members:
            member.start_reading()
        progress = story.progress("committed by the group", total=total)
        committed = Committed(broker.address, GROUP)
        wait_until(lambda: committed.count() >= KILL_AFTER * total, "the group commits")
        members[0].kill()
        killed_at = time.monotonic()
        story.tell(f"kill -9 of the first member with {committed.count():,} of {total:,} records committed")
        wait_until(lambda: len(members[1].assigned) == PARTITIONS, "the other member takes over")
        away_seconds = time.monotonic() - killed_at
        story.tell(f"the other one has all {PARTITIONS} partitions {away_seconds:.1f} s later")
        wait_until(
            lambda: committed.count() == total, "the group reads to the end", lambda: progress.reached(committed.last)
        )
        progress.done(total)
    return _compare(partitions, [member.notes for member in members], away_seconds=away_seconds)


class Committed:
    """How far the group has come, as any client can see."""

    def __init__(self, address: str, group: str) -> None:
        self._group = group
        self._admin = AdminClient({"bootstrap.servers": address} | SILENT)
        self.last = 0

    def count(self) -> int:
        """The sum of the offsets it has committed."""
        wanted = ConsumerGroupTopicPartitions(
            self._group, [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
        )
        answer = self._admin.list_consumer_group_offsets([wanted])[self._group].result(CLIENT_SECONDS_MAX)
        self.last = sum(max(0, part.offset) for part in answer.topic_partitions or ())
        return self.last


def wait_until(
    until: Callable[[], bool],
    what: str,
    look: Callable[[], None] = lambda: None,
    *,
    seconds_max: float = MEMBER_SECONDS_MAX,
) -> None:
    """Wait for it.

    Raises:
        DemoFailedError: it does not come.
    """
    give_up_at = time.monotonic() + seconds_max
    while not until():
        if time.monotonic() > give_up_at:
            raise DemoFailedError(f"{what}: not within {seconds_max} s")
        look()
        time.sleep(LOOK_SECONDS)


def _compare(partitions: Sequence[Sequence[Flight]], notes: Sequence[Path], *, away_seconds: float) -> GroupReading:
    read: set[tuple[int, int]] = set()
    count = 0
    for path in notes:
        content = path.read_bytes()
        whole = content[: len(content) // NOTE.size * NOTE.size]  # a kill may cut the last one
        for partition, offset, checksum in NOTE.iter_unpack(whole):
            if zlib.crc32(partitions[partition][offset].value) != checksum:
                raise DemoFailedError(f"the group read another record at offset {offset} of partition {partition}")
            read.add((partition, offset))
            count += 1
    missing = sum(map(len, partitions)) - len(read)
    if missing:
        raise DemoFailedError(f"the group missed {missing:,} records")
    return GroupReading(len(read), count - len(read), away_seconds)
