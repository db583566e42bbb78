"""ListGroups (key 16), versions 0 to 5.

Does: names all groups the client may know of, with their state; filtered by states and types where asked.
Errors: NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS.
Versions: 4 states (KIP-518); 5 types (KIP-848): all groups are of type `classic`.
"""

from collections.abc import Sequence

from msgspec import Struct

from exactlog.broker.asking import Gathering, tell_decided
from exactlog.broker.request_context import RequestContext
from exactlog.core.group.requests import GroupOverview
from exactlog.core.model.authorization import CLUSTER_NAME, Operation, ResourceType
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

CLASSIC = "classic"


class _Found(Struct, frozen=True):
    """The groups of one shard."""

    groups: Sequence[GroupOverview]


async def handle(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse | None:
    """Reads them from all shards."""
    runners = await context.broker.groups.load_all()
    if isinstance(runners, ErrorCode):
        return ListGroupsResponse(error_code=runners)
    slots = Gathering(len(runners), context, lambda outcomes: _list(outcomes, request, context)).slots
    for runner, slot in zip(runners, slots, strict=True):
        tell_decided(runner, lambda shard: _Found(shard.groups()), slot)
    return None


def _list(
    outcomes: Sequence[Struct | ErrorCode], request: ListGroupsRequest, context: RequestContext
) -> ListGroupsResponse:
    refusal = next((outcome for outcome in outcomes if isinstance(outcome, ErrorCode)), None)
    if refusal is not None:
        return ListGroupsResponse(error_code=refusal)
    sees_all = context.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    states = {state.lower() for state in request.states_filter}
    types = {group_type.lower() for group_type in request.types_filter}
    listed = [
        ListedGroup(
            group_id=group.group_id, protocol_type=group.protocol_type, group_state=group.state, group_type=CLASSIC
        )
        for found in outcomes
        if isinstance(found, _Found)
        for group in found.groups
        if (not states or group.state.lower() in states)
        and (not types or CLASSIC in types)
        and (sees_all or context.allows(Operation.DESCRIBE, ResourceType.GROUP, group.group_id))
    ]
    return ListGroupsResponse(groups=tuple(listed))
