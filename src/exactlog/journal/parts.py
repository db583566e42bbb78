"""What journals are made of, once they are open."""

import msgspec
from msgspec import Struct

from exactlog.client.ports import Client
from exactlog.core.journal.new_actions import Writer
from exactlog.core.journal.rows import SnapshotRow
from exactlog.core.model.clock import Clock
from exactlog.journal.action_log import ActionLog
from exactlog.journal.appending import Appender
from exactlog.journal.brokers import Connect
from exactlog.journal.event_record import Snapshot
from exactlog.journal.reading import EventReader
from exactlog.journal.settings import JournalSettings
from exactlog.journal.sight import Looker
from exactlog.journal.store_ports import JournalStore
from exactlog.journal.typed_events import EventCodec


class Parts(Struct, frozen=True, kw_only=True):
    """The parts that all journals of one `Journals` share."""

    brokers: Connect
    client: Client
    log: ActionLog
    store: JournalStore
    looker: Looker
    reader: EventReader
    appender: Appender
    codec: EventCodec
    clock: Clock
    writer: Writer
    settings: JournalSettings

    def snapshot_of(self, row: SnapshotRow) -> Snapshot:
        """A snapshot for its reader. Raises `DecodeError`."""
        return Snapshot(
            seq_nr=row.seq_nr,
            state=self.codec.decode(row.payload),
            timestamp=row.timestamp_ms,
            metadata=None if row.metadata is None else msgspec.json.decode(row.metadata),
        )
