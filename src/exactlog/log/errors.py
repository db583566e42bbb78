"""What can go wrong with a table besides the outcomes of an append, which are values."""

from exactlog.core.model.errors import ExactlogError


class InvalidArgumentError(ExactlogError, ValueError):
    """A call that cannot be meant: nothing was done, and the same call will never work."""

    code = "invalid-argument"


class ReadOnlyError(ExactlogError):
    """A partition that was opened to be read only is asked to change."""

    code = "read-only"


class PartitionClosedError(ExactlogError):
    """A partition is used after it was closed, or in another process than the one that opened it."""

    code = "partition-closed"


class PartitionStoppedError(ExactlogError):
    """The partition, or its whole data directory, has stopped: what is on disk is no longer known.

    Every call says so from then on, with the first reason. Close it and open it again: recovery finds what is good.
    """

    code = "partition-stopped"


class TransactionEndedError(ExactlogError):
    """A transaction is used after it was committed or aborted."""

    code = "transaction-ended"
