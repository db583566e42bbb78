"""Every bound of the system in one place, each with the reason for it (principle 8).

What a user may change is a configuration key instead; its default then refers to a value here.
"""

from typing import Final

# --- network -------------------------------------------------------------------------------------------------
FRAME_BYTES_MAX: Final = 100 * 1024 * 1024  # Kafka's socket.request.max.bytes: what clients of it are tuned for
CONNECTIONS_MAX: Final = 10_000  # about 6 KiB each at rest: 60 MB at the bound
CONNECTION_IDLE_MS_MAX: Final = 600_000  # Kafka's connections.max.idle.ms
REQUESTS_IN_FLIGHT_PER_CONNECTION_MAX: Final = 64  # clients keep 5; a pipelining load tool more; then reading pauses
PENDING_BYTES_PER_CONNECTION_MAX: Final = 64 * 1024 * 1024  # unsent answers to who does not read; or parked requests
REQUEST_WITHOUT_RECORDS_BYTES_MAX: Final = 4 * 1024 * 1024  # decoded, tiny elements take up to 60 times their bytes
SHUTDOWN_LINGER_MS: Final = 500  # for a peer to close once it has its answers; a broker that stops waits no longer
RECEIVE_BUFFER_BYTES: Final = 256 * 1024  # one buffer shared by all connections
CLOSE_LINGER_MS: Final = 5_000  # for the last answers of a closing connection; a peer that takes none holds no socket

# --- codec ---------------------------------------------------------------------------------------------------
UUIDS_CACHED_MAX: Final = 4_096  # topic ids in use; about 200 bytes each
ARRAY_LAYOUTS_CACHED_MAX: Final = 256  # counts of partitions in one array; about 200 bytes each

# --- log -----------------------------------------------------------------------------------------------------
RECORD_BATCH_BYTES_MAX: Final = 1024 * 1024 + 12  # Kafka's message.max.bytes: 1 MiB and the log overhead
SEGMENT_BYTES_MAX: Final = 1024 * 1024 * 1024  # Kafka's segment.bytes
INDEX_INTERVAL_BYTES: Final = 4096  # Kafka's index.interval.bytes: one index entry for so many bytes of log
BATCHES_REMEMBERED_PER_PRODUCER: Final = 5  # what an idempotent producer may have in flight (KIP-98)
PRODUCERS_PER_PARTITION_MAX: Final = 100_000  # about 700 bytes each; then the most silent are forgotten early
OPEN_TRANSACTIONS_PER_PARTITION_MAX: Final = 50_000  # those are never forgotten: half of what may be known
RECORDS_DECOMPRESSED_BYTES_MAX: Final = 256 * 1024 * 1024  # one batch, opened: honest 1 MiB ones stay far below
UNCOMMITTED_BYTES_PER_BROKER_MAX: Final = 256 * 1024 * 1024  # appended, not yet committed; then reading pauses
FETCH_SESSIONS_MAX: Final = 1_000  # Kafka's max.incremental.fetch.session.cache.slots
FETCH_SESSION_PARTITIONS_MAX: Final = 200_000  # in all fetch sessions together: about 500 bytes each, 100 MB
FETCH_SESSION_IDLE_MS: Final = 120_000  # Kafka's: after that a session may go to make room
OPEN_FILES_MAX: Final = 512  # segments kept open: with the sockets of a busy day below the usual soft limit of 1,024
UPKEEP_PARTITIONS_AT_ONCE_MAX: Final = 32  # that get a version by retention in one round: some 10 ms of the loop
FETCH_BYTES_IN_FLIGHT_MAX: Final = 64 * 1024 * 1024  # fetched, not yet taken by the socket

# --- delta log -----------------------------------------------------------------------------------------------
TXN_IDS_REMEMBERED: Final = 10_000  # per partition: the stated window of free transaction ids
TXN_ID_LENGTH_MAX: Final = 256  # characters: ten thousand of them stay in every checkpoint
ORIGINS_PER_PARTITION_MAX: Final = 10_000  # remembered for ever: about 150 bytes each in every checkpoint
FINDINGS_PER_TABLE_MAX: Final = 1_000  # of damage, and of notes: more than anybody reads; the rest is counted
PACKS_OPEN_MAX: Final = 16  # of one table that is read: a descriptor and 8 KB each; a binary search meets the same few

