"""The log as a table of Apache Spark: read at any version, written exactly once, exported to the lakehouse.

Names are imported when they are first asked for: Spark and Arrow are extras (`exactlog[spark]`), and this package can
be looked at without them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exactlog.pipeline.data_source import ExactlogDataSource
    from exactlog.pipeline.delta_export import export_delta
    from exactlog.pipeline.errors import explain
    from exactlog.pipeline.exactly_once import exactly_once_sink, write_exactly_once
    from exactlog.pipeline.parquet_export import export_parquet
    from exactlog.pipeline.spark_session import register, session
    from exactlog.pipeline.tables import profile, register_tables
    from exactlog.pipeline.topic_copy import copy_topics

__all__ = [
    "ExactlogDataSource",
    "copy_topics",
    "exactly_once_sink",
    "explain",
    "export_delta",
    "export_parquet",
    "profile",
    "register",
    "register_tables",
    "session",
    "write_exactly_once",
]

_HOMES = {
    "ExactlogDataSource": "exactlog.pipeline.data_source",
    "copy_topics": "exactlog.pipeline.topic_copy",
    "exactly_once_sink": "exactlog.pipeline.exactly_once",
    "explain": "exactlog.pipeline.errors",
    "export_delta": "exactlog.pipeline.delta_export",
    "export_parquet": "exactlog.pipeline.parquet_export",
    "profile": "exactlog.pipeline.tables",
    "register": "exactlog.pipeline.spark_session",
    "register_tables": "exactlog.pipeline.tables",
    "session": "exactlog.pipeline.spark_session",
    "write_exactly_once": "exactlog.pipeline.exactly_once",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  only who asks for a name pays for it

    return getattr(import_module(_HOMES[name]), name)
