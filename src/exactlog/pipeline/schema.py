"""The columns of a log as a table: their names, their types in Spark, and which of them a user's schema asks for.

Spark tells a data source of Python nothing of the columns that a query uses; a schema of the user's does:
`spark.read.format("exactlog").schema("offset bigint, value binary")` reads those two and nothing else.

    key, value        what the producer sent
    headers           in the order that they were sent
    topic, partition  where it is
    offset            where in the partition
    timestamp         in UTC; NULL where the record has none, or one that Spark's type does not hold
    timestamp_type    CreateTime, or LogAppendTime where the broker set it
    producer_id, producer_epoch, sequence
                      of an idempotent or transactional producer, else NULL
    transactional     whether it was written in a transaction
    control           whether it is a marker, by which a transaction ends
    delta_version     the version of the partition's table that added it; NULL where that is not known
    origin_id         the origin of the add that it came by: the writer that supplied a sequence, else the node
    row_seq           0, 1, 2 ... in each partition, in the order of offsets, over the rows of the read
"""

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from exactlog.core.config.definition import nearest_name
from exactlog.core.model.errors import ExactlogError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType


class Column(Struct, frozen=True):
    """A column: its name, its type in Spark's words, whether only records hold it, and whether it may be NULL."""

    name: str
    spark_type: str
    is_in_records: bool = False
    is_nullable: bool = False


COLUMNS: Final = (
    Column("key", "binary", is_in_records=True, is_nullable=True),
    Column("value", "binary", is_in_records=True, is_nullable=True),
    Column("headers", "array<struct<name:string,value:binary>>", is_in_records=True),
    Column("topic", "string"),
    Column("partition", "int"),
    Column("offset", "bigint"),
    Column("timestamp", "timestamp", is_in_records=True, is_nullable=True),
    Column("timestamp_type", "string"),
    Column("producer_id", "bigint", is_nullable=True),
    Column("producer_epoch", "int", is_nullable=True),
    Column("sequence", "int", is_nullable=True),
    Column("transactional", "boolean"),
    Column("control", "boolean"),
    Column("delta_version", "bigint", is_nullable=True),
    Column("origin_id", "string", is_nullable=True),
    Column("row_seq", "bigint"),
)
"""All columns, in the order in which a read without a schema gives them."""

COLUMN_NAMES: Final = tuple(column.name for column in COLUMNS)
DDL: Final = ", ".join(f"`{column.name}` {column.spark_type}" for column in COLUMNS)
"""The schema of a read without a schema of the user's, as Spark's DDL."""

VERSION_COLUMNS: Final = frozenset({"delta_version", "origin_id"})
"""The columns for which the delta commit of each version is read."""

_BY_NAME: Final = {column.name: column for column in COLUMNS}


class InvalidSchemaError(ExactlogError):
    """A schema of the user's that a log cannot be read with."""

    code = "invalid-schema"


def check_schema(schema: "StructType") -> tuple[str, ...]:
    """The names of the columns that a schema asks for, in its order.

    Raises:
        InvalidSchemaError: it has no column, one twice, an unknown one, one of another type, or as NOT NULL one that
            may be NULL.
    """
    names = tuple(field.name for field in schema.fields)
    if not names:
        raise InvalidSchemaError("the schema has no column", hint=_there_are())
    for field in schema.fields:
        column = _BY_NAME.get(field.name)
        if column is None:
            nearest = nearest_name(field.name.lower(), COLUMN_NAMES)
            did_you_mean = f"did you mean {nearest}? " if nearest else ""
            raise InvalidSchemaError(
                f"a log has no column {field.name}; there are {', '.join(COLUMN_NAMES)}",
                hint=f"{did_you_mean}{_there_are()}",
            )
        if field.dataType.simpleString() != column.spark_type:
            raise InvalidSchemaError(
                f"column {field.name} of a log is {column.spark_type}, not {field.dataType.simpleString()}",
                hint="read it as it is and cast it behind",
            )
        if column.is_nullable and not field.nullable:
            raise InvalidSchemaError(
                f"column {field.name} of a log may be NULL, the schema says it is not",
                hint="leave NOT NULL out, and filter the rows",
            )
        if not _header_values_may_be_null(field.dataType):
            raise InvalidSchemaError("column headers of a log may hold a NULL value", hint="leave NOT NULL out")
        if names.count(field.name) > 1:
            raise InvalidSchemaError(f"the schema has column {field.name} twice")
    return names


def arrow_schema(schema: "StructType") -> "pa.Schema":
    """The schema of the Arrow record batches that Spark takes for a schema of its own."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415  of the extra `spark`

    return to_arrow_schema(schema, timezone="UTC")


def _header_values_may_be_null(data_type: "DataType") -> bool:
    """Whether a type allows the NULL that the value of a header may be; every type but an array does."""
    from pyspark.sql.types import ArrayType, StructType  # noqa: PLC0415  of the extra `spark`

    if not isinstance(data_type, ArrayType) or not isinstance(data_type.elementType, StructType):
        return True
    return all(field.nullable for field in data_type.elementType.fields if field.name == "value")


def _there_are() -> str:
    return f"the columns are: {DDL}"
