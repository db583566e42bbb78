"""The options of a write: what is taken, and what each mistake is answered with."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exactlog.client.adapters import ClientUrlError
from exactlog.core.codec.compression import Compression
from exactlog.pipeline.read_options import InvalidOptionError
from exactlog.pipeline.write_options import (
    COLUMN_TYPES,
    InvalidColumnsError,
    WriteOptions,
    check_columns,
    parse_write_options,
)

WHERE = {"bootstrap": "127.0.0.1:9092", "topic": "orders"}
NAMED = WHERE | {"txnAppId": "nightly", "txnVersion": "17"}
STREAM = WHERE | {"txnAppId": "copy"}


def test_options_are_read_by_names_in_any_case():
    options = parse_write_options(
        {"BOOTSTRAP": "kafka://a:1,b:2", "topic": " orders ", "txnappid": "nightly", "TXNVERSION": "17"}
        | {"transactiontimeoutms": "60000", "compression": "ZSTD"}
    )
    assert options == WriteOptions(
        bootstrap="a:1,b:2",
        topic="orders",
        txn_app_id="nightly",
        txn_version=17,
        transaction_timeout_ms=60_000,
        compression=Compression.ZSTD,
    )
    assert options.group_id == "exactlog-sink-nightly"
    assert pickle.loads(pickle.dumps(options)) == options


def test_what_is_not_said_has_a_default():
    options = parse_write_options({"bootstrap": "127.0.0.1:9092"})
    assert (options.topic, options.txn_app_id, options.txn_version, options.group_id) == (None, None, None, None)
    assert (options.transaction_timeout_ms, options.compression) == (900_000, Compression.NONE)


def test_a_stream_brings_options_of_sparks_own():
    given_ = STREAM | {"checkpointLocation": "/tmp/x", "queryName": "q"}
    assert parse_write_options(given_, is_stream=True).txn_app_id == "copy"
    with pytest.raises(InvalidOptionError, match="checkpointLocation is no option of writing"):
        parse_write_options(NAMED | {"checkpointLocation": "/tmp/x"})


@pytest.mark.parametrize(
    ("options", "told", "hint"),
    [
        ({"topic": "orders"}, "no bootstrap says which broker to write to", "host:port"),
        (WHERE | {"bootstrap": " "}, "bootstrap is empty", ""),
        (WHERE | {"topc": "x"}, "topc is no option of writing to an exactlog", "did you mean topic?"),
        (WHERE | {"path": "/data"}, "path is no option of writing to an exactlog", "There are bootstrap"),
        (WHERE | {"txnVersion": "1"}, "txnVersion is given without txnAppId", "both together"),
        (WHERE | {"txnAppId": "a"}, "txnAppId is given without txnVersion", "both together"),
        (NAMED | {"txnVersion": "-1"}, "txnVersion must be a whole number from 0 to 9223372036854775806, not '-1'", ""),
        (NAMED | {"txnVersion": "9223372036854775807"}, "txnVersion must be a whole number", ""),
        (NAMED | {"txnVersion": "1.5"}, "txnVersion must be a whole number", ""),
        (NAMED | {"txnVersion": "\u0661"}, "txnVersion must be a whole number", ""),
        (WHERE | {"transactionTimeoutMs": "0"}, "transactionTimeoutMs must be a whole number from 1 to 2147483647", ""),
        (WHERE | {"transactionTimeoutMs": "2147483648"}, "transactionTimeoutMs must be a whole number", ""),
        (WHERE | {"compression": "brotli"}, "compression must be one of none, gzip, snappy, lz4, zstd", ""),
    ],
)
def test_a_wrong_option_is_refused_in_a_sentence(options, told, hint):
    with pytest.raises(InvalidOptionError) as caught:
        parse_write_options(options)
    assert str(caught.value).startswith(told)
    assert hint in caught.value.hint


def test_the_address_of_the_broker_must_be_one():
    with pytest.raises(ClientUrlError, match="kafka://host:port:port: Port could not be cast"):
        parse_write_options({"bootstrap": "host:port:port"})


def test_a_stream_has_a_name_and_numbers_its_batches_itself():
    with pytest.raises(InvalidOptionError, match="no txnAppId: under it the micro-batches of a stream are recorded"):
        parse_write_options(WHERE, is_stream=True)
    with pytest.raises(InvalidOptionError, match="in a stream it is the id of each micro-batch"):
        parse_write_options(NAMED, is_stream=True)


ONE_TOPIC = parse_write_options(WHERE)
BY_COLUMN = parse_write_options({"bootstrap": "127.0.0.1:9092"})


@given(names=st.sets(st.sampled_from(sorted(set(COLUMN_TYPES) - {"value"}))), data=st.data())
def test_every_choice_of_columns_with_a_value_is_taken(names, data):
    columns = [(name, data.draw(st.sampled_from(COLUMN_TYPES[name]))) for name in sorted(names | {"value"})]
    check_columns(columns, BY_COLUMN if "topic" in names else ONE_TOPIC)


@pytest.mark.parametrize(
    ("columns", "options", "told"),
    [
        ([("key", "binary")], ONE_TOPIC, "there is no column value"),
        ([("value", "int")], ONE_TOPIC, "column value must be binary or string, not int"),
        ([("value", "binary"), ("partition", "bigint")], ONE_TOPIC, "column partition must be int, not bigint"),
        ([("value", "binary"), ("timestamp", "date")], ONE_TOPIC, "column timestamp must be timestamp, not date"),
        ([("value", "binary"), ("headers", "map<string,binary>")], ONE_TOPIC, "column headers must be array<struct<"),
        ([("value", "binary"), ("offset", "bigint")], ONE_TOPIC, "column offset cannot be written: a record has key"),
        ([("value", "binary"), ("value", "binary")], ONE_TOPIC, "there are two columns value"),
        ([("value", "binary")], BY_COLUMN, "neither the option topic nor a column topic says where the rows go"),
        ([("value", "binary"), ("topic", "string")], ONE_TOPIC, r"the option topic (orders) and a column topic both"),
    ],
)
def test_wrong_columns_are_refused_in_a_sentence(columns, options, told):
    with pytest.raises(InvalidColumnsError) as caught:
        check_columns(columns, options)
    assert str(caught.value).startswith(told)


def test_a_misspelt_column_is_told_its_right_name():
    with pytest.raises(InvalidColumnsError) as caught:
        check_columns([("Value", "binary")], ONE_TOPIC)
    assert caught.value.hint == "did you mean value? drop or rename it"
