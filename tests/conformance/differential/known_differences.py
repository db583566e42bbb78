"""Where exactlog answers otherwise than Apache Kafka 4.4, on purpose; `docs/differences.md` says why, to everybody."""

import re
from functools import cache
from typing import NamedTuple

from exactlog.core.codec.wire_types import parse_versions


class KnownDifference(NamedTuple):
    """Fields that differ in a known way. A `*` stands for anything.

    Attributes:
        api: name of an API.
        scenario: of it.
        path: the question and the field of its answer.
        theirs: Apache Kafka's value, as a text.
        ours: exactlog's.
        row: how its row on the page of differences begins.
        versions: of the API.
    """

    api: str
    scenario: str
    path: str
    theirs: str
    ours: str
    row: str
    versions: str = "0+"

    def covers(self, difference):
        """Whether a difference is this one."""
        return (
            difference.version in parse_versions(self.versions)
            and _matches(self.api, difference.api)
            and _matches(self.scenario, difference.scenario)
            and _matches(self.path, difference.path)
            and _matches(self.theirs, difference.theirs)
            and _matches(self.ours, difference.ours)
        )


def _matches(pattern, value):
    return _compiled(pattern).fullmatch(str(value)) is not None


@cache
def _compiled(pattern):
    return re.compile(".*".join(re.escape(part) for part in pattern.split("*")), re.DOTALL)


ABORTED_BEHIND = "the aborted transactions of a Fetch answer"
AS_WRITTEN = "the value of a setting comes back as it was written"
BYTES_BEHIND = "bytes behind a produced batch"
CODEC = "an unknown compression codec"
COLLIDING = "two new topics of one request whose names collide"
CRASH = "a request that trips Apache Kafka"
CREATED_AT_ONCE = "a topic made by Metadata is first"
CUT_BATCH = "the records of a Fetch answer may end in a part"
FEATURES = "features of what exactlog does not have"
FIRST_SEQUENCE = "an idempotent producer may begin"
LOG_START = "INVALID_RECORD comes with the start of the log"
MARKER_TIMES = "ListOffsets by time, and of the greatest time"
LOGGERS = "loggers, client metrics and groups have configurations"
LATE_COMMIT = "a commit that meets the abort"
LATE = "CreateTopics, CreatePartitions and DeleteTopics give up"
NAMED_TWICE = "what a request names twice"
NEGATIVE_MARKER = "a marker of a negative producer id"
NEGATIVE_EPOCH = "a produced batch with a producer id and a negative epoch"
OLD_VERSIONS = "the oldest request versions"
OPERATION = "an unknown operation in IncrementalAlterConfigs"
OTHER_SETTINGS = "settings of what exactlog does not have"
OTHER_PROTOCOL = "EndTxn 5 after a transaction that ended"
OWN_FEATURE = "ApiVersions lists the features that brokers agree on"
PREPARED = "while the markers of a transaction are written"
POLICY_TWICE = "`cleanup.policy=delete,delete` is taken"
RECORD_ERRORS = "an answer of Produce names each record"
SERVED_APIS = "APIs of what exactlog does not have"
STABLE_START = "after DeleteRecords the last stable offset"
RETENTION = "seven days as the default of retention"
SYNONYMS = "the default of a topic's setting"
UNKNOWN_VERSION = "ApiVersions in a version that nobody has"
VALIDATED_ID = "CreateTopics that only validates"
WORDS = "some errors come without words"

SETTINGS_OF_OTHERS = (
    "compression.*.level",
    "errors.*",
    "*.replication.throttled.replicas",
    "local.retention.*",
    "remote.*",
    "max.decompressed.message.bytes",
)


def _known(api, row, scenario, path, *, theirs="*", ours="*", versions="0+"):
    return KnownDifference(api, scenario, path, theirs, ours, row, versions)


