"""The options of a write, and the columns that a written frame may have: checked before anything is sent.

key, value  binary or string; the value must be there, though it may be NULL
headers     an array of structs of a name (or key) and a binary value
partition   where the record goes; NULL or absent: the key decides, as in Kafka's clients
timestamp   NULL or absent: the time of the write
topic       where no option names one
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from exactlog.client.adapters import bootstrap_addresses
from exactlog.core.codec.compression import Compression
from exactlog.core.config.definition import nearest_name
from exactlog.core.model.errors import ExactlogError
from exactlog.pipeline.read_options import InvalidOptionError

TRANSACTION_TIMEOUT_MS_DEFAULT: Final = 900_000
"""Fifteen minutes: what a broker allows unless its `transaction.max.timeout.ms` says otherwise."""

WRITE_OPTION_NAMES: Final = ("bootstrap", "topic", "txnAppId", "txnVersion", "transactionTimeoutMs", "compression")
"""All options of writing, as they are documented."""

SINK_PREFIX: Final = "exactlog-sink-"
"""What transactional ids and groups of sinks begin with."""

_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})  # a stream's own, which Spark hands over with ours
_NUMBER_MAX: Final = {"txnVersion": 2**63 - 2, "transactionTimeoutMs": 2**31 - 1}
_CODECS: Final = {codec.name.lower(): codec for codec in Compression}
_BYTES: Final = ("binary", "string")
COLUMN_TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "key": _BYTES,
    "value": _BYTES,
    "headers": ("array<struct<name:string,value:binary>>", "array<struct<key:string,value:binary>>"),
    "partition": ("int",),
    "timestamp": ("timestamp",),
    "topic": ("string",),
}
"""The columns that can be written, with the types that each may have, in Spark's words."""


class InvalidColumnsError(ExactlogError):
    """The columns of a frame are not those of records."""

    code = "invalid-columns"


class WriteOptions(Struct, frozen=True, kw_only=True):
    """Where rows are written, and under which identity; checked. It travels to Spark's workers.

    Attributes:
        bootstrap: `host:port`s of a broker, separated by commas.
        topic: where every row goes; None: the column of that name says it.
        txn_app_id: under which batches are recorded; None: nobody will ever ask whether this one was written.
        txn_version: of the one batch that is written; None of a stream, where it is the id of each micro-batch.
        transaction_timeout_ms: how long the transaction of a batch may stay open.
        compression: of the records.
    """

    bootstrap: str
    topic: str | None = None
    txn_app_id: str | None = None
    txn_version: int | None = None
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS_DEFAULT
    compression: Compression = Compression.NONE

    @property
    def group_id(self) -> str | None:
        """The group whose offsets record which batches were written."""
        return None if self.txn_app_id is None else SINK_PREFIX + self.txn_app_id


def parse_write_options(options: Mapping[str, str], *, is_stream: bool = False) -> WriteOptions:
    """The options of `df.write` or, with `is_stream`, of `df.writeStream`, by names in any case.

    Raises:
        InvalidOptionError: one is unknown, malformed, missing, or does not go with the others.
        ClientUrlError: the address of the broker is malformed.
    """
    given = _by_documented_name(options, is_stream=is_stream)
    bootstrap = given.get("bootstrap", "").removeprefix("kafka://")
    if not bootstrap:
        raise InvalidOptionError(
            "no bootstrap says which broker to write to", hint='option("bootstrap", "host:port") names it'
        )
    bootstrap_addresses(f"kafka://{bootstrap}")
    txn_version = _number(given, "txnVersion", least=0)
    _check_identity(given, is_stream=is_stream)
    timeout_ms = _number(given, "transactionTimeoutMs", least=1)
    codec = given.get("compression", "none").lower()
    if codec not in _CODECS:
        raise InvalidOptionError(f"compression must be one of {', '.join(_CODECS)}, not {codec!r}")
    return WriteOptions(
        bootstrap=bootstrap,
        topic=given.get("topic"),
        txn_app_id=given.get("txnAppId"),
        txn_version=txn_version,
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS_DEFAULT if timeout_ms is None else timeout_ms,
        compression=_CODECS[codec],
    )


