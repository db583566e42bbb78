"""The two brokers of a comparison, started for it."""

import uuid
from contextlib import contextmanager

from exactlog.testing import Broker as Exactlog
from tests.conformance.differential.comparison import Comparison
from tests.conformance.differential.held_markers import overtake_markers, stop_markers
from tests.conformance.differential.peer import Broker
from tests.peers.apache_kafka import ApacheKafka, kafka_jars
from tests.peers.gate import skip_without_peer

OUR_SETTINGS = {"offsets.topic.num.partitions": 3, "check_interval_ms": 100, "min_timeout_ms": 1}
THEIR_SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
"""Groups are in the same partitions; a transaction that takes too long is aborted soon."""


@contextmanager
def two_brokers(directory):
    """A comparison of two brokers that nobody else has ever asked: what is in the one is in the other."""
    with skip_without_peer():
        kafka_jars()
    with (
        ApacheKafka(properties=THEIR_SETTINGS) as apache_kafka,
        Exactlog(config={"data.dir": str(directory), **OUR_SETTINGS}) as exactlog,
    ):

        def kill_and_restart():
            exactlog.kill()
            exactlog.restart()

        yield Comparison(
            ours=Broker("exactlog", exactlog.port, hold_markers=stop_markers, kill_and_restart=kill_and_restart),
            theirs=Broker(
                "Apache Kafka",
                apache_kafka.port,
                hold_markers=overtake_markers,
                kill_and_restart=apache_kafka.kill_and_restart,
            ),
            run=uuid.uuid4().hex[:6],
        )
