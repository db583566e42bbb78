"""Consumer groups under everything that can happen to them, on virtual time, against a naive model.

Clients do what Kafka's do: join, sync, heartbeat, and start over when they are told so. Around them members die,
leave, come back and change their mind, rounds are held back and fail, the broker crashes, operators interfere. After
every step what the shard says must be what a new shard reads from the log; in the end, whoever still tries must have
got its share.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from exactlog.core.group.group_record import OffsetCommitRecord, decode_record
from exactlog.core.group.timer_keys import JoinTimer, SyncTimer
from exactlog.core.model.error_code import ErrorCode
from tests.support.group_runtime import REBALANCE_MS, GroupRuntime

PARTITIONS = 4
TOPICS = ("cal", "other")
GROUPS = ("g", "h")
TICK_MS = 250
CLIENTS_MAX = 5
SUBSCRIPTIONS = tuple(bytes.fromhex("0001" + "00000001" + "000363616c") + bytes([flavour]) for flavour in range(2))
REJOIN = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}


class ModelClient:
    """A consumer: what it knows of its group, and what it is waiting for."""

    def __init__(self, group, *, instance_id, prefers_sticky, needs_member_id, skips):
        self.group = group
        self.instance_id = instance_id
        self.prefers_sticky = prefers_sticky
        self.fields = {"needs_member_id": needs_member_id and instance_id is None, "may_skip_assignment": skips}
        self.flavour = 0
        self.member_id = ""
        self.generation_id = -1
        self.waiting = None
        self.next = self.join
        self.share = None
        self.is_alive = True

    def step(self):
        """The next thing that the client does by itself."""
        if self.waiting is None:
            self.next()
        self.listen()

    def listen(self):
        """Takes an answer in, if one has come."""
        waiting = self.waiting
        if waiting is None or not waiting.is_done:
            return
        self.waiting = None
        error_code = waiting.error_code
        if error_code is ErrorCode.NONE:
            self.on_answer(waiting.outcome)
        elif error_code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = waiting.outcome.member_id
        elif error_code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id, self.share, self.next = "", None, self.join
        elif error_code in REJOIN:
            self.share, self.next = None, self.join
        elif error_code is ErrorCode.FENCED_INSTANCE_ID:
            self.is_alive, self.share = False, None
        else:
            assert error_code is ErrorCode.NOT_COORDINATOR, error_code

    def join(self):
        names = ("sticky", "range") if self.prefers_sticky else ("range", "sticky")
        protocols = tuple((name, SUBSCRIPTIONS[self.flavour]) for name in names)
        self.on_answer = self.on_joined
        self.waiting = self.group.join(
            member_id=self.member_id, instance_id=self.instance_id, protocols=protocols, **self.fields
        )

    def on_joined(self, answer):
        self.member_id, self.generation_id = answer.member_id, answer.generation_id
        self.assignments = {}
        if answer.leader == self.member_id and not answer.skip_assignment:
            ids = sorted(member_id for member_id, _, _ in answer.members)
            self.assignments = {
                member_id: bytes(range(index, PARTITIONS, len(ids))) for index, member_id in enumerate(ids)
            }
        self.share, self.next = None, self.sync

    def sync(self):
        self.on_answer = self.on_synced
        self.waiting = self.group.sync(
            self.member_id, self.generation_id, self.assignments, instance_id=self.instance_id
        )

    def on_synced(self, answer):
        self.share, self.next = answer.assignment, self.heartbeat

    def heartbeat(self):
        self.on_answer = lambda _: None
        self.waiting = self.group.ask_heartbeat(self.member_id, self.generation_id, instance_id=self.instance_id)


class Runtime(GroupRuntime):
    """The runtime, which also remembers everybody who waits."""

    def __init__(self, **limits):
        self.waitings = []
        super().__init__(**limits)

    def decide(self, work, label=""):
        waiting = super().decide(work, label)
        self.waitings.append(waiting)
        return waiting


ACTIONS = {
    "all_act": 12,
    "act": 6,
    "come": 5,
    "let_time_pass": 5,
    "commit_as_member": 4,
    "commit_from_outside": 3,
    "send_again": 2,
    "restart": 2,
    "change_subscription": 2,
    "hold_rounds_back": 2,
    "let_rounds_commit": 2,
    "fail_round": 2,
    "crash": 1,
    "die": 1,
    "leave": 1,
    "force_rebalance": 1,
    "delete_offsets": 1,
    "delete_topic": 1,
    "delete_group": 1,
    "expire": 1,
}
"""What can happen, and how often; each takes two small numbers for its choices."""

happenings = st.lists(
    st.tuples(
        st.sampled_from([action for action, weight in ACTIONS.items() for _ in range(weight)]),
        st.integers(0, 7),
        st.integers(0, 7),
    ),
    min_size=30,
    max_size=120,
)


class Story:
    """A broker, its clients, and the naive model: the number of every commit and deletion, in order."""

    def __init__(self, *, initial_rebalance_delay_ms):
        self.group = Runtime(initial_rebalance_delay_ms=initial_rebalance_delay_ms)
        self.clients = []
        self.operations = 0
        self.commits = []
        self.answered = {}
        self.deleted = {}

    @property
    def alive(self):
        return [client for client in self.clients if client.is_alive]

    def pick(self, index):
        """One of the clients that live, or none."""
        return [self.alive[index % len(self.alive)]] if self.alive else []

    def count_operation(self):
        self.operations += 1
        return self.operations

    # --- clients ------------------------------------------------------------------------------------------------

    def come(self, index, flags):
        if len(self.alive) < CLIENTS_MAX:
            instance_id = (None, None, "i", "j")[index % 4]
            client = ModelClient(
                self.group,
                instance_id=instance_id,
                prefers_sticky=bool(flags & 1),
                needs_member_id=bool(flags & 2),
                skips=bool(flags & 4),
            )
            self.clients.append(client)
            client.step()

    def act(self, index, _):
        for client in self.pick(index):
            client.step()

    def all_act(self, rounds, _):
        for _ in range(1 + rounds % 4):
            for client in self.alive:
                client.step()

    def die(self, index, _):
        for client in self.pick(index):
            client.is_alive, client.share = False, None

    def restart(self, index, _):
        for client in self.pick(index):
            client.waiting, client.member_id, client.share, client.next = None, "", None, client.join
            client.step()

    def send_again(self, index, _):
        for client in self.alive[index % CLIENTS_MAX :]:
            if client.waiting is not None and client.next in (client.join, client.sync):
                client.waiting = None
                client.step()

    def change_subscription(self, index, _):
        for client in self.pick(index):
            if client.waiting is None:
                client.flavour = 1 - client.flavour
                client.next = client.join
                client.step()

    def leave(self, index, flags):
        for client in self.pick(index):
            if client.member_id:
                by_instance = flags & 1 and client.instance_id is not None
                self.group.leave(("" if by_instance else client.member_id, client.instance_id))
                client.is_alive, client.share = False, None

    # --- offsets ------------------------------------------------------------------------------------------------

    def commit_as_member(self, index, topic):
        for client in self.pick(index):
            if client.share is not None:
                self.commit_one(
                    "g",
                    TOPICS[topic % 2],
                    member_id=client.member_id,
                    generation_id=client.generation_id,
                    group_instance_id=client.instance_id,
                )

    def commit_from_outside(self, group, topic):
        self.commit_one(GROUPS[group % 2], TOPICS[topic % 2])

    def commit_one(self, group_id, topic, **fields):
        number = self.count_operation()
        waiting = self.group.commit_offset(number, group_id=group_id, topic=topic, **fields)
        self.commits.append(((group_id, topic), number, waiting))

    def delete_offsets(self, group, topic):
        self.may_be_gone((GROUPS[group % 2],), (TOPICS[topic % 2],))
        self.group.delete_offsets(TOPICS[topic % 2], group_id=GROUPS[group % 2])

    def delete_topic(self, topic, _):
        self.may_be_gone(GROUPS, (TOPICS[topic % 2],))
        self.group.carry_out(self.group.shard.delete_topic(TOPICS[topic % 2], now_ms=self.group.now_ms))

    def delete_group(self, group, _):
        self.may_be_gone((GROUPS[group % 2],), TOPICS)
        self.group.delete_group(GROUPS[group % 2])

    def expire(self, flags, _):
        self.may_be_gone(GROUPS, TOPICS)
        if flags & 1 and not self.alive:
            self.group.advance(8 * 86_400_000)
        self.group.expire_offsets()

    def may_be_gone(self, group_ids, topics):
        for group_id in group_ids:
            for topic in topics:
                self.deleted[group_id, topic] = self.count_operation()

    # --- time, rounds, the process, operators -------------------------------------------------------------------

    def let_time_pass(self, index, _):
        self.group.advance((100, 500, 1_000, 3_000, 5_000, 11_000, 21_000, 31_000)[index])

    def hold_rounds_back(self, *_):
        self.group.commits_at_once = False

    def let_rounds_commit(self, *_):
        self.group.commits_at_once = True
        self.group.commit()

    def fail_round(self, *_):
        self.group.fail_round()

    def crash(self, *_):
        self.group.crash()
        self.group.waitings = []
        for client in self.clients:
            client.waiting = None

    def force_rebalance(self, *_):
        self.group.carry_out(self.group.shard.force_rebalance("g", now_ms=self.group.now_ms))

    # --- what always holds --------------------------------------------------------------------------------------

    def committed_is_what_the_log_says(self):
        newest = dict(self.group.log)
        for group_id in GROUPS:
            records = [decode_record(key, value) for key, value in newest.items()]
            said = {
                record.topic_partition: record.committed
                for record in records
                if isinstance(record, OffsetCommitRecord) and record.group_id == group_id and record.committed
            }
            assert self.group.shard.offsets(group_id) == said

    def head_is_what_the_log_and_the_undecided_say(self):
        undecided = [(record.encode_key(), record.encode_value()) for record in self.group.undecided]
        replayed = self.group.replayed([*self.group.log, *undecided])
        rewritten = self.group.replayed(records_of(self.group.shard))
        assert dict(records_of(replayed)) == dict(records_of(rewritten)) == dict(records_of(self.group.shard))
        with_metadata = {key for key, _ in records_of(self.group.shard) if key.startswith(b"\x00\x02")}
        for key in with_metadata:
            group_id = decode_record(key, None).group_id
            live, read, copied = (shard._groups[group_id] for shard in (self.group.shard, replayed, rewritten))
            assert read.describe() == copied.describe()
            assert (read.generation_id, read.leader_id) == (copied.generation_id, copied.leader_id)
            if live.state in ("Stable", "Empty"):
                assert live.describe() == read.describe()
                assert (live.generation_id, live.leader_id) == (read.generation_id, read.leader_id)
            else:
                assert live.generation_id >= read.generation_id

    def an_offset_that_was_answered_is_there_until_somebody_takes_it_away(self):
        still_waiting = []
        for partition, number, waiting in self.commits:
            if waiting.outcome is not None and waiting.outcome.errors == (ErrorCode.NONE,):
                self.answered[partition] = max(number, self.answered.get(partition, 0))
            elif not waiting.is_done:
                still_waiting.append((partition, number, waiting))
        self.commits = still_waiting
        for (group_id, topic), number in self.answered.items():
            offset = self.group.offset(topic, group_id=group_id)
            if offset is None:
                assert self.deleted.get((group_id, topic), 0) > number
            else:
                assert offset >= number

    def a_partition_is_given_to_one_member_of_a_generation(self):
        group = self.group.shard._groups.get("g")
        if group is None or group.state != "Stable":
            return
        given = [partition for member in group.members.values() for partition in member.assignment]
        assert len(given) == len(set(given))
        held = [
            partition
            for client in self.clients
            if client.share is not None
            and client.generation_id == group.generation_id
            and client.member_id in group.members
            for partition in client.share
        ]
        assert len(held) == len(set(held))
        assert set(held) <= set(given)

    def an_instance_is_there_once(self):
        for group in self.group.shard._groups.values():
            instances = [member.group_instance_id for member in group.members.values() if member.group_instance_id]
            assert len(instances) == len(set(instances))
            assert {group.members[member_id].group_instance_id for member_id in group.static_members.values()} == set(
                instances
            )

    def nobody_who_waits_is_forgotten(self):
        self.group.waitings = [waiting for waiting in self.group.waitings if not waiting.is_done]
        unsent = {id(answer.waiter) for answer in self.group.unsent}
        parked = set()
        for group in self.group.shard._groups.values():
            parked |= {id(waiter) for waiter in (*group.joins.values(), *group.syncs.values())}
            assert not group.joins or JoinTimer(group.group_id) in self.group.due
            assert not group.syncs or SyncTimer(group.group_id) in self.group.due
        assert not unsent & parked
        assert {id(waiting) for waiting in self.group.waitings} <= unsent | parked

    def check(self):
        self.committed_is_what_the_log_says()
        self.head_is_what_the_log_and_the_undecided_say()
        self.an_offset_that_was_answered_is_there_until_somebody_takes_it_away()
        self.a_partition_is_given_to_one_member_of_a_generation()
        self.an_instance_is_there_once()
        self.nobody_who_waits_is_forgotten()

    # --- what comes in the end ----------------------------------------------------------------------------------

    def settle(self):
        """Whoever keeps trying has its share within one rebalance timeout, whatever was before."""
        self.let_rounds_commit()
        end_ms = self.group.now_ms + REBALANCE_MS
        while self.group.now_ms < end_ms:
            for client in self.alive:
                client.step()
            self.group.advance(TICK_MS)
        self.check()
        if not self.alive:
            assert self.group.state() in (None, "Empty")
            return
        assert self.group.state() == "Stable"
        assert {client.generation_id for client in self.alive} == {self.group.generation_id}
        assert sorted(partition for client in self.alive for partition in client.share) == list(range(PARTITIONS))


@settings(max_examples=150, deadline=None)
@given(initial_rebalance_delay_ms=st.sampled_from([0, 1_000]), happenings=happenings)
def test_groups_keep_their_promises_whatever_happens(initial_rebalance_delay_ms, happenings):
    story = Story(initial_rebalance_delay_ms=initial_rebalance_delay_ms)
    for action, first, second in happenings:
        getattr(story, action)(first, second)
        story.check()
    story.settle()


def records_of(shard):
    return [(record.encode_key(), record.encode_value()) for record in shard.live_records()]
