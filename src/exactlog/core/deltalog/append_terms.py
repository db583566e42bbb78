"""Appends on terms: which ones hold, which were carried out before, which conflict.

An append may name what it rests on and who it is, so that a writer can tell its own retry from another's append:

    expected_version      holds while nothing became a version, or is about to, since the one it names (seed 000 §6)
    expected_origin_seq   the narrower fence: holds while this origin has added nothing since
    txn_id                an id of the client's own: the same id again gets the first result (within the last 10,000)
    origin_id, origin_seq a numbered writer: no number is ever added twice, a lower one never at all

`DecidedIds` judges by what is decided, published or not; it never changes a table. Order of judgement: who comes again
gets the first result, whatever else the terms say; then the fences.
"""

from msgspec import UNSET, Struct, UnsetType

from exactlog.core.deltalog.checkpoint_format import OriginEntry, TxnIdEntry
from exactlog.core.deltalog.table_state import TableState
from exactlog.core.model.ids import DeltaVersion, Offset
from exactlog.core.model.limits import ORIGINS_PER_PARTITION_MAX, TXN_ID_LENGTH_MAX

NO_ORIGIN_SEQ = 0
"""The last sequence of an origin that has added nothing."""


class AppendTerms(Struct, frozen=True, kw_only=True):
    """What an append rests on, and who it is; None where the writer says nothing.

    Attributes:
        expected_version: the newest delta version, as the writer knows it.
        txn_id: the client's own id of this append.
        payload_crc: CRC-32C of what the client sent, eight hex digits; goes with `txn_id` and with `origin_seq`.
        origin_id: the writer, where it numbers its appends; not the id of a node.
        origin_seq: the number of this append; the next one by default.
        expected_origin_seq: the last number this origin has added, as the writer knows it; 0 for none.
    """

    expected_version: int | None = None
    txn_id: str | None = None
    payload_crc: str | None = None
    origin_id: int | None = None
    origin_seq: int | None = None
    expected_origin_seq: int | None = None


class Committed(Struct, frozen=True):
    """The append is in place, now or since an earlier try; `offset_end` is its last offset, inclusive."""

    version: int
    offset_start: int
    offset_end: int


class Conflicted(Struct, frozen=True):
    """Something came first: nothing was appended.

    Both numbers are delta versions, or sequences of the origin where the term was `expected_origin_seq`. The actual
    one may be expected next.
    """

    expected: int
    actual: int


class Superseded(Struct, frozen=True):
    """The origin has gone on since: this sequence was appended before, its result is no longer known."""

    origin_id: int
    origin_seq: int
    last_seq: int


class PayloadDiffers(Struct, frozen=True):
    """The same id or sequence came before with another payload, and became that version: nothing was appended."""

    message: str
    version: int


class Unavailable(Struct, frozen=True):
    """The disk, or the broker, could not do it for now: nothing was appended that will ever be seen."""

    reason: str


class TermsRefused(Struct, frozen=True):
    """The terms themselves cannot be met, now or later."""

    message: str


class Accepted(Struct, frozen=True):
    """The append may go on, under this sequence of its origin (None: the node's own)."""

    origin_seq: int | None


Judgement = Accepted | Committed | Conflicted | Superseded | PayloadDiffers | TermsRefused


