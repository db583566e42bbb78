"""DescribeGroups (key 15), versions 0 to 6.

Does: shows groups: their state, protocol, members, subscriptions and assignments.
Errors: per group: INVALID_GROUP_ID, GROUP_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND (before version 6 an unknown group
is `Dead`, without an error), NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS.
Versions: 3 what the client may do with the group; 4 static members; 6 an error of its own for an unknown group.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from exactlog.broker.asking import Gathering, Later, tell_decided
from exactlog.broker.coordinator.groups import Runner
from exactlog.broker.request_context import RequestContext
from exactlog.core.codec.message_schema import Message
from exactlog.core.group.requests import GroupDescription
from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.decisions import Waiter
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

NOT_FOUND_SINCE = 6
DEAD = "Dead"
NOT_ASKED = -(2**31)
GROUP_OPERATIONS = (
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
"""What can be done with a group at all."""


class _Found(Struct, frozen=True):
    """What there is of a group."""

    group: GroupDescription | None


def handle(request: DescribeGroupsRequest, context: RequestContext) -> Later:
    """Reads them, group by group."""

    def respond(outcomes: Sequence[Struct | ErrorCode]) -> Message:
        described = [
            _describe(group_id, outcome, request, context)
            for group_id, outcome in zip(request.groups, outcomes, strict=True)
        ]
        return DescribeGroupsResponse(groups=tuple(described))

    slots = Gathering(len(request.groups), context, respond).slots
    late = [
        (group_id, slot)
        for group_id, slot in zip(request.groups, slots, strict=True)
        if not _read(context.broker.groups.find(group_id), group_id, slot, context)
    ]
    return _read_when_loaded(late, context) if late else None


def _read(runner: Runner | ErrorCode | None, group_id: str, waiter: Waiter, context: RequestContext) -> bool:
    """Reads one group; False where its shard must be loaded first."""
    if not context.allows(Operation.DESCRIBE, ResourceType.GROUP, group_id):
        waiter.fail(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    elif runner is None:
        return False
    elif isinstance(runner, ErrorCode):
        waiter.fail(runner)
    else:
        tell_decided(runner, lambda shard: _Found(shard.describe(group_id)), waiter)
    return True


async def _read_when_loaded(late: Iterable[tuple[str, Waiter]], context: RequestContext) -> None:
    for group_id, waiter in late:
        _read(await context.broker.groups.load(group_id), group_id, waiter, context)


def _describe(
    group_id: str, outcome: Struct | ErrorCode, request: DescribeGroupsRequest, context: RequestContext
) -> DescribedGroup:
    if isinstance(outcome, ErrorCode):
        return DescribedGroup(group_id=group_id, error_code=outcome)
    assert isinstance(outcome, _Found)
    operations = _operations(group_id, context) if request.include_authorized_operations else NOT_ASKED
    group = outcome.group
    if group is None:
        is_error = context.api_version >= NOT_FOUND_SINCE
        return DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND if is_error else ErrorCode.NONE,
            error_message=f"Group {group_id} not found." if is_error else None,
            group_state=DEAD,
            authorized_operations=NOT_ASKED if is_error else operations,
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=tuple(
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in group.members
        ),
        authorized_operations=operations,
    )


def _operations(group_id: str, context: RequestContext) -> int:
    """A bit for each operation that is allowed (KIP-430)."""
    return sum(
        1 << operation for operation in GROUP_OPERATIONS if context.allows(operation, ResourceType.GROUP, group_id)
    )
