"""Delays of flights by carrier, exactly once: a process of its own that may be killed at any moment.

Run by `demo.exactly_once`. It reads flights, adds up the delays of each carrier, and commits what it read and the sums
in one transaction, again and again, until SIGTERM. It tells of each on its standard output. With --hold-at N it does
everything of its Nth transaction but the commit, and waits.
"""

import argparse
import json
import signal
import sys
import threading
from collections.abc import Iterable
from typing import Any, Final

from confluent_kafka import Consumer, Producer

from demo.exchange import SILENT
from exactlog.eos import SyncTransaction, transaction_sync

INSTANCE: Final = "delay-worker"
"""As the member of its group and as producer: whoever comes next under it takes over."""

RECORDS_AT_ONCE: Final = 4_000
POLL_SECONDS: Final = 0.2
STEP_MS: Final = 8_000
RETRIES: Final = 20
NO_HOLD: Final = -1


def main() -> int:
    """Work until told to stop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("group")
    parser.add_argument("--hold-at", type=int, default=NO_HOLD)
    arguments = parser.parse_args()
    is_wanted = True

    def stop(*_: object) -> None:
        nonlocal is_wanted
        is_wanted = False

    signal.signal(signal.SIGTERM, stop)
    worker = Worker(arguments)
    while is_wanted:
        worker.carry_on()
    worker.close()
    return 0


class Worker:
    """Takes flights from one topic to sums in another."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._target = arguments.target
        self._transactions_before_hold = arguments.hold_at
        common = {"bootstrap.servers": arguments.address} | SILENT
        self._consumer = Consumer(
            common
            | {
                "group.id": arguments.group,
                "group.instance.id": INSTANCE,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self._consumer.subscribe([arguments.source])
        self._producer = Producer(common | {"transactional.id": INSTANCE})
        self._transaction = transaction_sync(self._producer, self._consumer, timeout_ms=STEP_MS, retries=RETRIES)

    def carry_on(self) -> None:
        """One transaction: as many flights as have arrived, up to a bound."""
        count = self._transaction.run(self._sum_up)
        if count:
            print(json.dumps({"committed": count}), flush=True)

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def _sum_up(self, txn: SyncTransaction) -> int:
        messages = self._consumer.consume(RECORDS_AT_ONCE, POLL_SECONDS)
        values = [message.value() or b"" for message in messages if message.error() is None]
        for carrier, sums in delays_by_carrier(values).items():
            txn.send(self._target, json.dumps(sums).encode(), key=carrier.encode())
        if values:
            self._transactions_before_hold -= 1
            if not self._transactions_before_hold:
                self._producer.flush()
                print(json.dumps({"held": len(values)}), flush=True)
                threading.Event().wait()
        return len(values)


def delays_by_carrier(values: Iterable[bytes]) -> dict[str, dict[str, int]]:
    """By carrier: how many flights, how many of them with a known delay at arrival, and its sum in minutes."""
    found: dict[str, dict[str, int]] = {}
    for value in values:
        flight: dict[str, Any] = json.loads(value)
        sums = found.setdefault(flight["carrier"], {"flights": 0, "arrived": 0, "minutes": 0})
        sums["flights"] += 1
        if flight["arr_delay"] is not None:
            sums["arrived"] += 1
            sums["minutes"] += flight["arr_delay"]
    return found


if __name__ == "__main__":
    sys.exit(main())
