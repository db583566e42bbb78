"""A broker inside a test process, and pytest fixtures for it: public API.

Names are imported when they are first asked for: pytest loads `exactlog.testing.pytest_plugin`, and with it this
package, into every run.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exactlog.testing.broker import Broker, BrokerNotRunningError
    from exactlog.testing.clock import MovableClock

__all__ = ["Broker", "BrokerNotRunningError", "MovableClock"]

_HOMES = {
    "Broker": "exactlog.testing.broker",
    "BrokerNotRunningError": "exactlog.testing.broker",
    "MovableClock": "exactlog.testing.clock",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  only who asks for a name pays for it

    return getattr(import_module(_HOMES[name]), name)
