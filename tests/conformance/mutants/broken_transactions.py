"""Mutants of what ends transactions: markers, offsets, producers."""

from msgspec.structs import replace

from exactlog.broker.coordinator.transaction_markers import MarkerWriter
from exactlog.core.group.pending_offsets import PendingOffsets
from exactlog.core.group.shard import GroupShard
from exactlog.core.log import producer_state
from exactlog.core.log.producer_state import Duplicate, ProducerStates
from exactlog.core.model.error_code import ErrorCode
from exactlog.core.model.ids import TopicPartition
from exactlog.core.record.control_record_format import TransactionMarker
from exactlog.core.transaction import adding, ending, initialising
from exactlog.core.transaction.draft import Draft
from exactlog.core.transaction.shard import TransactionShard
from exactlog.core.transaction.states import TransactionState
from exactlog.storage.append_outcome import Appended
from exactlog.storage.partition_log import PartitionLog
from tests.conformance.mutants.mutant_registry import every, is_ours, mutant, wrap

NOT_OURS = TopicPartition("", 0)

# --- markers --------------------------------------------------------------------------------------------------------


def on_markers(patch, change):
    """`change(append, topic_partition, marker, identity, then)` in place of the append: is the marker on its way?"""

    def make(real):
        def append_to(self, target, marker, identity, *, transaction_version, then):
            def go_on(changed_marker=marker, changed_then=then):
                return real(
                    self, target, changed_marker, identity, transaction_version=transaction_version, then=changed_then
                )

            topic_partition = target.topic_partition if isinstance(target, PartitionLog) else NOT_OURS
            return change(go_on, topic_partition, marker, identity, then)

        return append_to

    wrap(patch, MarkerWriter, "_append_to", make)


@mutant("a marker is lost", "missing-marker")
def lose_markers(patch, hit):
    due = every(4)

    def change(go_on, topic_partition, marker, identity, then):
        if is_ours(topic_partition) and due():
            hit()
            then(ErrorCode.NONE)
            return False
        return go_on()

    on_markers(patch, change)


@mutant("a marker is written twice", "extra-marker")
def write_markers_twice(patch, hit):
    def change(go_on, topic_partition, marker, identity, then):
        is_on_its_way = go_on()
        if is_ours(topic_partition):
            hit()
            go_on(changed_then=lambda error: None)
        return is_on_its_way

    on_markers(patch, change)


@mutant("a marker says the opposite", "wrong-marker")
def turn_markers(patch, hit):
    due = every(5)

    def change(go_on, topic_partition, marker, identity, then):
        if is_ours(topic_partition) and due():
            hit()
            return go_on(TransactionMarker(is_commit=not marker.is_commit, coordinator_epoch=marker.coordinator_epoch))
        return go_on()

    on_markers(patch, change)


@mutant("a commit reaches only some of the partitions", "torn-transaction")
def tear_transactions(patch, hit):
    def change(go_on, topic_partition, marker, identity, then):
        if is_ours(topic_partition) and topic_partition.partition == 0 and marker.is_commit:
            hit()
            return go_on(TransactionMarker(is_commit=False, coordinator_epoch=marker.coordinator_epoch))
        return go_on()

    on_markers(patch, change)


@mutant("an abort commits", "wrong-marker", "aborted-read")
def commit_aborts(patch, hit):
    def make(real):
        def effect(self, effect):
            if not effect.is_commit:
                hit()
            real(self, replace(effect, is_commit=True))

        return effect

    wrap(patch, Draft, "effect", make)


@mutant(
    "a prepared transaction is forgotten at the start",
    "missing-marker",
    "wrong-marker",
    dies_at="txn.end.after_prepare",
    engine="files",  # with a journal nothing is ever prepared and not complete in the log
)
def forget_prepared(patch, hit):
    def make(real):
        def write_missing_markers(self, draft):
            if any(self._head.get(found).state.is_prepared for found in self._head.open_ids()):
                hit()

        return write_missing_markers

    wrap(patch, TransactionShard, "_write_missing_markers", make)

    def make_init(real):
        def initialise(request, draft):  # which would wait for the markers for ever
            entry = draft.entry(request.transactional_id)
            if entry is not None and entry.state.is_prepared:
                draft._changed[entry.transactional_id] = replace(entry, state=TransactionState.COMPLETE_ABORT)
            return real(request, draft)

        return initialise

    from exactlog.core.transaction import shard

    wrap(patch, shard, "initialise_producer", make_init)


