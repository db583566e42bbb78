"""Whether a whole data directory is as it was written: its catalog, and every partition the catalog tells of.

The catalog is read as a file and judged in memory: SQLite is not let near the directory, where it might write.
"""

import json
import re
import sqlite3
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from exactlog.core.deltalog.log_path import (
    CREATING_DIRECTORY,
    DELETED_DIRECTORY,
    parse_partition_directory_name,
    print_partition_directory_name,
)
from exactlog.core.model.errors import DamageError
from exactlog.core.model.limits import PARTITIONS_PER_TOPIC_MAX
from exactlog.storage.audit_findings import AuditReport, Findings, Kind, TableReport, make_finding, summarise
from exactlog.storage.catalog import CATALOG_NAME, CatalogTopic, TopicState
from exactlog.storage.directory_lock import LOCK_NAME
from exactlog.storage.filesystem import Filesystem
from exactlog.storage.table_audit import audit_table

_JOURNAL_NAME: Final = "catalog.db-journal"
_UNFINISHED_DIRECTORIES: Final = (CREATING_DIRECTORY, DELETED_DIRECTORY)
_EXPORT_DIRECTORY: Final = "transactions"  # a readable copy, which nothing reads back
_KNOWN_NAMES: Final = frozenset({CATALOG_NAME, _JOURNAL_NAME, LOCK_NAME, _EXPORT_DIRECTORY, *_UNFINISHED_DIRECTORIES})
_ATTEMPTS_MAX: Final = 5
"""How often the catalog may change while it is read: a broker writes it when a topic is made or deleted."""


def audit_data_directory(filesystem: Filesystem, directory: str, *, is_deep: bool = False) -> AuditReport:
    """Verifies a data directory: the catalog, each partition, and that they belong together.

    Args:
        is_deep: whether every record is decoded too.

    Raises:
        UnavailableError: a broker keeps removing what is being looked at.
    """
    findings = Findings()
    names = filesystem.list_names(directory)
    partitions = sorted(name for name in names if parse_partition_directory_name(name) is not None)
    topics = _read_topics(filesystem, directory, findings)
    tables = []
    for name in partitions:
        table = audit_table(filesystem, f"{directory}/{name}", is_deep=is_deep)
        if not filesystem.exists(f"{directory}/{name}"):
            continue  # its topic was deleted meanwhile; should it not have been, it is missed below
        tables.append(table)
        if topics is not None:
            _look_for_owner(name, table, topics, findings)
    if topics is not None:
        _look_for_missing(filesystem, directory, topics, findings)
    for name in sorted(set(names) - _KNOWN_NAMES - set(partitions)):
        findings.add(make_finding(Kind.FOREIGN_FILE, name, "no name of exactlog's"))
    for folder in _UNFINISHED_DIRECTORIES:
        for name in sorted(filesystem.list_names(f"{directory}/{folder}")) if folder in names else ():
            message = "a partition that was being made, or taken away"
            findings.add(make_finding(Kind.PARTITION_UNFINISHED, f"{folder}/{name}", message))
    return summarise(tuple(tables), findings.all())


def _read_topics(filesystem: Filesystem, directory: str, findings: Findings) -> Mapping[str, CatalogTopic] | None:
    """The topics by the directories of their partitions; None where the catalog cannot tell."""
    try:
        content, is_unfinished = _read_whole(filesystem, directory)
    except FileNotFoundError:
        findings.add(make_finding(Kind.CATALOG_MISSING, CATALOG_NAME, "there is no catalog beside the partitions"))
        return None
    except OSError as error:
        findings.add(make_finding(Kind.FILE_UNREADABLE, CATALOG_NAME, str(error)))
        return None
    if is_unfinished:
        message = "a transaction is under way, or was when its broker died"
        findings.add(make_finding(Kind.CATALOG_UNFINISHED, CATALOG_NAME, message))
    try:
        topics = decode_catalog(content)
    except DamageError as error:
        if not is_unfinished:
            findings.add(make_finding(Kind.CATALOG_DAMAGED, CATALOG_NAME, str(error)))
        return None
    for topic in topics:
        if topic.state is not TopicState.LIVE:
            message = f"topic {topic.name} is in state {topic.state}"
            findings.add(make_finding(Kind.PARTITION_UNFINISHED, CATALOG_NAME, message))
    return {
        print_partition_directory_name(topic.name, index): topic
        for topic in topics
        for index in range(topic.partition_count)
    }


def _read_whole(filesystem: Filesystem, directory: str) -> tuple[bytes, bool]:
    """The catalog's bytes between two transactions; true where none of several looks found it there."""
    path, journal = f"{directory}/{CATALOG_NAME}", f"{directory}/{_JOURNAL_NAME}"
    content = b""
    for _ in range(_ATTEMPTS_MAX):
        content = filesystem.read_file(path)
        # What changed before this look at the journal, the second reading shows.
        if not filesystem.exists(journal) and filesystem.read_file(path) == content:
            return content, False
    return content, True


def decode_catalog(content: bytes) -> list[CatalogTopic]:
    """The topics of a catalog, given as the bytes of its file; nothing is opened, locked or written.

    Raises:
        DamageError: these are not the bytes of a catalog.
    """
    if not content:
        raise DamageError("the file is empty")
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(content)
        problems = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(10)")]
        if problems != ["ok"]:
            raise DamageError("; ".join(problems))
        rows = connection.execute("SELECT name, id, partitions, config, state, created_ms FROM topics ORDER BY name")
        return [_decode_topic(*row) for row in rows]
    except (sqlite3.Error, ValueError, MemoryError) as error:
        raise DamageError(f"not readable as a catalog: {error}") from error
    finally:
        connection.close()


def _decode_topic(  # noqa: PLR0917  a row of the table
    name: str, topic_id: str, partitions: int, config: str, state: str, created_ms: int
) -> CatalogTopic:
    if not re.fullmatch(r"[A-Za-z0-9._-]+", name) or not 0 < partitions <= PARTITIONS_PER_TOPIC_MAX:
        raise ValueError(f"a topic {name!r} with {partitions} partitions")
    return CatalogTopic(name, UUID(topic_id), partitions, json.loads(config), TopicState(state), created_ms)


def _look_for_owner(name: str, table: TableReport, topics: Mapping[str, CatalogTopic], findings: Findings) -> None:
    topic = topics.get(name)
    if topic is None:
        findings.add(make_finding(Kind.PARTITION_UNNAMED, name, "the catalog knows no topic that it belongs to"))
    elif table.topic_id is not None and table.topic_id != str(topic.topic_id):
        message = f"it belongs to topic id {table.topic_id}, the catalog says {topic.topic_id}"
        kind = Kind.PARTITION_FOREIGN if topic.state is TopicState.LIVE else Kind.PARTITION_UNNAMED
        findings.add(make_finding(kind, name, message))


def _look_for_missing(
    filesystem: Filesystem, directory: str, topics: Mapping[str, CatalogTopic], findings: Findings
) -> None:
    there = set(filesystem.list_names(directory))
    missing = [name for name, topic in topics.items() if topic.state is TopicState.LIVE and name not in there]
    if not missing:
        return
    now = _read_topics(filesystem, directory, Findings()) or {}  # a topic may have been deleted meanwhile
    for name in missing:
        if name in now and now[name] == topics[name]:
            message = f"there is no such directory, and topic {topics[name].name} has that partition"
            findings.add(make_finding(Kind.PARTITION_MISSING, name, message))
