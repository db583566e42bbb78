"""The library's own test classes for applications and projections, as they are."""

from typing import ClassVar

import pytest
from eventsourcing.persistence import Tracking
from eventsourcing.tests import application, projection
from eventsourcing.utils import get_topic

from exactlog.journal.eventsourcing import Factory, JournalProcessRecorder, JournalTrackingRecorder
from tests.conformance.eventsourcing.places import Embedded, OnABroker


class EventCounters(JournalTrackingRecorder, projection.EventCountersView):
    """A view that counts events, each count being the length of a journal beside the tracking record."""

    def get_created_event_counter(self) -> int:
        return self.recorded.last_number("$view/created") or 0

    def get_subsequent_event_counter(self) -> int:
        return self.recorded.last_number("$view/subsequent") or 0

    def incr_created_event_counter(self, tracking: Tracking) -> None:
        self._count("$view/created", tracking)

    def incr_subsequent_event_counter(self, tracking: Tracking) -> None:
        self._count("$view/subsequent", tracking)

    def _count(self, key_id, tracking):
        with self.tracked(tracking) as transaction:
            transaction.append(self.recorded.journal(key_id), [None])


class Patient:
    """A recorder for machines that are busy: where a test would wait for a second, it waits for some."""

    def wait(self, application_name, notification_id, timeout=1.0, interrupt=None):
        super().wait(application_name, notification_id, timeout=5 * timeout, interrupt=interrupt)


class PatientEventCounters(Patient, EventCounters): ...


class PatientFollower(Patient, JournalProcessRecorder): ...


class AnExample:
    expected_factory_topic = get_topic(Factory)


class WithAView:
    def construct_event_counters_view(self):
        return self.new_factory().tracking_recorder(EventCounters)


class WithAProjection:
    view_class = PatientEventCounters


class WithAFollower:
    env_of_class: ClassVar = {"PROCESS_RECORDER_TOPIC": get_topic(PatientFollower)}


class TestExampleEmbedded(Embedded, AnExample, application.ExampleApplicationTestCase): ...


class TestExampleOnABroker(OnABroker, AnExample, application.ExampleApplicationTestCase): ...


@pytest.mark.filterwarnings("default:'log' is deprecated:DeprecationWarning")
class TestApplicationsEmbedded(Embedded, application.ApplicationTestCase): ...


@pytest.mark.filterwarnings("default:'log' is deprecated:DeprecationWarning")
class TestApplicationsOnABroker(OnABroker, application.ApplicationTestCase): ...


class TestViewEmbedded(Embedded, WithAView, projection.EventCountersViewTestCase): ...


class TestViewOnABroker(OnABroker, WithAView, projection.EventCountersViewTestCase): ...


class TestProjectionEmbedded(Embedded, WithAProjection, projection.AggregateEventCountersProjectionTestCase): ...


class TestProjectionOnABroker(OnABroker, WithAProjection, projection.AggregateEventCountersProjectionTestCase): ...


class TestEventSourcedProjectionEmbedded(WithAFollower, Embedded, projection.EventSourcedProjectionTestCase): ...


class TestEventSourcedProjectionOnABroker(WithAFollower, OnABroker, projection.EventSourcedProjectionTestCase): ...
