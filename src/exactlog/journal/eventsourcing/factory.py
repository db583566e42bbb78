"""The factory that the library finds: recorders as its environment says."""

from typing import Final, TypeVar

from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    InfrastructureFactory,
    ProcessRecorder,
)
from eventsourcing.utils import Environment, EnvType, resolve_topic, strtobool

from exactlog.journal.eventsourcing.open_logs import LogShare, TopicUse
from exactlog.journal.eventsourcing.persistence_errors import persistence_errors
from exactlog.journal.eventsourcing.recorded_topic import EVENTS, RecordedTopic
from exactlog.journal.eventsourcing.recorders import (
    JournalAggregateRecorder,
    JournalApplicationRecorder,
    JournalProcessRecorder,
    JournalTrackingRecorder,
)
from exactlog.node.log_url import InDirectory, log_place

T = TypeVar("T")

_TOPIC_WITHOUT_NAME: Final = "stored_events"


class JournalFactory(InfrastructureFactory[JournalTrackingRecorder]):
    """Makes recorders on a log. As all of the library's, each key may have the application's name before it.

        EXACTLOG_URL               the log: kafka://HOST:PORT, embedded:DIRECTORY or memory:
        EXACTLOG_STORE_URL         where one aggregate is read at the price of one: sqlite:///FILE,
                                   cassandra://HOST:PORT/KEYSPACE; memory: unless told otherwise
        EXACTLOG_TOPIC             the topic; the application's name in lower case unless told otherwise
        EXACTLOG_REPLICATE         n: another program replicates the topic into the store
        EXACTLOG_TRANSACTIONAL_ID  of an application that runs once: a new run ends what the last one left open
        CREATE_TABLE               n: the topic is there already

    Raises:
        OSError: EXACTLOG_URL is missing.
    """

    EXACTLOG_URL = "EXACTLOG_URL"
    EXACTLOG_STORE_URL = "EXACTLOG_STORE_URL"
    EXACTLOG_TOPIC = "EXACTLOG_TOPIC"
    EXACTLOG_REPLICATE = "EXACTLOG_REPLICATE"
    EXACTLOG_TRANSACTIONAL_ID = "EXACTLOG_TRANSACTIONAL_ID"
    CREATE_TABLE = "CREATE_TABLE"

    def __init__(self, env: Environment | EnvType | None) -> None:
        super().__init__(env)
        url = self.env.get(self.EXACTLOG_URL)
        if not url:
            keys = ", ".join(self.env.create_keys(self.EXACTLOG_URL))
            raise OSError(
                f"the environment does not say where the log is: set {keys}, to kafka://HOST:PORT for example"
            )
        self._url = url
        self._share: LogShare | None = None

    def aggregate_recorder(self, purpose: str = EVENTS) -> AggregateRecorder:
        """A recorder of aggregates alone; "snapshots" are kept apart from "events"."""
        return JournalAggregateRecorder(self._recorded(), purpose=purpose)

    def application_recorder(self) -> ApplicationRecorder:
        """A recorder of an application, or of the class that APPLICATION_RECORDER_TOPIC names."""
        named = self.env.get(self.APPLICATION_RECORDER_TOPIC)
        recorder_class: type[JournalApplicationRecorder] = resolve_topic(named) if named else JournalApplicationRecorder
        return _checked(recorder_class, JournalApplicationRecorder)(self._recorded())

    def tracking_recorder(
        self, tracking_recorder_class: type[JournalTrackingRecorder] | None = None
    ) -> JournalTrackingRecorder:
        """A recorder of positions, of the class given, or of the one that TRACKING_RECORDER_TOPIC names."""
        if tracking_recorder_class is None:
            named = self.env.get(self.TRACKING_RECORDER_TOPIC)
            tracking_recorder_class = resolve_topic(named) if named else JournalTrackingRecorder
        recorder_class: type[JournalTrackingRecorder] = tracking_recorder_class
        return _checked(recorder_class, JournalTrackingRecorder)(self._recorded())

    def process_recorder(self) -> ProcessRecorder:
        """A recorder of an application that follows others, or of the class that PROCESS_RECORDER_TOPIC names."""
        named = self.env.get(self.PROCESS_RECORDER_TOPIC)
        recorder_class: type[JournalProcessRecorder] = resolve_topic(named) if named else JournalProcessRecorder
        return _checked(recorder_class, JournalProcessRecorder)(self._recorded())

    def close(self) -> None:
        """Give back the log. Recorders that were made here cannot be used any more."""
        if self._share is not None:
            self._share.close()
            self._share = None

    def _recorded(self) -> RecordedTopic:
        if self._share is None:
            self._share = LogShare(self._url, self.env.get(self.EXACTLOG_STORE_URL, "memory:"))
        topic = self.env.get(self.EXACTLOG_TOPIC) or self.env.name.lower() or _TOPIC_WITHOUT_NAME
        transactional_id = self.env.get(self.EXACTLOG_TRANSACTIONAL_ID) or None
        with persistence_errors():
            is_alone = isinstance(log_place(self._url, what="the log of recorders"), InDirectory)
        if transactional_id is None and is_alone:  # nobody else can have the directory
            transactional_id = f"exactlog-recorders-{topic}"
        use = TopicUse(
            is_created=strtobool(self.env.get(self.CREATE_TABLE, "yes")),
            is_replicated=strtobool(self.env.get(self.EXACTLOG_REPLICATE, "yes")),
            transactional_id=transactional_id,
        )
        return RecordedTopic(self._share, topic, use)


def _checked(given: type[T], wanted: type[T]) -> type[T]:
    if not issubclass(given, wanted):
        raise TypeError(f"{given.__qualname__} is not a {wanted.__name__}")
    return given
