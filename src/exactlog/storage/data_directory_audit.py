"""Whether a whole data directory is as it was written: its catalog, and every partition the catalog tells of.

The catalog is read as a file and judged in memory: SQLite is not let near the directory, where it might write.

What a commit journal holds is taken for what is there: the next start puts it in its place, and so does the audit, in
memory and a temporary file. What it finds out of its place is noted.
"""

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias
from uuid import UUID

from msgspec.structs import replace

from exactlog.core.deltalog.journal_format import JOURNAL_DIRECTORY, parse_journal_name
from exactlog.core.deltalog.log_path import (
    CREATING_DIRECTORY,
    DELETED_DIRECTORY,
    is_temporary_name,
    parse_partition_directory_name,
    print_partition_directory_name,
)
from exactlog.core.model.errors import DamageError, UnavailableError
from exactlog.core.model.limits import PARTITIONS_PER_TOPIC_MAX
from exactlog.storage.audit_findings import AuditReport, Finding, Findings, Kind, TableReport, make_finding, summarise
from exactlog.storage.catalog import CATALOG_NAME, CatalogTopic, TopicState
from exactlog.storage.directory_lock import LOCK_NAME
from exactlog.storage.filesystem import Filesystem
from exactlog.storage.journal_redo import JournaledTail, RedoneJournal, redo_journal
from exactlog.storage.overlay_filesystem import OverlayFilesystem
from exactlog.storage.table_audit import audit_table

_CATALOG_JOURNAL_NAME: Final = "catalog.db-journal"
_UNFINISHED_DIRECTORIES: Final = (CREATING_DIRECTORY, DELETED_DIRECTORY)
_EXPORT_DIRECTORY: Final = "transactions"  # a readable copy, which nothing reads back
_KNOWN_NAMES: Final = frozenset(
    {CATALOG_NAME, _CATALOG_JOURNAL_NAME, LOCK_NAME, JOURNAL_DIRECTORY, _EXPORT_DIRECTORY, *_UNFINISHED_DIRECTORIES}
)
_COMPARED_BYTES: Final = 1024 * 1024
"""How much of a file is compared at once."""
_ATTEMPTS_MAX: Final = 5
"""How often the catalog, or the commit journal, may change while it is read: a broker is at work on them."""

AuditTables: TypeAlias = Callable[[Sequence[str]], Mapping[str, TableReport]]
"""Verifies partitions by the names of their directories; what it says nothing of was not verified."""


def audit_data_directory(
    filesystem: Filesystem, directory: str, *, is_deep: bool = False, audit_tables: AuditTables | None = None
) -> AuditReport:
    """Verifies a data directory: the catalog, each partition, and that they belong together.

    Args:
        is_deep: whether every record is decoded too.
        audit_tables: lets the partitions be verified elsewhere, by `audit_partitions`; None: one after the other here.

    Raises:
        UnavailableError: a broker keeps removing what is being looked at.
    """
    findings = Findings()
    names = filesystem.list_names(directory)
    partitions = sorted(name for name in names if parse_partition_directory_name(name) is not None)
    topics = _read_topics(filesystem, directory, findings)
    journal = _AuditedJournal(filesystem, directory, findings)
    audited = None if audit_tables is None else audit_tables(partitions)
    tables = []
    for name in partitions:
        table = journal.audit_table(name, is_deep=is_deep) if audited is None else audited.get(name)
        if table is None or not filesystem.exists(f"{directory}/{name}"):
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


def audit_partition(filesystem: Filesystem, data_directory: str, name: str, *, is_deep: bool = False) -> AuditReport:
    """Verifies one partition of a data directory, by the name of its directory, with what a commit journal has of it.

    Raises:
        UnavailableError: a broker keeps removing what is being looked at.
    """
    findings = Findings()
    table = _AuditedJournal(filesystem, data_directory, findings).audit_table(name, is_deep=is_deep)
    return summarise((table,), findings.all())