# --- coordinators --------------------------------------------------------------------------------------------
COORDINATOR_LOG_BYTES_MAX: Final = (
    8 * 1024 * 1024
)  # appended; then what is live is written anew: a load reads this much
COORDINATOR_SEGMENT_BYTES: Final = 16 * 1024 * 1024  # Kafka: 100 MiB; what was rewritten leaves the disk sooner
GROUP_MEMBERS_MAX: Final = 10_000  # Kafka has no bound; with so many a leader's answer is a megabyte already
PENDING_MEMBERS_PER_GROUP_MAX: Final = (
    10_000  # ids handed out and not used (KIP-394): about 150 bytes each, with a timer
)
GROUP_METADATA_BYTES_MAX: Final = (
    16 * 1024 * 1024
)  # what all members of a group say of themselves: the leader's answer and a record carry it; Kafka: a record of 1 MiB
JOIN_AGAIN_WAIT_LEAST_MS: Final = 1_000  # static members that allow no time would be waited for in a circle
NEW_MEMBER_JOIN_TIMEOUT_MS: Final = (
    300_000  # Kafka's: a join that waits for its first generation may be nobody's by now
)
PENDING_OFFSETS_BYTES_MAX: Final = 64 * 1024 * 1024  # in one partition, in open transactions: 100,000 without texts
MEMBER_ID_PREFIX_LENGTH_MAX: Final = 1_000  # characters of the client's id: the member id must fit into Kafka's string

# --- transactions, in one partition of __transaction_state ----------------------------------------------------
TRANSACTIONAL_IDS_MAX: Final = 100_000  # Kafka has no bound; about 1 KB each in memory, until they expire
TRANSACTIONAL_ID_LENGTH_MAX: Final = 1_000  # characters: it is kept for a week; Kafka's string ends at 32,767 bytes
OPEN_TRANSACTIONS_MAX: Final = 50_000  # each pins the last stable offset of its partitions
OPEN_TRANSACTION_PARTITIONS_MAX: Final = 500_000  # about 100 bytes each: 50 MB
PARKED_REQUESTS_PER_TRANSACTION_MAX: Final = 1_000  # a client has five requests in flight; each has a timer
PARKED_REQUEST_MS_MAX: Final = 100  # Kafka's: then CONCURRENT_TRANSACTIONS, and the client backs off
TRANSACTIONS_PER_CHECK_MAX: Final = 1_000  # aborted or expired in one turn of the event loop: some 20 ms

# --- compaction ------------------------------------------------------------------------------------------------
COMPACTION_KEYS_MAX: Final = 2_000_000  # known at a time, about 150 bytes each: 300 MB; more take several passes

OUTSTANDING_VERIFICATIONS_MAX: Final = 10_000  # refused first batches that may come again: about 200 bytes each

# --- catalog -------------------------------------------------------------------------------------------------
TOPIC_NAME_LENGTH_MAX: Final = 249  # Kafka's: room for suffixes below the 255 of file systems
PARTITIONS_PER_TOPIC_MAX: Final = 10_000  # one request may not exhaust the disk's directories
PARTITIONS_CREATED_PER_REQUEST_MAX: Final = 10_000  # Kafka's; each takes a few disk syncs, and others wait
PARTITIONS_DESCRIBED_PER_REQUEST_MAX: Final = 2_000  # Kafka's max.request.partition.size.limit; then a cursor
TOPICS_AUTO_CREATED_PER_REQUEST_MAX: Final = 1_000  # the rest is made when the client asks again
PRODUCER_ID_BLOCK_SIZE: Final = 1_000  # as KIP-730: one durable write for a thousand ids

PATTERN_LENGTH_MAX: Final = 1_000  # characters of a pattern that ids are filtered by: as many as an id may have
PATTERN_STEPS_MAX: Final = 1_000  # that it comes to; each costs a fraction of a microsecond a character

# --- metrics -------------------------------------------------------------------------------------------------
METRIC_SERIES_MAX: Final = 10_000  # a label fed from outside would otherwise grow without end
