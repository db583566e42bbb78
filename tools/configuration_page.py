"""Write docs/configuration.md: the page about configuration, with its tables made from the definitions.

A test compares the page with what this makes; `python -m tools.configuration_page` writes it anew.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from exactlog.core.config.broker_keys import BROKER_CONFIG_KEYS
from exactlog.core.config.definition import ConfigKey, format_config_value
from exactlog.core.config.topic_configs import TOPIC_CONFIG_KEYS

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"

TEMPLATE = """\
# Configuration

<!-- Made by tools/configuration_page.py; change that, or the definitions in src/exactlog/core/config. -->

## Where it comes from

The first of these that names a key wins:

1. a flag: `exactlog serve --set flush.mode=none`; some keys have a flag of their own, as `--flush-mode none`;
2. the environment: `EXACTLOG_FLUSH_MODE=none`, which is `EXACTLOG_`, then the key in capitals with underscores;
3. a file, `exactlog serve --config exactlog.toml`, with one table:

   ```toml
   [broker]
   flush.mode = "interval"
   flush.interval.ms = 500
   "connections.max" = 1000
   "connections.max.idle.ms" = 60000
   ```

   Keys may be quoted, and must be where one key's whole name begins another's, as in the last two lines;
4. the default.

A test broker takes keys and values from Python and does not look at the environment:
`Broker(config={{"flush.mode": "none"}})`.

An unknown key is an error that names the nearest one. A value that is not valid is an error that names the key, the
place it was set in and what is valid. A key that goes by two names may be given by both, with one value.

Kafka's names are kept where Kafka has one. A key marked *not yet* is checked, kept and shown to clients that ask, and
does nothing so far.

A key marked *dynamic* can be changed while the broker runs, by AlterConfigs or IncrementalAlterConfigs on the broker,
or on the broker without a name, which stands for all of them (`kafka-configs --alter --entity-type brokers`). What is
set that way comes before all of the above, is kept in the catalog, acts at once, and also after the next start.

## Broker

{broker_table}

## Topic

Set when a topic is created (`exactlog topic create orders -c retention.ms=60000`, or by any Kafka client), and changed
at any time later by AlterConfigs and IncrementalAlterConfigs; a change acts at once. What is not set comes from the
broker key in the fourth column, else from the default. Names, types, defaults and ranges are those of Apache Kafka 4.4,
but `segment.bytes` may be as small as in Kafka 3.9, so that a test can fill segments quickly.

{topic_table}
"""


def render() -> str:
    """The whole page."""
    return TEMPLATE.format(
        broker_table="\n".join(
            _table(("key", "type", "default", "valid", "what it is"), map(_broker_row, BROKER_CONFIG_KEYS))
        ),
        topic_table="\n".join(
            _table(("key", "type", "default", "broker key", "valid", "what it is"), map(_topic_row, TOPIC_CONFIG_KEYS))
        ),
    )


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield f"| {' | '.join(headings)} |"
    yield "|" + "---|" * len(headings)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _broker_row(key: ConfigKey) -> Sequence[str]:
    names = ", ".join(f"`{name}`" for name in (key.name, *key.aliases))
    return names, key.type.name.lower(), _default(key), _valid(key), ("*Dynamic.* " * key.is_dynamic) + _meaning(key)


def _topic_row(key: ConfigKey) -> Sequence[str]:
    broker_key = f"`{key.broker_key}`" if key.broker_key is not None else ""
    return f"`{key.name}`", key.type.name.lower(), _default(key), broker_key, _valid(key), _meaning(key)


def _default(key: ConfigKey) -> str:
    text = format_config_value(key.default)
    return f"`{text}`" if text else "(empty)"


def _valid(key: ConfigKey) -> str:
    return "" if key.valid is None else str(key.valid)


def _meaning(key: ConfigKey) -> str:
    return key.documentation if key.acts else f"*Not yet.* {key.documentation}"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
