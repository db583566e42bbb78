"""An entry of a region's data topic: the key and the value of one Kafka record (HoraeDB's common log format).

key, 26 bytes, big-endian, so that keys sort as their tables and sequences do
offset  size  type    field
0       1     uint8   namespace   1: log
1       8     uint64  region
9       8     uint64  table
17      8     uint64  sequence
25      1     uint8   version     0

value
offset  size  type    field
0       1     uint8   version     0
1       ...   bytes   payload
"""

import struct
from typing import Final

from msgspec import Struct

from exactlog.core.model.errors import DecodeError

LOG_NAMESPACE: Final = 1
KEY_VERSION: Final = 0
VALUE_VERSION: Final = 0

_KEY: Final = struct.Struct(">BQQQB")
_VALUE_PREFIX: Final = bytes([VALUE_VERSION])


class LogKey(Struct, frozen=True, gc=False):
    """Which entry it is."""

    region: int
    table: int
    sequence: int


def encode_log_key(key: LogKey) -> bytes:
    """The 26 bytes of a key."""
    return _KEY.pack(LOG_NAMESPACE, key.region, key.table, key.sequence, KEY_VERSION)


def decode_log_key(data: bytes) -> LogKey:
    """What a key says.

    Raises:
        DecodeError: these bytes are no key of an entry.
    """
    if len(data) != _KEY.size:
        raise DecodeError(f"a key of {len(data)} bytes; that of an entry has {_KEY.size}")
    namespace, region, table, sequence, version = _KEY.unpack(data)
    if namespace != LOG_NAMESPACE:
        raise DecodeError(f"a key of namespace {namespace}; that of an entry is {LOG_NAMESPACE}")
    if version != KEY_VERSION:
        raise DecodeError(f"a key of version {version}; {KEY_VERSION} is known")
    return LogKey(region, table, sequence)


def encode_log_value(payload: bytes) -> bytes:
    """A payload, with the version before it."""
    return _VALUE_PREFIX + payload


def decode_log_value(data: bytes) -> bytes:
    """The payload of a value.

    Raises:
        DecodeError: it is empty, or of another version.
    """
    if not data:
        raise DecodeError("an empty value; that of an entry begins with its version")
    if data[0] != VALUE_VERSION:
        raise DecodeError(f"a value of version {data[0]}; {VALUE_VERSION} is known")
    return data[1:]
