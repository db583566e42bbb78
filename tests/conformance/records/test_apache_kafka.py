"""Apache Kafka's own code reads our batches, we read its, and both decide alike on producers' batches and markers."""

import json
import random
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from exactlog.core.codec.compression import Compression
from exactlog.core.log.producer_state import Decision, Duplicate, Fresh, ProducerEntry, ProducerStates, Refused
from exactlog.core.record.batch_builder import NewRecord, build_batch
from exactlog.core.record.batch_format import crc_is_valid, decode_header
from exactlog.core.record.batch_validation import ValidRecords, validate_produced
from exactlog.core.record.control_record_format import TransactionMarker, build_marker_batch, decode_marker
from exactlog.core.record.record_format import decode_records
from tests.peers.apache_kafka import kafka_jars
from tests.peers.gate import skip_without_peer

pytestmark = pytest.mark.peer

FIRST_MS = 1_700_000_000_000
RECORDS = [
    NewRecord(b"value " * 50, key=b"key", headers=(("trace", b"\x00\x01"), ("none", None)), timestamp_ms=FIRST_MS),
    NewRecord(None, key=b"tombstone", timestamp_ms=FIRST_MS - 70_000),
    NewRecord(b"", key=None, timestamp_ms=FIRST_MS + 70_000),
    NewRecord(b"x" * 100_000, key=b"long", headers=(("é", b"accent"),), timestamp_ms=FIRST_MS),
]
MARKERS = [
    TransactionMarker(is_commit=is_commit, coordinator_epoch=epoch) for is_commit in (True, False) for epoch in (0, 9)
]


