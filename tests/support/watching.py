"""Waiting for a broker in another thread to have done something, without waiting for time to pass."""

import time

PATIENCE_S = 20


def requests_handled(broker, api):
    """How many requests of an API the broker has begun to carry out."""
    return broker.metrics().get(f'exactlog_requests_total{{api="{api}"}}', 0)


def wait_until(condition):
    """Asks again and again until the condition holds; each question is a turn of the broker's event loop."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it does not come about"


def wait_published(broker):
    """Waits until all that was answered has its delta versions, so that readers of the directory see it.

    What is produced after that is another version.
    """

    async def flush():
        await broker._running_node().services.rounds.flush()

    broker._call(flush)


class RequestCount:
    """How many requests of one API a broker has carried out since this was made."""

    def __init__(self, broker, api):
        self._broker = broker
        self._api = api
        self._before = requests_handled(broker, api)

    def wait_for(self, count):
        """Waits until so many have been carried out, and what they made ready has been written to its sockets."""
        wait_until(lambda: requests_handled(self._broker, self._api) >= self._before + count)
        self._broker.metrics()  # one more turn of the loop
