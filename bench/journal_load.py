"""Writes journals into a topic, as fast as it can or at a steady rate: a process of its own, by librdkafka.

    python -m bench.journal_load '{"bootstrap": "127.0.0.1:9092", "topic": "orders", "journals": 10, "appends": 100}'

What it writes are the records that appends are, one journal after the other. With `times` it leaves a file that says
when each record was handed over, and where it came to stand in the log.
"""

import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from confluent_kafka import KafkaError, Message, Producer
from msgspec import Struct

from bench.workloads import MeasurementError
from exactlog.client.wire.partitioner import partition_of_key
from exactlog.core.journal.event_journal_format import encode_action
from exactlog.core.journal.events import RecordMetadata
from exactlog.core.journal.expiry import ExpireAfter
from exactlog.core.journal.keys import JournalKey
from exactlog.core.journal.new_actions import NewEvent, new_append
from exactlog.core.journal.payload import BinaryPayload

EVENT_BYTES: Final = 100
SOON: Final = ExpireAfter.of_ms(1)
"""Journals that allow it are due on the day of their last append, and on any later one."""
FLUSH_SECONDS: Final = 120
RECORDS_BETWEEN_POLLS: Final = 256


class Load(Struct, frozen=True, kw_only=True):
    """What is written.

    Attributes:
        appends: how many records.
        before: how many of them are there already.
        events: in each append.
        rate: appends a second; None: as fast as it goes.
        expire_every: every so many-th journal may be purged at once; 0: none.
        times: the file for `Appended` of each append; None: nobody wants to know.
    """

    bootstrap: str
    topic: str
    partitions: int
    journals: int
    appends: int
    before: int = 0
    events: int = 1
    rate: float | None = None
    expire_every: int = 0
    times: str | None = None


class Appended(Struct, frozen=True, array_like=True):
    """One append.

    Attributes:
        partition, offset: its place in the log.
        at_s: when it was handed to the client, on the clock that all processes of a machine have in common.
    """

    partition: int
    offset: int
    at_s: float


class NewRecord(Struct, frozen=True):
    """One append as a record."""

    partition: int
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


def records_of(load: Load) -> Iterator[NewRecord]:
    """The records, one journal after the other."""
    chance = random.Random(load.topic)
    keys = [JournalKey(load.topic, f"journal-{number:06}") for number in range(load.journals)]
    places = [partition_of_key(key.id.encode(), partition_count=load.partitions) for key in keys]
    expiring = RecordMetadata(expire_after=SOON)
    for number in range(load.before, load.before + load.appends):
        turn, journal = divmod(number, load.journals)
        is_expiring = load.expire_every > 0 and journal % load.expire_every == 0
        append = new_append(
            [NewEvent(BinaryPayload(chance.randbytes(EVENT_BYTES))) for _ in range(load.events)],
            last_seq_nr=turn * load.events,
            metadata=expiring if is_expiring else RecordMetadata(),
        )
        record = encode_action(keys[journal], append, timestamp_ms=0)  # the client gives it the time it is sent at
        headers = tuple((name, value or b"") for name, value in record.headers)
        yield NewRecord(places[journal], record.key or b"", record.value or b"", headers)


class Writing:
    """The records on their way to a broker, and what has become of them."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._appended: list[Appended] = []
        self._failed: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": load.bootstrap,
                "enable.idempotence": True,
                "queue.buffering.max.messages": 1_000_000,
                "queue.buffering.max.kbytes": 1024 * 1024,
            }
        )

    def run(self) -> list[Appended]:
        """Write all of it.

        Raises:
            MeasurementError: something was not written.
        """
        load, began = self._load, time.monotonic()
        for number, record in enumerate(records_of(load)):
            if load.rate is not None:
                time.sleep(max(0.0, began + number / load.rate - time.monotonic()))
            self._send(record)
            if load.rate is not None or number % RECORDS_BETWEEN_POLLS == 0:
                self._producer.poll(0)
        left = self._producer.flush(FLUSH_SECONDS)
        if left or self._failed:
            raise MeasurementError(f"{left} records are unsent, {len(self._failed)} failed: {self._failed[:1]}")
        return self._appended

    def _send(self, record: NewRecord) -> None:
        at_s = time.monotonic()

        def note(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._failed.append(str(error))
            else:
                self._appended.append(Appended(message.partition() or 0, message.offset() or 0, at_s))

        self._producer.produce(
            self._load.topic,
            record.value,
            record.key,
            record.partition,
            on_delivery=note,
            headers=list(record.headers),
        )


def read_times(path: Path) -> list[Appended]:
    """What a process has left in its file."""
    return msgspec.json.decode(path.read_bytes(), type=list[Appended])


def main(arguments: list[str]) -> None:
    """Write what the one argument says, in JSON."""
    load = msgspec.json.decode(arguments[0], type=Load)
    appended = Writing(load).run()
    if load.times is not None:
        Path(load.times).write_bytes(msgspec.json.encode(appended))


if __name__ == "__main__":
    main(sys.argv[1:])
