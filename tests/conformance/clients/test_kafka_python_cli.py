"""The command line of kafka-python: topics, partitions, settings, groups, and a console at each end."""

import json
import re
import subprocess
import sys

import pytest

from tests.conformance.clients.face import TRANSACTION_TIMEOUT_MS, Sent
from tests.support.transactional_clients import consume, consume_decided

ANY_AGE_MS = -(10**12)
"""A transaction hangs from this age on: whatever the two clocks say."""


@pytest.fixture
def command(bootstrap_servers):
    """Runs a command to its end."""

    def run(*arguments, module="kafka.admin", written=""):
        return subprocess.run(
            [sys.executable, "-m", module, "-b", bootstrap_servers, *arguments],
            input=written,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return run


@pytest.fixture
def admin(command):
    """An administrative command, as it would be typed, and what it answers."""

    def run(line):
        done = command("--format", "json", *line.split())
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture
def refusal(command):
    """An administrative command that fails, and the number of the error."""

    def run(line):
        done = command(*line.split())
        assert done.returncode != 0
        return int(re.search(r"\[Error (\d+)\]", done.stdout + done.stderr)[1])

    return run


def test_topics(admin, refusal, new_name):
    admin(f"topics create -t {new_name} --num-partitions 2")
    assert refusal(f"topics create -t {new_name}") == 36
    assert new_name in admin("topics list")

    admin(f"partitions create -p {new_name}:3")
    (described,) = admin(f"topics describe -t {new_name}")
    assert [partition["partition_index"] for partition in described["partitions"]] == [0, 1, 2]

    admin(f"topics delete -t {new_name}")
    assert new_name not in admin("topics list")


def test_settings(admin, new_name):
    resource = f"-r topic -n {new_name}"
    admin(f"topics create -t {new_name}")

    def modified():
        of_topics = admin(f"configs describe {resource} --modified")["topic"]
        return {name: entry["value"] for name, entry in of_topics[new_name].items()}

    admin(f"configs alter {resource} -c retention.ms=12345")
    admin(f"configs alter {resource} -c max.message.bytes=20000 --force-incremental")
    assert modified() == {"retention.ms": "12345", "max.message.bytes": "20000"}
    admin(f"configs reset {resource} -c retention.ms")
    assert modified() == {"max.message.bytes": "20000"}
    assert new_name in admin("configs list -r topic")["topic"]


def test_records_and_groups(admin, command, control, new_name):
    admin(f"topics create -t {new_name}")
    sent = command("-t", new_name, module="kafka.producer", written="one\ntwo\nthree\n")
    assert sent.returncode == 0, sent.stderr

    control.commit(new_name, new_name, {0: (0, "")})
    read = command("-t", new_name, "-g", new_name, "-C", "consumer_timeout_ms=1000", module="kafka.consumer")
    assert read.stdout.split() == ["one", "two", "three"]

    def committed():
        partition = admin(f"groups list-offsets -g {new_name}")[new_name]["0"]
        return partition["offset"], partition["lag"]

    assert committed() == (3, 0)
    assert admin(f"groups describe -g {new_name}")[new_name]["group_state"] == "Empty"
    assert new_name in [group["group_id"] for group in admin("groups list --state Empty")]

    admin(f"groups reset-offsets -g {new_name} -p {new_name}:0 -s earliest")
    assert committed() == (0, 3)
    admin(f"groups reset-offsets -g {new_name} -p {new_name}:0 --to-offset 2")
    assert committed() == (2, 1)
    admin(f"groups alter-offsets -g {new_name} -o {new_name}:0:1")
    assert committed() == (1, 2)

    admin(f"groups delete-offsets -g {new_name} -p {new_name}:0")
    assert admin(f"groups list-offsets -g {new_name}") == {}
    admin(f"groups alter-offsets -g {new_name} -o {new_name}:0:1")
    assert admin(f"groups delete -g {new_name}") == {new_name: "OK"}
    assert new_name not in [group["group_id"] for group in admin("groups list")]


def test_partitions(admin, command, new_name):
    admin(f"topics create -t {new_name}")
    command("-t", new_name, module="kafka.producer", written="one\ntwo\nthree\n")

    assert admin(f"partitions list-offsets -t {new_name} -s latest")[new_name]["0"]["offset"] == 3
    # Of these two it can print the answer in Python's way only.
    assert "'low_watermark': 2" in command(*f"partitions delete-records -r {new_name}:0:2".split()).stdout
    assert f"'name': '{new_name}'" in command(*f"partitions describe -t {new_name}".split()).stdout
    assert admin(f"partitions list-offsets -p {new_name}:*:earliest")[new_name]["0"]["offset"] == 2


def test_the_cluster(admin, new_name, bootstrap_servers):
    admin(f"topics create -t {new_name}")

    (broker,) = admin("cluster describe")["brokers"]
    assert f"{broker['host']}:{broker['port']}" == bootstrap_servers
    ((folder,),) = [each["log_dirs"] for each in admin(f"cluster describe-log-dirs --topic {new_name}")]
    assert [topic["name"] for topic in folder["topics"]] == [new_name]
    assert admin(f"cluster broker-version --broker {broker['broker_id']}")
    producers = admin(f"transactions describe-producers -t {new_name} -p 0")
    assert producers[f"{new_name}:0"]["active_producers"] == []


def test_a_transaction_that_hangs_is_found_and_aborted(admin, control, new_name, bootstrap_servers):
    control.create_topic(new_name)
    producer = control.transactional(new_name)
    for value in (b"committed", b"open"):
        producer.begin()
        producer.send(new_name, 0, value)
        if value == b"committed":
            producer.commit()
    control.produce(new_name, [Sent(b"behind")])

    (listed,) = admin(f"transactions list --state Ongoing --id-pattern {new_name}").values()
    assert [found["transactional_id"] for found in listed] == [new_name]
    described = admin(f"transactions describe --transactional-id {new_name}")[new_name]
    assert described["state"] == "Ongoing"
    assert described["topic_partitions"] == [{"topic": new_name, "partition": 0}]
    assert described["transaction_timeout_ms"] == TRANSACTION_TIMEOUT_MS

    def hanging(options=""):
        return [row for row in admin(f"transactions find-hanging {options}") if row["transactional_id"] == new_name]

    assert hanging() == []
    (found,) = hanging(f"--max-transaction-timeout-ms={ANY_AGE_MS}")
    assert found["topic_partitions"] == [{"topic": new_name, "partition": 0}]

    (state,) = admin(f"transactions describe-producers -t {new_name} -p 0")[f"{new_name}:0"]["active_producers"]
    assert (state["producer_id"], state["producer_epoch"]) == (found["producer_id"], found["producer_epoch"])
    assert state["current_transaction_start_offset"] == 2  # behind the first and its marker
    assert consume(bootstrap_servers, new_name) == [[b"committed"]]
    admin(
        f"transactions abort -t {new_name} -p 0 --producer-id {found['producer_id']}"
        f" --producer-epoch {found['producer_epoch']} --coordinator-epoch {state['coordinator_epoch']}"
    )

    assert consume_decided(bootstrap_servers, new_name) == [[b"committed", b"behind"]]
    (state,) = admin(f"transactions describe-producers -t {new_name} -p 0")[f"{new_name}:0"]["active_producers"]
    assert state["current_transaction_start_offset"] == -1
    producer.close()


def test_a_transactional_id_that_is_not_there(refusal, new_name):
    assert refusal(f"transactions describe --transactional-id {new_name}") == 105


@pytest.mark.only_exactlog  # it does not know all that Apache Kafka serves
def test_apis_that_are_served_and_one_that_is_not(admin, refusal):
    assert admin("cluster api-versions -k Metadata")
    assert refusal("acls describe") == 35
