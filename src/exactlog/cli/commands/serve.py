"""`exactlog serve`: a broker in the foreground, until it is told to stop."""

import asyncio
import gc
import json
import os
import re
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, Protocol

import click

from exactlog import __version__
from exactlog.cli.errors import InvalidUsageError
from exactlog.cli.exit_codes import ExitCode
from exactlog.cli.output import flush_output, write_line
from exactlog.cli.settings import Command, Settings, split_assignment
from exactlog.core.config.broker_configs import BrokerConfig
from exactlog.core.model.errors import ConfigError, ExactlogError
from exactlog.node.config import load_config
from exactlog.node.event_loop import new_event_loop

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
KILL_AT: Final = "EXACTLOG_KILL_AT"
COLLECTION_THRESHOLD: Final = 10_000
"""Of the youngest generation. Hardly anything that a broker makes is part of a cycle: at Python's own 700 the search
for such takes 5 to 7 % of its time, and finds nothing."""
ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104  looked for, not bound to


class RunningNode(Protocol):
    """What `serve` needs of a node."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def bootstrap_servers(self) -> str: ...
    @property
    def cluster_id(self) -> str: ...
    @property
    def node_id(self) -> int: ...

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def wait_stopped(self) -> None: ...
    def kill(self) -> None: ...


class CannotStartError(ExactlogError):
    """The operating system does not let the broker start: its directory, mostly."""

    code = "cannot-start"


@click.command(cls=Command)
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where all is kept; ./exactlog-data by default.")
@click.option("--in-memory", is_flag=True, help="Keep nothing on disk.")
@click.option("--host", help="The address to listen at; 127.0.0.1 by default.")
@click.option("--port", type=int, help="The port to listen at; 9092 by default, 0 for any free one.")
@click.option("--advertised", metavar="HOST:PORT", help="Where clients are told to connect to.")
@click.option("--node-id", type=int, help="The number of this broker; 1 by default.")
@click.option("--config", "file", type=click.Path(path_type=Path), help="A TOML file with a table [broker].")
@click.option("--set", "assignments", metavar="KEY=VALUE", multiple=True, help="Set any configuration key.")
@click.option("--flush-mode", metavar="commit|interval|none", help="When what is acknowledged is on disk.")
@click.option("--print-ready", type=click.Choice(["json"]), help="Print one line on standard output when ready.")
@click.pass_obj
def serve(
    settings: Settings,
    /,
    *,
    data_dir: Path | None,
    in_memory: bool,
    file: Path | None,
    assignments: tuple[str, ...],
    print_ready: str | None,
    **flags: object,
) -> int:
    """Run a broker until SIGTERM or Ctrl-C, which let it finish what it has; a second one does not.

    What is not said here comes from EXACTLOG_* variables, then from --config, then from the defaults.
    EXACTLOG_KILL_AT=POINT[:N] lets it die by SIGKILL the N-th time it reaches a fault point.
    """
    from exactlog.node.node import Node  # noqa: PLC0415  not needed to refuse a wrong command line

    if data_dir is not None and in_memory:
        raise InvalidUsageError("--data-dir and --in-memory exclude each other", hint="Give one of the two.")
    overrides = [(name.replace("_", "."), str(value)) for name, value in flags.items() if value is not None]
    if in_memory:
        overrides.append(("in.memory", "true"))
    if data_dir is not None:
        overrides += [("data.dir", str(data_dir)), ("in.memory", "false")]
    overrides += [split_assignment(assignment) for assignment in assignments]
    config = load_config(file, overrides=overrides, environment=os.environ)

    arm_kill(os.environ.get(KILL_AT, ""), settings)

    def on_ready(node: RunningNode) -> None:
        collect_rarely()
        announce(node, config, settings, is_ready_printed=print_ready is not None)

    settings.start_logging()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_serve(Node(config), on_ready))


def collect_rarely() -> None:
    """Let Python look for garbage in cycles less often, and not at all among what is there by now.

    Only a process that is nothing but a broker may settle that.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECTION_THRESHOLD, *gc.get_threshold()[1:])


