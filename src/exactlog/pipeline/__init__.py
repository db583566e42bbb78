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
    from exactlog.pipeline.journal_driver import ReplicationSettings
    from exactlog.pipeline.journal_replication import replicate_journals
    from exactlog.pipeline.parquet_export import export_parquet
    from exactlog.pipeline.spark_session import register, session
    from exactlog.pipeline.tables import profile, register_tables
    from exactlog.pipeline.topic_copy import copy_topics
    from exactlog.pipeline.upkeep_compact import compact_store
    from exactlog.pipeline.upkeep_export import export_journals
    from exactlog.pipeline.upkeep_log_compact import compact_log
    from exactlog.pipeline.upkeep_purge import purge_expired
    from exactlog.pipeline.upkeep_regions import clean_regions
    from exactlog.pipeline.upkeep_store_verify import verify_store
    from exactlog.pipeline.upkeep_verify import verify_log

__all__ = [
    "ExactlogDataSource",
    "ReplicationSettings",
    "clean_regions",
    "compact_log",
    "compact_store",
    "copy_topics",
    "exactly_once_sink",
    "explain",
    "export_delta",
    "export_journals",
    "export_parquet",
    "profile",
    "purge_expired",
    "register",
    "register_tables",
    "replicate_journals",
    "session",
    "verify_log",
    "verify_store",
    "write_exactly_once",
]

_HOMES = {
    "ExactlogDataSource": "exactlog.pipeline.data_source",
    "ReplicationSettings": "exactlog.pipeline.journal_driver",
    "clean_regions": "exactlog.pipeline.upkeep_regions",
    "compact_log": "exactlog.pipeline.upkeep_log_compact",
    "compact_store": "exactlog.pipeline.upkeep_compact",
    "copy_topics": "exactlog.pipeline.topic_copy",
    "exactly_once_sink": "exactlog.pipeline.exactly_once",
    "explain": "exactlog.pipeline.errors",
    "export_delta": "exactlog.pipeline.delta_export",
    "export_journals": "exactlog.pipeline.upkeep_export",
    "export_parquet": "exactlog.pipeline.parquet_export",
    "profile": "exactlog.pipeline.tables",
    "purge_expired": "exactlog.pipeline.upkeep_purge",
    "register": "exactlog.pipeline.spark_session",
    "register_tables": "exactlog.pipeline.tables",
    "replicate_journals": "exactlog.pipeline.journal_replication",
    "session": "exactlog.pipeline.spark_session",
    "verify_log": "exactlog.pipeline.upkeep_verify",
    "verify_store": "exactlog.pipeline.upkeep_store_verify",
    "write_exactly_once": "exactlog.pipeline.exactly_once",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  only who asks for a name pays for it

    return getattr(import_module(_HOMES[name]), name)
