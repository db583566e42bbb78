"""Which broker coordinates a group, or a transactional id."""

from enum import Enum
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

_FIRST_VERSION_WITH_TRANSACTIONS: Final = 1
_FIRST_VERSION_WITH_MANY: Final = 4
_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class Coordinated(Enum):
    """What is coordinated, in words; its number in FindCoordinator is `key_type`."""

    GROUP = "group"
    TRANSACTION = "transactional id"

    @property
    def key_type(self) -> int:
        """As it travels."""
        return int(self is Coordinated.TRANSACTION)


class Coordinators:
    """The coordinators of groups, or those of transactional ids, as remembered or asked for."""

    def __init__(self, cluster: Cluster, kind: Coordinated = Coordinated.GROUP) -> None:
        self._cluster = cluster
        self._kind = kind
        self._addresses: dict[str, Address] = {}

    async def connection(self, key: str, lane: Lane = Lane.GENERAL) -> WireConnection:
        """A connection to the coordinator of a group or of a transactional id.

        Raises:
            UnavailableError: it cannot be reached; it is looked for anew next time.
            KafkaError: it cannot be told, or not yet.
        """
        address = await self.address(key)
        try:
            return await self._cluster.connection_at(address, lane)
        except UnavailableError as error:
            self.forget(key)
            raise UnavailableError(f"coordinator of {self._kind.value} {key}: {error}", hint=error.hint) from error

    async def address(self, key: str) -> Address:
        """Where the coordinator is. Raises as `connection`."""
        address = self._addresses.get(key)
        if address is None:
            address = self._addresses[key] = await self._find(key)
        return address

    def remember(self, key: str, address: Address) -> None:
        """The coordinator is there: it has said so itself."""
        self._addresses[key] = address

    async def request(
        self,
        key: str,
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
        connection = await self.connection(key, lane)
        try:
            return await connection.request(request, response, version=version, timeout_ms=timeout_ms)
        except UnavailableError:
            self.forget(key)
            raise

    def check(self, key: str, error_code: int, what: str, detail: str | None = None) -> None:
        """Raise the `KafkaError` of an error code that is not 0. A coordinator that has moved is looked for anew."""
        self.note(key, error_code)
        check(error_code, what, detail)

    def note(self, key: str, error_code: int) -> None:
        """Ask again next time, if that error code says that the coordinator has moved."""
        if as_error_code(error_code) in _MOVED:
            self.forget(key)

    def forget(self, key: str) -> None:
        """Ask again next time."""
        self._addresses.pop(key, None)

    async def _find(self, key: str) -> Address:
        what = f"find the coordinator of {self._kind.value} {key}"
        connection = await self._cluster.any_connection()
        at_least = 0 if self._kind is Coordinated.GROUP else _FIRST_VERSION_WITH_TRANSACTIONS
        version = connection.versions.pick(ApiKey.FIND_COORDINATOR, at_least=at_least)
        request = (
            FindCoordinatorRequest(key_type=self._kind.key_type, coordinator_keys=(key,))
            if version >= _FIRST_VERSION_WITH_MANY
            else FindCoordinatorRequest(key=key, key_type=self._kind.key_type)
        )
        response = await connection.request(request, FindCoordinatorResponse, version=version)
        found: FindCoordinatorResponse | Coordinator = (
            the_only(response.coordinators, what) if version >= _FIRST_VERSION_WITH_MANY else response
        )
        check(found.error_code, what, found.error_message)
        return Address(found.host, found.port)
