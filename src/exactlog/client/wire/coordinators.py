"""Which broker coordinates a group."""

from typing import Final, TypeVar

from exactlog.client.wire.addresses import Address
from exactlog.client.wire.cluster import Cluster, Lane
from exactlog.client.wire.connection import WireConnection
from exactlog.client.wire.refusals import as_error_code, check, the_only
from exactlog.core.codec.message_schema import Message
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import UnavailableError
from exactlog.core.protocol.api_keys import ApiKey
from exactlog.core.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

Response = TypeVar("Response", bound=Message)

_GROUP: Final = 0
_FIRST_VERSION_WITH_MANY: Final = 4
_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class Coordinators:
    """The coordinators of groups, as remembered or asked for."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._addresses: dict[str, Address] = {}

    async def connection(self, group_id: str, lane: Lane = Lane.GENERAL) -> WireConnection:
        """A connection to the coordinator of a group.

        Raises:
            UnavailableError: it cannot be reached; it is looked for anew next time.
            KafkaError: it cannot be told, or not yet.
        """
        address = self._addresses.get(group_id)
        if address is None:
            address = self._addresses[group_id] = await self._find(group_id)
        try:
            return await self._cluster.connection_at(address, lane)
        except UnavailableError as error:
            self.forget(group_id)
            raise UnavailableError(f"coordinator of group {group_id}: {error}", hint=error.hint) from error

    async def request(
        self,
        group_id: str,
        request: Message,
        response: type[Response],
        *,
        version: int,
        lane: Lane = Lane.GENERAL,
        timeout_ms: int | None = None,
    ) -> Response:
        """The coordinator's answer to a request.

        Raises:
            UnavailableError: it did not come; the coordinator is looked for anew next time.
        """
        connection = await self.connection(group_id, lane)
        try:
            return await connection.request(request, response, version=version, timeout_ms=timeout_ms)
        except UnavailableError:
            self.forget(group_id)
            raise

    def check(self, group_id: str, error_code: int, what: str, detail: str | None = None) -> None:
        """Raise the `KafkaError` of an error code that is not 0. A coordinator that has moved is looked for anew."""
        if as_error_code(error_code) in _MOVED:
            self.forget(group_id)
        check(error_code, what, detail)

    def forget(self, group_id: str) -> None:
        """Ask again next time."""
        self._addresses.pop(group_id, None)

    async def _find(self, group_id: str) -> Address:
        what = f"find the coordinator of group {group_id}"
        connection = await self._cluster.any_connection()
        version = connection.versions.pick(ApiKey.FIND_COORDINATOR)
        request = (
            FindCoordinatorRequest(key_type=_GROUP, coordinator_keys=(group_id,))
            if version >= _FIRST_VERSION_WITH_MANY
            else FindCoordinatorRequest(key=group_id)
        )
        response = await connection.request(request, FindCoordinatorResponse, version=version)
        found: FindCoordinatorResponse | Coordinator = (
            the_only(response.coordinators, what) if version >= _FIRST_VERSION_WITH_MANY else response
        )
        check(found.error_code, what, found.error_message)
        return Address(found.host, found.port)
