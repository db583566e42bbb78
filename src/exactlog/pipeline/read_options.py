"""The options of a read: what Spark hands over as text, checked and typed before anything is opened.

Spark gives options in lower case; errors name them as they are documented.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal, TypeVar
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from exactlog.core.config.definition import nearest_name
from exactlog.core.model.errors import ExactlogError
from exactlog.core.model.isolation_level import IsolationLevel

T = TypeVar("T")

Start = Literal["earliest", "latest"]
"""Where a stream begins when it is given no number."""

BYTES_PER_PARTITION_DEFAULT: Final = 64 * 1024 * 1024
"""How many bytes of the log one task reads, at most about: 64 MiB."""

_WHOLE_PARTITION: Final = str(1 << 60)
_NUMBER_MAX: Final = 2**63 - 1
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_SIZE: Final = re.compile(r"([0-9]{1,19})\s*([kmgKMG]?)[bB]?")
_SIZE_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ISOLATION_LEVELS: Final = {level.name.lower(): level for level in IsolationLevel}

_VERSION_OPTIONS: Final = ("versionAsOf", "timestampAsOf", "startingVersion", "endingVersion")
_PAST_OPTIONS: Final = ("versionAsOf", "timestampAsOf", "endingVersion")
_BATCH_OPTIONS: Final = (*_PAST_OPTIONS, "pushDown")
_STREAM_OPTIONS: Final = ("startingOffsets", "maxRowsPerTrigger", "maxBytesPerTrigger")
READ_OPTION_NAMES: Final = (
    "path",
    "bootstrap",
    "topics",
    "versionAsOf",
    "timestampAsOf",
    "startingVersion",
    "endingVersion",
    "isolation",
    "includeControl",
    "maxBytesPerPartition",
    "pushDown",
    "startingOffsets",
    "maxRowsPerTrigger",
    "maxBytesPerTrigger",
)
"""All options of reading, as they are documented."""


class InvalidOptionError(ExactlogError):
    """An option of a read or a write that is unknown, malformed, missing, or does not go with another one."""

    code = "invalid-option"


class ReadOptions(Struct, frozen=True, kw_only=True):
    """What is to be read, and how; checked. It travels to Spark's workers.

    Attributes:
        path: a data directory, or the directory of one partition; None where a broker is read.
        bootstrap: `host:port`s of a broker, separated by commas; None where directories are read.
        topics: the topics to read; empty: all but internal ones.
        version_as_of: the delta version as of which each partition is read.
        timestamp_as_of_ms: the time as of which each partition is read, in milliseconds since 1970.
        starting_version: the first version whose rows are read, inclusive; of a stream also where to begin.
        ending_version: the last version whose rows are read, inclusive, and as of which they are seen. Rows of a
            transaction that was open then are in no range that ends there, nor in one that begins behind it: whoever
            wants each row once, bit by bit, uses a stream.
        isolation: whether records of open and aborted transactions are left out.
        include_control: whether transaction markers are rows too.
        bytes_per_partition_max: of the log, for one task.
        push_down: whether predicates narrow what is read. Spark 4.2 keeps what was pushed down with the DataFrame and
            gives it to every later scan of it, so such a DataFrame is for one query with one scan of it.
        starting_offsets: where a stream from a broker begins.
        rows_per_trigger_max: of one micro-batch; None: no limit.
        bytes_per_trigger_max: of the log, of one micro-batch; None: no limit.
    """

    path: str | None = None
    bootstrap: str | None = None
    topics: tuple[str, ...] = ()
    version_as_of: int | None = None
    timestamp_as_of_ms: int | None = None
    starting_version: int | Start | None = None
    ending_version: int | None = None
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    include_control: bool = False
    bytes_per_partition_max: int = BYTES_PER_PARTITION_DEFAULT
    push_down: bool = False
    starting_offsets: Start | None = None
    rows_per_trigger_max: int | None = None
    bytes_per_trigger_max: int | None = None


def options_of_log(path: str | Path | None, bootstrap: str | None, topics: Iterable[str]) -> dict[str, str]:
    """The options that say which log is read; no topics: all that are not internal."""
    where = None if path is None else str(Path(path).absolute())  # workers may run elsewhere in the file system
    named = {"path": where, "bootstrap": bootstrap, "topics": ",".join(topics) or None}
    return {name: value for name, value in named.items() if value is not None}


def options_of_ordered_batches(bytes_per_batch: int) -> dict[str, str]:
    """The options of a stream of so much a micro-batch, in each of which one task reads all that is of a partition.

    So what is of one partition stays in its order.
    """
    return {"maxBytesPerTrigger": str(bytes_per_batch), "maxBytesPerPartition": _WHOLE_PARTITION}


def parse_read_options(options: Mapping[str, str], *, is_stream: bool = False) -> ReadOptions:
    """The options of `spark.read` or, with `is_stream`, of `spark.readStream`, by names in any case.

    Raises:
        InvalidOptionError: one is unknown, malformed, or does not go with the others; or what to read is not said.
    """
    given = _by_documented_name(options)
    _refuse_misplaced(given, is_stream=is_stream)
    parsed = ReadOptions(
        path=_parse(given, "path", _parse_path),
        bootstrap=_parse(given, "bootstrap", _parse_text),
        topics=_parse_or(given, "topics", _parse_topics, ()),
        version_as_of=_parse(given, "versionAsOf", _parse_number),
        timestamp_as_of_ms=_parse(given, "timestampAsOf", _parse_time),
        starting_version=_parse(given, "startingVersion", _parse_start if is_stream else _parse_number),
        ending_version=_parse(given, "endingVersion", _parse_number),
        isolation=_parse_or(given, "isolation", _parse_isolation, IsolationLevel.READ_COMMITTED),
        include_control=_parse_or(given, "includeControl", _parse_boolean, default=False),
        bytes_per_partition_max=_parse_or(given, "maxBytesPerPartition", _parse_size, BYTES_PER_PARTITION_DEFAULT),
        push_down=_parse_or(given, "pushDown", _parse_boolean, default=False),
        starting_offsets=_parse(given, "startingOffsets", _parse_named_start),
        rows_per_trigger_max=_parse(given, "maxRowsPerTrigger", _parse_positive),
        bytes_per_trigger_max=_parse(given, "maxBytesPerTrigger", _parse_size),
    )
    _check_place(given)
    _check_versions(parsed)
    return parsed


def _by_documented_name(options: Mapping[str, str]) -> dict[str, str]:
    documented = {name.lower(): name for name in READ_OPTION_NAMES}
    given = {}
    for name, value in options.items():
        known = documented.get(name.lower())
        if known is None:
            nearest = nearest_name(name.lower(), documented)
            did_you_mean = f"did you mean {documented[nearest]}? " if nearest else ""
            raise InvalidOptionError(
                f"{name} is no option of reading an exactlog",
                hint=f"{did_you_mean}There are {', '.join(READ_OPTION_NAMES)}.",
            )
        given[known] = value
    return given


def _refuse_misplaced(given: Mapping[str, str], *, is_stream: bool) -> None:
    """Raises for an option that is of the other kind of read."""
    for name in _BATCH_OPTIONS if is_stream else _STREAM_OPTIONS:
        if name not in given:
            continue
        if name in _PAST_OPTIONS:
            raise InvalidOptionError(
                f"{name} is an option of spark.read; a stream has no end to be set by it",
                hint="read the past with spark.read; say where a stream begins with startingVersion",
            )
        own, other = ("spark.read", "spark.readStream") if is_stream else ("spark.readStream", "spark.read")
        raise InvalidOptionError(f"{name} is an option of {own}, not of {other}", hint="leave it out")


def _check_place(given: Mapping[str, str]) -> None:
    """Raises unless exactly one of a path and a broker is named, with options that go with it."""
    if "path" in given and "bootstrap" in given:
        raise InvalidOptionError(
            "path and bootstrap are both given", hint="give the path of a data directory, or a broker's host:port"
        )
    if "path" not in given and "bootstrap" not in given:
        raise InvalidOptionError(
            "neither path nor bootstrap is given",
            hint='name what to read: option("path", DATA_DIR) or option("bootstrap", "host:port")',
        )
    if "bootstrap" in given:
        version_option = next((name for name in _VERSION_OPTIONS if name in given), None)
        if version_option is not None:
            raise InvalidOptionError(
                f"{version_option} cannot be used with bootstrap: a broker's clients do not see delta versions",
                hint="read the data directory itself, with the option path",
            )
    elif "startingOffsets" in given:
        raise InvalidOptionError(
            "startingOffsets cannot be used with path: such a stream goes by delta versions",
            hint="use startingVersion",
        )


def _check_versions(options: ReadOptions) -> None:
    """Raises for options that name two versions at once, or a range that ends before it begins."""
    starting, ending = options.starting_version, options.ending_version
    named = {
        "versionAsOf": options.version_as_of,
        "timestampAsOf": options.timestamp_as_of_ms,
        "startingVersion or endingVersion": starting if ending is None else ending,
    }
    ways = [name for name, value in named.items() if value is not None]
    if len(ways) > 1:
        raise InvalidOptionError(
            f"{ways[0]} does not go with {ways[1]}",
            hint="versionAsOf and timestampAsOf read all there was, startingVersion and endingVersion what was added",
        )
    if isinstance(starting, int) and ending is not None and ending < starting:
        raise InvalidOptionError(
            f"endingVersion {ending} lies before startingVersion {starting}", hint="both ends are part of the range"
        )


def _parse(given: Mapping[str, str], name: str, parse: Callable[[str, str], T]) -> T | None:
    text = given.get(name)
    return None if text is None else parse(name, text.strip())


def _parse_or(given: Mapping[str, str], name: str, parse: Callable[[str, str], T], default: T) -> T:
    found = _parse(given, name, parse)
    return default if found is None else found


def _parse_text(name: str, text: str) -> str:
    if not text:
        raise InvalidOptionError(f"{name} is empty")
    return text


def _parse_path(name: str, text: str) -> str:
    _parse_text(name, text)
    parts = urlsplit(text)
    if parts.scheme == "file" and parts.netloc in {"", "localhost"}:
        return unquote(parts.path)
    if "://" in text or parts.scheme == "file":
        raise InvalidOptionError(
            f"{name} {text} is not a directory that this machine can open as a file",
            hint="give a local path, or one on a file system that all machines have mounted",
        )
    return text


def _parse_topics(name: str, text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(topic for part in text.split(",") if (topic := part.strip())))
    if not topics:
        raise InvalidOptionError(f"{name} names no topic", hint="separate names by commas; leave it out to read all")
    return topics


def _parse_number(name: str, text: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > _NUMBER_MAX:
        raise InvalidOptionError(f"{name} must be a number from 0 on, not {text!r}")
    return int(text)


def _parse_positive(name: str, text: str) -> int:
    number = _parse_number(name, text)
    if not number:
        raise InvalidOptionError(f"{name} must be at least 1")
    return number


def _parse_size(name: str, text: str) -> int:
    match = _SIZE.fullmatch(text)
    size = int(match[1]) * _SIZE_UNITS[match[2].lower()] if match else 0
    if not 0 < size <= _NUMBER_MAX:
        raise InvalidOptionError(f"{name} must be a number of bytes from 1 on, not {text!r}", hint="for example 64m")
    return size


def _parse_boolean(name: str, text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise InvalidOptionError(f"{name} must be true or false, not {text!r}")
    return text.lower() == "true"


def _parse_isolation(name: str, text: str) -> IsolationLevel:
    level = _ISOLATION_LEVELS.get(text.lower())
    if level is None:
        raise InvalidOptionError(f"{name} must be {' or '.join(_ISOLATION_LEVELS)}, not {text!r}")
    return level


def _parse_start(name: str, text: str) -> int | Start:
    if _NUMBER.fullmatch(text):
        return _parse_number(name, text)
    if text.lower() in {"earliest", "latest"}:
        return _parse_named_start(name, text)
    raise InvalidOptionError(f"{name} must be earliest, latest, or the number of a delta version, not {text!r}")


def _parse_named_start(name: str, text: str) -> Start:
    match text.lower():
        case "earliest":
            return "earliest"
        case "latest":
            return "latest"
        case _:
            raise InvalidOptionError(f"{name} must be earliest or latest, not {text!r}")


def _parse_time(name: str, text: str) -> int:
    """The milliseconds since 1970 that a number of them, or a text of ISO 8601, stands for; without a zone: UTC."""
    if _NUMBER.fullmatch(text):
        return _parse_number(name, text)
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        instant = _EPOCH - timedelta(days=1)
    aware = instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)
    if aware < _EPOCH:
        raise InvalidOptionError(
            f"{name} must be a time from 1970 on, not {text!r}",
            hint="for example 2026-11-27T10:00:00Z, or milliseconds since 1970",
        )
    return (aware - _EPOCH) // timedelta(milliseconds=1)
