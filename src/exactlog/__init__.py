"""exactlog: a Kafka-protocol-compatible, exactly-once event log whose storage is an ACID table."""

from exactlog.core.model.errors import ExactlogError

__version__ = "0.1.0"

__all__ = ["ExactlogError", "__version__"]
