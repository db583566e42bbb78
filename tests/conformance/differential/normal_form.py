"""Answers as trees of plain values, in which what must differ between two brokers is masked.

Each mask is narrow: it takes the broker's own value of a field, or a value of the kind that brokers make up, and leaves
every other value as it is. What is masked, and why:

    topic ids, producer ids, member ids,    made up by a broker: numbered by first appearance in a scenario, so that
    fetch session ids                       the same id in two places stays the same id
    host, port, cluster id                  the broker's own: another one would be seen
    leader epochs                           counted from the one a new topic has
    epochs of transaction coordinators      counted from the one of this coordinator, in markers too
    append times, commit times              that of the answer, within an hour
    log directories, bytes of a disk        of the machine
    epoch of the finalized features         counts the records of a metadata log
    texts of errors, documentation          only whether there is one: the words are each broker's own
    topics and groups of other scenarios,   left out where nobody asked about them by name
    and internal ones
    order of elements that have a name,     the protocol promises none; what promises one is asked about by a scenario
    of partitions of a transaction
"""

import re
import struct
import time
import uuid

import msgspec
from msgspec.structs import replace

from exactlog.core.model.ids import ZERO_UUID
from exactlog.core.protocol.messages.describe_transactions import TransactionTopic
from exactlog.core.record.batch_format import iter_headers
from exactlog.core.record.record_format import decode_records

HOUR_MS = 3_600_000
UUID_AT_END = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$|[A-Za-z0-9_-]{22}$")

ID_FIELDS = {"producer_id": "producer", "session_id": "session"}
EPOCH_FIELDS = {"leader_epoch", "committed_leader_epoch", "partition_leader_epoch", "epoch"}
TIME_FIELDS = {
    "log_append_time_ms",
    "last_timestamp",
    "max_timestamp",
    "base_timestamp",
    "timestamp",
    "timestamp_ms",
    "transaction_start_time_ms",
}
TEXT_FIELDS = {"error_message", "documentation", "batch_index_error_message"}
MEMBER_FIELDS = {"member_id", "leader"}
DISK_FIELDS = {"total_bytes", "usable_bytes"}

NAMELESS = {"None", "", "no id"}
MARKER = struct.Struct(">hi")
NAME_FIELDS = ("name", "topic", "group_id", "resource_name", "transactional_id")
FOREIGN = re.compile(r"d[0-9a-f]{6}-|first-|__")

# The first of these that a structure has names it among its siblings.
KEY_FIELDS = (
    "transactional_id",
    "resource_name",
    "group_id",
    "member_id",
    "name",
    "topic",
    "topic_id",
    "topic_name",
    "partition_index",
    "partition",
    "index",
    "key",
    "api_key",
    "node_id",
    "broker_id",
    "base_offset",
    "producer_id",
    "log_dir",
)


