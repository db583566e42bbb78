"""Names of topics, groups and transactions for the shell that completes them, if the broker answers at once."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

import click

from exactlog.cli.settings import Settings

if TYPE_CHECKING:
    from exactlog.client.ports import Client

PATIENCE_MS: Final = 200  # somebody waits with a finger on the key


def complete_topics(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001
    """The topics whose names begin so; none when no broker answers."""

    async def names(client: "Client") -> Iterable[str]:
        return [topic.name for topic in await client.list_topics()]

    return _names_that_begin(incomplete, context, names)


def complete_groups(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001
    """The groups whose names begin so; none when no broker answers."""

    async def names(client: "Client") -> Iterable[str]:
        return [group.group_id for group in await client.list_groups()]

    return _names_that_begin(incomplete, context, names)


def complete_transactional_ids(
    context: click.Context,
    parameter: click.Parameter,  # noqa: ARG001
    incomplete: str,
) -> list[str]:
    """The transactional ids that begin so; none when no broker answers."""

    async def names(client: "Client") -> Iterable[str]:
        return [listing.transactional_id for listing in await client.list_transactions()]

    return _names_that_begin(incomplete, context, names)


def _names_that_begin(
    incomplete: str, context: click.Context, names: "Callable[[Client], Awaitable[Iterable[str]]]"
) -> list[str]:
    import asyncio  # noqa: PLC0415  only who asks for names pays for a client

    from exactlog.client.adapters import connect  # noqa: PLC0415
    from exactlog.client.ports import ClientSettings  # noqa: PLC0415
    from exactlog.core.model.errors import ExactlogError  # noqa: PLC0415

    settings = context.ensure_object(Settings)

    async def ask() -> Iterable[str]:
        async with connect(f"kafka://{settings.bootstrap}", ClientSettings(deadline_ms=PATIENCE_MS)) as client:
            return await names(client)

    try:
        found = asyncio.run(ask())
    except (ExactlogError, OSError):
        return []  # a line that is being typed is no place for an error
    return [name for name in found if name.startswith(incomplete)]
