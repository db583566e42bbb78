"""Schemas of Spark for the columns of a log, without a session: PySpark parses its DDL in Java."""

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from exactlog.pipeline.schema import COLUMN_NAMES, COLUMNS

HEADERS = ArrayType(StructType([StructField("name", StringType()), StructField("value", BinaryType())]))
_TYPES = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "boolean": BooleanType(),
    "array<struct<name:string,value:binary>>": HEADERS,
}
_BY_NAME = {column.name: _TYPES[column.spark_type] for column in COLUMNS}


def schema_of(*names):
    """The schema of these columns; of all without any."""
    return StructType([StructField(name, _BY_NAME[name]) for name in names or COLUMN_NAMES])
