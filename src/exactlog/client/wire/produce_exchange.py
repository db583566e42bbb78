"""One Produce request about one partition, and its answer."""

from typing import Final

from exactlog.client.ports import ACKS_NONE
from exactlog.client.wire.broker_versions import VERSION_MAX
from exactlog.client.wire.cluster import TopicMetadata, pick_by_topic_id
from exactlog.client.wire.connection import WireConnection
from exactlog.client.wire.refusals import the_only
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

FIRST_VERSION_WITH_ZSTD: Final = 7

_LAST_VERSION_WITH_NAMES: Final = 12


async def exchange_produce(
    connection: WireConnection,
    topic: TopicMetadata,
    data: PartitionProduceData,
    *,
    acks: int,
    timeout_ms: int,
    at_least: int,
    at_most: int = VERSION_MAX,
    transactional_id: str | None = None,
) -> PartitionProduceResponse | None:
    """What became of the records for one partition; None with acks=0, where nobody says.

    Raises:
        UnsupportedError: the broker serves no version from `at_least` to `at_most`; nothing was sent.
        UnavailableError: the connection was lost, or the answer did not come in time.
        DecodeError: the answer is malformed, or one to another question.
    """
    version = pick_by_topic_id(
        connection.versions,
        ApiKey.PRODUCE,
        [topic],
        names_until=_LAST_VERSION_WITH_NAMES,
        at_least=at_least,
        at_most=at_most,
    )
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=(TopicProduceData(name=topic.name, topic_id=topic.listing.topic_id, partition_data=(data,)),),
    )
    if acks == ACKS_NONE:
        await connection.send_unanswered(request, version=version)
        return None
    response = await connection.request(request, ProduceResponse, version=version)
    what = f"produce to {topic.name}-{data.index}"
    return the_only(the_only(response.responses, what).partition_responses, what)


def detail_of(answer: PartitionProduceResponse) -> str | None:
    """What the broker says about a refusal, of the batch or of one of its records."""
    records = (error.batch_index_error_message for error in answer.record_errors)
    return answer.error_message or next(filter(None, records), None)
