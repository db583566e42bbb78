"""What every API handler may reach: the state and the parts of one broker."""

from collections.abc import Callable
from uuid import UUID, uuid4

from msgspec import Struct

from exactlog.broker.coordinator.groups import GroupCoordinator
from exactlog.broker.coordinator.transactions import TransactionCoordinator
from exactlog.broker.fetch_budget import FetchBudget
from exactlog.broker.fetch_sessions import Sessions
from exactlog.broker.producer_ids import ProducerIds
from exactlog.broker.running_config import RunningConfig
from exactlog.broker.timers import Timers
from exactlog.broker.topic_registry import TopicRegistry
from exactlog.core.config.broker_configs import BrokerConfig
from exactlog.core.model.authorization import AllowAll, Authorizer
from exactlog.core.model.clock import Clock
from exactlog.core.model.metrics import Registry
from exactlog.core.protocol.messages.api_versions import ApiVersion
from exactlog.storage.round_committer import RoundCommitter

_FIRST_SIX_BITS_OF_A_DASH = 0b111110  # in the URL-safe base64 that Kafka's tools print ids in


def random_topic_id() -> UUID:
    """A random id whose printed form does not begin with a dash, which tools take for an option (as Kafka's own)."""
    while (topic_id := uuid4()).bytes[0] >> 2 == _FIRST_SIX_BITS_OF_A_DASH:
        pass
    return topic_id


class Address(Struct, frozen=True):
    """Where clients find a broker."""

    host: str
    port: int


class BrokerServices(Struct, frozen=True, kw_only=True):
    """The parts of a broker, as the composition root put them together."""

    running: RunningConfig
    cluster_id: str
    leader_epoch: int
    """The leader epoch of every partition here: one more at every start."""
    topics: TopicRegistry
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    rounds: RoundCommitter
    producer_ids: ProducerIds
    fetch_budget: FetchBudget
    fetch_sessions: Sessions
    clock: Clock
    timers: Timers
    metrics: Registry
    advertised: Callable[[], Address]
    """The address this broker tells its clients; known once the server listens."""
    api_versions: tuple[ApiVersion, ...]
    """What ApiVersions tells."""
    new_topic_id: Callable[[], UUID] = random_topic_id
    authorizer: Authorizer = AllowAll()

    @property
    def allows_everything(self) -> bool:
        """Whether there are no rules, so that nobody need be asked."""
        return type(self.authorizer) is AllowAll

    @property
    def config(self) -> BrokerConfig:
        """What this broker runs with; some of it can change while it does."""
        return self.running.current

    @property
    def node_id(self) -> int:
        """The id of this broker in its cluster."""
        return self.config.node_id
