"""The registry: one instrument per name and labels, and a snapshot under Prometheus names."""

import pytest

from exactlog.core.model import metrics
from exactlog.core.model.errors import InvariantError
from exactlog.core.model.metrics import MetricFamily, MetricKind, Registry


def test_a_counter_adds_up_and_shows_in_the_snapshot():
    registry = Registry()
    requests = registry.counter("requests_total", "Requests answered.")
    requests.inc()
    requests.inc(41)
    assert registry.snapshot() == {"requests_total": 42}


def test_the_same_name_and_labels_give_the_same_instrument():
    registry = Registry()
    registry.counter("closed_total", "Closed.", {"reason": "idle", "listener": "a"}).inc()
    registry.counter("closed_total", "Closed.", {"listener": "a", "reason": "idle"}).inc()
    registry.counter("closed_total", "Closed.", {"listener": "b", "reason": "idle"}).inc()
    assert registry.snapshot() == {
        'closed_total{listener="a",reason="idle"}': 2,
        'closed_total{listener="b",reason="idle"}': 1,
    }


def test_a_gauge_goes_up_and_down():
    gauge = Registry().gauge("open", "Open now.")
    gauge.set(10)
    gauge.inc(5)
    gauge.dec()
    assert gauge.value == 14


def test_a_gauge_may_be_read_from_its_owner_and_the_latest_owner_wins():
    registry = Registry()
    values = [1.0]
    registry.gauge("queue_length", "Waiting.", read=lambda: values[0])
    assert registry.snapshot() == {"queue_length": 1}
    values[0] = 7
    assert registry.snapshot() == {"queue_length": 7}
    registry.gauge("queue_length", "Waiting.", read=lambda: 0)
    assert registry.snapshot() == {"queue_length": 0}


def test_a_histogram_counts_values_at_a_bound_into_its_bucket_and_accumulates():
    registry = Registry()
    latency = registry.histogram("latency_seconds", "Time taken.", [0.5, 1, 2.5], {"api": "Fetch"})
    for value in (0.5, 0.75, 2, 9):
        latency.observe(value)
    assert registry.snapshot() == {
        'latency_seconds_bucket{api="Fetch",le="0.5"}': 1,
        'latency_seconds_bucket{api="Fetch",le="1"}': 2,
        'latency_seconds_bucket{api="Fetch",le="2.5"}': 3,
        'latency_seconds_bucket{api="Fetch",le="+Inf"}': 4,
        'latency_seconds_sum{api="Fetch"}': 12.25,
        'latency_seconds_count{api="Fetch"}': 4,
    }


def test_label_values_are_escaped():
    registry = Registry()
    registry.counter("odd_total", "Odd.", {"what": 'a"b\\c\nd'}).inc()
    assert registry.snapshot() == {r'odd_total{what="a\"b\\c\nd"}': 1}


def test_families_tell_kind_and_description():
    registry = Registry()
    registry.gauge("open", "Open now.")
    assert registry.families == {"open": MetricFamily("open", MetricKind.GAUGE, "Open now.")}


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda r: r.gauge("a_total", "A."), "a_total is a counter, asked for as a gauge"),
        (lambda r: r.counter("a b", "A."), "not a metric name"),
        (lambda r: r.counter("b_total", "B.", {"1st": "x"}), "not a metric name"),
        (lambda r: r.histogram("h", "H.", []), "not strictly ascending"),
        (lambda r: r.histogram("h", "H.", [1, 1]), "not strictly ascending"),
        (lambda r: r.histogram("used", "Used.", [1, 2, 3]), "has \\[1, 2\\]"),
    ],
)
def test_a_mistaken_registration_is_refused(ask, message):
    registry = Registry()
    registry.counter("a_total", "A.")
    registry.histogram("used", "Used.", [1, 2])
    with pytest.raises(InvariantError, match=message):
        ask(registry)


def test_a_label_with_unbounded_values_is_stopped_at_the_limit_and_known_series_stay_usable(monkeypatch):
    monkeypatch.setattr(metrics, "METRIC_SERIES_MAX", 2)
    registry = Registry()
    registry.counter("by_peer_total", "By peer.", {"peer": "a"})
    registry.counter("by_peer_total", "By peer.", {"peer": "b"})
    with pytest.raises(InvariantError, match="unbounded"):
        registry.counter("by_peer_total", "By peer.", {"peer": "c"})
    registry.counter("by_peer_total", "By peer.", {"peer": "a"}).inc()
    assert registry.snapshot()['by_peer_total{peer="a"}'] == 1
