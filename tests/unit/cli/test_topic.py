import uuid

import pytest


@pytest.fixture
def name():
    return f"topic-{uuid.uuid4().hex[:8]}"


def test_a_created_topic_is_listed_and_described(run, name):
    created = run("topic", "create", name, "-p", 3, "-c", "retention.ms=60000").value

    assert (created["topic"], created["partitions"], created["created"]) == (name, 3, True)
    listed = {row["topic"]: row for row in run("topic", "list").value}
    assert listed[name] == {"topic": name, "topic_id": created["topic_id"], "partitions": 3, "internal": False}
    described = run("topic", "describe", name).value
    assert described["topic_id"] == created["topic_id"]
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2]
    configs = {config["name"]: config for config in described["configs"]}
    assert configs["retention.ms"] == {
        "name": "retention.ms",
        "value": "60000",
        "source": "dynamic_topic_config",
        "is_default": False,
    }
    assert configs["cleanup.policy"]["source"] == "default_config"


def test_the_broker_decides_how_many_partitions_when_nobody_says(run, name):
    assert run("topic", "create", name).value["partitions"] == 1


def test_offsets_are_described(run, exactlog_topic):
    run("produce", exactlog_topic, stdin=b"a\nb\n")

    [partition] = run("topic", "describe", exactlog_topic).value["partitions"]

    assert (partition["log_start_offset"], partition["last_stable_offset"], partition["end_offset"]) == (0, 2, 2)


def test_people_see_tables(run, name):
    run("topic", "create", name, "-c", "segment.bytes=1024")

    listed = run("topic", "list", "-o", "table").out.splitlines()
    described = run("topic", "describe", name, "-o", "table").out

    assert listed[0].split() == ["TOPIC", "PARTITIONS", "TOPIC", "ID", "INTERNAL"]
    assert any(line.startswith(name) for line in listed)
    assert "END OFFSET" in described
    assert "segment.bytes  1024   dynamic_topic_config" in described
    assert "retention.ms" not in described


def test_without_settings_of_its_own_none_are_shown(run, name):
    run("topic", "create", name)

    assert "NAME" not in run("topic", "describe", name, "-o", "table").out


def test_a_topic_that_exists_is_a_conflict_unless_that_is_fine(run, exactlog_topic):
    ran = run("topic", "create", exactlog_topic)
    assert (ran.code, ran.error["kafka_error"]) == (4, 36)
    assert "--if-not-exists" in ran.error["hint"]

    ran = run("topic", "create", exactlog_topic, "--if-not-exists")
    assert (ran.code, ran.value["created"]) == (0, False)


def test_other_refusals_are_errors_even_if_an_existing_topic_were_fine(run):
    ran = run("topic", "create", "no/name", "--if-not-exists")

    assert (ran.code, ran.error["kafka_error"]) == (1, 17)


def test_a_setting_that_is_not_known_is_refused_with_the_nearest(run, name):
    ran = run("topic", "create", name, "-c", "retention.msec=1")

    assert ran.code == 1
    assert "Did you mean retention.ms?" in ran.error["message"]


def test_a_setting_must_be_an_assignment(run, name):
    assert run("topic", "create", name, "-c", "retention.ms").code == 2


def test_a_topic_grows_and_is_set_anew_and_what_was_set_is_taken_back(run, name):
    run("topic", "create", name, "-c", "segment.bytes=1024")

    altered = run("topic", "alter", name, "-p", 3, "-c", "retention.ms=60000", "-c", "segment.bytes=").value

    assert (altered["topic"], altered["partitions"]) == (name, 3)
    assert altered["configs"]["retention.ms"] == "60000"
    assert altered["configs"]["segment.bytes"] != "1024"
    described = run("topic", "describe", name).value
    assert len(described["partitions"]) == 3
    assert [config["name"] for config in described["configs"] if not config["is_default"]] == ["retention.ms"]


@pytest.mark.parametrize("options", [["-p", 3], ["-c", "retention.ms=60000"]])
def test_one_thing_of_a_topic_can_be_altered_alone(run, name, options):
    run("topic", "create", name)

    assert run("topic", "alter", name, *options).code == 0


def test_to_alter_nothing_is_wrong_usage(run, exactlog_topic):
    assert run("topic", "alter", exactlog_topic).code == 2


def test_a_topic_does_not_shrink(run, name):
    run("topic", "create", name, "-p", 3)

    ran = run("topic", "alter", name, "-p", 2)

    assert (ran.code, ran.error["kafka_error"]) == (1, 37)


def test_a_topic_that_is_not_there_is_not_altered(run, name):
    assert run("topic", "alter", name, "-p", 2).code == 3
    assert run("topic", "alter", name, "-c", "retention.ms=1").code == 3


def test_what_of_a_topic_was_altered_before_something_failed_is_told(run, name):
    run("topic", "create", name)

    ran = run("topic", "alter", name, "-p", 2, "-c", "retention.msec=1")

    assert (ran.code, ran.error["code"]) == (8, "partly-done")
    assert ran.error["message"].startswith(f"topic {name} has 2 partitions now, then: ")
    assert len(run("topic", "describe", name).value["partitions"]) == 2
    assert run("topic", "alter", name, "-c", "retention.msec=1").code == 1


def test_a_deleted_topic_is_gone(run, exactlog_topic):
    assert run("topic", "delete", exactlog_topic, "--yes").value == {"topic": exactlog_topic, "deleted": True}

    ran = run("topic", "describe", exactlog_topic)
    assert (ran.code, ran.error["code"]) == (3, "not-found")
    assert run("topic", "delete", exactlog_topic, "--yes").code == 3


def test_deleting_needs_a_yes_and_asks_no_question(run, exactlog_topic):
    ran = run("topic", "delete", exactlog_topic)

    assert ran.code == 2
    assert "--yes" in ran.error["hint"]
    assert run("topic", "describe", exactlog_topic).code == 0