class Normaliser:
    """Brings the answers of one broker, within one scenario, into their normal form.

    Args:
        own: values of the broker itself by field name: `host`, `port`, `cluster_id`.
        epoch: the leader epoch that a new topic has.
        coordinator_epoch: what markers of transactions carry.
        prefix: what the names of the scenario begin with; with the number behind it, it becomes `~`.
    """

    def __init__(self, *, own, epoch, prefix, coordinator_epoch=0):
        self._own = own
        self._epoch = epoch
        self._coordinator_epoch = coordinator_epoch
        self._prefix = re.compile(re.escape(prefix) + "[0-9]+-")
        self._prefix_text = prefix
        self._own_name = self._prefix
        self._symbols = {}
        self._asked_about = set()

    def begin(self, part):
        """Begins a part: what brokers make up is numbered from 1 again, what other parts have made is foreign.

        The first part makes what all of them are about.
        """
        self._symbols = {value: symbol for value, symbol in self._symbols.items() if "~" in symbol}
        self._own_name = re.compile(f"{re.escape(self._prefix_text)}(1|{part})-")

    def name_id(self, value, symbol):
        """Gives an id its symbol before it appears."""
        self._symbols[value] = symbol

    def tree(self, message, *, of=None):
        """The normal form of a message that answers the request `of`."""
        self._asked_about = set(_texts(of))
        return self._tree(message)

    def _tree(self, value, field=""):
        match value:
            case msgspec.Struct():
                self._name_topic(value)
                if isinstance(value, TransactionTopic):  # a set
                    value = replace(value, partitions=tuple(sorted(value.partitions)))
                return {name: self._tree(getattr(value, name), name) for name in value.__struct_fields__}
            case tuple() | list():
                return self._array([self._tree(item, field) for item in value if not self._is_foreign(item)])
            case uuid.UUID():
                return "no id" if value == ZERO_UUID else self._symbol(value, "id")
            case memoryview() | bytes() | bytearray():
                return self._records(bytes(value)) if field == "records" else bytes(value)
            case str():
                return self._text(value, field)
            case bool() | None:
                return value
            case int():
                return self._number(value, field)
        raise TypeError(type(value))

    def _name_topic(self, value):
        """An id that stands beside a name is that of the name."""
        name, topic_id = getattr(value, "name", ""), getattr(value, "topic_id", ZERO_UUID)
        if name and topic_id != ZERO_UUID:
            self._symbols.setdefault(topic_id, f"id of {self._prefix.sub('~', name)}")

    def _is_foreign(self, item):
        if isinstance(item, TransactionTopic):
            return False
        name = next((getattr(item, field) for field in NAME_FIELDS if hasattr(item, field)), None)
        return bool(name and FOREIGN.match(name)) and name not in self._asked_about and not self._own_name.match(name)

    def _array(self, items):
        """Elements with a name, by name; a second one of a name by its number."""
        keyed = {}
        for index, item in enumerate(items):
            key = str(index)
            if isinstance(item, dict):
                names = [str(item[name]) for name in KEY_FIELDS if not isinstance(item.get(name, {}), dict)]
                key = next((name for name in names if name not in NAMELESS), "nameless" if names else key)
            while key in keyed:
                key += "'"
            keyed[key] = item
        return keyed

    def _symbol(self, value, kind):
        if value not in self._symbols:
            number = 1 + sum(symbol.startswith(kind) for symbol in self._symbols.values())
            self._symbols[value] = f"{kind} {number}"
        return self._symbols[value]

    def _text(self, value, field):
        if self._own.get(field) == value:
            return f"<{field}>"
        if field in TEXT_FIELDS and value:
            return "<text>"
        if field == "log_dir" and value:
            return "<log dir>"
        if field in MEMBER_FIELDS and UUID_AT_END.search(value):
            made_up = UUID_AT_END.search(value).group()
            return value.removesuffix(made_up) + self._symbol(made_up, "member")
        return self._prefix.sub("~", value)

    def _number(self, value, field):
        if self._own.get(field) == value:
            return f"<{field}>"
        if field in ID_FIELDS and value > 0:
            return self._symbol((field, value), ID_FIELDS[field])
        if field == "producer_id" and value == 0:  # Kafka's first producer is 0
            return self._symbol((field, value), "producer")
        if field in EPOCH_FIELDS and value >= 0:
            return f"epoch {value - self._epoch}"
        if field == "coordinator_epoch" and value >= 0:
            return f"coordinator epoch {value - self._coordinator_epoch}"
        if field in TIME_FIELDS and abs(value - time.time() * 1000) < HOUR_MS:
            return "<now>"
        if field in DISK_FIELDS and value > 0:
            return "<bytes>"
        if field == "finalized_features_epoch" and value >= 0:
            return "<count>"
        return value

    def _records(self, content):
        """Batches as a reader finds them, without their CRC: it covers the producer id, which is masked."""
        batches = []
        end = 0
        for position, header in iter_headers(content, may_be_cut=True):
            end = position + header.size_bytes
            batch = self._tree(header)
            del batch["crc"]
            records = decode_records(content, position, header=header)
            if header.is_control:
                records = [self._marker(record) for record in records]
            batch["records"] = {str(index): self._tree(record) for index, record in enumerate(records)}
            batches.append(batch)
        return self._array(batches) | ({"cut": True} if end != len(content) else {})

    def _marker(self, record):
        """A marker whose bytes have the coordinator's epoch as counted from this coordinator's."""
        version, epoch = MARKER.unpack(record.value)
        return replace(record, value=MARKER.pack(version, epoch - self._coordinator_epoch))


def _texts(value):
    """Every text in a request."""
    match value:
        case str():
            yield value
        case tuple():
            for item in value:
                yield from _texts(item)
        case msgspec.Struct():
            for name in value.__struct_fields__:
                yield from _texts(getattr(value, name))
