"""The records of a transaction coordinator's log, `__transaction_state`: key and value to what they say, and back."""

import struct
from typing import Final, TypeAlias

from msgspec import Struct

from exactlog.core.model.decisions import UnknownRecord
from exactlog.core.model.errors import DecodeError
from exactlog.core.transaction.entry import TransactionEntry
from exactlog.core.transaction.transaction_state_format import (
    KEY_VERSION,
    decode_transaction_key,
    decode_transaction_value,
    encode_transaction_key,
    encode_transaction_value,
)

_KEY_KIND: Final = struct.Struct(">h")


class TransactionRecord(Struct, frozen=True, gc=False):
    """Where a transactional id stands; None says that it is no more."""

    transactional_id: str
    entry: TransactionEntry | None

    def encode_key(self) -> bytes:
        """The record's key."""
        return encode_transaction_key(self.transactional_id)

    def encode_value(self) -> bytes | None:
        """The record's value; None is a tombstone."""
        return None if self.entry is None else encode_transaction_value(self.entry)


AnyTransactionRecord: TypeAlias = TransactionRecord | UnknownRecord


def decode_record(key: bytes, value: bytes | None) -> AnyTransactionRecord:
    """What a record of `__transaction_state` says.

    Raises:
        DecodeError: the bytes are cut short, or are not what their version says.
    """
    if len(key) < _KEY_KIND.size:
        raise DecodeError(f"the key of a transaction's record begins with its version; it has {len(key)} bytes")
    if _KEY_KIND.unpack_from(key)[0] != KEY_VERSION:
        return UnknownRecord(bytes(key), None if value is None else bytes(value))
    transactional_id = decode_transaction_key(key)
    entry = None if value is None else decode_transaction_value(transactional_id, value)
    return TransactionRecord(transactional_id, entry)
