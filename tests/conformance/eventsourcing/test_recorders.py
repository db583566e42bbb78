"""The library's own test classes for recorders and factories, as they are."""

from eventsourcing.tests import persistence

from exactlog.journal.eventsourcing import (
    Factory,
    JournalAggregateRecorder,
    JournalApplicationRecorder,
    JournalProcessRecorder,
    JournalTrackingRecorder,
)
from tests.conformance.eventsourcing.places import Embedded, OnABroker


class OfAggregates:
    def create_recorder(self):
        return self.new_factory().aggregate_recorder()


class OfSnapshots:
    def create_recorder(self):
        return self.new_factory().aggregate_recorder("snapshots")


class OfAnApplication:
    def create_recorder(self):
        return self.new_factory().application_recorder()


class AnApplication(OfAnApplication):
    def test_insert_subscribe(self):
        self.optional_test_insert_subscribe()


class OfTracking:
    def create_recorder(self):
        return self.new_factory().tracking_recorder()


class OfAFollower:
    def create_recorder(self):
        return self.new_factory().process_recorder()


class AFollower(OfAFollower):
    def test_insert_subscribe(self):
        self.optional_test_insert_subscribe()


class View(JournalTrackingRecorder):
    """A tracking recorder of somebody's own."""


class OfTheFactory:
    def expected_factory_class(self):
        return Factory

    def expected_aggregate_recorder_class(self):
        return JournalAggregateRecorder

    def expected_application_recorder_class(self):
        return JournalApplicationRecorder

    def expected_tracking_recorder_class(self):
        return JournalTrackingRecorder

    def tracking_recorder_subclass(self):
        return View

    def expected_process_recorder_class(self):
        return JournalProcessRecorder


class TestAggregatesEmbedded(Embedded, OfAggregates, persistence.AggregateRecorderTestCase): ...


class TestAggregatesOnABroker(OnABroker, OfAggregates, persistence.AggregateRecorderTestCase): ...


class TestSnapshotsEmbedded(Embedded, OfSnapshots, persistence.AggregateRecorderTestCase): ...


class TestSnapshotsOnABroker(OnABroker, OfSnapshots, persistence.AggregateRecorderTestCase): ...


class TestApplicationEmbedded(Embedded, AnApplication, persistence.ApplicationRecorderTestCase): ...


class TestApplicationOnABroker(OnABroker, AnApplication, persistence.ApplicationRecorderTestCase): ...


class TestFollowerAsApplicationEmbedded(Embedded, AFollower, persistence.ApplicationRecorderTestCase): ...


class TestFollowerAsApplicationOnABroker(OnABroker, AFollower, persistence.ApplicationRecorderTestCase): ...


class TestTrackingEmbedded(Embedded, OfTracking, persistence.TrackingRecorderTestCase): ...


class TestTrackingOnABroker(OnABroker, OfTracking, persistence.TrackingRecorderTestCase): ...


class TestFollowerAsTrackingEmbedded(Embedded, OfAFollower, persistence.TrackingRecorderTestCase): ...


class TestFollowerAsTrackingOnABroker(OnABroker, OfAFollower, persistence.TrackingRecorderTestCase): ...


class TestFollowerEmbedded(Embedded, OfAFollower, persistence.ProcessRecorderTestCase): ...


class TestFollowerOnABroker(OnABroker, OfAFollower, persistence.ProcessRecorderTestCase): ...


class TestNoInterleavingEmbedded(Embedded, OfAnApplication, persistence.NonInterleavingNotificationIDsBaseCase): ...


class TestNoInterleavingOnABroker(OnABroker, OfAnApplication, persistence.NonInterleavingNotificationIDsBaseCase): ...


class TestFactoryEmbedded(Embedded, OfTheFactory, persistence.InfrastructureFactoryTestCase): ...


class TestFactoryOnABroker(OnABroker, OfTheFactory, persistence.InfrastructureFactoryTestCase): ...
