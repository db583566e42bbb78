"""What a broker holds, in a few lines: shown with a test that failed."""

from collections.abc import Iterator

from exactlog.broker.services import BrokerServices
from exactlog.broker.topic_registry import NotOpenYet, Stopped, Topic, UnknownTopicOrPartition
from exactlog.core.group.requests import GroupOverview
from exactlog.core.group.shard import GroupShard
from exactlog.core.model.error_code import ErrorCode
from exactlog.storage.partition_log import PartitionLog

TOPICS_MAX = 10
PARTITIONS_MAX = 8
GROUPS_MAX = 10
OFFSETS_MAX = 8


async def describe(services: BrokerServices) -> str:
    """The topics with their offsets, those that came into use last before others, and the newest groups with theirs."""
    topics = _topics(services)
    runners = await services.groups.load_all()
    shards = [] if isinstance(runners, ErrorCode) else [runner.machine for runner in runners]
    groups = [(shard, group) for shard in shards for group in shard.groups()]
    address = services.advertised()
    lines = [
        f"broker {address.host}:{address.port}: {len(topics)} topics, {len(groups)} groups",
        *(_topic(topic, services) for topic in topics[:TOPICS_MAX]),
        *(line for shard, group in groups[-GROUPS_MAX:] for line in _group(shard, group)),
    ]
    return "\n".join(lines)


def _topics(services: BrokerServices) -> list[Topic]:
    used = [partition.topic_partition.topic for partition in services.topics.open_partitions()]
    age = {name: len(used) - number for number, name in enumerate(used)}
    topics = [topic for topic in services.topics.topics() if not topic.is_internal]
    return sorted(topics, key=lambda topic: age.get(topic.name, len(used) + 1))


def _topic(topic: Topic, services: BrokerServices) -> str:
    shown = []
    for index in range(min(topic.partition_count, PARTITIONS_MAX)):
        partition = services.topics.partition(topic.name, index)
        match partition:
            case PartitionLog():
                shown.append(f"{index}: {partition.log_start_offset} to {partition.high_watermark}")
            case NotOpenYet():
                shown.append(f"{index}: not used yet")
            case Stopped(reason):
                shown.append(f"{index}: stopped, {reason}")
            case UnknownTopicOrPartition():
                shown.append(f"{index}: deleted")
    return f"  topic {topic.name}: {_some(shown, of=topic.partition_count)}"


def _group(shard: GroupShard, group: GroupOverview) -> Iterator[str]:
    described = shard.describe(group.group_id)
    found = () if described is None else described.members
    members = ", ".join(member.client_id or member.member_id for member in found) or "no members"
    yield f"  group {group.group_id}: {group.state}, {members}"
    offsets = shard.offsets(group.group_id)
    if offsets:
        shown = [f"{place.topic}-{place.partition} {offset.offset}" for place, offset in offsets.items()]
        yield f"    committed: {_some(shown[:OFFSETS_MAX], of=len(shown))}"


def _some(shown: list[str], *, of: int) -> str:
    return ", ".join(shown) + (f", and {of - len(shown)} more" if of > len(shown) else "")
