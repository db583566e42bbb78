"""A workload on an embedded broker that may die, and what the checker says of its history."""

from contextlib import ExitStack

from exactlog.testing import Broker, check
from exactlog.testing.faults import armed
from exactlog.testing.workload import Workload, run
from exactlog.testing.workload_wire import WireSystem


class Dead(BaseException):
    """Nothing of the step that dies is carried on."""


class Embedded(WireSystem):
    """A broker in this process; where it has died at a fault point it is started again before it is next used."""

    def __init__(self, broker, *, transaction_version, order=None):
        super().__init__(self._find, crash=self._kill, transaction_version=transaction_version)
        self._broker = broker
        self._order = order

    def _find(self):
        if self._order is not None and self._order.has_fired:
            self._order = None
            self._kill()
        return "127.0.0.1", self._broker.port

    def _kill(self):
        self._broker.kill()
        self._broker.restart()


def check_workload(path, *, version=2, crashes=0, dies_at=None, at=3, engine=None, **workload):
    """Runs it and returns the report; the broker keeps everything in memory where it need not start again."""
    with ExitStack() as stack:
        needs_disk = crashes or dies_at is not None
        on_disk = {} if engine is None else {"commit.engine": engine}
        broker = stack.enter_context(Broker(config=on_disk if needs_disk else {"in.memory": True}))

        def die():
            broker._kill_node()  # from within its own loop: sockets and files go, as with the process
            raise Dead

        order = None if dies_at is None else stack.enter_context(armed(dies_at, die, at=at))
        system = Embedded(broker, transaction_version=version, order=order)
        stack.callback(system.close)
        run(Workload(crashes=crashes, **workload), system, path)
        assert order is None or order.has_fired, f"{dies_at} was not reached"
    return check.history(path)
