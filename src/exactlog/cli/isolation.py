"""What commands that read records say of transactions."""

from typing import Final

import click

from exactlog.core.model.isolation_level import IsolationLevel

ISOLATION_LEVELS: Final = {level.name.lower(): level for level in IsolationLevel}

isolation_option = click.option(
    "--isolation",
    type=click.Choice(list(ISOLATION_LEVELS)),
    default="read_committed",
    show_default=True,
    help="Whether records of transactions that are open or aborted are left out.",
)

control_option = click.option("--control", is_flag=True, help="Print transaction markers too.")
