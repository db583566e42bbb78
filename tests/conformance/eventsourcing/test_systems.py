"""A system of the library: an application, one that follows it, and one that follows that, each with its own topic."""

import time
from functools import singledispatchmethod
from uuid import NAMESPACE_URL, UUID, uuid5

import pytest
from eventsourcing.application import AggregateNotFoundError, Application
from eventsourcing.domain import Aggregate, event
from eventsourcing.system import (
    MultiThreadedRunner,
    ProcessApplication,
    SingleThreadedRunner,
    System,
)

from exactlog.journal import Journals
from exactlog.journal.eventsourcing.open_logs import close_open_logs
from tests.conformance.eventsourcing.places import MODULE


class Order(Aggregate):
    @event("Placed")
    def __init__(self, count: int) -> None:
        self.count = count


class Orders(Application[UUID]):
    def place(self, count: int) -> UUID:
        order = Order(count)
        self.save(order)
        return order.id


class Parcel(Aggregate):
    @event("Packed")
    def __init__(self, order_id: UUID, count: int) -> None:
        self.order_id = order_id
        self.count = count


class Shipping(ProcessApplication[UUID]):
    @singledispatchmethod
    def policy(self, domain_event, processing_event):
        """Pack what was placed."""

    @policy.register
    def _(self, domain_event: Order.Placed, processing_event):
        processing_event.collect_events(Parcel(domain_event.originator_id, domain_event.count))


class Total(Aggregate):
    @event("Begun")
    def __init__(self) -> None:
        self.count = 0

    @event("Counted")
    def add(self, count: int) -> None:
        self.count += count

    @staticmethod
    def create_id() -> UUID:
        return uuid5(NAMESPACE_URL, "/total")


class Totals(ProcessApplication[UUID]):
    @singledispatchmethod
    def policy(self, domain_event, processing_event):
        """Count what was packed."""

    @policy.register
    def _(self, domain_event: Parcel.Packed, processing_event):
        try:
            total = self.repository.get(Total.create_id())
        except AggregateNotFoundError:
            total = Total()
        total.add(domain_event.count)
        processing_event.collect_events(total)

    def count(self) -> int:
        try:
            return self.repository.get(Total.create_id()).count
        except AggregateNotFoundError:
            return 0


@pytest.mark.parametrize("runner_class", [SingleThreadedRunner, MultiThreadedRunner])
def test_a_system_of_followers_counts_everything_once_over_two_runs(runner_class, tmp_path):
    env = {
        "PERSISTENCE_MODULE": MODULE,
        "EXACTLOG_URL": f"embedded:{tmp_path / 'log'}",
        "EXACTLOG_STORE_URL": f"sqlite:{tmp_path / 'journals.db'}",
    }
    try:
        for run in (1, 2):
            with runner_class(System(pipes=[[Orders, Shipping, Totals]]), env=env) as runner:
                for count in range(1, 6):
                    runner.get(Orders).place(count)
                totals, give_up_at = runner.get(Totals), time.monotonic() + 30
                while totals.count() < run * 15 and time.monotonic() < give_up_at:
                    time.sleep(0.01)
                assert totals.count() == run * 15
                assert totals.recorder.max_tracking_id("Shipping") == run * 5
            close_open_logs()

        with Journals.open_sync(env["EXACTLOG_URL"]) as journals:
            for topic, events in (("orders", 10), ("shipping", 10), ("totals", 11)):
                assert journals[topic, "$notifications"].pointer() == events
    finally:
        close_open_logs()
