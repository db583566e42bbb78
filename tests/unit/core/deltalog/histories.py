"""Valid chains of delta commits for tests, and documents spelled by the standard library alone."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

from crc32c import crc32c
from msgspec import UNSET

from exactlog.core.deltalog.commit_format import (
    DecodedCommit,
    DeltaCommit,
    Operation,
    TableMetadata,
    decode_commit,
    encode_commit,
)
from exactlog.core.deltalog.log_path import print_commit_name, print_segment_file_name
from exactlog.core.deltalog.table_state import SegmentDetails, TableSnapshot, TableState
from exactlog.core.deltalog.timestamps import format_timestamp

PAGES = Path(__file__).resolve().parents[4] / "docs" / "formats"

FIRST_MS = 1_762_539_302_883  # 2025-11-07T18:15:02.883Z

METADATA = TableMetadata(
    topic="orders",
    partition=0,
    topic_id=UUID("0b2f6c1e-6a3f-4f0e-9f57-3c1d2e4a5b60"),
    created="2025-11-07T18:14:58.120Z",
    format_version=1,
    config={"retention.ms": "604800000"},
)


class History:
    """Writes versions that follow from each other, keeping its own plain account of where the table stands."""

    def __init__(self) -> None:
        self.commits: list[DecodedCommit] = []
        self.documents: list[bytes] = []
        self.chain_crc = "00000000"
        self.next_offset = 0
        self.log_start_offset = 0
        self.leader_epoch = 0
        self.timestamp_ms = FIRST_MS
        self.segments: list[dict[str, Any]] = []
        self.sequences: dict[int, int] = {}
        self.rewrites = 0

    @property
    def version(self) -> int:
        return len(self.commits) - 1

    def add(
        self,
        *,
        records: int = 1,
        size: int = 100,
        origin_id: int = 1,
        new_segment: bool = False,
        generation: int = 0,
        **keys: Any,
    ) -> Operation:
        """The next add; in a segment of its own when asked, or when there is none."""
        if new_segment or not self.segments:
            name = print_segment_file_name(self.next_offset, generation=generation)
            self.segments.append({"name": name, "base": self.next_offset, "next_offset": self.next_offset, "size": 0})
        segment = self.segments[-1]
        self.sequences[origin_id] = self.sequences.get(origin_id, 0) + 1
        operation = Operation(
            type="add",
            origin_id=origin_id,
            origin_seq=self.sequences[origin_id],
            offset_start=self.next_offset,
            offset_end=self.next_offset + records - 1,
            segment=segment["name"],
            position=segment["size"],
            size=size,
            **keys,
        )
        self.next_offset += records
        segment["next_offset"] = self.next_offset
        segment["size"] += size
        return operation

    def remove_oldest(self) -> Operation:
        """The remove of the oldest segment; moves the log start behind it."""
        segment = self.segments.pop(0)
        self.log_start_offset = max(self.log_start_offset, segment["next_offset"])
        return Operation(
            type="remove",
            origin_id=1,
            origin_seq=0,
            offset_start=segment["base"],
            offset_end=segment["next_offset"] - 1,
            segment=segment["name"],
            position=0,
            size=segment["size"],
        )

    def build(self, *operations: Operation, **changes: Any) -> DeltaCommit:
        """The next version, as asked: it need not be valid, and is not taken into the account."""
        version = self.version + 1
        keys = {
            "version": version,
            "timestamp": format_timestamp(self.timestamp_ms),
            "txn_id": f"broker-1:{self.timestamp_ms}:{version}",
            "operations": operations,
            "checkpoint_hint": version % 10 == 0,
            "end_offset": self.next_offset,
            "last_stable_offset": self.next_offset,
            "log_start_offset": self.log_start_offset,
            "leader_epoch": self.leader_epoch,
            "data_crc": "00000000",
            "metadata": METADATA if version == 0 else UNSET,
            "prev_crc": self.chain_crc,
        }
        return DeltaCommit(**(keys | changes))

    def commit(self, *operations: Operation, **changes: Any) -> DecodedCommit:
        """The next version, by way of its document."""
        document = encode_commit(self.build(*operations, **changes)).document
        decoded = decode_commit(document, path_hint=f"_delta_log/{print_commit_name(self.version + 1)}")
        self.chain_crc = decoded.chain_crc
        self.documents.append(document)
        self.commits.append(decoded)
        return decoded


def history_of(*, versions: int) -> History:
    """A history with this many versions after its creation, one record each."""
    history = History()
    history.commit()
    for _ in range(versions):
        history.commit(history.add())
    return history


def replayed(commits: list[DecodedCommit], *, onto: TableState | None = None) -> TableState:
    state = TableState(table="orders-0") if onto is None else onto
    for decoded in commits:
        state.replay(decoded)
    return state


def details_of(snapshot: TableSnapshot) -> Mapping[str, SegmentDetails]:
    """Made-up but distinct index counts for each segment."""
    return {
        segment.name: SegmentDetails(
            max_timestamp=FIRST_MS + segment.base, index_entries=number, time_index_entries=number + 1
        )
        for number, segment in enumerate(snapshot.segments)
    }


def spell(document: Mapping[str, Any]) -> bytes:
    """A document as its format's page spells it, without any of the code under test."""
    return (json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n").encode()


def seal(document: Mapping[str, Any], *, unknown: Mapping[str, Any] | None = None) -> bytes:
    """A document with the right `crc`, whatever else is wrong with it; unknown keys stand behind `crc`."""
    keys = {key: value for key, value in document.items() if key != "crc"}
    unknown = unknown or {}
    crc = crc32c(spell(keys | unknown))
    return spell(keys | {"crc": f"{crc:08x}"} | unknown)


def page_blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of one language on a format's page."""
    text = (PAGES / page).read_text(encoding="utf-8")
    return [part.split("\n```", 1)[0] + "\n" for part in text.split(f"```{language}\n")[1:]]


def page_keys(page: str, heading: str) -> list[str]:
    """The keys that a table of a format's page lists, in its order, by the heading the table stands under."""
    text = (PAGES / page).read_text(encoding="utf-8").split(f"\n{heading}\n", 1)[1]
    section = text.split("\n#", 1)[0]
    return [line.split("|")[1].strip().strip("`") for line in section.splitlines() if line.startswith("| `")]
