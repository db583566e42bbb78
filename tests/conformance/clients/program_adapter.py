"""Clients of other languages: a program that is asked in lines of JSON and answers in lines of JSON."""

import base64
import json
import subprocess
import uuid

from tests.conformance.clients.face import TRANSACTION_TIMEOUT_MS, GroupDescription, Received, Refused, nothing


class ClientProgram:
    """A running Java or Go program of `tests/peers`, with the same face as the Python clients."""

    def __init__(self, command):
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")

    def close(self):
        """Ends the program: its input ends."""
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _ask(self, op, **arguments):
        self._say({"op": op} | arguments)
        return self._answer()

    def _say(self, line):
        self._process.stdin.write(json.dumps(line) + "\n")
        self._process.stdin.flush()

    def _answer(self):
        line = self._process.stdout.readline()
        assert line, "the program has ended"
        answer = json.loads(line)
        if answer.get("refused"):
            raise Refused(answer["refused"], answer["message"])
        assert "broken" not in answer, answer["message"]
        return answer.get("result")

    # --- records ----------------------------------------------------------------------------------------------

    def produce(self, topic, records, *, acks="all", compression="none", idempotent=False, meanwhile=nothing):
        told = [
            {
                "value": _text(record.value),
                "key": _text(record.key),
                "headers": [[name, _text(value)] for name, value in record.headers],
                "timestamp_ms": record.timestamp_ms,
                "partition": record.partition,
            }
            for record in records
        ]
        settings = {"acks": acks, "compression": compression, "idempotent": idempotent}
        self._ask("produce", topic=topic, records=told, **settings)
        meanwhile()
        self._say({})
        return self._answer()

    def consume(self, topic, start, count, *, partition=0, isolation="read_uncommitted"):
        asked = {"partition": partition, "start": start, "count": count, "isolation": isolation}
        return _received(self._ask("consume", topic=topic, **asked))

    def ends(self, topic, *, partition=0):
        return tuple(self._ask("ends", topic=topic, partition=partition))

    def offset_at(self, topic, timestamp_ms, *, partition=0):
        return self._ask("offset_at", topic=topic, partition=partition, timestamp_ms=timestamp_ms)

    def list_offset(self, topic, spec, *, partition=0):
        return tuple(self._ask("list_offset", topic=topic, partition=partition, spec=spec))

    # --- topics -----------------------------------------------------------------------------------------------

    def create_topic(self, name, *, partitions=1, config=None):
        self._ask("create_topic", topic=name, partitions=partitions, config=config or {})

    def delete_topic(self, name):
        self._ask("delete_topic", topic=name)

    def delete_records(self, topic, offset, *, partition=0):
        return self._ask("delete_records", topic=topic, partition=partition, offset=offset)

    def partition_counts(self):
        return self._ask("partition_counts")

    def settings(self, topic):
        return self._ask("settings", topic=topic)

    def alter_settings(self, topic, settings):
        self._ask("alter_settings", topic=topic, settings=settings)

    def create_partitions(self, topic, count):
        self._ask("create_partitions", topic=topic, count=count)

    def describe_cluster(self):
        return self._ask("describe_cluster")

    def log_sizes(self, topic):
        return _by_partition(self._ask("log_sizes", topic=topic))

    def producers(self, topic, *, partition=0):
        return [tuple(state) for state in self._ask("producers", topic=topic, partition=partition)]

    # --- groups -----------------------------------------------------------------------------------------------

    def commit(self, group, topic, offsets, *, asynchronous=False):
        self._ask("commit", group=group, topic=topic, offsets=offsets, asynchronous=asynchronous)

    def committed(self, group, topic):
        found = _by_partition(self._ask("committed", group=group, topic=topic))
        return {partition: tuple(offset) for partition, offset in found.items()}

    def consume_in_group(self, group, topic, count):
        return _received(self._ask("consume_in_group", group=group, topic=topic, count=count))

    def alter_group_offsets(self, group, topic, offsets):
        self._ask("alter_group_offsets", group=group, topic=topic, offsets=offsets)

    def delete_group_offsets(self, group, topic, partitions):
        self._ask("delete_group_offsets", group=group, topic=topic, partitions=partitions)

    def groups(self):
        return self._ask("groups")

    def describe_group(self, group):
        found = self._ask("describe_group", group=group)
        members = {name: {tuple(partition) for partition in owned} for name, owned in found["members"].items()}
        return GroupDescription(found["state"], found["protocol"], members)

    def delete_group(self, group):
        self._ask("delete_group", group=group)

    # --- transactions -----------------------------------------------------------------------------------------

    def transactional(self, transactional_id, *, timeout_ms=TRANSACTION_TIMEOUT_MS):
        return _Transactional(self._ask, transactional_id, timeout_ms)

    # --- what only the Java program is asked ------------------------------------------------------------------

    def client_apis(self):
        """The APIs that this client knows of and may ask a broker for: names by number."""
        return dict(self._ask("client_apis"))

    def attempt(self, api, topic):
        """Makes the call of the administration that stands for an API."""
        self._ask("attempt", call=api, topic=topic)


class _Transactional:
    """A transactional producer that the program keeps under a name."""

    def __init__(self, ask, transactional_id, timeout_ms):
        named = {"producer": uuid.uuid4().hex, "transactional_id": transactional_id}
        self._ask = lambda op, **arguments: ask(f"txn_{op}", **named, **arguments)
        self._ask("open", timeout_ms=timeout_ms)

    def begin(self):
        self._ask("begin")

    def send(self, topic, partition, value):
        self._ask("send", topic=topic, partition=partition, value=_text(value))

    def send_offset(self, topic, partition, offset, group):
        self._ask("send_offset", topic=topic, partition=partition, offset=offset, group=group)

    def commit(self):
        self._ask("commit")

    def abort(self):
        self._ask("abort")

    def close(self):
        self._ask("close")


def _by_partition(found):
    return {int(partition): value for partition, value in found.items()}


def _received(records):
    return [
        Received(
            offset, _bytes(value), _bytes(key), tuple((name, _bytes(data)) for name, data in headers), timestamp_ms
        )
        for offset, value, key, headers, timestamp_ms in records
    ]


def _text(value):
    return None if value is None else base64.b64encode(value).decode()


def _bytes(text):
    return None if text is None else base64.b64decode(text)
