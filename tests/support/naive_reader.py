"""A log as a table, read the slow and simple way: all commits, all bytes they name, one loop. Nothing is shared with
the readers that it judges but the decoding of a single record.
"""

import json
import struct
from datetime import datetime
from pathlib import Path

from exactlog.core.record.record_format import decode_records

HEADER = struct.Struct(">qiibIhiqqqhii")


class NaiveTable:
    """One partition's directory, with every commit that is left in it.

    Attributes:
        commits: the documents by version.
        batches: all that have their bytes, in order of offsets.
    """

    def __init__(self, directory):
        self.directory = Path(directory)
        self.commits = {}
        for path in sorted((self.directory / "_delta_log").iterdir()):
            if path.name.endswith(".compacted.json") or (path.suffix == ".json" and path.stem.isdigit()):
                for line in path.read_bytes().splitlines():
                    document = json.loads(line) if line.startswith(b'{"version"') else None
                    if document:
                        self.commits[document["version"]] = document
        self.newest = max(self.commits)
        name, _, partition = self.directory.name.rpartition("-part=")
        self.topic, self.partition = name.removeprefix("topic="), int(partition)
        self.batches = [batch for version in sorted(self.commits) for batch in self._added(self.commits[version])]

    def _added(self, commit):
        """The batches that a commit added, as dicts of what their headers say."""
        for operation in commit["operations"]:
            path = self.directory / operation["segment"]
            if operation["type"] != "add" or not path.exists():
                continue
            content = path.read_bytes()[operation["position"] : operation["position"] + operation["size"]]
            while content:
                fields = HEADER.unpack_from(content)
                size = fields[1] + 12
                yield {
                    "base_offset": fields[0],
                    "attributes": fields[5],
                    "last_offset": fields[0] + fields[6],
                    "producer_id": fields[9],
                    "producer_epoch": fields[10],
                    "base_sequence": fields[11],
                    "bytes": content[:size],
                    "version": commit["version"],
                    "origin": str(operation["origin_id"]),
                }
                content = content[size:]

    def version_at(self, timestamp_ms):
        """The highest version that is not younger."""
        return max(version for version in self.commits if self.time_of(version) <= timestamp_ms)

    def time_of(self, version):
        """When a version was committed, in milliseconds since 1970."""
        return round(datetime.fromisoformat(self.commits[version]["timestamp"]).timestamp() * 1_000)

    def rows(self, *, version=None, starting=0, committed=True, control=False):
        """The rows as of a version, of those that `starting` and later ones added; timestamps in milliseconds."""
        version = self.newest if version is None else version
        commit = self.commits[version]
        end = commit["last_stable_offset"] if committed else commit["end_offset"]
        rows = []
        for batch in self.batches:
            if batch["version"] > version or batch["version"] < starting:
                continue
            is_control, is_transactional = bool(batch["attributes"] & 0x20), bool(batch["attributes"] & 0x10)
            if is_control and not control:
                continue
            if committed and is_transactional and not is_control and self._is_aborted(batch):
                continue
            for record in decode_records(batch["bytes"]):
                if commit["log_start_offset"] <= record.offset < end:
                    rows.append(self._row(batch, record) | {"row_seq": len(rows)})
        return rows

    def _is_aborted(self, batch):
        """What the next marker of its producer says."""
        for other in self.batches:
            is_marker = other["attributes"] & 0x20 and other["producer_id"] == batch["producer_id"]
            if is_marker and other["base_offset"] > batch["base_offset"]:
                (marker,) = decode_records(other["bytes"])
                return marker.key[3] == 0
        return False  # open: it lies behind the last stable offset

    def _row(self, batch, record):
        has_producer = batch["producer_id"] >= 0
        sequence = batch["base_sequence"]
        return {
            "key": record.key,
            "value": record.value,
            "headers": [tuple(header) for header in record.headers],
            "topic": self.topic,
            "partition": self.partition,
            "offset": record.offset,
            "timestamp": None if record.timestamp_ms == -1 else record.timestamp_ms,
            "timestamp_type": "LogAppendTime" if batch["attributes"] & 0x08 else "CreateTime",
            "producer_id": batch["producer_id"] if has_producer else None,
            "producer_epoch": batch["producer_epoch"] if has_producer else None,
            "sequence": (sequence + record.offset - batch["base_offset"]) % 2**31
            if has_producer and sequence >= 0
            else None,
            "transactional": bool(batch["attributes"] & 0x10),
            "control": bool(batch["attributes"] & 0x20),
            "delta_version": batch["version"],
            "origin_id": batch["origin"],
        }


def naive_rows(data_dir, topics=None, **more):
    """The rows of all partitions of a data directory, by topic and partition; see `NaiveTable.rows`."""
    tables = sorted(
        (NaiveTable(path) for path in Path(data_dir).glob("topic=*-part=*")),
        key=lambda table: (table.topic, table.partition),
    )
    wanted = [table for table in tables if (table.topic in topics if topics else not table.topic.startswith("__"))]
    return [row for table in wanted for row in table.rows(**more)]
