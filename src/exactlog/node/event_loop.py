"""Which event loop a broker runs on: uvloop where it is installed, asyncio's own elsewhere."""

import asyncio


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A new event loop of the faster kind at hand; not yet running, not yet set."""
    try:
        import uvloop  # noqa: PLC0415  an extra, and heavy: only who runs a broker needs it
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