def audit_partitions(
    filesystem: Filesystem, data_directory: str, names: Sequence[str], *, is_deep: bool = False
) -> Iterator[TableReport]:
    """Verifies some partitions of a data directory, and nothing beside them: what a task does of a whole audit.

    Raises:
        UnavailableError: a broker keeps removing what is being looked at.
    """
    journal = _AuditedJournal(filesystem, data_directory, Findings())  # what is wrong with it the whole audit tells
    for name in names:
        yield journal.audit_table(name, is_deep=is_deep)


class _AuditedJournal:
    """The commit journal of a data directory, put back in memory.

    Raises:
        UnavailableError: its files keep going while they are being read.
    """

    def __init__(self, filesystem: Filesystem, directory: str, findings: Findings) -> None:
        self._below = self._seen = filesystem
        self._directory = directory
        self._tails: Mapping[str, JournaledTail] = {}
        self._changed: list[str] = []
        place = f"{directory}/{JOURNAL_DIRECTORY}"
        if not filesystem.exists(place):
            return
        for name in sorted(filesystem.list_names(place)):
            if parse_journal_name(name) is None:
                findings.add(make_finding(Kind.FOREIGN_FILE, f"{JOURNAL_DIRECTORY}/{name}", "no name of exactlog's"))
        try:
            overlay, redone = self._redo()
        except DamageError as error:
            findings.add(make_finding(Kind.JOURNAL_DAMAGED, JOURNAL_DIRECTORY, str(error)))
        except OSError as error:
            findings.add(make_finding(Kind.FILE_UNREADABLE, JOURNAL_DIRECTORY, str(error)))
        else:
            self._seen, self._tails, self._changed = overlay, redone.tails, overlay.changed_paths()

    def _redo(self) -> tuple[OverlayFilesystem, RedoneJournal]:
        last: DamageError | None = None
        for _ in range(_ATTEMPTS_MAX):
            overlay = OverlayFilesystem(self._below)
            try:
                return overlay, redo_journal(overlay, self._directory)
            except FileNotFoundError:  # a broker lets it go
                last = None
            except DamageError as error:  # should a topic be deleted meanwhile, it is none the next time
                last = error
        if last is not None:
            raise last
        raise UnavailableError(
            f"{self._directory}/{JOURNAL_DIRECTORY} keeps changing while it is read", hint="verify again"
        )

    def audit_table(self, name: str, *, is_deep: bool) -> TableReport:
        """Verifies one partition, as the next start would find it."""
        directory, tail = f"{self._directory}/{name}", self._tails.get(name, JournaledTail())
        report = audit_table(self._seen, directory, is_deep=is_deep)
        findings = Findings()
        if tail.damage is not None:
            findings.add(make_finding(Kind.JOURNAL_DIFFERS, "", tail.damage))
        for path in self._changed:
            file = path.removeprefix(f"{directory}/")
            if file != path and not is_temporary_name(path.rpartition("/")[2]) and not self._is_in_place(path):
                findings.add(make_finding(Kind.JOURNALED, file, "it is not in its place, or not all of it"))
        for finding in report.findings:
            findings.add(_without_version(finding, tail))
        return replace(report, findings=findings.all())

    def _is_in_place(self, path: str) -> bool:
        """Whether a broker has written meanwhile what the journal has."""
        try:
            size = self._seen.file_size(path)
            if self._below.file_size(path) < size:
                return False
            below, seen = self._below.open(path, read_only=True), self._seen.open(path, read_only=True)
            return all(
                below.read_at(_COMPARED_BYTES, position) == seen.read_at(_COMPARED_BYTES, position)
                for position in range(0, max(below.size(), size), _COMPARED_BYTES)
            )
        except FileNotFoundError:
            return False


def _without_version(finding: Finding, tail: JournaledTail) -> Finding:
    """What stands behind the last version is committed as far as the journal says so."""
    end, position = tail.ends.get(finding.file, 0), finding.position or 0
    if finding.kind not in (Kind.BYTES_BEHIND, Kind.SEGMENT_UNNAMED) or end <= position:
        return finding
    message = f"bytes {position} to {end} are committed, and no version names them yet"
    return make_finding(Kind.JOURNALED, finding.file, message, position=position)


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
    path, journal = f"{directory}/{CATALOG_NAME}", f"{directory}/{_CATALOG_JOURNAL_NAME}"
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
