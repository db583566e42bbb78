"""Members of a group, each a program of its own: started, asked to leave, killed, and watched."""

import base64
import json
import os
import signal
import subprocess
import tempfile
import threading
import time

from tests.peers import PROJECT

PATIENCE_S = 60
"""A rebalance may wait for a session time-out, and a start for a busy machine."""


class Member:
    """One member, as it tells of itself.

    Attributes:
        client_id: its name among the members of the group.
        owned: the partitions that it has been given and not lost since.
        records: all that it was handed out: topic, partition, offset and value.
        rebalances: what it was told of rebalances, in order: a word, and the partitions.
        committed: how many of its records it has committed, where it says so.
    """

    def __init__(self, command, wanted, changed):
        self.client_id = wanted.client_id
        self.owned, self.records, self.rebalances, self.committed = set(), [], [], 0
        self._began, self._told = time.monotonic(), []
        self._changed = changed
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115  closed with the member
        self._process = subprocess.Popen(
            [*command, json.dumps(wanted._asdict())],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            encoding="utf-8",
            start_new_session=True,  # to be killed with all that it started
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self):
        for line in self._process.stdout:
            ((what, told),) = json.loads(line).items()
            shown = [place[:3] for place in told] if what == "records" else told
            self._told.append(f"{time.monotonic() - self._began:.1f} s: {what} {shown}")
            with self._changed:
                self._learn(what, told)
                self._changed.notify_all()

    def _learn(self, what, told):
        match what:
            case "assigned":
                self.owned |= {tuple(partition) for partition in told}
                self.rebalances.append((what, {tuple(partition) for partition in told}))
            case "revoked" | "lost":
                self.owned -= {tuple(partition) for partition in told}
                self.rebalances.append((what, {tuple(partition) for partition in told}))
            case "records":
                self.records += [(*place, base64.b64decode(value)) for *place, value in told]
            case "committed":
                self.committed += told

    @property
    def is_running(self):
        return self._process.poll() is None

    def leave(self):
        """Asks it to close its consumer and end, and waits until it has."""
        self._process.stdin.close()
        exit_code = self._process.wait(PATIENCE_S)
        assert exit_code == 0, self.story()
        self._end()

    def kill(self):
        """Ends it without a word to anybody."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdin.close()
        self._end()

    def _end(self):
        self._listener.join()
        self._process.stdout.close()
        self._complaints.close()
        with self._changed:
            self.owned = set()

    def story(self):
        """What it has told, and what it complained of."""
        complaints = b""
        if not self._complaints.closed:
            self._complaints.seek(0)
            complaints = self._complaints.read()[-4_000:]
        state = f"exit code {self._process.poll()}, {time.monotonic() - self._began:.1f} s old"
        counts = f"{len(self.records)} records, {self.committed} committed"
        told = [f"{self.client_id} ({state}): {counts}", *self._told[-40:], complaints.decode(errors="replace")]
        return "\n".join(told)


class Members:
    """The members of one group; what still runs at the end is killed."""

    def __init__(self):
        self._changed = threading.Condition()
        self._members = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for member in self._members:
            if member.is_running:
                member.kill()
            elif not member._process.stdin.closed:
                member._process.stdin.close()
                member._end()

    def join(self, command, wanted):
        """Starts a member."""
        self._members.append(Member(command, wanted, self._changed))
        return self._members[-1]

    @property
    def records(self):
        """What all members were handed out, of those too that are gone."""
        return [record for member in self._members for record in member.records]

    def wait_until(self, condition, patience_s=PATIENCE_S):
        """Waits until what the members have told makes the condition true."""
        deadline = time.monotonic() + patience_s
        with self._changed:
            while not condition():
                left = deadline - time.monotonic()
                assert left > 0, "it does not come about:\n" + "\n".join(member.story() for member in self._members)
                self._changed.wait(min(left, 0.2))
