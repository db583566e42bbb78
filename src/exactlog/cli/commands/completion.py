"""`exactlog completion`: what lets a shell complete commands, options, topics and groups."""

import click
from click.shell_completion import get_completion_class

from exactlog.cli.output import write_line
from exactlog.cli.settings import Command

COMPLETE_VARIABLE = "_EXACTLOG_COMPLETE"
"""Set by the shell's function when it asks what may come next."""


SET_UP = """\b
Once for each shell:
  bash:  eval "$(exactlog completion bash)"    in ~/.bashrc
  zsh:   eval "$(exactlog completion zsh)"     in ~/.zshrc, behind compinit
  fish:  exactlog completion fish > ~/.config/fish/completions/exactlog.fish
"""


@click.command(cls=Command, epilog=SET_UP)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, /, *, shell: str) -> None:
    """Print the function that lets SHELL complete what is typed, names of topics and groups among it."""
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the shells that are offered"
    completer = kind(context.find_root().command, {}, "exactlog", COMPLETE_VARIABLE)
    write_line(completer.source_template % completer.source_vars())
