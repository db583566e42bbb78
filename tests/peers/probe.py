"""When does a broker answer? Two requests over a plain socket, so that no client's back-off blurs the time."""

import os
import socket
import struct
import time
from pathlib import Path
from typing import NamedTuple

API_VERSIONS = 18
METADATA = 3
ANSWERS = (0, 35)  # NONE, or UNSUPPORTED_VERSION: an answer all the same
POLL_SECONDS = 0.01


class StartTimes(NamedTuple):
    """Milliseconds from the birth of a process to its first answers."""

    api_versions_ms: int
    metadata_ms: int


class NoAnswerError(Exception):
    """The broker died, or did not answer in time."""


def wait_for_metadata(port: int, *, pid: int, timeout_seconds: float = 120) -> StartTimes:
    """Wait until the broker of process `pid` on 127.0.0.1 names a broker in its Metadata answer.

    Raises:
        NoAnswerError: it does not, in time, or its process is gone.
    """
    born = birth_time(pid)
    deadline = time.monotonic() + timeout_seconds
    api_versions_at = None
    while time.monotonic() < deadline:
        if not _is_running(pid):
            raise NoAnswerError(f"process {pid} is gone")
        try:
            if api_versions_at is None and _error_code(_call(port, API_VERSIONS)) in ANSWERS:
                api_versions_at = time.time()
            brokers = struct.unpack_from(">i", _call(port, METADATA, struct.pack(">i", 0)), 4)[0]
            if brokers > 0:
                answered_at = api_versions_at or time.time()
                return StartTimes(round((answered_at - born) * 1000), round((time.time() - born) * 1000))
        except (OSError, struct.error):
            pass  # not listening yet, or closed half-way: ask again
        time.sleep(POLL_SECONDS)
    raise NoAnswerError(f"no Metadata answer from port {port} in {timeout_seconds:g} s")


def birth_time(pid: int) -> float:
    """When a process started, in seconds since 1970, to a hundredth."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    ticks = int(stat.rsplit(")", 1)[1].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def resident_mb(pid: int) -> float:
    """The resident set of a process, in MB (1e6 bytes)."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    pages = int(stat.rsplit(")", 1)[1].split()[21])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def _call(port: int, api_key: int, body: bytes = b"") -> bytes:
    """One version-0 request on a connection of its own; the answer begins with its correlation id."""
    with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
        connection.settimeout(3)
        client_id = b"probe"
        frame = struct.pack(">hhih", api_key, 0, 7, len(client_id)) + client_id + body
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        size = struct.unpack(">i", _receive(connection, 4))[0]
        return _receive(connection, size)


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionError("closed")
        received += chunk
    return bytes(received)


def _error_code(answer: bytes) -> int:
    return int(struct.unpack_from(">h", answer, 4)[0])
