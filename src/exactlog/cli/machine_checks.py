"""Whether this machine has what a broker needs: Python, packages, disk, clock, open files."""

import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from exactlog.cli.findings import Finding, fail, ok, warn
from exactlog.core.model.limits import OPEN_FILES_MAX

PYTHON_MIN: Final = (3, 11)

OPTIONAL_PACKAGES: Final = {
    "confluent-kafka": ("kafka", "clients in Python that use transactions, and many examples, need it"),
    "uvloop": ("speed", "with it the broker answers more requests a second"),
}
"""By package: the extra that brings it, and what it is for."""

FREE_BYTES_MIN: Final = 256 * 1024 * 1024
FREE_BYTES_SCARCE: Final = 2 * 1024 * 1024 * 1024
SYNC_SLOW_MS: Final = 20.0
SYNC_COUNT_MAX: Final = 20
SYNC_SECONDS_MAX: Final = 0.5
SYNC_BYTES: Final = 4096

REMOTE_FILESYSTEMS: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "fuse.sshfs", "ceph"})
VOLATILE_FILESYSTEMS: Final = frozenset({"tmpfs", "ramfs"})
MOUNTS: Final = Path("/proc/self/mountinfo")

FILES_SPARE: Final = 512  # sockets, the catalog, the interpreter's own
CLOCK_START_S: Final = 1_767_225_600  # 2026-01-01: no exactlog is older
AHEAD_SECONDS_MAX: Final = 5.0


def check_python() -> Finding:
    """Whether the interpreter is new enough."""
    version = platform.python_version()
    if sys.version_info[:2] < PYTHON_MIN:
        return fail(
            "python",
            f"Python {version}",
            why="exactlog is written for 3.11 and later",
            hint="Install a newer Python, and exactlog with it.",
        )
    return ok("python", f"{platform.python_implementation()} {version} on {platform.system()} {platform.machine()}")


def check_packages() -> Iterator[Finding]:
    """Which optional packages are installed."""
    for package, (extra, use) in OPTIONAL_PACKAGES.items():
        try:
            yield ok(package, f"{package} {metadata.version(package)} is installed")
        except metadata.PackageNotFoundError:
            hint = f"Run pip install 'exactlog[{extra}]' if you want it."
            yield warn(package, f"{package} is not installed", why=use, hint=hint)


def check_disk(data_directory: Path) -> Iterator[Finding]:
    """Whether the volume of a data directory is writable, has room, keeps what it is given, and is quick."""
    place = nearest_directory(data_directory)
    where = str(data_directory) if place == data_directory else f"{data_directory} (in {place}; it is not there yet)"
    try:
        sync_ms = measure_sync(place)
    except OSError as error:
        yield fail(
            "data directory",
            f"{where}: {error.strerror or error}",
            why="a broker writes there",
            hint="Choose another one by --data-dir, or let its owner run the broker.",
        )
        return
    yield ok("data directory", f"{where} is writable")
    yield check_space(place)
    yield check_filesystem(place)
    yield check_sync(place, sync_ms)


def check_space(place: Path) -> Finding:
    """Whether there is room for records."""
    free = shutil.disk_usage(place).free
    message = f"{free / 1e9:.1f} GB are free in {place}"
    why = "a broker whose disk is full stops taking records"
    hint = "Make room, or lower retention.ms and retention.bytes."
    if free < FREE_BYTES_MIN:
        return fail("free space", message, why=why, hint=hint)
    return ok("free space", message) if free >= FREE_BYTES_SCARCE else warn("free space", message, why=why, hint=hint)


