"""The columns of what is exported: those of the log, the value parsed as JSON if a schema is given, the date."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from exactlog.core.model.errors import ExactlogError
from exactlog.pipeline.export_files import DATE
from exactlog.pipeline.schema import COLUMNS, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

CORRUPT: Final = "_corrupt_record"
"""Holds the value where it is not JSON of the schema; what Spark calls it by default."""

LEFT_OUT: Final = frozenset({"row_seq", "control"})
"""`row_seq` counts the rows of one read, and an export is many; markers are not exported, so `control` says nothing."""

_UNFIT: Final = ("interval", "void", "variant", "char(", "varchar(")


class ValueSchemaError(ExactlogError):
    """A schema of values that values cannot have."""

    code = "invalid-schema"


class ExportColumns(Struct, frozen=True):
    """The columns of an export.

    Attributes:
        read_schema: what is read of the log, for Arrow.
        read_type: the same, for Spark.
        written_type: what is written, the date included if files are parted by it.
        value_type: what values are parsed as; None: they stay bytes.
    """

    read_schema: "pa.Schema"
    read_type: "StructType"
    written_type: "StructType"
    value_type: "StructType | None"

    @property
    def partition_by(self) -> list[str]:
        """The columns that files are parted by."""
        return [DATE] if DATE in self.written_type.fieldNames() else []


def export_columns(spark: "SparkSession", schema: str | None, *, is_by_date: bool) -> ExportColumns:
    """The columns of an export.

    Args:
        spark: a session; it parses the schema.
        schema: the type of the values, which are JSON, as DDL; None: values stay bytes.
        is_by_date: whether there is a column for the date.

    Raises:
        ValueSchemaError: the schema is none, or names `_corrupt_record`.
    """
    from pyspark.sql.types import BinaryType, DateType, StructField, StructType  # noqa: PLC0415  an extra

    ddl = ", ".join(f"`{column.name}` {column.spark_type}" for column in COLUMNS if column.name not in LEFT_OUT)
    read_type = _parse(spark, ddl)
    value_type = None if schema is None else _value_type(spark, schema)
    fields = []
    for field in read_type.fields:
        if field.name == "value" and value_type is not None:
            fields += [StructField("value", value_type), StructField(CORRUPT, BinaryType())]
        else:
            fields.append(field)
    if is_by_date:
        fields.append(StructField(DATE, DateType()))
    return ExportColumns(arrow_schema(read_type), read_type, StructType(fields), value_type)


def parse_json_values(rows: "DataFrame", columns: ExportColumns) -> "DataFrame":
    """The rows with their values parsed, and the bytes of those that are not JSON of the schema.

    Spark's PERMISSIVE mode: what can be read of a value is, the rest is NULL, and `_corrupt_record` has all of it. A
    value that is NULL stays NULL and is not corrupt.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415  an extra
    from pyspark.sql.types import StringType, StructField, StructType  # noqa: PLC0415

    assert columns.value_type is not None, "else there is nothing to parse"
    parsed_type = StructType([*columns.value_type.fields, StructField(CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    parsed = rows.withColumn("parsed", f.from_json(f.col("value").cast("string"), parsed_type, options))
    is_corrupt = f.col("value").isNotNull() & (f.col("parsed").isNull() | f.col(f"parsed.{CORRUPT}").isNotNull())
    value = f.when(f.col("value").isNotNull() & f.col("parsed").isNotNull(), f.col("parsed").dropFields(CORRUPT))
    by_name = {"value": value.alias("value"), CORRUPT: f.when(is_corrupt, f.col("value")).alias(CORRUPT)}
    names = [name for name in columns.written_type.fieldNames() if name != DATE]
    return parsed.select(*(by_name.get(name, f.col(name)) for name in names))


def _value_type(spark: "SparkSession", schema: str) -> "StructType":
    value_type = _parse(spark, schema).toNullable()  # what is not in a value is NULL, whatever a schema says
    if not value_type.fields:
        raise ValueSchemaError(f"the schema {schema!r} of the values names no field")
    if CORRUPT in value_type.fieldNames():
        raise ValueSchemaError(
            f"the schema of the values names {CORRUPT}, which the export gives beside the value",
            hint="Leave it out of the schema.",
        )
    unfit = next((kind for kind in _types_in(value_type) if kind.startswith(_UNFIT)), None)
    if unfit is not None:
        raise ValueSchemaError(
            f"a field of the schema of the values is {unfit}, which tables of a lake do not have",
            hint="Read it as STRING.",
        )
    return value_type


def _types_in(data_type: "DataType") -> Iterator[str]:
    from pyspark.sql.types import ArrayType, MapType, StructType  # noqa: PLC0415  an extra

    match data_type:
        case StructType():
            for field in data_type.fields:
                yield from _types_in(field.dataType)
        case ArrayType():
            yield from _types_in(data_type.elementType)
        case MapType():
            yield from _types_in(data_type.keyType)
            yield from _types_in(data_type.valueType)
        case _:
            yield data_type.simpleString()


def _parse(spark: "SparkSession", ddl: str) -> "StructType":
    from pyspark.errors import PySparkException  # noqa: PLC0415  an extra
    from pyspark.sql.types import StructType  # noqa: PLC0415

    assert spark is not None, "DDL is parsed by the session that runs"
    try:
        parsed = StructType.fromDDL(ddl)
    except PySparkException:
        parsed = None
    if not isinstance(parsed, StructType):
        raise ValueSchemaError(
            f"the schema {ddl!r} is no DDL of Spark", hint='Write it as "id BIGINT, name STRING, tags ARRAY<STRING>".'
        )
    return parsed