# --- offsets of groups ----------------------------------------------------------------------------------------------


@mutant("offsets of an aborted transaction hold", "aborted-offset")
def keep_aborted_offsets(patch, hit):
    def make(real):
        def end(self, producer_id, *, is_commit):
            if not is_commit and producer_id in self._places:
                hit()
            return real(self, producer_id, is_commit=True)

        return end

    wrap(patch, PendingOffsets, "end", make)


@mutant("offsets of a committed transaction are lost", "lost-offset")
def lose_offsets(patch, hit):
    def make(real):
        def end(self, producer_id, *, is_commit):
            if is_commit and producer_id in self._places:
                hit()
            return real(self, producer_id, is_commit=False)

        return end

    wrap(patch, PendingOffsets, "end", make)


@mutant("offsets in a transaction hold at once", "aborted-offset")
def hold_at_once(patch, hit):
    def make(real):
        def replay(self, record, *, producer_id=None):
            if producer_id is not None:
                hit()
            real(self, record, producer_id=None)

        return replay

    for name in ("replay", "replay_committed"):
        wrap(patch, GroupShard, name, make)


@mutant("a restart loses the offsets of transactions", "lost-offset", "stale-offset", crashes=1)
def lose_offsets_at_the_start(patch, hit):
    def make(real):
        def restore_marker(self, producer_id, *, is_commit):
            if is_commit:
                hit()
            real(self, producer_id, is_commit=False)

        return restore_marker

    wrap(patch, GroupShard, "restore_marker", make)


# --- producers ------------------------------------------------------------------------------------------------------


@mutant("a fenced producer may write", "fenced-write")
def let_fenced_write(patch, hit):
    def make(real):
        def is_current(given, current):
            if given != current:
                hit()
            return True

        return is_current

    wrap(patch, adding, "is_current_epoch", make)
    patch.setattr(producer_state, "_judge_epoch", lambda header, entry: None)
    patch.setattr(producer_state, "_judge_sequence", lambda header, entry: None)


@mutant("a fenced producer may commit", "fenced-commit")
def let_fenced_commit(patch, hit):
    def make(real):
        def is_current(given, current):
            if given != current:
                hit()
            return True

        return is_current

    wrap(patch, ending, "is_current_epoch", make)


@mutant("a takeover leaves the transaction open", "missing-marker", "aborted-read", "wrong-marker")
def leave_open(patch, hit):
    def abort(entry, draft):
        hit()
        changed = replace(entry, state=TransactionState.EMPTY, partitions=(), producer_epoch=entry.producer_epoch + 1)
        draft.put(changed)
        return True

    patch.setattr(initialising, "abort", abort)


@mutant("an abort after the commit succeeds", "contradicting-ends")
def agree_to_everything(patch, hit):
    def make(real):
        def is_outcome(request, entry):
            if not request.is_commit and entry.state is TransactionState.COMPLETE_COMMIT:
                hit()
                return True
            return real(request, entry)

        return is_outcome

    wrap(patch, ending, "_is_outcome", make)


@mutant("a duplicate batch is appended", "duplicate")
def append_duplicates(patch, hit):
    def make(real):
        def is_resend(header, entry, batch):
            if real(header, entry, batch):
                hit()
            return False

        return is_resend

    wrap(patch, producer_state, "_is_resend", make)
    patch.setattr(producer_state, "_judge_sequence", lambda header, entry: None)


@mutant("a duplicate batch is answered with another offset", "wrong-offset")
def misplace_duplicates(patch, hit):
    def make(real):
        def decide(self, header, **how):
            decision = real(self, header, **how)
            if not isinstance(decision, Duplicate):
                return decision
            hit()
            return Duplicate(replace(decision.batch, offset_start=decision.batch.offset_start + 1))

        return decide

    wrap(patch, ProducerStates, "decide", make)


@mutant("a batch is acknowledged and dropped", "lost-write")
def drop_batches(patch, hit):
    due = every(9)

    def make(real):
        def append(self, header, batch, *, now_ms, **how):
            if is_ours(self.topic_partition) and not header.is_transactional and due():
                hit()
                return Appended(self._head.offset, -1)
            return real(self, header, batch, now_ms=now_ms, **how)

        return append

    wrap(patch, PartitionLog, "append", make)
