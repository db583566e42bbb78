"""Counters, gauges and histograms: numbers the system keeps about itself.

A part asks the `Registry` once for its instruments and then touches them on the hot path: an `inc` is one addition.
`Registry.snapshot()` reads everything at once, under the names Prometheus would show (`name{label="value"}`).
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from itertools import accumulate, pairwise
from typing import Final

import msgspec

from exactlog.core.model.errors import InvariantError
from exactlog.core.model.limits import METRIC_SERIES_MAX

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_NO_LABELS: Final[Mapping[str, str]] = {}


class MetricKind(StrEnum):
    """What a metric's numbers mean."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricFamily(msgspec.Struct, frozen=True):
    """What is known about all series of one name."""

    name: str
    kind: MetricKind
    description: str


class Counter:
    """A number that only grows. `value += n` is as good as `inc(n)`, where every call counts."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def inc(self, amount: float = 1) -> None:
        """Add `amount`, which is not negative."""
        self.value += amount


class Gauge:
    """A number that goes up and down; either kept here, or read from `read` whenever somebody looks."""

    __slots__ = ("_read", "_value")

    def __init__(self, read: Callable[[], float] | None = None) -> None:
        self._value: float = 0
        self._read = read

    @property
    def value(self) -> float:
        """The number now."""
        return self._value if self._read is None else self._read()

    def set(self, value: float) -> None:
        """Replace the number."""
        self._value = value

    def inc(self, amount: float = 1) -> None:
        """Add `amount`."""
        self._value += amount

    def dec(self, amount: float = 1) -> None:
        """Take `amount` away."""
        self._value -= amount


class Histogram:
    """How observed values spread over fixed buckets."""

    __slots__ = ("_counts", "bounds", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.sum: float = 0
        self._counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Count `value` in the first bucket whose upper bound is not below it."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many values were observed."""
        return sum(self._counts)

    def cumulative_counts(self) -> list[int]:
        """For each bound how many values were at most that; last, how many there were at all."""
        return list(accumulate(self._counts))


class Registry:
    """All instruments of one broker or client.

    Asking twice for the same name and labels gives the same instrument. A name that changes its kind, bounds that do
    not ascend, a malformed name and more than `METRIC_SERIES_MAX` series raise `InvariantError`: each is our mistake.
    """

    def __init__(self) -> None:
        self._families: dict[str, MetricFamily] = {}
        self._counters: dict[tuple[str, str], Counter] = {}
        self._gauges: dict[tuple[str, str], Gauge] = {}
        self._histograms: dict[tuple[str, str], Histogram] = {}

    @property
    def families(self) -> Mapping[str, MetricFamily]:
        """Every name in use, with its kind and description."""
        return self._families

    def counter(self, name: str, description: str, labels: Mapping[str, str] = _NO_LABELS) -> Counter:
        """The counter of that name and labels."""
        key = self._register(name, MetricKind.COUNTER, description, labels)
        return self._counters.setdefault(key, Counter())

    def gauge(
        self,
        name: str,
        description: str,
        labels: Mapping[str, str] = _NO_LABELS,
        *,
        read: Callable[[], float] | None = None,
    ) -> Gauge:
        """The gauge of that name and labels. One with `read` replaces an older one: its owner was started anew."""
        key = self._register(name, MetricKind.GAUGE, description, labels)
        if read is not None:
            self._gauges[key] = Gauge(read)
        return self._gauges.setdefault(key, Gauge())

    def histogram(
        self, name: str, description: str, bounds: Sequence[float], labels: Mapping[str, str] = _NO_LABELS
    ) -> Histogram:
        """The histogram of that name and labels; `bounds` are upper bounds, inclusive, strictly ascending."""
        if not bounds or any(low >= high for low, high in pairwise(bounds)):
            raise InvariantError(f"metric {name}: bucket bounds {list(bounds)} are not strictly ascending")
        key = self._register(name, MetricKind.HISTOGRAM, description, labels)
        histogram = self._histograms.setdefault(key, Histogram(bounds))
        if histogram.bounds != tuple(bounds):
            raise InvariantError(f"metric {name}: asked for with bounds {list(bounds)}, has {list(histogram.bounds)}")
        return histogram

    def snapshot(self) -> dict[str, float]:
        """Every series by its Prometheus name; a histogram gives `_bucket`, `_sum` and `_count` series."""
        series: dict[str, float] = {}
        for (name, labels), counter in self._counters.items():
            series[_series_name(name, labels)] = counter.value
        for (name, labels), gauge in self._gauges.items():
            series[_series_name(name, labels)] = gauge.value
        for (name, labels), histogram in self._histograms.items():
            upper_bounds = [*(f"{bound:g}" for bound in histogram.bounds), "+Inf"]
            for bound, count in zip(upper_bounds, histogram.cumulative_counts(), strict=True):
                bucket_labels = ",".join(filter(None, (labels, f'le="{bound}"')))
                series[_series_name(f"{name}_bucket", bucket_labels)] = count
            series[_series_name(f"{name}_sum", labels)] = histogram.sum
            series[_series_name(f"{name}_count", labels)] = histogram.count
        return series

    def _register(self, name: str, kind: MetricKind, description: str, labels: Mapping[str, str]) -> tuple[str, str]:
        if not _NAME.fullmatch(name) or not all(_NAME.fullmatch(label) for label in labels):
            raise InvariantError(f"metric {name!r} with labels {sorted(labels)}: not a metric name")
        family = self._families.setdefault(name, MetricFamily(name, kind, description))
        if family.kind is not kind:
            raise InvariantError(f"metric {name} is a {family.kind}, asked for as a {kind}")
        key = (name, ",".join(f'{label}="{value.translate(_ESCAPES)}"' for label, value in sorted(labels.items())))
        is_new = key not in self._counters and key not in self._gauges and key not in self._histograms
        if is_new and len(self._counters) + len(self._gauges) + len(self._histograms) >= METRIC_SERIES_MAX:
            raise InvariantError(f"metric {name}: more than {METRIC_SERIES_MAX} series; a label takes unbounded values")
        return key


def _series_name(name: str, labels: str) -> str:
    return f"{name}{{{labels}}}" if labels else name
