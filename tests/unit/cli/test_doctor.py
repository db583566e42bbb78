import resource
import shutil
import socket
import sys
import threading
from importlib import metadata

import pytest

from exactlog.cli import machine_checks
from exactlog.cli.broker_checks import check_address, check_cluster
from exactlog.cli.findings import Verdict
from exactlog.cli.machine_checks import (
    check_clock,
    check_disk,
    check_filesystem,
    check_open_files,
    check_packages,
    check_python,
    check_space,
    check_sync,
    filesystem_of,
    nearest_directory,
)
from exactlog.client.ports import BrokerAddress, ClientSettings, ClusterDescription, LogDirectory
from exactlog.client.wire.addresses import Address
from exactlog.core.model.errors import UnavailableError, UnsupportedError

NOW_S = 1_800_000_000.0
QUICK = ClientSettings(connect_timeout_ms=60_000, request_timeout_ms=60_000)


@pytest.fixture
def free_address():
    """Where nobody listens, for as long as the test takes."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield Address(*reserved.getsockname())


@pytest.fixture
def chatty_address():
    """Where somebody listens who does not speak Kafka: every connection is told something and closed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.close()

        thread = threading.Thread(target=greet)
        thread.start()
        yield Address(*listener.getsockname())
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def by_check(ran):
    return {row["check"]: row for row in ran.value}


# --- the command ----------------------------------------------------------------------------------------------


def test_a_machine_and_a_broker_that_are_well_are_told_line_by_line(run, tmp_path):
    ran = run("doctor", "--data-dir", tmp_path)

    found = by_check(ran)
    assert ran.code == 0
    assert {row["verdict"] for row in found.values()} <= {"ok", "warn"}
    assert {"python", "data directory", "free space", "filesystem", "fsync", "clock", "open files"} <= found.keys()
    assert "exactlog.append 1" in found["protocol"]["message"]
    assert "APIs" in found["protocol"]["message"]
    assert found["cluster"]["message"].startswith("cluster ")
    assert list(tmp_path.iterdir()) == []


def test_people_see_what_and_why_and_what_next(run, tmp_path, chatty_address):
    ran = run("-b", f"{chatty_address}", "doctor", "--data-dir", tmp_path, "-o", "table")

    assert ran.code == 7
    lines = ran.out.splitlines()
    (index,) = [index for index, line in enumerate(lines) if line.startswith("fail")]
    assert "and it is no Kafka broker" in lines[index]
    assert lines[index + 1].strip() == "a broker cannot be started where another program listens"
    assert "--port" in lines[index + 2]


def test_what_failed_decides_about_the_exit_code(run, tmp_path, free_address):
    file = tmp_path / "file"
    file.write_text("")

    assert run("-b", f"{free_address}", "doctor", "--data-dir", tmp_path).code == 0
    ran = run("-b", "no.such.host.invalid:1", "doctor", "--data-dir", tmp_path)
    assert (ran.code, by_check(ran)["port"]["verdict"]) == (7, "fail")
    assert ran.err == ""


def test_an_address_that_is_none_is_wrong_usage(run, tmp_path):
    assert run("-b", "::::", "doctor", "--data-dir", tmp_path).code == 2


# --- the machine ----------------------------------------------------------------------------------------------


def test_an_interpreter_that_is_too_old_fails(monkeypatch):
    assert check_python().verdict is Verdict.OK
    monkeypatch.setattr(sys, "version_info", (3, 10, 1, "final", 0))
    assert check_python().verdict is Verdict.FAIL


def test_packages_that_are_missing_are_named_with_what_brings_them(monkeypatch):
    def nothing(package):
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(metadata, "version", nothing)

    found = list(check_packages())

    assert [finding.verdict for finding in found] == [Verdict.WARN] * 2
    assert "pip install 'exactlog[kafka]'" in found[0].hint


def test_a_directory_that_is_not_there_yet_is_judged_by_where_it_will_be(tmp_path):
    first, *_ = check_disk(tmp_path / "a" / "b")

    assert nearest_directory(tmp_path / "a" / "b") == tmp_path
    assert f"(in {tmp_path}; it is not there yet) is writable" in first.message


def test_a_directory_that_cannot_be_written_fails(monkeypatch, tmp_path):
    def refuse(directory):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(machine_checks, "measure_sync", refuse)

    (finding,) = check_disk(tmp_path)

    assert (finding.verdict, finding.check) == (Verdict.FAIL, "data directory")
    assert "Permission denied" in finding.message


