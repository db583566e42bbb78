"""Which code each request gets in each state of a group, in one table."""

import pytest

from exactlog.core.model.error_code import ErrorCode
from tests.support.group_runtime import GroupRuntime

NONE = ErrorCode.NONE
WAITS = None
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
FENCED = ErrorCode.FENCED_INSTANCE_ID
ILLEGAL = ErrorCode.ILLEGAL_GENERATION
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
NON_EMPTY = ErrorCode.NON_EMPTY_GROUP
SUBSCRIBED = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
REQUIRED = ErrorCode.MEMBER_ID_REQUIRED
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL

STATES = ("Dead", "Empty", "PreparingRebalance", "CompletingRebalance", "Stable")

MATRIX = {
    # request                     Dead       Empty      Preparing     Completing    Stable
    "join, first":               (REQUIRED,  REQUIRED,  REQUIRED,     REQUIRED,     REQUIRED),
    "join, old client":          (WAITS,     WAITS,     WAITS,        WAITS,        WAITS),
    "join, unknown id":          (UNKNOWN,   UNKNOWN,   UNKNOWN,      UNKNOWN,      UNKNOWN),
    "join, leader":              (UNKNOWN,   UNKNOWN,   WAITS,        NONE,         WAITS),
    "join, follower":            (UNKNOWN,   UNKNOWN,   WAITS,        NONE,         NONE),
    "join, fenced":              (UNKNOWN,   UNKNOWN,   FENCED,       FENCED,       FENCED),
    "join, other type":          (REQUIRED,  REQUIRED,  INCONSISTENT, INCONSISTENT, INCONSISTENT),
    "join, no protocols":        (INCONSISTENT,) * 5,
    "sync, leader":              (UNKNOWN,   UNKNOWN,   REBALANCE,    NONE,         NONE),
    "sync, follower":            (UNKNOWN,   UNKNOWN,   REBALANCE,    WAITS,        NONE),
    "sync, other generation":    (UNKNOWN,   UNKNOWN,   ILLEGAL,      ILLEGAL,      ILLEGAL),
    "sync, fenced":              (UNKNOWN,   UNKNOWN,   FENCED,       FENCED,       FENCED),
    "sync, unknown id":          (UNKNOWN,) * 5,
    "heartbeat":                 (UNKNOWN,   UNKNOWN,   REBALANCE,    NONE,         NONE),
    "heartbeat, other generation": (UNKNOWN, UNKNOWN,   ILLEGAL,      ILLEGAL,      ILLEGAL),
    "heartbeat, fenced":         (UNKNOWN,   UNKNOWN,   FENCED,       FENCED,       FENCED),
    "heartbeat, unknown id":     (UNKNOWN,) * 5,
    "leave":                     (UNKNOWN,   UNKNOWN,   NONE,         NONE,         NONE),
    "leave, fenced":             (UNKNOWN,   UNKNOWN,   FENCED,       FENCED,       FENCED),
    "leave, by instance":        (UNKNOWN,   UNKNOWN,   NONE,         NONE,         NONE),
    "leave, unknown id":         (UNKNOWN,) * 5,
    "commit":                    (ILLEGAL,   UNKNOWN,   NONE,         REBALANCE,    NONE),
    "commit, from outside":      (NONE,      NONE,      UNKNOWN,      UNKNOWN,      UNKNOWN),
    "commit, other generation":  (ILLEGAL,   UNKNOWN,   ILLEGAL,      ILLEGAL,      ILLEGAL),
    "commit, fenced":            (ILLEGAL,   UNKNOWN,   FENCED,       FENCED,       FENCED),
    "commit, member without generation": (NONE, NONE,   ILLEGAL,      ILLEGAL,      ILLEGAL),
    "delete offsets, of others": (NOT_FOUND, NONE,      NONE,         NONE,         NONE),
    "delete offsets, read":      (NOT_FOUND, NONE,      SUBSCRIBED,   SUBSCRIBED,   SUBSCRIBED),
    "delete group":              (NOT_FOUND, NONE,      NON_EMPTY,    NON_EMPTY,    NON_EMPTY),
}  # fmt: skip