@pytest.fixture(scope="module")
def ask_kafka():
    """Apache Kafka's code in a process of its own: ``ask_kafka(what, elements)`` returns its answer to each of them."""
    with skip_without_peer():
        jars = kafka_jars()
    program = Path(__file__).with_name("KafkaRecords.java")
    command = ["java", "-cp", f"{jars}/*", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as process:

        def ask(what, elements):
            process.stdin.write(json.dumps({"what": what, "elements": elements}) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield ask
        process.stdin.close()


def hexadecimal(value):
    return None if value is None else value.hex()


def in_json(record, offset):
    headers = [[name, hexadecimal(value)] for name, value in record.headers]
    return [offset, record.timestamp_ms, hexadecimal(record.key), hexadecimal(record.value), headers]


def test_kafka_reads_our_batches_of_every_codec(ask_kafka):
    batches = [
        build_batch(RECORDS, compression=codec, base_offset=1 << 33, producer_id=9, producer_epoch=2, base_sequence=40)
        for codec in Compression
    ]

    read = ask_kafka("read", [batch.hex() for batch in batches])

    expected = [in_json(record, (1 << 33) + index) for index, record in enumerate(RECORDS)]
    assert read == [expected] * len(Compression)


def test_kafka_reads_our_batches_one_after_the_other(ask_kafka):
    batches = build_batch(RECORDS[:2], base_offset=3) + build_batch(RECORDS[2:], base_offset=7)

    (read,) = ask_kafka("read", [batches.hex()])

    assert [record[0] for record in read] == [3, 4, 7, 8]


def test_kafka_reads_our_markers(ask_kafka):
    batches = [build_marker_batch(marker, producer_id=9, producer_epoch=2, timestamp_ms=1) for marker in MARKERS]

    read = ask_kafka("read", [batch.hex() for batch in batches])

    assert read == [[[marker.control_type.name, marker.coordinator_epoch]] for marker in MARKERS]


def test_we_read_kafkas_batches_of_every_codec(ask_kafka):
    asked = [
        {
            "codec": codec.name.lower(),
            "base_offset": 0,
            "producer_id": 9,
            "producer_epoch": 2,
            "base_sequence": 40,
            "is_transactional": True,
            "records": [in_json(record, 0)[1:] for record in RECORDS],
        }
        for codec in Compression
    ]

    batches = [bytes.fromhex(batch) for batch in ask_kafka("write", asked)]

    for codec, batch in zip(Compression, batches, strict=True):
        verdict = validate_produced(batch, batch_bytes_max=len(batch))
        assert isinstance(verdict, ValidRecords)
        assert verdict.header.compression is codec
        assert [in_json(record, record.offset) for record in decode_records(batch)] == [
            in_json(record, index) for index, record in enumerate(RECORDS)
        ]
    assert batches[0] == build_batch(RECORDS, producer_id=9, producer_epoch=2, base_sequence=40, is_transactional=True)


def test_we_write_kafkas_markers_to_the_byte(ask_kafka):
    asked = [
        {
            "base_offset": 77,
            "producer_id": 9,
            "producer_epoch": 2,
            "marker": marker.control_type.name,
            "coordinator_epoch": marker.coordinator_epoch,
            "timestamp": FIRST_MS,
        }
        for marker in MARKERS
    ]

    batches = [bytes.fromhex(batch) for batch in ask_kafka("write", asked)]

    assert batches == [
        build_marker_batch(marker, producer_id=9, producer_epoch=2, timestamp_ms=FIRST_MS, base_offset=77)
        for marker in MARKERS
    ]
    assert [decode_marker(next(decode_records(batch))) for batch in batches] == MARKERS
    assert all(crc_is_valid(batch) for batch in batches)


# --- producers ------------------------------------------------------------------------------------------------


def script(choice):
    """What two producers might send: mostly the next batch, often a resend, at times a marker, or anything."""
    sent, due, epochs = [], {}, {}
    for number in range(choice.randint(5, 40)):
        producer_id = choice.randint(1, 2)
        epoch = epochs.setdefault(producer_id, 0)
        sequence = due.setdefault(producer_id, choice.choice([0, 0, 2**31 - 3]))
        count, is_transactional = choice.randint(1, 4), choice.random() < 0.5
        move = choice.choice(["next"] * 6 + ["resend"] * 3 + ["bump", "old", "gap", "marker", "marker"])
        if move == "resend" and sent:
            sent.append(choice.choice(sent[-12:]))
            continue
        if move == "marker":
            epochs[producer_id] = epoch + choice.randint(-1, 1)
            due[producer_id] = 0 if epochs[producer_id] != epoch else sequence
            sent.append(
                {
                    "producer_id": producer_id,
                    "producer_epoch": max(epochs[producer_id], 0),
                    "marker": choice.choice(["COMMIT", "ABORT"]),
                    "coordinator_epoch": choice.randint(0, 2),
                    "transaction_version": choice.randint(0, 2),
                    "timestamp": FIRST_MS + number,
                }
            )
            continue
        if move == "bump":
            epochs[producer_id], sequence = epoch + 1, choice.choice([0, 0, sequence])
        elif move == "old":
            epochs[producer_id] = max(epoch - 1, 0)
        elif move == "gap":
            sequence = (sequence + choice.randint(1, 3)) % 2**31
        due[producer_id] = (sequence + count) % 2**31
        sent.append(
            {
                "producer_id": producer_id,
                "producer_epoch": max(epochs[producer_id], 0),
                "base_sequence": sequence,
                "is_transactional": is_transactional,
                "codec": "none",
                "records": [[FIRST_MS + number, None, "00", []]] * count,
            }
        )
    return sent


def as_kafka_says_it(decision: Decision):
    match decision:
        case Fresh():
            return "fresh"
        case Duplicate(batch=batch):
            return batch.offset_start
        case Refused(error_code=error_code):
            return error_code.name


def described(entry: ProducerEntry):
    batches = [
        [batch.first_sequence, batch.last_sequence, batch.offset_start, batch.offset_end, batch.timestamp]
        for batch in entry.batches
    ]
    return [entry.producer_epoch, entry.coordinator_epoch, entry.last_timestamp, batches, entry.txn_start_offset]


def decide_and_replay(sent):
    """Our decisions, the transactions that were aborted, and our state after all."""
    states, decisions, aborted, next_offset = ProducerStates(), [], [], 0
    for element in sent:
        producer = {"producer_id": element["producer_id"], "producer_epoch": element["producer_epoch"]}
        if "marker" in element:
            marker = TransactionMarker(
                is_commit=element["marker"] == "COMMIT", coordinator_epoch=element["coordinator_epoch"]
            )
            batch = build_marker_batch(marker, **producer, timestamp_ms=element["timestamp"], base_offset=next_offset)
            judged = states.judge_marker(
                **producer,
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=element["transaction_version"],
            )
            if judged == Fresh():
                ended = states.replay_marker(decode_header(batch), marker)[1]
                aborted += [] if ended is None else [ended]
                next_offset += 1
            decisions.append(as_kafka_says_it(judged))
            continue
        records = [NewRecord(b"\x00", timestamp_ms=record[0]) for record in element["records"]]
        header = decode_header(
            build_batch(
                records,
                **producer,
                base_sequence=element["base_sequence"],
                is_transactional=element["is_transactional"],
            )
        )
        # Kafka 4.4 does not have KAFKA-15591 yet: to it no log is empty for ever. It verifies elsewhere.
        decision = states.decide(header, log_is_empty_forever=False, is_verified=True)
        if decision == Fresh():
            header = replace(header, base_offset=next_offset, leader_epoch=0)
            states.replay(header)
            next_offset = header.next_offset
        decisions.append(as_kafka_says_it(decision))
    producers = {str(entry.producer_id): described(entry) for entry in states.snapshot()}
    rows = [[row.producer_id, row.first_offset, row.last_offset, row.last_stable_offset] for row in aborted]
    return decisions, rows, producers


def test_kafka_decides_as_we_do_and_remembers_the_same(ask_kafka):
    scripts = [script(random.Random(seed)) for seed in range(300)]

    answers = ask_kafka("append", scripts)

    seen = set()
    for seed, (sent, answer) in enumerate(zip(scripts, answers, strict=True)):
        decisions, aborted, producers = decide_and_replay(sent)
        assert decisions == answer["decisions"], f"seed {seed}"
        assert aborted == [row for *row, is_aborted in answer["transactions"] if is_aborted], f"seed {seed}"
        assert producers == answer["producers"], f"seed {seed}"
        seen.update("duplicate" if isinstance(decision, int) else decision for decision in decisions)
    assert seen >= {
        "fresh", "duplicate", "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH", "INVALID_TXN_STATE",
        "TRANSACTION_COORDINATOR_FENCED",
    }  # fmt: skip