def check_filesystem(place: Path) -> Finding:
    """Whether the filesystem is one that keeps what was flushed."""
    kind = filesystem_of(place)
    if kind is None:
        return ok("filesystem", f"of {place}: the system does not tell its type")
    if kind in VOLATILE_FILESYSTEMS:
        why = "it lives in memory: nothing in it outlives a restart of the machine"
        return warn("filesystem", f"{kind}", why=why, hint="Choose a directory on a disk by --data-dir.")
    if kind in REMOTE_FILESYSTEMS or kind.startswith("fuse"):
        why = "locks, links and flushes over a network, or through another program, may not hold what they promise"
        return warn("filesystem", f"{kind}", why=why, hint="Choose a directory on a local disk by --data-dir.")
    return ok("filesystem", kind)


def check_sync(place: Path, sync_ms: float) -> Finding:
    """Whether flushes are quick enough."""
    message = f"a flush of {SYNC_BYTES} bytes in {place} takes {sync_ms:.2f} ms (median)"
    if sync_ms <= SYNC_SLOW_MS:
        return ok("fsync", message)
    return warn(
        "fsync",
        message,
        why="in flush mode commit every acknowledgement waits for one or more",
        hint="Use a faster disk; or --flush-mode interval, which may lose the last second in a power cut.",
    )


def check_clock(data_directory: Path, *, now_s: float) -> Finding:
    """Whether the clock tells a time that can be, not before what was already written."""
    shown = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_s))
    why = "records without a time of their own get the broker's; retention counts from it"
    hint = "Set the clock, and let a time service (NTP) keep it."
    if now_s < CLOCK_START_S:
        return fail("clock", f"it says {shown}, which is before this program was written", why=why, hint=hint)
    newest = max((path.stat().st_mtime for path in data_directory.glob("*/_delta_log")), default=now_s)
    if newest > now_s + AHEAD_SECONDS_MAX:
        return warn("clock", f"it says {shown}; the data directory is {newest - now_s:.0f} s ahead", why=why, hint=hint)
    return ok("clock", f"it says {shown}")


def check_open_files() -> Finding:
    """Whether as many files may be open as a broker opens."""
    try:
        import resource  # noqa: PLC0415  there is none on Windows
    except ImportError:
        return ok("open files", "the system does not tell its limit")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= OPEN_FILES_MAX + FILES_SPARE:
        return ok("open files", f"{'any number' if soft == resource.RLIM_INFINITY else soft} may be open at a time")
    highest = "unlimited" if hard == resource.RLIM_INFINITY else hard
    return warn(
        "open files",
        f"{soft} may be open at a time",
        why=f"a broker keeps up to {OPEN_FILES_MAX} files open, and a socket for each connection",
        hint=f"Run ulimit -n {OPEN_FILES_MAX + FILES_SPARE} first (at most {highest}), or lower open.files.max.",
    )


def nearest_directory(path: Path) -> Path:
    """The path itself, or the nearest directory above it that exists."""
    return next(place for place in (path, *path.absolute().parents) if place.is_dir())


def measure_sync(directory: Path) -> float:
    """The median time of a small write and its flush, in milliseconds.

    Raises:
        OSError: nothing can be written there.
    """
    took: list[float] = []
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".exactlog-doctor-") as file:
        started = time.perf_counter()
        while len(took) < SYNC_COUNT_MAX and time.perf_counter() < started + SYNC_SECONDS_MAX:
            before = time.perf_counter()
            file.write(bytes(SYNC_BYTES))
            file.flush()
            os.fsync(file.fileno())
            took.append(time.perf_counter() - before)
    return statistics.median(took) * 1000


def filesystem_of(place: Path, mounts: Path = MOUNTS) -> str | None:
    """The type of the filesystem that a directory is on; None where the system does not tell."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    above = {str(parent) for parent in (place.resolve(), *place.resolve().parents)}
    found: tuple[str, str | None] = ("", None)
    for line in lines:
        mount, separator, device = line.partition(" - ")
        fields, kind = mount.split(), device.split()
        if not separator or len(fields) < 5 or not kind:
            continue
        point = fields[4].encode().decode("unicode_escape") if "\\" in fields[4] else fields[4]
        if point in above and len(point) >= len(found[0]):  # the innermost, and of two on one point the later
            found = (point, kind[0])
    return found[1]
