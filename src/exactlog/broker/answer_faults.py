"""Answers that go wrong because a test ordered it: refused, late, or never given.

An order stands between the frames and the handlers, in `dispatch`; handlers know nothing of it. Orders are given from
any thread. What they do is done on the event loop of the broker.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, TypedDict, Unpack, assert_never

from msgspec import Struct
from msgspec.structs import replace

from exactlog.broker.api_table import API_TABLE
from exactlog.broker.faulty_answers import LateAnswer, NoAnswer, OtherAnswer
from exactlog.broker.refusal import Refusal, refuse
from exactlog.broker.request_context import AnswerForm, AnswerSlot, RequestContext
from exactlog.broker.request_names import Place, names_of
from exactlog.broker.services import BrokerServices
from exactlog.core.codec.message_schema import Message
from exactlog.core.config.definition import nearest_name_hint
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.errors import ConfigError
from exactlog.core.protocol.api_keys import APIS, ApiKey
from exactlog.core.protocol.headers import RequestHeader
from exactlog.core.protocol.messages.fetch import FetchRequest
from exactlog.core.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from exactlog.core.protocol.messages.produce import ProduceRequest
from exactlog.network import Connection

_MESSAGE: Final = "A test ordered this error."

# --- what is ordered -------------------------------------------------------------------------------------------------


class Fail(Struct, frozen=True):
    """The request is refused and not carried out."""

    error_code: ErrorCode


class FailAfter(Struct, frozen=True):
    """The request is carried out, and its client told that it was refused."""

    error_code: ErrorCode


class Drop(Struct, frozen=True):
    """The request is not carried out; its connection ends."""


class DropAnswer(Struct, frozen=True):
    """The request is carried out; its connection ends where the answer was to leave."""


class Delay(Struct, frozen=True):
    """The answer leaves later."""

    delay_ms: int


Outcome: TypeAlias = Fail | FailAfter | Drop | DropAnswer


class Selection(TypedDict, total=False):
    """Which requests of an API an order is about; what is left out does not matter.

    Attributes:
        topic: only requests that name this topic, alone or among others.
        partition: only requests that name a partition of this index, of that topic if there is one.
        group_id: only requests that name this group.
        transactional_id: only requests that name this transactional id.
        client_id: only requests of clients that call themselves so.
        when: only requests for which this is true. It is given the request, a message with Kafka's fields in snake
            case, and called on the broker's event loop: it must not wait.
        times: only so many of them; then the order is done.
    """

    topic: str
    partition: int
    group_id: str
    transactional_id: str
    client_id: str
    when: Callable[[Any], bool]
    times: int


class Call(Struct, frozen=True):
    """One request that may meet an order, and everything its answer takes."""

    header: RequestHeader
    request: Message
    slot: AnswerSlot
    form: AnswerForm
    connection: Connection
    broker: BrokerServices


class Fault:
    """One order, until it is removed. As a context manager it lasts for the block.

    Attributes:
        api: what it is about.
        action: what becomes of a request that it meets.
        hits: how many requests it has met.
    """

    def __init__(self, faults: "AnswerFaults", api: ApiKey, action: Outcome | Delay, selection: Selection) -> None:
        self.api = api
        self.action = action
        self.hits = 0
        self._faults = faults
        self._selection = selection
        self._hit = threading.Condition()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def wait_for_hits(self, count: int = 1, *, timeout_s: float = 30) -> None:
        """Waits until it has met so many requests.

        Raises:
            TimeoutError: it has not, in that time.
        """
        with self._hit:
            if not self._hit.wait_for(lambda: self.hits >= count, timeout_s):
                raise TimeoutError(f"the fault met {self.hits} requests in {timeout_s} s, not {count}")

    def remove(self) -> None:
        """Takes the order back; answers that it keeps back leave. Again: nothing happens."""
        self._faults.remove(self)

    # --- for the broker -----------------------------------------------------------------------------------------

    def is_about(self, call: Call) -> bool:
        """Whether the order is about a request."""
        wanted = self._selection
        return (
            self.api == call.header.api_key
            and not self.is_done
            and ("client_id" not in wanted or wanted["client_id"] == call.header.client_id)
            and _names_what_is_wanted(call, wanted)
            and ("when" not in wanted or wanted["when"](call.request))
        )

    @property
    def is_done(self) -> bool:
        """Whether it has met as many requests as it was to meet."""
        return "times" in self._selection and self.hits >= self._selection["times"]

    def hit(self) -> None:
        """Notes that it has met a request."""
        with self._hit:
            self.hits += 1
            self._hit.notify_all()


class AnswerFaults:
    """The orders of one broker. A request meets the first outcome that is ordered for it, and every delay.

    Attributes:
        orders: those that are not done, in the order in which they were given.
    """

    def __init__(self) -> None:
        self.orders: tuple[Fault, ...] = ()
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._late: dict[LateAnswer, Fault] = {}

    # --- for tests ----------------------------------------------------------------------------------------------

    def fail(self, api: str | ApiKey, error_code: ErrorCode, **only: Unpack[Selection]) -> Fault:
        """Requests of an API are refused with an error, and not carried out.

        The error is in every place that the answer has for one: at its top, and for each topic, partition, group or
        member that the request names. A Produce with acks=0 ends its connection, as in Kafka.

        Args:
            api: its name as Kafka spells it, as `"Produce"`, or its key.
            error_code: as `ErrorCode.NOT_LEADER_OR_FOLLOWER`.
            only: which requests; see `Selection`. A request is refused whole, though it name other topics as well.

        Raises:
            ConfigError: there is no such API, or `times` is less than 1.
        """
        return self._order(api, Fail(error_code), only)

    def fail_after(self, api: str | ApiKey, error_code: ErrorCode, **only: Unpack[Selection]) -> Fault:
        """Requests of an API are carried out, and answered as if they had been refused; else as `fail`."""
        return self._order(api, FailAfter(error_code), only)

    def drop(self, api: str | ApiKey, **only: Unpack[Selection]) -> Fault:
        """Requests of an API are not carried out, and their connection is closed; else as `fail`."""
        return self._order(api, Drop(), only)

    def drop_answer(self, api: str | ApiKey, **only: Unpack[Selection]) -> Fault:
        """Requests of an API are carried out, and their connection is closed in place of an answer; else as `fail`."""
        return self._order(api, DropAnswer(), only)

    def delay(self, api: str | ApiKey, delay_ms: int, **only: Unpack[Selection]) -> Fault:
        """Requests of an API are carried out, and answered this long after they came or later; else as `fail`.

        Later answers of the same connection wait behind, as the protocol has it; other connections do not. Of several
        delays the longest counts, and a delay goes with any other order. It is over when the time has passed by the
        broker's clock, which can be moved, or when the order is taken back.
        """
        if delay_ms < 0:
            raise ConfigError(f"a delay is 0 ms or more, not {delay_ms}")
        return self._order(api, Delay(delay_ms), only)

    def clear(self) -> None:
        """Takes all orders back; answers that they keep back leave."""
        with self._guard:
            self.orders = ()
        self._let_go_soon(None)

    def remove(self, fault: Fault) -> None:
        """Takes an order back; answers that it keeps back leave."""
        self._drop_orders({fault})
        self._let_go_soon(fault)

    def _order(self, api: str | ApiKey, action: Outcome | Delay, only: Selection) -> Fault:
        if only.get("times", 1) < 1:
            raise ConfigError(f"a fault happens once or more often, not {only['times']} times")
        fault = Fault(self, _find_api(api), action, only)
        with self._guard:
            self.orders = (*self.orders, fault)
        return fault

    def _drop_orders(self, done: set[Fault]) -> None:
        with self._guard:
            self.orders = tuple(fault for fault in self.orders if fault not in done)

    def _let_go_soon(self, fault: Fault | None) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended, and with it every connection
                self._loop.call_soon_threadsafe(self.let_go, fault)

    # --- for the broker, on its event loop ------------------------------------------------------------------------

    def meet(self, call: Call) -> AnswerSlot | None:
        """Where the answer of a request is to go; None: the request is not to be carried out."""
        if isinstance(call.request, FetchRequest):  # one of a session names only what is new
            call = replace(call, request=call.broker.fetch_sessions.in_full(call.request))
        outcome: Outcome | None = None
        delays = []
        for fault in self.orders:
            is_delay = isinstance(fault.action, Delay)
            if (is_delay or outcome is None) and fault.is_about(call):
                if isinstance(fault.action, Delay):
                    delays.append((fault, fault.action.delay_ms))
                else:
                    outcome = fault.action
                fault.hit()
        self._drop_orders({fault for fault in self.orders if fault.is_done})
        slot = _end_of(call, outcome)
        for fault, delay_ms in delays:
            slot = self._delayed(slot, call, fault, delay_ms)
        if not isinstance(outcome, Fail | Drop):
            return slot
        if isinstance(call.request, ProduceRequest) and call.request.acks == 0:
            slot.skip()
        else:
            slot.send(())
        return None

    def _delayed(self, slot: AnswerSlot, call: Call, fault: Fault, delay_ms: int) -> LateAnswer:
        self._loop = asyncio.get_running_loop()
        late = LateAnswer(slot, call.broker, delay_ms=delay_ms, when_gone=self._late.pop)
        self._late[late] = fault
        return late

    def let_go(self, fault: Fault | None = None) -> None:
        """The answers that an order keeps back leave now; those of all orders for None."""
        for late, held_by in list(self._late.items()):
            if fault is None or held_by is fault:
                late.let_go()


def _end_of(call: Call, outcome: Outcome | None) -> AnswerSlot:
    """Where the answer of a request ends."""
    match outcome:
        case None:
            return call.slot
        case Drop() | DropAnswer():
            return NoAnswer(call.connection)
        case Fail(error_code) | FailAfter(error_code):
            context = RequestContext(call.broker, call.connection, call.header, call.slot, call.form)
            return OtherAnswer(call.connection, lambda: context.answer(_refused(call, error_code)))
        case _:
            assert_never(outcome)


def _refused(call: Call, error_code: ErrorCode) -> Message:
    refused = refuse(call.request, Refusal(error_code, _MESSAGE, call.header.api_version))
    if isinstance(refused, MetadataResponse):  # without a broker a client would not know where to ask again
        address = call.broker.advertised()
        self_told = MetadataResponseBroker(node_id=call.broker.node_id, host=address.host, port=address.port)
        return replace(
            refused, brokers=(self_told,), cluster_id=call.broker.cluster_id, controller_id=call.broker.node_id
        )
    return refused


def _names_what_is_wanted(call: Call, wanted: Selection) -> bool:
    """Whether a request names the topic, partition, group and transactional id that an order is about."""
    if not wanted.keys() & {"topic", "partition", "group_id", "transactional_id"}:
        return True
    names = names_of(call.request)
    places: set[Place] = names.topics
    if "topic" in wanted:
        topic = call.broker.topics.by_name(wanted["topic"])
        places = names.topics & {wanted["topic"], *([] if topic is None else [topic.topic_id])}
    return (
        ("topic" not in wanted or bool(places))
        and ("partition" not in wanted or any((place, wanted["partition"]) in names.partitions for place in places))
        and ("group_id" not in wanted or wanted["group_id"] in names.groups)
        and ("transactional_id" not in wanted or wanted["transactional_id"] in names.transactional_ids)
    )


def _find_api(api: str | ApiKey) -> ApiKey:
    names = {served.name: served.key for served in API_TABLE.values()}
    if isinstance(api, ApiKey) and api in API_TABLE:
        return api
    if isinstance(api, str) and api in names:
        return names[api]
    name = api if isinstance(api, str) else APIS[api].name
    raise ConfigError(f"this broker serves no API {name}", hint=nearest_name_hint(name, names))