class DecidedIds:
    """The ids of clients and origins that are decided: those of a table, and of the versions that follow it."""

    def __init__(self, table: TableState, *, node_id: int) -> None:
        self._table = table
        self._node_id = node_id
        self._txn_ids: dict[str, TxnIdEntry] = {}
        self._origins: dict[int, OriginEntry] = {}

    def judge(self, terms: AppendTerms, *, closed_version: int, is_forming: bool) -> Judgement:
        """What is to become of an append on these terms.

        Args:
            closed_version: the newest version that nothing can join any more.
            is_forming: whether another one is open behind it; an expectation then conflicts with that one.
        """
        refusal = self._find_fault(terms)
        if refusal is not None:
            return TermsRefused(refusal)
        first = self._first_result(terms)
        if first is not None:
            return first
        if terms.expected_version is not None and (is_forming or terms.expected_version != closed_version):
            return Conflicted(terms.expected_version, closed_version + is_forming)
        if terms.origin_id is None:
            return Accepted(None)
        last_seq = self._last_seq(terms.origin_id)
        if terms.expected_origin_seq is not None and terms.expected_origin_seq != last_seq:
            return Conflicted(terms.expected_origin_seq, last_seq)
        return Accepted(last_seq + 1 if terms.origin_seq is None else terms.origin_seq)

    def decide(self, terms: AppendTerms, accepted: Accepted, committed: Committed) -> None:
        """An accepted append has its place: it is judged by from now on."""
        crc: str | UnsetType = UNSET if terms.payload_crc is None else terms.payload_crc
        version = DeltaVersion(committed.version)
        start, end = Offset(committed.offset_start), Offset(committed.offset_end)
        if terms.txn_id is not None:
            self._txn_ids[terms.txn_id] = TxnIdEntry(
                txn_id=terms.txn_id, payload_crc=crc, version=version, offset_start=start, offset_end=end
            )
        if terms.origin_id is not None and accepted.origin_seq is not None:
            self._origins[terms.origin_id] = OriginEntry(
                origin_id=terms.origin_id,
                last_seq=accepted.origin_seq,
                payload_crc=crc,
                version=version,
                offset_start=start,
                offset_end=end,
            )

    def forget_published(self) -> None:
        """The table has caught up with some versions: what it knows itself need not be kept here."""
        version = self._table.version
        self._txn_ids = {key: entry for key, entry in self._txn_ids.items() if entry.version > version}
        self._origins = {key: entry for key, entry in self._origins.items() if entry.version > version}

    def _find_fault(self, terms: AppendTerms) -> str | None:
        if terms.txn_id is not None and not 0 < len(terms.txn_id) <= TXN_ID_LENGTH_MAX:
            return f"a txn_id has 1 to {TXN_ID_LENGTH_MAX} characters, this one {len(terms.txn_id)}"
        if terms.payload_crc is None and (terms.txn_id is not None or terms.origin_seq is not None):
            return "a txn_id or an origin_seq needs the checksum of its payload"
        if terms.origin_id is None:
            if terms.origin_seq is not None or terms.expected_origin_seq is not None:
                return "a sequence of an origin needs an origin_id"
            return None
        if terms.origin_id == self._node_id:
            return f"origin_id {terms.origin_id} is the node's own: a writer needs another one"
        if terms.origin_seq is not None and terms.origin_seq <= NO_ORIGIN_SEQ:
            return f"origin_seq {terms.origin_seq}: sequences begin at 1"
        is_known = terms.origin_id in self._origins or terms.origin_id in self._table.origins
        if not is_known and len(self._table.origins) + len(self._origins) >= ORIGINS_PER_PARTITION_MAX:
            return f"the partition remembers {ORIGINS_PER_PARTITION_MAX} origins for ever and takes no more"
        return None

    def _first_result(self, terms: AppendTerms) -> Committed | Superseded | PayloadDiffers | None:
        """What an earlier try of the same append came to."""
        if terms.txn_id is not None:
            entry = self._txn_ids.get(terms.txn_id) or self._table.txn_ids.get(terms.txn_id)
            if entry is not None:
                return _repeat(entry, terms, f"txn_id {terms.txn_id!r}")
        if terms.origin_id is not None and terms.origin_seq is not None:
            last = self._origin(terms.origin_id)
            if last is not None and terms.origin_seq == last.last_seq:
                return _repeat(last, terms, f"sequence {terms.origin_seq} of origin {terms.origin_id}")
            if last is not None and terms.origin_seq < last.last_seq:
                return Superseded(terms.origin_id, terms.origin_seq, last.last_seq)
        return None

    def _origin(self, origin_id: int) -> OriginEntry | None:
        return self._origins.get(origin_id) or self._table.origins.get(origin_id)

    def _last_seq(self, origin_id: int) -> int:
        last = self._origin(origin_id)
        return NO_ORIGIN_SEQ if last is None else last.last_seq


def _repeat(entry: TxnIdEntry | OriginEntry, terms: AppendTerms, what: str) -> Committed | PayloadDiffers:
    if entry.payload_crc is not UNSET and entry.payload_crc != terms.payload_crc:
        return PayloadDiffers(
            f"{what} came before with another payload (CRC {entry.payload_crc}, now {terms.payload_crc}) and became "
            f"version {entry.version}, offsets {entry.offset_start} to {entry.offset_end}",
            entry.version,
        )
    return Committed(entry.version, entry.offset_start, entry.offset_end)