def arm_kill(text: str, settings: Settings) -> None:
    """Let the process die where `EXACTLOG_KILL_AT` says (`POINT` or `POINT:N`), if it says anything.

    Raises:
        ConfigError: there is no such point.
        InvalidUsageError: N is not a number from 1 on.
    """
    if not text:
        return
    from exactlog.storage import fault_points  # noqa: PLC0415  hardly anybody asks for it

    parsed = re.fullmatch(r"([^:]*)(?::([1-9][0-9]{0,8}))?", text)
    if parsed is None:
        raise InvalidUsageError(f"{KILL_AT}={text} is not POINT or POINT:N", hint="N is a number from 1 on.")
    name, count = parsed[1], int(parsed[2] or 1)
    try:
        fault_points.arm(name, lambda: os.kill(os.getpid(), signal.SIGKILL), at=count)
    except ConfigError as error:
        raise ConfigError(f"{error} (from {KILL_AT})", hint=error.hint) from error
    settings.say(f"warning: SIGKILL will end this broker at {name}:{count} ({KILL_AT})")


def announce(node: RunningNode, config: BrokerConfig, settings: Settings, *, is_ready_printed: bool) -> None:
    """Tell people on standard error where the broker is, and a program on standard output if it wants to know."""
    store = "in memory" if config.data_dir is None else f"in {config.data_dir} (flush mode {config.flush_mode})"
    settings.say(f"exactlog {__version__} serves Kafka clients at {node.bootstrap_servers}")
    settings.say(f"records are kept {store}; cluster {node.cluster_id}, node {node.node_id}")
    if config.host in ANY_ADDRESS and not config.advertised:
        settings.say(f"warning: clients are told to connect to {config.host}; set --advertised HOST:PORT")
    settings.say("Ctrl-C stops it")
    if is_ready_printed:
        write_line(ready_line(node, config))
        flush_output()


def ready_line(node: RunningNode, config: BrokerConfig) -> str:
    """The line that tells a program that the broker answers, and where."""
    facts = {
        "event": "ready",
        "bootstrap_servers": node.bootstrap_servers,
        "host": node.host,
        "port": node.port,
        "pid": os.getpid(),
        "data_dir": None if config.data_dir is None else str(config.data_dir.absolute()),
        "cluster_id": node.cluster_id,
        "node_id": node.node_id,
        "version": __version__,
        "flush_mode": config.flush_mode,
    }
    return json.dumps(facts, separators=(",", ":"), ensure_ascii=False)


class _InsistedError(Exception):
    """Told to stop a second time."""


class StopRequests:
    """What the outside asked for: to stop, and then perhaps to stop at once."""

    def __init__(self) -> None:
        self._stop = asyncio.Event()
        self._insisted = asyncio.Event()

    def ask(self) -> None:
        """Ask to stop; the second time, to stop at once."""
        (self._insisted if self._stop.is_set() else self._stop).set()

    async def wait_asked(self) -> None:
        """Wait until somebody asks to stop."""
        await self._stop.wait()

    async def unless_insisted(self, step: Coroutine[Any, Any, None]) -> None:
        """Carry `step` out, but give it up when asked to stop at once."""
        if await _first_of(step, self._insisted.wait()) != 0:
            raise _InsistedError


async def serve_until_asked(
    node: RunningNode, requests: StopRequests, on_ready: Callable[[RunningNode], None]
) -> ExitCode:
    """Start the node, and stop it when asked to.

    Raises:
        CannotStartError: the operating system refuses something. Other errors of a node's start come as they are.
        NodeStoppedError: the node stopped without being asked; the message says why.
    """
    try:
        await _start(node, requests)
        await _run(node, requests, on_ready)
    except _InsistedError:
        node.kill()
        return ExitCode.INTERRUPTED
    return ExitCode.OK


async def _serve(node: RunningNode, on_ready: Callable[[RunningNode], None]) -> ExitCode:
    requests = StopRequests()
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, requests.ask)
    return await serve_until_asked(node, requests, on_ready)


async def _start(node: RunningNode, requests: StopRequests) -> None:
    try:
        await requests.unless_insisted(node.start())
    except OSError as error:
        place = f": {error.filename}" if error.filename else ""
        raise CannotStartError(
            f"the broker cannot start: {error.strerror or error}{place}",
            hint="Another --data-dir may do.",
        ) from error


async def _run(node: RunningNode, requests: StopRequests, on_ready: Callable[[RunningNode], None]) -> None:
    try:
        on_ready(node)
        await _first_of(node.wait_stopped(), requests.wait_asked())
    except BaseException:
        node.kill()
        raise
    await requests.unless_insisted(node.stop())


async def _first_of(*steps: Coroutine[Any, Any, object]) -> int:
    """Which of the steps ended first, by its place; the others are given up."""
    tasks = [asyncio.ensure_future(step) for step in steps]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    ended = next(index for index, task in enumerate(tasks) if task in done)
    await tasks[ended]
    return ended
