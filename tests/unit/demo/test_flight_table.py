"""The flights as records, from a table made here."""

import io
import json
import tarfile
import zipfile
from pathlib import Path

import pytest

from demo.flight_table import ARCHIVE, TABLE, Flight, fetch_archive, read_flights
from demo.story import DemoFailedError

CSV = """\
year,dep_delay,carrier,tailnum,time_hour
2013,-4,UA,N14228,2013-01-01T10:00:00Z
2013,NA,9E,NA,2013-01-01T11:00:00Z
"""


def make_archive(folder: Path) -> Path:
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("flights.csv", CSV)
    path = folder / ARCHIVE
    with tarfile.open(path, "w:gz") as package:
        member = tarfile.TarInfo(TABLE)
        member.size = len(zipped.getvalue())
        package.addfile(member, io.BytesIO(zipped.getvalue()))
    return path


def test_a_row_becomes_a_json_record_keyed_by_the_tail_number(tmp_path: Path) -> None:
    first, _ = read_flights(make_archive(tmp_path))

    assert first.key == b"N14228"
    assert json.loads(first.value) == {
        "year": 2013,
        "dep_delay": -4,
        "carrier": "UA",
        "tailnum": "N14228",
        "time_hour": "2013-01-01T10:00:00Z",
    }


def test_what_is_missing_is_null_and_so_is_the_key(tmp_path: Path) -> None:
    _, second = read_flights(make_archive(tmp_path))

    assert second == Flight(
        None, b'{"year":2013,"dep_delay":null,"carrier":"9E","tailnum":null,"time_hour":"2013-01-01T11:00:00Z"}'
    )


def test_an_archive_that_is_not_the_one_we_know_is_refused(tmp_path: Path) -> None:
    archive = make_archive(tmp_path)

    with pytest.raises(DemoFailedError, match="not the archive we know"):
        fetch_archive(tmp_path)

    assert archive.exists(), "only the user throws files away"
