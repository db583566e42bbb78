"""What a member of a group tells of itself while it lives: lines of JSON, as the Java and Go programs tell them too."""

import base64
import json
import sys
import threading

from tests.conformance.clients.face import Membership


def say(what, told):
    """One event."""
    sys.stdout.write(json.dumps({what: told}) + "\n")
    sys.stdout.flush()


def say_records(records):
    """Records that were handed out: topic, partition, offset and value of each."""
    say(
        "records",
        [[topic, partition, offset, base64.b64encode(value).decode()] for topic, partition, offset, value in records],
    )


def membership(arguments):
    """What the last argument asks for."""
    return Membership(**json.loads(arguments[-1]))


class Wanted:
    """True as long as this program is wanted: until its input ends."""

    def __init__(self):
        self._is_over = threading.Event()
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self):
        sys.stdin.read()
        self._is_over.set()

    def __bool__(self):
        return not self._is_over.is_set()

    def wait(self):
        """Returns when this program is no longer wanted."""
        self._is_over.wait()
