"""A broker inside a test process, pytest fixtures for it, and a file system that fails: public API.

Names are imported when they are first asked for: pytest loads `exactlog.testing.pytest_plugin`, and with it this
package, into every run.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exactlog.broker.answer_faults import Fault
    from exactlog.core.model.error_code import ErrorCode
    from exactlog.testing.async_broker import AsyncBroker
    from exactlog.testing.broker import Broker, BrokerNotRunningError
    from exactlog.testing.clock import MovableClock
    from exactlog.testing.failing_filesystem import FailingFilesystem
    from exactlog.testing.loop_thread import StandsStillError
    from exactlog.testing.operation_log import Operation
    from exactlog.testing.ordered_failures import Crashed

__all__ = [
    "AsyncBroker",
    "Broker",
    "BrokerNotRunningError",
    "Crashed",
    "ErrorCode",
    "FailingFilesystem",
    "Fault",
    "MovableClock",
    "Operation",
    "StandsStillError",
]

_HOMES = {
    "AsyncBroker": "exactlog.testing.async_broker",
    "Broker": "exactlog.testing.broker",
    "BrokerNotRunningError": "exactlog.testing.broker",
    "Crashed": "exactlog.testing.ordered_failures",
    "ErrorCode": "exactlog.core.model.error_code",
    "FailingFilesystem": "exactlog.testing.failing_filesystem",
    "Fault": "exactlog.broker.answer_faults",
    "MovableClock": "exactlog.testing.clock",
    "Operation": "exactlog.testing.operation_log",
    "StandsStillError": "exactlog.testing.loop_thread",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  only who asks for a name pays for it

    return getattr(import_module(_HOMES[name]), name)
