"""`chakra completion`: scripts that let a shell complete commands, options and values."""

import rich_click as click

from chakra.cli.support.command import ChakraCommand


@click.command(cls=ChakraCommand)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script that lets a shell complete chakra's commands, options and values.

    bash: eval "$(chakra completion bash)" in ~/.bashrc; zsh: the same with zsh in ~/.zshrc, after compinit;
    fish: chakra completion fish > ~/.config/fish/completions/chakra.fish.
    """
    from click.shell_completion import get_completion_class

    from chakra.cli.main import cli

    found = get_completion_class(shell)
    assert found is not None
    script = found(cli, {}, "chakra", "_CHAKRA_COMPLETE")
    click.echo(script.source_template % script.source_vars())
