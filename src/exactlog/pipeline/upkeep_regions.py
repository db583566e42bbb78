"""Cleaning the regions of a write-ahead log on Spark: what no table of a region needs any more is deleted.

What a task does to a region is `Region.clean`, through the client: a snapshot is durable before anything goes. A region
is looked at first, without taking it from its owner; only where something can go is it taken, cleaned and let go again.
Its owner cannot write to it any more then, and has to open it anew.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from exactlog.client.ports import ClientSettings
from exactlog.core.model.errors import ExactlogError, NotFoundError
from exactlog.pipeline.upkeep_tasks import Progress, carry_out, rounds_of, wait_for
from exactlog.wal import Wal
from exactlog.wal.wal import NAMESPACE_DEFAULT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REGIONS_PER_TASK: Final = 16
"""A task opens one connection for all of them; one region is a few requests."""
_CLIENT: Final = ClientSettings()


class CleanedRegion(Struct, frozen=True, kw_only=True):
    """What became of a region.

    Attributes:
        log_start: the first offset that is left, or would be; None: it could not be looked at.
        deleted_offsets: how many offsets were given up, or would be.
        kept_by: what keeps the rest: a table, or nothing.
        pinned_by_table: the table whose entry is longest back and must stay.
        error_code, error: why it was left as it was; None: it was not.
    """

    region: int
    log_start: int | None = None
    deleted_offsets: int = 0
    kept_by: str | None = None
    pinned_by_table: int | None = None
    error_code: str | None = None
    error: str | None = None


class CleanReport(Struct, frozen=True, kw_only=True):
    """What a run cleaned.

    Attributes:
        regions: how many were looked at.
        cleaned: of how many something was deleted, or would be.
        deleted_offsets: how many offsets were given up in all, or would be.
        failed: how many were left as they were, for something is wrong with them; the others were seen to.
        regions_left: how many were not looked at, for the run was told to stop.
        is_stopped: whether it was told to stop before all was done.
        is_dry_run: whether nothing was to be deleted.
        outcomes: region for region.
    """

    regions: int
    cleaned: int
    deleted_offsets: int
    failed: int
    regions_left: int
    is_stopped: bool
    is_dry_run: bool
    outcomes: tuple[CleanedRegion, ...]


def clean_regions(
    spark: "SparkSession",
    *,
    bootstrap: str,
    namespace: str = NAMESPACE_DEFAULT,
    regions: Sequence[int] = (),
    dry_run: bool = False,
    progress: Progress = lambda _: None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> CleanReport:
    """Cleans the regions of a namespace.

    Args:
        spark: a session; `exactlog.pipeline.session()` makes one.
        bootstrap: `host:port` of the broker with the regions' topics, of any make.
        namespace: what the topics' names begin with.
        regions: which; all by default.
        dry_run: only say what would be deleted; every region stays with its owner.
        progress: told of each round in a line.
        is_stopping: asked between rounds; what was deleted is.

    Raises:
        NotFoundError: there is no such region, or none at all.
        UnavailableError: the broker does not answer; what was deleted is.
        ExactlogError: `explain` gives what Spark raises. What is wrong with one region is in its outcome.
    """
    ids = wait_for(_regions(bootstrap, namespace, regions))
    pieces = list(rounds_of(ids, at_a_time=REGIONS_PER_TASK))
    work = partial(_clean_some, bootstrap=bootstrap, namespace=namespace, is_dry_run=dry_run)
    outcomes: list[CleanedRegion] = []
    for told_of_round in carry_out(spark, pieces, work, list[CleanedRegion], is_stopping=is_stopping):
        for told in told_of_round:
            outcomes += told
        deleted = sum(outcome.deleted_offsets for outcome in outcomes)
        progress(f"region {len(outcomes)} of {len(ids)}: {deleted} offsets {'to delete' if dry_run else 'deleted'}")
    return CleanReport(
        regions=len(outcomes),
        cleaned=sum(outcome.deleted_offsets > 0 for outcome in outcomes),
        deleted_offsets=sum(outcome.deleted_offsets for outcome in outcomes),
        failed=sum(outcome.error is not None for outcome in outcomes),
        regions_left=len(ids) - len(outcomes),
        is_stopped=len(outcomes) < len(ids),
        is_dry_run=dry_run,
        outcomes=tuple(outcomes),
    )


async def _regions(bootstrap: str, namespace: str, wanted: Sequence[int]) -> list[int]:
    async with _open(bootstrap, namespace) as log:
        there = await log.regions()
    missing = sorted(set(wanted) - set(there))
    if missing or not there:
        which = f"region {', '.join(map(str, missing))}" if missing else "any region"
        raise NotFoundError(
            f"namespace {namespace} has not {which}", hint="`exactlog wal regions` lists those of a namespace"
        )
    return sorted(set(wanted) or there)


def _open(bootstrap: str, namespace: str) -> Wal[bytes]:
    return Wal.open(f"kafka://{bootstrap}", namespace=namespace, settings=_CLIENT, clean_interval_s=None)


# --- in a task --------------------------------------------------------------------------------------------------------


def _clean_some(regions: Sequence[int], *, bootstrap: str, namespace: str, is_dry_run: bool) -> list[CleanedRegion]:
    async def clean_all() -> list[CleanedRegion]:
        async with _open(bootstrap, namespace) as log:
            return [await _outcome(log, region, is_dry_run=is_dry_run) for region in regions]

    return wait_for(clean_all())


async def _outcome(log: Wal[bytes], region: int, *, is_dry_run: bool) -> CleanedRegion:
    """What became of one region. Raises what may go well another time: the whole run may be repeated then."""
    try:
        return await _clean(log, region, is_dry_run=is_dry_run)
    except ExactlogError as error:
        if error.retryable:
            raise
        return CleanedRegion(region=region, error_code=error.code, error=str(error))


async def _clean(log: Wal[bytes], region: int, *, is_dry_run: bool) -> CleanedRegion:
    seen = await log.open_region(region, read_only=True)
    plan = await seen.plan_clean()
    await seen.close()
    if not is_dry_run and plan.delete_before is not None:
        taken = await log.open_region(region)
        try:
            plan = await taken.plan_clean()
            await taken.clean()
        finally:
            await log.close_region(region)
    return CleanedRegion(
        region=region,
        log_start=plan.keep_from,
        deleted_offsets=plan.deleted_count,
        kept_by=plan.kept_by.value,
        pinned_by_table=None if plan.pin is None else plan.pin.table,
    )
