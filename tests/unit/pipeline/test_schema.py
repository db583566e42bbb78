"""The columns of a log, and schemas that ask for some of them."""

import pytest
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructField, StructType

from exactlog.pipeline.schema import COLUMN_NAMES, DDL, InvalidSchemaError, arrow_schema, check_schema
from tests.support.spark_schemas import HEADERS, schema_of


def refusal(*fields):
    with pytest.raises(InvalidSchemaError) as caught:
        check_schema(StructType(list(fields)))
    assert caught.value.code == "invalid-schema"
    return str(caught.value), caught.value.hint


def test_the_columns_are_those_that_are_documented():
    assert DDL == (
        "`key` binary, `value` binary, `headers` array<struct<name:string,value:binary>>, `topic` string, "
        "`partition` int, `offset` bigint, `timestamp` timestamp, `timestamp_type` string, `producer_id` bigint, "
        "`producer_epoch` int, `sequence` int, `transactional` boolean, `control` boolean, `delta_version` bigint, "
        "`origin_id` string, `row_seq` bigint"
    )


def test_a_schema_asks_for_any_columns_in_any_order():
    assert check_schema(schema_of()) == COLUMN_NAMES
    assert check_schema(schema_of("value", "offset")) == ("value", "offset")


def test_a_column_that_is_never_null_may_be_asked_for_as_such():
    assert check_schema(StructType([StructField("offset", LongType(), nullable=False)])) == ("offset",)


def test_an_unknown_column_is_named_with_the_nearest_and_all_that_there_are():
    message, hint = refusal(StructField("ofset", LongType()))

    assert message == f"a log has no column ofset; there are {', '.join(COLUMN_NAMES)}"
    assert hint == f"did you mean offset? the columns are: {DDL}"


def test_names_are_told_apart_by_case():
    assert refusal(StructField("Value", BinaryType()))[1].startswith("did you mean value?")


def test_a_column_has_its_own_type():
    assert refusal(StructField("value", StringType())) == (
        "column value of a log is binary, not string",
        "read it as it is and cast it behind",
    )
    entries = ArrayType(StructType([StructField("name", StringType())]))
    assert refusal(StructField("headers", entries))[0].endswith("not array<struct<name:string>>")


def test_what_may_be_null_is_not_promised_otherwise():
    assert refusal(StructField("key", BinaryType(), nullable=False)) == (
        "column key of a log may be NULL, the schema says it is not",
        "leave NOT NULL out, and filter the rows",
    )
    entries = ArrayType(StructType([StructField("name", StringType()), StructField("value", BinaryType(), False)]))
    assert refusal(StructField("headers", entries))[0] == "column headers of a log may hold a NULL value"


def test_a_schema_has_columns_each_of_them_once():
    assert refusal()[0] == "the schema has no column"
    assert refusal(StructField("offset", LongType()), StructField("offset", LongType()))[0] == (
        "the schema has column offset twice"
    )


def test_the_schema_in_arrow_is_the_one_that_spark_compares_with():
    found = arrow_schema(StructType([StructField("headers", HEADERS), StructField("offset", LongType(), False)]))

    assert str(found.field("headers").type) == "list<element: struct<name: string, value: binary>>"
    assert not found.field("offset").nullable
