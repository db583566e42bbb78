"""ListGroups (key 16), versions 0 to 5.

Does: names all groups the client may know of, with their state; filtered by states and types where asked.
Errors: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS.
Versions: 4 states (KIP-518); 5 types (KIP-848): all groups are of type `classic`.
"""

from exactlog.broker.request_context import RequestContext
from exactlog.core.model.authorization import CLUSTER_NAME, Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

CLASSIC = "classic"


async def handle(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    """Reads them from all shards."""
    runners = await context.broker.groups.load_all()
    if isinstance(runners, ErrorCode):
        return ListGroupsResponse(error_code=runners)
    sees_all = context.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    states = {state.lower() for state in request.states_filter}
    types = {group_type.lower() for group_type in request.types_filter}
    listed = [
        ListedGroup(
            group_id=group.group_id, protocol_type=group.protocol_type, group_state=group.state, group_type=CLASSIC
        )
        for runner in runners
        for group in runner.machine.groups()
        if (not states or group.state.lower() in states)
        and (not types or CLASSIC in types)
        and (sees_all or context.allows(Operation.DESCRIBE, ResourceType.GROUP, group.group_id))
    ]
    return ListGroupsResponse(groups=tuple(listed))
