"""One member of the demo's consumer group, as a process of its own that may be killed at any moment.

Run by `demo.group_reading`. It joins, tells what it is assigned, waits for a line on its standard input, and from then
on notes every record it reads in a file, and only then commits its offset. It ends on SIGTERM.
"""

import argparse
import json
import select
import signal
import struct
import sys
import zlib
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Message, TopicPartition

RECORDS_AT_ONCE: Final = 2_000
POLL_SECONDS: Final = 0.1
SESSION_TIMEOUT_MS: Final = 6_000
"""The shortest that a broker allows by default: so long a killed member is missed."""

NOTE: Final = struct.Struct(">iqI")
"""What is noted of a record: partition, offset, CRC-32 of its value."""


def main() -> int:
    """Read until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("group")
    parser.add_argument("notes", type=Path)
    arguments = parser.parse_args()
    is_wanted = True

    def stop(*_: object) -> None:
        nonlocal is_wanted
        is_wanted = False

    signal.signal(signal.SIGTERM, stop)
    member = Member(arguments.address, arguments.topic, arguments.group)
    with arguments.notes.open("wb", buffering=0) as notes:
        while is_wanted:
            messages = member.read()
            notes.write(b"".join(map(note_of, messages)))
            member.commit(messages)
    member.close()
    return 0


class Member:
    """A consumer that reads nothing before it is told to start."""

    def __init__(self, address: str, topic: str, group: str) -> None:
        self._topic = topic
        self._is_started = False
        self._consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 500,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
                "error_cb": lambda _error: None,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._on_assign)

    def read(self) -> list[Message]:
        """What has arrived."""
        if not self._is_started and select.select([sys.stdin], [], [], 0)[0]:
            self._is_started = True
            self._consumer.resume(self._consumer.assignment())
        messages = self._consumer.consume(RECORDS_AT_ONCE, timeout=POLL_SECONDS)
        return [message for message in messages if message.error() is None]

    def commit(self, messages: list[Message]) -> None:
        """What was noted need not be read again."""
        if messages:
            ends: dict[Any, Any] = {message.partition(): message.offset() for message in messages}
            offsets = [TopicPartition(self._topic, partition, offset + 1) for partition, offset in ends.items()]
            self._consumer.commit(offsets=offsets, asynchronous=False)

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def _on_assign(self, consumer: Consumer, parts: list[TopicPartition]) -> None:
        consumer.assign(parts)
        if self._is_started:
            consumer.resume(parts)  # one that was paused when it was here before
        else:
            consumer.pause(parts)
        print(json.dumps({"assigned": sorted(part.partition for part in parts)}), flush=True)


def note_of(message: Message) -> bytes:
    """Enough to know the record again."""
    facts: Any = (message.partition(), message.offset(), zlib.crc32(message.value() or b""))
    return NOTE.pack(*facts)


if __name__ == "__main__":
    sys.exit(main())
