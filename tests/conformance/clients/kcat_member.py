"""A member of a group that is kcat, told of as others tell of themselves: ``python -m ... BOOTSTRAP MEMBERSHIP``.

kcat commits by itself, often here, and once more when it is asked to end.
"""

import re
import subprocess
import sys
import threading

from tests.conformance.clients.member_events import Wanted, membership, say, say_records
from tests.peers.kcat import kcat

REBALANCE = re.compile(r"rebalanced.*?(assigned|revoked|lost|incremental assignment|incremental revoke)\b(.*)")
WORDS = {"incremental assignment": "assigned", "incremental revoke": "revoked"}
PARTITION = re.compile(r"(\S+) \[(\d+)\]")


def tell_rebalances(lines):
    for line in lines:
        found = REBALANCE.search(line)
        if found:
            say(WORDS.get(found[1], found[1]), [[topic, int(index)] for topic, index in PARTITION.findall(found[2])])


def tell_records(lines):
    for line in lines:
        topic, partition, offset, value = line.rstrip("\n").split(" ", 3)
        say_records([(topic, int(partition), int(offset), value.encode())])


def main(bootstrap_servers, *arguments):
    """Be a member until the input ends."""
    wanted = membership(arguments)
    settings = {
        "client.id": wanted.client_id,
        "partition.assignment.strategy": wanted.assignor,
        "session.timeout.ms": wanted.session_timeout_ms,
        "heartbeat.interval.ms": 500,
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 100,
        "fetch.wait.max.ms": 100,
    }
    if wanted.instance_id is not None:
        settings["group.instance.id"] = wanted.instance_id
    program, environment = kcat()
    command = [*program, "-b", bootstrap_servers, "-u", "-f", "%t %p %o %s\n"]
    for name, value in settings.items():
        command += ["-X", f"{name}={value}"]
    command += ["-G", wanted.group, *wanted.topics]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        tellers = [
            threading.Thread(target=tell_records, args=(process.stdout,)),
            threading.Thread(target=tell_rebalances, args=(process.stderr,)),
        ]
        for teller in tellers:
            teller.start()
        Wanted().wait()
        process.terminate()
        for teller in tellers:
            teller.join()
    say("closed", told=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
