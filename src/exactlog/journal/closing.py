"""Streams that are closed when nobody reads on, whoever makes them."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

Item = TypeVar("Item")


@asynccontextmanager
async def closing(items: AsyncIterator[Item]) -> AsyncIterator[AsyncIterator[Item]]:
    """The stream, closed when the context is left: what it holds open is given back at once."""
    try:
        yield items
    finally:
        if isinstance(items, AsyncGenerator):
            await items.aclose()
