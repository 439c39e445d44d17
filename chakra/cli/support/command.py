"""The class of every command: a command line is read in the time of its words, not of all options that there are."""

import math
import os
from functools import cached_property
from typing import Any

import rich_click as click
from click import core

from chakra.errors import UsageError

#: what click has for a default that nobody wrote
UNSET = getattr(core, "UNSET", None)
#: options that ask for help, of all commands and groups
HELP_OPTIONS = ["-h", "--help"]
#: where a context keeps the parameters that are read now
READ_NOW = f"{__name__}.read_now"
#: metavars of options whose value may be a folder to write into
_FOLDERS = ("DIR", "OUT")
#: metavars of options whose value is a folder or begins the names of files
_BEGINNINGS = ("PREFIX", "FOLDER", *_FOLDERS)
#: metavars of options whose value is a path
_PATHS = ("FILE", "PREFIX", "FOLDER", "CSV", "SVG", *_FOLDERS)
_SLASHES = ("/", os.sep)
#: last letters of words that may be no name of a file
_ENDS = (*_SLASHES, "=")


class ChakraCommand(click.RichCommand):
    """A command that writes short options out before click reads them, and hands it only options that are there.

    Click tries every option as a long one first. For a short one it then looks for names that are alike, for a message
    that nobody sees: 0.4 ms an option on a command of forty, a third of what a small replay takes. For an option that
    is not given it looks in seven places for a value, 20 us each.
    """

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.context_settings.setdefault("help_option_names", HELP_OPTIONS)

    @cached_property
    def _options(self) -> list[click.Option]:
        """Its parameters that are options."""
        return [parameter for parameter in self.params if isinstance(parameter, click.Option)]

    @cached_property
    def _long_names(self) -> dict[str, str]:
        """Each short option's first long name."""
        names = {}
        for option in self._options:
            long = next((name for name in option.opts if name.startswith("--")), None)
            if long:
                names.update({short: long for short in option.opts if not short.startswith("--")})
        return names

    @cached_property
    def _values(self) -> dict[str, int]:
        """How many of the following words belong to each option, by name.

        A value that may be missing is not counted: a word that begins as an option does is none.
        """
        return {
            name: 0
            if option.is_flag or option.count or getattr(option, "_flag_needs_value", False)
            else option.nargs
            for option in self._options
            for name in (*option.opts, *option.secondary_opts)
        }

    @cached_property
    def _absent(self) -> dict[str, object]:
        """What options are when nobody gives them, by parameter; those left out whose value may be anything else."""
        named = [parameter.name for parameter in self.params]
        values: dict[str, object] = {}
        for option in self._options:
            if (
                option.required
                or option.deprecated
                or option.is_eager
                or not option.expose_value
                or (option.callback, option.envvar, option.prompt) != (None, None, None)
                or named.count(option.name) > 1
            ):
                continue
            if option.is_bool_flag and (option.default is UNSET or option.default is False):
                values[option.name] = False
            elif option.default is UNSET and not option.is_flag and not option.count:
                values[option.name] = () if option.multiple else None
        return values

    @cached_property
    def _by_word(self) -> dict[str, str]:
        """The parameter behind each word that is an option."""
        return {
            word: option.name for option in self._options for word in (*option.opts, *option.secondary_opts)
        }

    def _not_given(self, ctx: click.Context, words: list[str]) -> dict[str, object]:
        """Those of `_absent` that no word names; none of them where a word might be an option in another spelling."""
        if ctx.resilient_parsing or ctx.default_map is not None or ctx.auto_envvar_prefix is not None:
            return {}
        absent = dict(self._absent)
        for word in words:
            if word[:1] == "-" and word != "-":
                name = self._by_word.get(word.partition("=")[0])
                if name is None:
                    return {}
                absent.pop(name, None)
        return absent

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The parameters, while words are read those of interest to them."""
        read: list[click.Parameter] = ctx.meta.get(READ_NOW) or super().get_params(ctx)
        return read

    @cached_property
    def _paths(self) -> dict[str, str]:
        """Options whose values are paths, by each of their names: how messages call them."""
        return {
            name: next((given for given in option.opts if given.startswith("--")), name)
            for option in self._options
            if isinstance(option.type, click.Path) or option.metavar in _PATHS or "--output" in option.opts
            for name in option.opts
        }

    @cached_property
    def _files(self) -> set[str]:
        """Options that name a file to write, or the beginning of such names."""
        return {
            name
            for option in self._options
            if "--output" in option.opts and option.metavar not in _FOLDERS
            for name in option.opts
        }

    def _expect_path(self, word: str, value: str) -> None:
        """Refuse a value that names nothing: a script's empty variable would otherwise be the working folder."""
        if value.endswith("=") and value.startswith("--"):
            word, value = value[:-1], ""
        elif value.startswith("--") and "=" in value:
            word, _, value = value.partition("=")
        if not value and word in self._paths:
            raise UsageError(f"{self._paths[word]}: an empty value")
        if not word:
            raise UsageError("an empty argument")
        if word in self._files and value[-1:] in _SLASHES:
            raise UsageError(f"{self._paths[word]}: {value} names a folder; expected a name behind it")

    def _expect_apart(self, given: dict[str, Any]) -> None:
        """Refuse an output that is one of the inputs before any work; other files that are read are known later."""
        outputs: list[str] = []
        inputs: list[str] = []
        for one in self.params:
            value = given.get(one.name or "")
            named = isinstance(one.type, click.Path) or one.metavar in _PATHS
            if value is None or not named or one.metavar in _BEGINNINGS:
                continue
            where = outputs if "--output" in one.opts else inputs
            where += list(value) if isinstance(value, (tuple, list)) else [value]
        if outputs and inputs:
            from chakra.io.files import expect_apart

            expect_apart(outputs, inputs)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As click's own, after ``-o`` is ``--output`` wherever it stands for an option and not for a value.

        Other spellings (``-oFILE``, ``-qv``) and what follows ``--`` are left to click, and so are all options then.

        Raises
        ------
        UsageError
            An empty path, a folder or an input in place of a file to write, or NaN in place of a number with bounds.
        """
        written = list(args)
        place = 0
        while place < len(written) and written[place] != "--":
            word = written[place]
            end = place + 1 + self._values.get(word, 0)
            for name in written[place : min(end, len(written))]:
                if not name or name[-1] in _ENDS:
                    self._expect_path(word, name)
            # where values are missing, click's complaint names the option as it was given
            if end <= len(written):
                written[place] = self._long_names.get(word, word)
            place = end
        absent = self._not_given(ctx, written)
        ctx.meta[READ_NOW] = [one for one in super().get_params(ctx) if one.name not in absent]
        try:
            rest = super().parse_args(ctx, written)
        finally:
            del ctx.meta[READ_NOW]
        for option in self._options:
            value = ctx.params.get(option.name or "")
            # no bound of a range keeps it out
            if isinstance(option.type, click.FloatRange) and isinstance(value, float) and math.isnan(value):
                raise UsageError(f"{option.opts[-1]}: not a number")
        self._expect_apart(ctx.params)
        ctx.params.update(absent)
        for name in absent:
            ctx.set_parameter_source(name, core.ParameterSource.DEFAULT)
        return rest
