"""Our messages as kio's, which has a class for every version of every message, its fields in the order of the wire.

kio gives some numbers a Python type: durations, points in time, error codes. Only what these can hold can be compared.
"""

import dataclasses
import datetime as dt
import importlib
import io
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from kio.schema.errors import ErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from exactlog.core.codec.message_schema import Message, Structure
from exactlog.core.codec.wire_types import Fixed
from tests.conformance.wire.descriptors import kafkas_fields

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_ERROR_CODES = st.sampled_from([code.value for code in ErrorCode])
# From 1970 to 2100, and -1, which is no time.
_TIMES = st.integers(0, 4_102_444_800_000)
# Durations go through floating-point seconds: a year and less survives that.
_DURATIONS = st.integers(-(10**10), 10**10)
_NUMBERS = {
    "error_code": _ERROR_CODES,
    "partition_error_code": _ERROR_CODES,
    "topic_config_error_code": _ERROR_CODES,
    "log_append_time_ms": _TIMES | st.just(-1),
    "transaction_start_time_ms": _TIMES,
    "retention_time_ms": _DURATIONS,
}
# Fields that Kafka 4.4 has renamed.
_FORMER_NAMES = {"generation_id_or_member_epoch": "generation_id"}


def numbers_kio_can_hold(name: str) -> SearchStrategy | None:
    """What to draw for the number of that name; nothing for one that may be any."""
    return _NUMBERS.get(name)


def kio_class(message: type[Message], version: int) -> type | None:
    """kio's class for that version of a message, if it has one."""
    kind = EntityType.request if message.__name__.endswith("Request") else EntityType.response
    try:
        path = schema_name_map[message.__module__.rpartition(".")[2]][version][kind]
    except KeyError:
        return None
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def without_our_own(message: Structure) -> Any:
    """The same message without the fields that are not Kafka's."""
    kept = {field.name: _without_our_own(getattr(message, field.name)) for field in kafkas_fields(type(message))}
    return type(message)(**kept)


def to_kio(message: Structure, version: int, kio_type: type) -> Any:
    """The same message as an instance of kio's class."""
    ours = [field for field in kafkas_fields(type(message)) if version in field.versions]
    theirs = dataclasses.fields(kio_type)
    for field, their in zip(ours, theirs, strict=True):
        assert their.name in {_name_in_kio(field.name, their), _FORMER_NAMES.get(field.name)}
    return kio_type(
        **{
            their.name: _value_in_kio(getattr(message, field.name), their, field.type, version)
            for field, their in zip(ours, theirs, strict=True)
        }
    )


def encode_with_kio(entity: Any) -> bytes:
    stream = io.BytesIO()
    entity_writer(type(entity))(stream, entity)
    return stream.getvalue()


def decode_with_kio(kio_type: type, encoded: bytes) -> Any:
    entity, size = entity_reader(kio_type)(encoded, 0)
    assert size == len(encoded)
    return entity


def _without_our_own(value: Any) -> Any:
    match value:
        case Structure():
            return without_our_own(value)
        case tuple():
            return tuple(map(_without_our_own, value))
        case _:
            return value


def _name_in_kio(name: str, field: dataclasses.Field) -> str:
    is_time = field.metadata.get("kafka_type", "").startswith(("timedelta", "datetime"))
    return name.removesuffix("_ms") if is_time else name


def _value_in_kio(value: Any, field: dataclasses.Field, wire_type: Any, version: int) -> Any:
    match field.metadata.get("kafka_type"):
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return dt.timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 else _EPOCH + dt.timedelta(milliseconds=value)
        case "uuid" if wire_type == Fixed("uuid", "16s"):
            return None if value == UUID(int=0) else value
        case "uuid":
            return tuple(None if item == UUID(int=0) else item for item in value)
        case None if value is None:
            return None
        case None if isinstance(value, tuple):
            kio_type = _class_inside(field.type)
            return tuple(to_kio(item, version, kio_type) for item in value)
        case None:
            return to_kio(value, version, _class_inside(field.type))
        case _:
            return value


def _class_inside(annotation: Any) -> type:
    """`X` of `X`, `X | None`, `tuple[X, ...]` and `tuple[X, ...] | None`."""
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return annotation
    inner = [argument for argument in annotation.__args__ if argument not in (type(None), ...)]
    return _class_inside(inner[0])
