"""What all jobs of upkeep have in common: pieces of work that tasks do, a few at a time, and what comes back of them.

A round is as many pieces as run at one time. Between two rounds the job says how far it is and asks whether it is to
stop; a round that has begun is brought to its end. Nothing comes to the driver but what a task tells of its piece.
"""

from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from exactlog.client.blocking_loop import BlockingLoop
from exactlog.core.model.errors import ExactlogError, InvariantError
from exactlog.pipeline.errors import explain, hints_kept

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Piece = TypeVar("Piece")
Told = TypeVar("Told")

Progress = Callable[[str], None]
"""Told what has been done, a line at a time."""

TOLD: Final = "told string"
"""The schema in which tasks tell of their pieces, as Spark's DDL: one in JSON a row."""


def wait_for(work: Coroutine[Any, Any, Told]) -> Told:
    """The result of a coroutine, which has an event loop of its own: the caller may be in one, as in a notebook."""
    with closing(BlockingLoop("exactlog-upkeep", closed=_closed)) as loop:
        return loop.wait(work)


def _closed() -> InvariantError:
    return InvariantError("the event loop of a job is used when the job is done")


def rounds_of(pieces: Sequence[Piece], *, at_a_time: int) -> Iterator[Sequence[Piece]]:
    """The pieces in rounds of so many, in their order."""
    for start in range(0, len(pieces), at_a_time):
        yield pieces[start : start + at_a_time]


def carry_out(
    spark: "SparkSession",
    pieces: Sequence[Piece],
    work: Callable[[Piece], Told],
    told_type: type[Told],
    *,
    is_stopping: Callable[[], bool],
) -> Iterator[list[Told]]:
    """Lets tasks do the pieces, a task for each; what they tell, round for round, in the order of the pieces.

    Args:
        spark: a session.
        pieces: they are pickled by Spark.
        work: called in a worker, with one piece; a function of a module, or a `partial` of one. A task that fails may
            be done again.
        told_type: what it returns: something that `msgspec` makes JSON of.
        is_stopping: asked before each round; the pieces of that one and of those behind it are left then.

    Raises:
        ExactlogError: what `work` raised, in its own class; what Spark raises comes as `explain` gives it.
    """
    for some in rounds_of(pieces, at_a_time=spark.sparkContext.defaultParallelism):
        if is_stopping():
            return
        yield _carry_out_round(spark, some, work, told_type)


def _carry_out_round(
    spark: "SparkSession", pieces: Sequence[Piece], work: Callable[[Piece], Told], told_type: type[Told]
) -> list[Told]:
    try:
        indexes = spark.range(0, len(pieces), 1, len(pieces))
        rows = indexes.mapInArrow(partial(_told_of, pieces=pieces, work=work), TOLD).collect()
    except ExactlogError:
        raise
    except Exception as error:
        raise explain(error) from error
    told = msgspec.json.Decoder(tuple[int, told_type])  # type: ignore[valid-type]
    by_index: dict[int, Told] = dict(told.decode(row["told"]) for row in rows)
    return [by_index[index] for index in range(len(pieces))]


def _told_of(
    indexes: "Iterable[pa.RecordBatch]", *, pieces: Sequence[Any], work: Callable[[Any], Any]
) -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa  # noqa: PLC0415  an extra

    with hints_kept():
        for index in (number.as_py() for batch in indexes for number in batch.column(0)):
            told = msgspec.json.encode((index, work(pieces[index]))).decode()
            yield pa.RecordBatch.from_pydict({"told": [told]})