class Story:
    """A group in a state: a leader and a static follower "s", and what generation they hold."""

    def __init__(self, state, *, protocol_type="consumer"):
        self.group = GroupRuntime(initial_rebalance_delay_ms=10)
        self.leader, self.follower, self.generation_id = "l", "f", 1
        if state == "Dead":
            return
        leader = self.group.join(protocol_type=protocol_type)
        follower = self.group.join(instance_id="s", protocol_type=protocol_type)
        self.group.advance(20)
        self.leader, self.follower = leader.outcome.member_id, follower.outcome.member_id
        if state in ("Stable", "PreparingRebalance"):
            self.group.sync(self.leader, 1, {})
        if state == "PreparingRebalance":
            self.group.carry_out(self.group.shard.force_rebalance("g", now_ms=self.group.now_ms))
        if state == "Empty":
            self.group.leave(self.leader, self.follower)
        assert self.group.state() == state

    def ask(self, request):
        group, leader, follower, generation_id = self.group, self.leader, self.follower, self.generation_id
        asks = {
            "join, first": lambda: group.join(needs_member_id=True),
            "join, old client": group.join,
            "join, unknown id": lambda: group.join(member_id="stranger"),
            "join, leader": lambda: group.join(member_id=leader),
            "join, follower": lambda: group.join(member_id=follower, instance_id="s"),
            "join, fenced": lambda: group.join(member_id="former", instance_id="s"),
            "join, other type": lambda: group.join(protocol_type="other", needs_member_id=True),
            "join, no protocols": lambda: group.join(protocols=()),
            "sync, leader": lambda: group.sync(leader, generation_id),
            "sync, follower": lambda: group.sync(follower, generation_id, instance_id="s"),
            "sync, other generation": lambda: group.sync(leader, generation_id + 1),
            "sync, fenced": lambda: group.sync("former", generation_id, instance_id="s"),
            "sync, unknown id": lambda: group.sync("stranger", generation_id),
            "heartbeat": lambda: group.heartbeat(leader, generation_id),
            "heartbeat, other generation": lambda: group.heartbeat(leader, generation_id + 1),
            "heartbeat, fenced": lambda: group.heartbeat("former", generation_id, instance_id="s"),
            "heartbeat, unknown id": lambda: group.heartbeat("stranger", generation_id),
            "leave": lambda: group.leave(leader),
            "leave, fenced": lambda: group.leave(("former", "s")),
            "leave, by instance": lambda: group.leave(("", "s")),
            "leave, unknown id": lambda: group.leave("stranger"),
            "commit": lambda: group.commit_offset(1, member_id=leader, generation_id=generation_id),
            "commit, from outside": lambda: group.commit_offset(1),
            "commit, other generation": lambda: group.commit_offset(1, member_id=leader, generation_id=99),
            "commit, fenced": lambda: group.commit_offset(
                1, member_id="former", generation_id=generation_id, group_instance_id="s"
            ),
            "commit, member without generation": lambda: group.commit_offset(1, member_id=leader),
            "delete offsets, of others": lambda: group.delete_offsets("other"),
            "delete offsets, read": lambda: group.delete_offsets("cal"),
            "delete group": group.delete_group,
        }
        return error_of(asks[request]())


def error_of(answer):
    """The code in an answer of any request; None where it waits."""
    outcome = getattr(answer, "outcome", answer)
    if outcome is None or isinstance(outcome, ErrorCode):
        return outcome
    each = getattr(outcome, "errors", ()) or getattr(outcome, "members", ()) or getattr(outcome, "partitions", ())
    if each and isinstance(each[0], ErrorCode):
        return each[0]
    return outcome.error_code


@pytest.mark.parametrize("request_name", MATRIX)
@pytest.mark.parametrize("state", STATES)
def test_every_request_gets_its_code_in_every_state(request_name, state):
    assert Story(state).ask(request_name) is MATRIX[request_name][STATES.index(state)]


@pytest.mark.parametrize("state", STATES[2:])
def test_offsets_of_a_group_that_does_not_consume_are_deleted_when_it_is_empty(state):
    story = Story(state, protocol_type="connect")

    assert story.ask("delete offsets, of others") is NON_EMPTY


@pytest.mark.parametrize("ask", ["join", "sync", "heartbeat", "leave"])
def test_no_member_can_be_in_a_group_without_a_name(ask):
    group = GroupRuntime()
    answers = {
        "join": lambda: group.join(group_id=""),
        "sync": lambda: group.sync("m", 1, group_id=""),
        "heartbeat": lambda: group.heartbeat("m", 1, group_id=""),
        "leave": lambda: group.leave("m", group_id=""),
    }

    assert error_of(answers[ask]()) is ErrorCode.INVALID_GROUP_ID
