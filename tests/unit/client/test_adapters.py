"""URLs and the adapters they name, and the names of the package."""

import subprocess
import sys

import pytest

import exactlog.client
from exactlog.client.adapters import ClientUrlError, bootstrap_addresses, connect
from exactlog.client.wire.addresses import Address


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("kafka://localhost:9000", [("localhost", 9000)]),
        ("kafka://localhost", [("localhost", 9092)]),
        ("kafka://a:1,b:2, c:3/", [("a", 1), ("b", 2), ("c", 3)]),
        ("kafka://[::1]:9092", [("::1", 9092)]),
    ],
)
def test_a_kafka_url_names_brokers(url, addresses):
    assert list(bootstrap_addresses(url)) == [Address(*address) for address in addresses]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("localhost:9092", "not the URL of a broker"),
        ("kafka:localhost:9092", "not the URL of a broker"),
        ("http://localhost:9092", "not the URL of a broker"),
        ("", "not the URL of a broker"),
        ("embedded:/data", "embedded URLs are not served by this version"),
        ("memory:", "memory URLs are not served by this version"),
        ("kafka://", "is not HOST:PORT"),
        ("kafka://a:1,,b:2", "is not HOST:PORT"),
        ("kafka://user:secret@a:1", "is not HOST:PORT"),
        ("kafka://a:1/topic", "is not HOST:PORT"),
        ("kafka://a:1?x=y", "is not HOST:PORT"),
        ("kafka://a:b", "Port could not be cast"),
        ("kafka://a:99999", "Port out of range"),
    ],
)
def test_any_other_url_is_refused_with_what_to_write(url, message):
    with pytest.raises(ClientUrlError, match=message) as refused:
        connect(url)
    assert "kafka://HOST:PORT" in refused.value.hint
    assert refused.value.code == "invalid-url"


def test_an_address_reads_as_people_write_it():
    assert str(Address("127.0.0.1", 9092)) == "127.0.0.1:9092"
    assert str(Address("::1", 9092)) == "[::1]:9092"


def test_the_package_has_the_names_it_lists_and_no_others():
    found = {name: getattr(exactlog.client, name) for name in exactlog.client.__all__}

    assert found["connect"] is connect
    assert found["Client"] is exactlog.client.ports.Client
    with pytest.raises(AttributeError, match="has no attribute 'disconnect'"):
        exactlog.client.disconnect  # noqa: B018


def test_the_package_costs_nothing_until_a_name_is_asked_for():
    program = """
import sys, exactlog.client
assert "asyncio" not in sys.modules and "exactlog.client.ports" not in sys.modules
from exactlog.client import NewRecord
assert "asyncio" not in sys.modules
from exactlog.client import connect
import exactlog.client.adapters
from exactlog.client import connect as again
assert connect is again is exactlog.client.adapters.connect
"""
    subprocess.run([sys.executable, "-c", program], check=True)
