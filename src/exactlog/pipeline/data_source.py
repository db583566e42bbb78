"""The data source `exactlog` of Apache Spark: a log read as a table, once or as a stream, and written exactly once."""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from exactlog.pipeline.schema import DDL

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class ExactlogDataSource(DataSource):
    """`spark.read`, `spark.readStream`, `df.write` and `df.writeStream` with `format("exactlog")`.

    Each side is imported when it is asked for, in whichever Python of Spark that is.
    """

    @classmethod
    def name(cls) -> str:
        """See `DataSource`."""
        return "exactlog"

    def schema(self) -> str:
        """See `DataSource`: all columns. A schema of the user's that names some of them is read instead."""
        return DDL

    def reader(self, schema: "StructType") -> DataSourceReader:
        """See `DataSource`."""
        from exactlog.pipeline.batch_reader import open_batch_reader  # noqa: PLC0415  what is not asked for stays out

        return open_batch_reader(schema, self.options)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """See `DataSource`."""
        from exactlog.pipeline.stream_reader import StreamReader  # noqa: PLC0415  what is not asked for is not loaded

        return StreamReader(schema, self.options)

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:  # noqa: FBT001  Spark's signature
        """See `DataSource`."""
        from exactlog.pipeline.batch_writer import BatchWriter  # noqa: PLC0415  what is not asked for is not loaded

        return BatchWriter(schema, self.options, overwrite)

    def streamWriter(  # noqa: N802  Spark's name
        self,
        schema: "StructType",
        overwrite: bool,  # noqa: FBT001  Spark's signature
    ) -> DataSourceStreamWriter:
        """See `DataSource`."""
        from exactlog.pipeline.stream_writer import StreamWriter  # noqa: PLC0415  what is not asked for is not loaded

        return StreamWriter(schema, self.options, overwrite)
