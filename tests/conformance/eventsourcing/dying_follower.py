"""A program that records events with the position they come from, and dies where it is told to.

    python -m tests.conformance.eventsourcing.dying_follower LAST STEP

It goes on behind the last position recorded, as followers do, up to LAST. Position N gives an event to each of three
aggregates. While LAST is recorded it kills itself at STEP: `before_produce_K`, `before_commit`, `after_commit`.
"""

import os
import signal
import sys

from eventsourcing.persistence import InfrastructureFactory, StoredEvent, Tracking

from exactlog.client.wire.transactional_producer import WireTransactionalProducer

AGGREGATES = ("a", "b", "c")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def events_of(position):
    return [StoredEvent(name, position, "happened", str(position).encode()) for name in AGGREGATES]


def die_at(step):
    produce, commit = WireTransactionalProducer.produce, WireTransactionalProducer.commit
    produced = 0

    async def counted_produce(self, *args, **kwargs):
        nonlocal produced
        if step == f"before_produce_{produced}":
            die()
        produced += 1
        return await produce(self, *args, **kwargs)

    async def counted_commit(self):
        if step == "before_commit":
            die()
        await commit(self)
        if step == "after_commit":
            die()

    WireTransactionalProducer.produce = counted_produce
    WireTransactionalProducer.commit = counted_commit


def main():
    last, step = int(sys.argv[1]), sys.argv[2]
    recorder = InfrastructureFactory.construct(dict(os.environ)).process_recorder()
    for position in range((recorder.max_tracking_id("upstream") or 0) + 1, last + 1):
        if position == last:
            die_at(step)
        recorder.insert_events(events_of(position), tracking=Tracking("upstream", position))


if __name__ == "__main__":
    main()
