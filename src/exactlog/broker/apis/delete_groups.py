"""DeleteGroups (key 42), versions 0 to 3.

Does: forgets groups without members, and how far they have read.
Errors: per group: INVALID_GROUP_ID, GROUP_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, NOT_COORDINATOR,
COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS.
Versions: 3 error messages.
"""

from collections.abc import Coroutine, Iterable, Sequence

from msgspec import Struct

from exactlog.broker.asking import Gathering, Later, ask
from exactlog.broker.request_context import RequestContext
from exactlog.core.codec.message_schema import Message
from exactlog.core.group.requests import ErrorAnswer
from exactlog.core.group.shard import GroupShard
from exactlog.core.model.authorization import Operation, ResourceType
from exactlog.core.model.decisions import Decision, Waiter
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handle(request: DeleteGroupsRequest, context: RequestContext) -> Later:
    """Deletes them, each by itself."""
    names = tuple(dict.fromkeys(request.groups_names))

    def respond(outcomes: Sequence[Struct | ErrorCode]) -> Message:
        return DeleteGroupsResponse(
            results=tuple(
                DeletableGroupResult(group_id=name, error_code=_error_of(outcome))
                for name, outcome in zip(names, outcomes, strict=True)
            )
        )

    slots = Gathering(len(names), context, respond).slots
    pending = [_delete(name, slot, context) for name, slot in zip(names, slots, strict=True)]
    late = [deletion for deletion in pending if deletion is not None]
    return _await_all(late) if late else None


def _delete(group_id: str, waiter: Waiter, context: RequestContext) -> Later:
    def decide(shard: GroupShard, waiter: Waiter, now_ms: int) -> Decision:
        return shard.delete_group(group_id, waiter, now_ms=now_ms)

    if not context.allows(Operation.DELETE, ResourceType.GROUP, group_id):
        waiter.fail(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return None
    return ask(group_id, context, decide, waiter)


async def _await_all(late: Iterable[Coroutine[None, None, None]]) -> None:
    for deletion in late:
        await deletion


def _error_of(outcome: Struct | ErrorCode) -> ErrorCode:
    if isinstance(outcome, ErrorCode):
        return outcome
    assert isinstance(outcome, ErrorAnswer)
    return outcome.error_code
