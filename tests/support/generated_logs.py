"""Data directories with all that a log can hold, made at random from a seed: on a real disk, without a broker."""

import random

from exactlog.core.codec.compression import Compression
from exactlog.core.config.topic_configs import TopicConfig
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import TopicPartition
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import decode_header
from exactlog.storage.delta_log_files import DeltaLogFiles
from exactlog.storage.filesystem import OsFilesystem
from exactlog.storage.packing import find_pack, pack
from exactlog.storage.partition_log import AppendRefused
from tests.support.partitions import DataDirectory

PLACES = (TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("payments", 0))
CONFIG = TopicConfig(segment_bytes=1_500, index_interval_bytes=300, file_delete_delay_ms=1_000)
PRODUCERS = (1, 2, 3)


def write_log(root, *, seed, steps=40, places=PLACES, removes=True):
    """Some partitions with so many versions each, about; transactions are left open at the end now and then.

    Args:
        removes: whether records are removed too, and files go.
    """
    dice = random.Random(seed)
    filesystem = OsFilesystem()
    with DataDirectory(filesystem, root=str(root), config=CONFIG, checkpoint_interval=dice.choice((3, 10))) as disk:
        for place in places:
            writer = LogWriter(disk, disk.make(place), dice)
            for _ in range(steps):
                writer.step(removes=removes)
    if dice.random() < 0.5:
        for place in places:
            directory = f"{root}/topic={place.topic}-part={place.partition}"
            while plan := find_pack(DeltaLogFiles(filesystem, directory), versions_keep=5, pack_versions=6):
                pack(filesystem, directory, plan)


class LogWriter:
    """Does to one partition what producers, coordinators and retention do, as dice tell."""

    def __init__(self, disk, partition, dice):
        self.disk, self.partition, self.dice = disk, partition, dice
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.origin_sequence = 0
        self.open = set()

    def step(self, *, removes=True):
        """One version, or two; the clock goes on."""
        dice = self.dice
        self.disk.clock.time_ms += dice.choice((0, 1, 700))
        if removes and dice.random() < 0.08:
            self.remove()
        else:
            for _ in range(dice.choice((1, 1, 1, 2, 4))):
                dice.choice(
                    (self.plain, self.idempotent, self.transactional, self.transactional, self.end, self.on_terms)
                )()
            self.disk.run_round()

    def plain(self):
        """A batch of nobody in particular, by the producer's time or the broker's."""
        append_time = self.dice.choice((None, None, self.disk.clock.time_ms))
        self._append(build_batch(self._records(), compression=self._codec(), append_time_ms=append_time))

    def idempotent(self):
        """A batch of a producer outside of transactions."""
        producer_id = self.dice.choice(PRODUCERS)
        if producer_id not in self.open:
            self._write(producer_id, is_transactional=False)

    def transactional(self):
        """A batch of a transaction."""
        producer_id = self.dice.choice(PRODUCERS)
        self.open.add(producer_id)
        self._write(producer_id, is_transactional=True)

    def end(self):
        """The end of a transaction, one way or the other."""
        if self.open:
            producer_id = self.dice.choice(sorted(self.open))
            self.open.remove(producer_id)
            self.disk.append_marker(self.partition, producer_id, is_commit=self.dice.random() < 0.6)

    def on_terms(self):
        """An append of an origin of its own."""
        self.origin_sequence += self.dice.choice((1, 1, 5))
        batch = build_batch(self._records(), compression=self._codec())
        self.disk.append_on_terms(self.partition, batch, origin_id=77, origin_seq=self.origin_sequence)

    def remove(self):
        """Records go from the front; files of earlier removals too."""
        low, high = self.partition.log_start_offset, self.partition.last_stable_offset
        if low < high:
            assert self.disk.move_log_start(self.partition, self.dice.randint(low + 1, high)) is ErrorCode.NONE
        self.disk.clock.time_ms += 2_000
        self.partition.sweep_removed(now_ms=self.disk.clock.time_ms)

    def _write(self, producer_id, **fields):
        records = self._records()
        sequence = self.sequences[producer_id]
        self.sequences[producer_id] += len(records)
        self._append(
            build_batch(
                records,
                compression=self._codec(),
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                **fields,
            )
        )

    def _append(self, batch):
        outcome = self.partition.append(
            decode_header(batch), memoryview(batch), now_ms=self.disk.clock.now_ms(), is_verified=True
        )
        assert not isinstance(outcome, AppendRefused), outcome

    def _codec(self):
        return self.dice.choice(list(Compression))

    def _records(self):
        dice, now_ms = self.dice, self.disk.clock.time_ms
        return [
            NewRecord(
                value=dice.choice((None, b"", dice.randbytes(dice.choice((3, 30, 200))))),
                key=dice.choice((None, b"", b"key-%d" % dice.randrange(9))),
                headers=tuple(
                    (dice.choice(("trace", "größe", "")), dice.choice((None, b"", b"x" * dice.randrange(80))))
                    for _ in range(dice.choice((0, 0, 0, 1, 3)))
                ),
                timestamp_ms=dice.choice((-1, now_ms, now_ms + dice.randint(-10_000, 10_000))),
            )
            for _ in range(dice.choice((1, 1, 2, 5, 9)))
        ]
