"""Options of a read: what they mean, and the sentence for each that is wrong."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.core.model.errors import ExactlogError
from exactlog.core.model.isolation_level import IsolationLevel
from exactlog.pipeline.read_options import (
    READ_OPTION_NAMES,
    InvalidOptionError,
    ReadOptions,
    parse_read_options,
)

PATH = {"path": "/data"}
NAIVE_EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
BROKER = {"bootstrap": "127.0.0.1:9092"}


def refusal(options, **more):
    with pytest.raises(InvalidOptionError) as caught:
        parse_read_options(options, **more)
    assert caught.value.code == "invalid-option"
    return str(caught.value), caught.value.hint


def test_a_path_alone_reads_all_that_is_committed_of_every_topic_that_is_not_internal():
    assert parse_read_options(PATH) == ReadOptions(
        path="/data", topics=(), isolation=IsolationLevel.READ_COMMITTED, bytes_per_partition_max=64 * 1024 * 1024
    )


def test_every_option_of_a_batch_is_read():
    assert parse_read_options(
        PATH
        | {
            "topics": "orders, payments,orders",
            "startingVersion": "3",
            "endingVersion": "3",
            "isolation": "Read_Uncommitted",
            "includeControl": "TRUE",
            "maxBytesPerPartition": "16m",
            "pushDown": "true",
        }
    ) == ReadOptions(
        path="/data",
        topics=("orders", "payments"),
        starting_version=3,
        ending_version=3,
        isolation=IsolationLevel.READ_UNCOMMITTED,
        include_control=True,
        bytes_per_partition_max=16 * 1024 * 1024,
        push_down=True,
    )


def test_every_option_of_a_stream_is_read():
    limits = {"maxRowsPerTrigger": "500", "maxBytesPerTrigger": "1g"}

    stream = parse_read_options(BROKER | limits | {"startingOffsets": "latest"}, is_stream=True)

    assert (stream.starting_offsets, stream.rows_per_trigger_max, stream.bytes_per_trigger_max) == (
        "latest",
        500,
        1 << 30,
    )
    for text, meaning in (("earliest", "earliest"), ("Latest", "latest"), ("7", 7)):
        assert parse_read_options(PATH | {"startingVersion": text}, is_stream=True).starting_version == meaning


@given(st.sampled_from(READ_OPTION_NAMES), st.data())
def test_the_case_of_a_name_means_nothing(name, data):
    spelled = "".join(data.draw(st.sampled_from((letter.lower(), letter.upper()))) for letter in name)
    value = {"path": "/data", "bootstrap": "a:1", "isolation": "read_committed", "includeControl": "true"}.get(
        name, "7"
    )

    for is_stream in (False, True):
        try:
            usual = parse_read_options({name: value} | (PATH if name != "path" else {}), is_stream=is_stream)
        except InvalidOptionError:
            continue
        others = PATH if name != "path" else {}
        assert parse_read_options({spelled: value} | others, is_stream=is_stream) == usual


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("data", "data"),
        (" /data ", "/data"),
        ("file:/data/a%20b", "/data/a b"),
        ("file:///data", "/data"),
        ("file://localhost/data", "/data"),
        ("/data/topic=a-part=0", "/data/topic=a-part=0"),
    ],
)
def test_a_path_may_be_a_url_of_a_file(text, path):
    assert parse_read_options({"path": text}).path == path


@pytest.mark.parametrize("text", ["s3://bucket/data", "hdfs://host/data", "file://elsewhere/data"])
def test_a_path_of_another_file_system_is_refused(text):
    message, hint = refusal({"path": text})

    assert message == f"path {text} is not a directory that this machine can open as a file"
    assert hint == "give a local path, or one on a file system that all machines have mounted"


@given(st.datetimes(NAIVE_EPOCH, NAIVE_EPOCH.replace(year=9999)), st.sampled_from(["", "Z", "+00:00", "+05:30"]))
def test_a_time_is_read_in_utc_unless_it_says_otherwise(instant, zone):
    shift = timedelta(hours=5, minutes=30) if zone == "+05:30" else timedelta()
    text = (instant + shift).isoformat() + zone

    expected = (instant - NAIVE_EPOCH) // timedelta(milliseconds=1)

    assert parse_read_options(PATH | {"timestampAsOf": text}).timestamp_as_of_ms == expected
    assert parse_read_options(PATH | {"timestampAsOf": str(expected)}).timestamp_as_of_ms == expected


@pytest.mark.parametrize("text", ["2026-11-27 10:00:00", "2026-11-27"])
def test_a_time_may_be_written_as_sql_writes_it(text):
    assert parse_read_options(PATH | {"timestampAsOf": text}).timestamp_as_of_ms >= 1_795_737_600_000


# --- what is refused ------------------------------------------------------------------------------------------------


def test_an_unknown_option_is_named_with_the_nearest_there_is():
    message, hint = refusal(PATH | {"versionasoff": "1"})

    assert message == "versionasoff is no option of reading an exactlog"
    assert hint.startswith("did you mean versionAsOf? There are path, bootstrap, topics, ")
    assert refusal(PATH | {"zzz": "1"})[1].startswith("There are path, ")


def test_what_to_read_must_be_said_once():
    assert refusal({})[0] == "neither path nor bootstrap is given"
    assert 'option("path", DATA_DIR)' in refusal({})[1]
    assert refusal(PATH | BROKER)[0] == "path and bootstrap are both given"


@pytest.mark.parametrize("name", ["versionAsOf", "timestampAsOf", "startingVersion", "endingVersion"])
def test_a_broker_has_no_versions(name):
    message, hint = refusal(BROKER | {name: "1"})

    assert message == f"{name} cannot be used with bootstrap: a broker's clients do not see delta versions"
    assert hint == "read the data directory itself, with the option path"


def test_a_directory_has_no_offsets_to_start_a_stream_at():
    assert refusal(PATH | {"startingOffsets": "latest"}, is_stream=True) == (
        "startingOffsets cannot be used with path: such a stream goes by delta versions",
        "use startingVersion",
    )


@pytest.mark.parametrize("name", ["versionAsOf", "timestampAsOf", "endingVersion"])
def test_a_stream_has_no_end(name):
    assert refusal(PATH | {name: "1"}, is_stream=True)[0] == (
        f"{name} is an option of spark.read; a stream has no end to be set by it"
    )


@pytest.mark.parametrize("name", ["startingOffsets", "maxRowsPerTrigger", "maxBytesPerTrigger"])
def test_a_batch_has_no_triggers(name):
    assert refusal(PATH | {name: "1"})[0] == f"{name} is an option of spark.readStream, not of spark.read"


def test_a_stream_pushes_nothing_down():
    assert refusal(PATH | {"pushDown": "true"}, is_stream=True)[0] == (
        "pushDown is an option of spark.read, not of spark.readStream"
    )


def test_a_range_of_versions_ends_behind_its_start():
    assert refusal(PATH | {"startingVersion": "5", "endingVersion": "4"}) == (
        "endingVersion 4 lies before startingVersion 5",
        "both ends are part of the range",
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"versionAsOf": "1", "timestampAsOf": "1"}, "versionAsOf does not go with timestampAsOf"),
        ({"versionAsOf": "1", "startingVersion": "1"}, "versionAsOf does not go with startingVersion or endingVersion"),
        (
            {"timestampAsOf": "1", "endingVersion": "1"},
            "timestampAsOf does not go with startingVersion or endingVersion",
        ),
    ],
)
def test_one_version_is_named_in_one_way(options, message):
    assert refusal(PATH | options)[0] == message


@pytest.mark.parametrize("name", ["versionAsOf", "startingVersion", "endingVersion"])
@pytest.mark.parametrize("text", ["-1", "1.5", "x", "", "१", "1_0", str(2**63)])
def test_a_version_is_a_number(name, text):
    assert refusal(PATH | {name: text})[0] == f"{name} must be a number from 0 on, not {text!r}"


@pytest.mark.parametrize("text", ["yesterday", "-5", "1969-12-31", "2026-13-01T00:00:00Z", ""])
def test_a_time_is_a_time(text):
    message, hint = refusal(PATH | {"timestampAsOf": text})

    assert message == f"timestampAsOf must be a time from 1970 on, not {text!r}"
    assert hint == "for example 2026-11-27T10:00:00Z, or milliseconds since 1970"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"isolation": "serializable"}, "isolation must be read_uncommitted or read_committed, not 'serializable'"),
        ({"includeControl": "yes"}, "includeControl must be true or false, not 'yes'"),
        ({"maxBytesPerPartition": "0"}, "maxBytesPerPartition must be a number of bytes from 1 on, not '0'"),
        ({"maxBytesPerPartition": "1t"}, "maxBytesPerPartition must be a number of bytes from 1 on, not '1t'"),
        ({"topics": " , "}, "topics names no topic"),
        ({"path": " "}, "path is empty"),
    ],
)
def test_a_value_that_means_nothing_is_refused(option, message):
    assert refusal(PATH | option)[0] == message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            PATH | {"startingVersion": "soon"},
            "startingVersion must be earliest, latest, or the number of a delta version",
        ),
        (BROKER | {"startingOffsets": "7"}, "startingOffsets must be earliest or latest, not '7'"),
        (PATH | {"maxRowsPerTrigger": "0"}, "maxRowsPerTrigger must be at least 1"),
        (PATH | {"maxRowsPerTrigger": "many"}, "maxRowsPerTrigger must be a number from 0 on, not 'many'"),
    ],
)
def test_a_value_that_means_nothing_to_a_stream_is_refused(options, message):
    assert refusal(options, is_stream=True)[0].startswith(message)


@given(
    st.dictionaries(
        st.sampled_from(READ_OPTION_NAMES) | st.text(max_size=5), st.text(max_size=6) | st.integers().map(str)
    ),
    st.booleans(),
)
def test_whatever_is_given_is_understood_or_refused_with_a_sentence(options, is_stream):
    refused = None
    try:
        parsed = parse_read_options(options, is_stream=is_stream)
    except ExactlogError as error:
        refused = str(error)

    assert refused is None or (refused and not refused.isspace())
    assert refused or (parsed.path is None) != (parsed.bootstrap is None)
