"""The checker is silent about Apache Kafka: what it takes for right is right."""

import pytest

from exactlog.testing import check
from exactlog.testing.workload import Workload, run
from exactlog.testing.workload_wire import WireSystem


@pytest.mark.peer
@pytest.mark.parametrize("version", [1, 2])
def test_apache_kafka_is_right(version, apache_kafka, tmp_path):
    system = WireSystem(
        lambda: ("127.0.0.1", apache_kafka.port),
        crash=lambda: pytest.fail("others use it"),
        transaction_version=version,
    )
    workload = Workload(seed=version, topic=f"checked-{version}", copiers=2, lost_answers=0.08, reads_internal=False)
    run(workload, system, tmp_path / "history.jsonl")
    system.close()

    report = check.history(tmp_path / "history.jsonl", allow={check.Kind.ABORTED_LIST_UNSORTED})
    assert report.is_clean, report
