"""The bounds of the write-ahead log, each with the reason for it."""

from typing import Final

SEQUENCE_MAX: Final = 2**64 - 1  # the key holds it in eight bytes without a sign
SNAPSHOT_RUNS_MAX: Final = 20_000  # about 6 bytes each: a snapshot stays far below Kafka's message.max.bytes
ENTRY_BYTES_MAX: Final = 1_000_000  # below Kafka's message.max.bytes with the key and the batch header
WRITE_GROUP_BYTES_MAX: Final = 4 * 1024 * 1024  # written in one transaction: more only makes the first one wait
WRITE_GROUP_CALLS_MAX: Final = 1_000
PENDING_BYTES_MAX: Final = 64 * 1024 * 1024  # taken, not yet written; then writers wait
SNAPSHOT_ENTRIES_DUE: Final = 100_000  # replayed in about a second: then the next clean-up writes a snapshot
SCAN_BATCH_ENTRIES: Final = 500  # HoraeDB's
CLEAN_INTERVAL_S: Final = 3_600.0  # HoraeDB's