PRODUCE = (
    _known("Produce", WORDS, "*", "*.Produce/*/error_message", theirs="None", ours="<text>"),
    _known("Produce", NAMED_TWICE, "topic_data twice", "1.Produce/responses/*'", theirs="missing"),
    _known("Produce", NAMED_TWICE, "*partition_data twice", "1.Produce/*/0'", theirs="missing"),
    _known("Produce", NAMED_TWICE, "*partition_data twice", "1.Produce/*/base_offset"),
    _known("Produce", CRASH, "*.records null", "1.Produce", theirs="no answer", ours="*'error_code': 87,*"),
    _known("Produce", BYTES_BEHIND, "batches whose header is wrong", "3.Produce/*/error_code", theirs="2", ours="87"),
    _known("Produce", BYTES_BEHIND, "a batch cut short*", "*.Produce/*/error_code", theirs="0", ours="87"),
    _known("Produce", BYTES_BEHIND, "a batch cut short*", "*.Produce/*/base_offset", ours="-1"),
    _known("Produce", BYTES_BEHIND, "a batch cut short*", "11.Fetch/*"),
    _known("Produce", LOG_START, "*", "*.Produce/*/log_start_offset", theirs="-1", ours="0", versions="5+"),
    _known("Produce", CODEC, "attribute bits", "*.Produce/*/log_start_offset", theirs="0", ours="-1"),
    _known("Produce", CODEC, "attribute bits", "*.Produce/*/error_code", theirs="-1", ours="76"),
    _known("Produce", NEGATIVE_EPOCH, "a negative*", "1.Produce/*/error_code", theirs="0", ours="87"),
    _known("Produce", NEGATIVE_EPOCH, "a negative*", "1.Produce/*/base_offset", theirs="0", ours="-1"),
    _known("Produce", RECORD_ERRORS, "too old and too new", "*.Produce/*/record_errors/*", ours="missing"),
    _known("Produce", RECORD_ERRORS, "records without a key*", "2.Produce/*/record_errors/*", ours="missing"),
    _known("Produce", FIRST_SEQUENCE, "a first sequence above 0", "*.Produce/*/error_code", theirs="0", ours="45"),
    _known("Produce", FIRST_SEQUENCE, "a first sequence above 0", "*.Produce/*/base_offset", theirs="0", ours="-1"),
)

FETCH = (
    _known("Fetch", CUT_BATCH, "with every limit", "*/records/cut", theirs="True", ours="missing"),
    _known("Fetch", CUT_BATCH, "parts of transactions*", "*/records/cut", theirs="True", ours="missing"),
    _known("Fetch", CRASH, "*max_bytes -*", "1.Fetch/responses/*"),
    _known("Fetch", CRASH, "*max_bytes lowest", "1.Fetch/responses/*"),
    _known("Fetch", CRASH, "session_id *est", "1.Fetch/*"),
    _known("Fetch", CRASH, "isolation_level *", "1.Fetch/*"),
    _known("ListOffsets", CRASH, "isolation_level *", "*/error_code", theirs="-1", ours="42"),
)

TOPICS = (
    _known("Metadata", CREATED_AT_ONCE, "topics[0].name *", "1.Metadata/topics/*/error_code", theirs="3", ours="0"),
    _known("Metadata", CREATED_AT_ONCE, "topics[0].name *", "1.Metadata/topics/*/partitions/0", theirs="missing"),
    _known("Metadata", CRASH, "topics[0].name null", "1.Metadata/*", versions="12+"),
    _known("CreateTopics", LATE, "timeout_ms *", "1.CreateTopics/topics/~new/*", versions="2+"),
    _known("CreateTopics", COLLIDING, "a topic whose name differs in dots", "3.CreateTopics/topics/~x_y/*"),
    _known("CreateTopics", VALIDATED_ID, "*valid*", "1.CreateTopics/topics/~new/topic_id", ours="no id"),
    _known("DeleteTopics", LATE, "timeout_ms *", "1.DeleteTopics/responses/*"),
    _known("DeleteTopics", NAMED_TWICE, "topics deleted by id", "3.DeleteTopics/responses/*"),
    _known("CreatePartitions", LATE, "timeout_ms *", "1.CreatePartitions/*/error_code", theirs="7", ours="0"),
    _known("CreatePartitions", WORDS, "*", "1.CreatePartitions/*/error_message", theirs="None", ours="<text>"),
    _known("DescribeTopicPartitions", CRASH, "a nameless topic", "*"),
    _known("DescribeTopicPartitions", CRASH, "cursor.partition_index highest", "1.*/next_cursor", ours="None"),
)

