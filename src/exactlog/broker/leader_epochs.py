"""Whether the leader epoch that a client names is the one of the partitions here."""

from exactlog.broker.request_context import RequestContext
from exactlog.core.model.error_code import ErrorCode

NO_LEADER_EPOCH = -1


def leader_epoch_error(context: RequestContext, client_epoch: int) -> ErrorCode | None:
    """Why a client is refused whose leader epoch is not ours (KIP-320); None where it is ours, or none (-1)."""
    if client_epoch in (context.broker.leader_epoch, NO_LEADER_EPOCH):
        return None
    is_old = client_epoch < context.broker.leader_epoch
    return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