def check_columns(columns: Iterable[tuple[str, str]], options: WriteOptions) -> None:
    """Whether rows with these columns, names and types in Spark's words, can be written with these options.

    Raises:
        InvalidColumnsError: one is unknown, twice there, missing, or of another type.
    """
    seen: set[str] = set()
    for name, type_name in columns:
        if name not in COLUMN_TYPES:
            nearest = nearest_name(name.lower(), COLUMN_TYPES)
            raise InvalidColumnsError(
                f"column {name} cannot be written: a record has {', '.join(COLUMN_TYPES)}",
                hint=f"{f'did you mean {nearest}? ' if nearest else ''}drop or rename it",
            )
        if name in seen:
            raise InvalidColumnsError(f"there are two columns {name}", hint="drop or rename one of them")
        if type_name not in COLUMN_TYPES[name]:
            raise InvalidColumnsError(
                f"column {name} must be {' or '.join(COLUMN_TYPES[name])}, not {type_name}", hint="cast it"
            )
        seen.add(name)
    if "value" not in seen:
        raise InvalidColumnsError(
            "there is no column value", hint="for records without one, add a column value that is NULL: binary"
        )
    if options.topic is None and "topic" not in seen:
        raise InvalidColumnsError(
            "neither the option topic nor a column topic says where the rows go", hint='option("topic", NAME)'
        )
    if options.topic is not None and "topic" in seen:
        raise InvalidColumnsError(
            f"the option topic ({options.topic}) and a column topic both say where the rows go",
            hint='drop("topic") lets all rows go to the one that the option names',
        )


def _by_documented_name(options: Mapping[str, str], *, is_stream: bool) -> dict[str, str]:
    documented = {name.lower(): name for name in WRITE_OPTION_NAMES}
    given = {}
    for name, value in options.items():
        if is_stream and name.lower() in _OF_SPARK:
            continue
        known = documented.get(name.lower())
        if known is None:
            nearest = nearest_name(name.lower(), documented)
            did_you_mean = f"did you mean {documented[nearest]}? " if nearest else ""
            raise InvalidOptionError(
                f"{name} is no option of writing to an exactlog",
                hint=f"{did_you_mean}There are {', '.join(WRITE_OPTION_NAMES)}.",
            )
        if not value.strip():
            raise InvalidOptionError(f"{known} is empty")
        given[known] = value.strip()
    return given


def _check_identity(given: Mapping[str, str], *, is_stream: bool) -> None:
    """Raises unless a batch can be told from every other one, or need not be."""
    if is_stream and "txnVersion" in given:
        raise InvalidOptionError(
            "txnVersion is an option of df.write; in a stream it is the id of each micro-batch", hint="leave it out"
        )
    if is_stream and "txnAppId" not in given:
        raise InvalidOptionError(
            "no txnAppId: under it the micro-batches of a stream are recorded, so that none is written twice",
            hint='option("txnAppId", NAME), a name that this query alone uses, for as long as its checkpoint lives',
        )
    if not is_stream and ("txnAppId" in given) != ("txnVersion" in given):
        has, lacks = ("txnAppId", "txnVersion") if "txnAppId" in given else ("txnVersion", "txnAppId")
        raise InvalidOptionError(
            f"{has} is given without {lacks}",
            hint="both together say which batch this is; without both it is written whenever it is asked for",
        )


def _number(given: Mapping[str, str], name: str, *, least: int) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    most = _NUMBER_MAX[name]
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and least <= int(text) <= most):
        raise InvalidOptionError(f"{name} must be a whole number from {least} to {most}, not {text!r}")
    return int(text)