@pytest.mark.parametrize(
    ("free", "verdict"), [(10 * 1024**3, Verdict.OK), (1024**3, Verdict.WARN), (1024**2, Verdict.FAIL)]
)
def test_little_space_is_a_warning_and_none_a_failure(monkeypatch, tmp_path, free, verdict):
    monkeypatch.setattr(shutil, "disk_usage", lambda place: shutil._ntuple_diskusage(free * 2, free, free))

    assert check_space(tmp_path).verdict is verdict


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        ("ext4", Verdict.OK),
        ("tmpfs", Verdict.WARN),
        ("nfs4", Verdict.WARN),
        ("fuse.sshfs", Verdict.WARN),
        (None, Verdict.OK),
    ],
)
def test_a_filesystem_that_may_not_keep_its_word_is_a_warning(monkeypatch, tmp_path, kind, verdict):
    monkeypatch.setattr(machine_checks, "filesystem_of", lambda place: kind)

    assert check_filesystem(tmp_path).verdict is verdict


def test_the_innermost_mount_decides_about_the_filesystem(tmp_path):
    inner = tmp_path / "with space"
    inner.mkdir()
    mounts = tmp_path / "mountinfo"
    escaped = str(inner).replace(" ", "\\040")
    mounts.write_text(
        f"1 1 0:1 / / rw - ext4 /dev/a rw\n2 1 0:2 / {escaped} rw shared:1 - xfs /dev/b rw\n"
        f"3 1 0:3 / {tmp_path}/other rw - nfs host:/ rw\nnonsense\n"
    )

    assert filesystem_of(inner / "..", mounts) == "ext4"
    assert filesystem_of(inner, mounts) == "xfs"
    assert filesystem_of(inner, tmp_path / "missing") is None


def test_slow_flushes_are_a_warning(tmp_path):
    assert check_sync(tmp_path, 1.0).verdict is Verdict.OK
    slow = check_sync(tmp_path, 55.5)
    assert slow.verdict is Verdict.WARN
    assert "55.50 ms" in slow.message
    assert "--flush-mode interval" in slow.hint


def test_a_clock_that_is_behind_is_told(tmp_path):
    assert check_clock(tmp_path, now_s=NOW_S).verdict is Verdict.OK
    assert check_clock(tmp_path, now_s=0.0).verdict is Verdict.FAIL
    (tmp_path / "topic=t-part=0" / "_delta_log").mkdir(parents=True)
    behind = check_clock(tmp_path, now_s=machine_checks.CLOCK_START_S + 1.0)
    assert behind.verdict is Verdict.WARN
    assert "s ahead" in behind.message


@pytest.mark.parametrize(
    ("soft", "verdict"), [(256, Verdict.WARN), (1024, Verdict.OK), (resource.RLIM_INFINITY, Verdict.OK)]
)
def test_a_low_limit_of_open_files_is_a_warning(monkeypatch, soft, verdict):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, 4096))

    assert check_open_files().verdict is verdict


def test_a_system_without_limits_is_no_fault(monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)

    assert check_open_files().verdict is Verdict.OK


# --- the broker -----------------------------------------------------------------------------------------------


async def test_a_free_port_is_no_fault(free_address):
    (finding,) = [finding async for finding in check_address(free_address, QUICK)]

    assert (finding.check, finding.verdict) == ("port", Verdict.OK)
    assert f"exactlog serve --port {free_address.port}" in finding.message


class DescribedClient:
    """Says of a cluster what it is told to."""

    def __init__(self, *, brokers=(), directories=()):
        self._brokers, self._directories = brokers, directories

    async def describe_cluster(self):
        return ClusterDescription("c", 1, self._brokers)

    async def describe_log_dirs(self):
        if isinstance(self._directories, Exception):
            raise self._directories
        return self._directories


async def test_a_broker_that_cannot_be_reached_where_it_says_it_is_fails(free_address, chatty_address):
    brokers = tuple(BrokerAddress(number, *address) for number, address in enumerate((free_address, chatty_address)))

    found = [finding async for finding in check_cluster(DescribedClient(brokers=brokers), [])]

    assert [finding.check for finding in found] == ["cluster", "advertised"]
    assert found[1].verdict is Verdict.FAIL
    assert f"broker 0 says that it is at {free_address}" in found[1].message


async def test_the_disks_of_brokers_are_judged_where_they_tell():
    directories = [LogDirectory(1, f"/{n}", 1000, usable, {}) for n, usable in enumerate((500, 10, None))]

    found = [finding async for finding in check_cluster(DescribedClient(directories=directories), [])]

    assert [finding.verdict for finding in found[1:]] == [Verdict.OK, Verdict.WARN]


async def test_a_broker_that_does_not_tell_of_its_disk_is_no_fault():
    client = DescribedClient(directories=UnsupportedError("x does not serve DescribeLogDirs"))

    found = [finding async for finding in check_cluster(client, [])]

    assert [finding.verdict for finding in found] == [Verdict.OK] * 2


def test_a_cluster_that_stops_answering_fails(run, tmp_path, monkeypatch):
    async def fail(client, addresses):
        raise UnavailableError("gone")
        yield

    monkeypatch.setattr("exactlog.cli.commands.doctor.check_cluster", fail)

    ran = run("doctor", "--data-dir", tmp_path)

    assert (ran.code, by_check(ran)["cluster"]["message"]) == (7, "gone")
