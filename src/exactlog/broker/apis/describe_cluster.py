"""DescribeCluster (key 60), versions 0 to 2.

Does: tells the cluster id, the controller and the brokers.
Errors: UNSUPPORTED_ENDPOINT_TYPE, MISMATCHED_ENDPOINT_TYPE (controllers are asked for; this is a broker).
Nobody is refused; the field of authorized operations says what whoever asks may do with the cluster (KIP-430).
Versions: 1 endpoint type (KIP-919); 2 fenced brokers (KIP-1073).
"""

from exactlog.broker.authorized_operations import NOT_ASKED, cluster_authorized_operations
from exactlog.broker.request_context import RequestContext
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS, CONTROLLERS = 1, 2


def handle(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    """Answers with the one broker there is."""
    broker = context.broker
    if request.endpoint_type != BROKERS:
        is_known = request.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="This is a broker; it answers for endpoint type 1.",
        )
    address = broker.advertised()
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        brokers=(DescribeClusterBroker(broker_id=broker.node_id, host=address.host, port=address.port),),
        cluster_authorized_operations=(
            cluster_authorized_operations(context) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )
