"""Which source the options of a read name."""

from collections.abc import Collection

from exactlog.pipeline.broker_source import BrokerSource
from exactlog.pipeline.path_source import PathSource
from exactlog.pipeline.read_options import ReadOptions
from exactlog.pipeline.schema import COLUMN_NAMES


def open_source(options: ReadOptions, columns: Collection[str] = COLUMN_NAMES) -> BrokerSource | PathSource:
    """The source of a read; nothing is opened before it is asked for something.

    Args:
        options: what to read.
        columns: those that are wanted.
    """
    return BrokerSource(options) if options.path is None else PathSource(options, columns)
