"""Each case runs with both client libraries, against exactlog and against Apache Kafka."""

import uuid

import pytest

from tests.conformance.eos.faces import ALL, FACES, Judge, Shop
from tests.support.broker_fixtures import exactlog_broker  # noqa: F401  a fixture
from tests.support.raw_client import RawClient
from tests.support.raw_groups import Member


@pytest.fixture(params=["exactlog", pytest.param("apache-kafka", marks=pytest.mark.peer)])
def broker_name(request):
    return request.param


@pytest.fixture
def bootstrap(request, broker_name):
    fixture = {"exactlog": "exactlog_broker", "apache-kafka": "apache_kafka"}[broker_name]
    return request.getfixturevalue(fixture).bootstrap_servers


@pytest.fixture
def judge(bootstrap):
    """What the broker holds in the end."""
    return Judge(bootstrap)


@pytest.fixture(params=FACES)
async def face(request, bootstrap):
    """One of the client libraries; what it opens is closed after the test."""
    face = FACES[request.param](bootstrap)
    yield face
    await face.close()


@pytest.fixture
def expel(bootstrap):
    """Takes a member out of its group behind its back."""

    def expel_member(group, member_id):
        with RawClient(int(bootstrap.rpartition(":")[2])) as raw:
            member = Member(raw, group)
            member.member_id = member_id
            member.leave()

    return expel_member


@pytest.fixture
def let_time_pass(request, broker_name):
    """Moves the broker's clock, where it can be moved; Apache Kafka takes its time."""
    return request.getfixturevalue("exactlog_broker").clock.advance_ms if broker_name == "exactlog" else lambda _: None


@pytest.fixture
def shop(request, face, judge):
    """Six orders in two partitions, no invoice yet, and a client to work on them."""
    test = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    name = f"{test[:60]}-{uuid.uuid4().hex[:8]}"
    shop = Shop(face, judge, name)
    judge.create_topic(shop.orders, partitions=2)
    judge.create_topic(shop.invoices)
    judge.fill(shop.orders, ALL, partitions=2)
    return shop