TRANSACTIONS = (
    *(
        _known(api, PREPARED, "prepared to *", f"*.{api}/*error_code", theirs="51")
        for api in ("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit", "Produce")
    ),
    _known("EndTxn", LATE_COMMIT, "*", "*.EndTxn/error_code", theirs="48", ours="90", versions="5+"),
    _known("EndTxn", OTHER_PROTOCOL, "committed 1, *", "1.EndTxn/*", versions="5+"),
    _known("EndTxn", OTHER_PROTOCOL, "aborted 1, *", "1.EndTxn/*", versions="5+"),
    _known("AddPartitionsToTxn", CRASH, "transactions empty", "1.AddPartitionsToTxn", theirs="no answer"),
    _known("AddPartitionsToTxn", NAMED_TWICE, "*, its producer", "*/results_by_partition/2'", theirs="missing"),
    _known("WriteTxnMarkers", CRASH, "*twice", "1.WriteTxnMarkers", theirs="no answer"),
    _known("WriteTxnMarkers", NEGATIVE_MARKER, "markers[0].producer_id *", "1.*/error_code", ours="42"),
    _known("WriteTxnMarkers", NEGATIVE_MARKER, "markers[0].producer_epoch *", "1.*/error_code", ours="42"),
    _known("WriteTxnMarkers", NEGATIVE_MARKER, "*, an old epoch*", "1.*/error_code", theirs="-1", ours="42"),
    _known("ListOffsets", MARKER_TIMES, "*by time", "*.ListOffsets/topics/~one/partitions/*"),
    _known("ListOffsets", MARKER_TIMES, "*of the greatest time", "*.ListOffsets/topics/~one/partitions/*"),
    _known("DeleteRecords", STABLE_START, "records of an open transaction deleted", "2.*/offset", theirs="0", ours="1"),
    *(
        _known("Fetch", ABORTED_BEHIND, scenario, "*/aborted_transactions/*", theirs="{*", ours="missing")
        for scenario in ("*transactions that overlap", "records deleted from under transactions")
    ),
)

REST = (
    _known("ApiVersions", SERVED_APIS, "*", "*/api_keys/*", ours="missing"),
    _known("ApiVersions", OLD_VERSIONS, "*", "*/api_keys/*/min_version"),
    _known("ApiVersions", UNKNOWN_VERSION, "versions that nobody has", "*.bytes/api_keys/*", theirs="missing"),
    _known("ApiVersions", FEATURES, "*", "*/supported_features/*", ours="missing", versions="3+"),
    _known("ApiVersions", FEATURES, "*", "*/finalized_features/*", ours="missing", versions="3+"),
    _known("ApiVersions", OWN_FEATURE, "*", "*/supported_features/exactlog.append", theirs="missing", versions="3+"),
    _known("FindCoordinator", WORDS, "*", "*/coordinators/*/error_message", theirs="", ours="<text>", versions="4+"),
    _known("JoinGroup", CRASH, "protocols twice", "1.JoinGroup", theirs="no answer", versions="0-3"),
)

CONFIGS = (
    *(
        _known(api, OTHER_SETTINGS, "*", f"*/configs/{name}", ours="missing")
        for api in ("CreateTopics", "DescribeConfigs")
        for name in SETTINGS_OF_OTHERS
    ),
    _known("CreateTopics", OTHER_SETTINGS, "*", "*/configs/min.insync.replicas/config_source", theirs="3", ours="5"),
    _known("CreateTopics", AS_WRITTEN, "topics with settings*", "*/configs/*/value"),
    _known("CreateTopics", POLICY_TWICE, "a policy named twice", "1.CreateTopics/*"),
    _known("DescribeConfigs", OTHER_SETTINGS, "*", "*/configs/min.insync.replicas/*", theirs="3", ours="5"),
    _known("DescribeConfigs", WORDS, "*", "*/error_message", theirs="", ours="<text>"),
    _known("DescribeConfigs", RETENTION, "one setting of the broker", "*/log.retention.ms/value", theirs="None"),
    _known("DescribeConfigs", SYNONYMS, "*", "*/synonyms/*"),
    _known("AlterConfigs", CRASH, "resources twice", "1.AlterConfigs", theirs="no answer"),
    _known("IncrementalAlterConfigs", OPERATION, "*.config_operation *", "1.*/error_code", theirs="-1", ours="42"),
    _known("IncrementalAlterConfigs", OPERATION, "changes of every kind", "*/error_code", theirs="-1", ours="42"),
    _known("IncrementalAlterConfigs", OPERATION, "*", "*/error_message", theirs="None", ours="<text>"),
    _known("ListConfigResources", LOGGERS, "resource*", "*/config_resources/1*", versions="1+"),
)

KNOWN_DIFFERENCES = PRODUCE + FETCH + TOPICS + CONFIGS + TRANSACTIONS + REST
"""Each covers a difference that there is: one that covers nothing any more fails the test."""
