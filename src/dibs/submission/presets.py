"""`--preset NAME`: options of a job that the settings keep under a name. The command line overrides them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dibs.errors import UserError
from dibs.model import suggestions
from dibs.submission import job_options, options, script_files
from dibs.submission.options import Args, Option
from dibs.system.configuration.presets import Preset

BY_NAME = {option.names[-1].removeprefix("--"): option for option in job_options.JOB_OPTIONS}


def applied(args: Args) -> Args:
    """Return the options of a command line, completed with those of the preset that it names."""
    name = args.get(job_options.PRESET)
    if name is None:
        return args
    whole = script_files.layered(read(find(name, args.caller.settings.presets)), args)
    # It is done: a second pass changes nothing.
    return replace(whole, given={key: told for key, told in whole.given.items() if key != job_options.PRESET})


def find(name: str, known: Mapping[str, Preset]) -> Preset:
    """Return the preset of a name; an error says which there are."""
    if name in known:
        return known[name]
    hint = suggestions.did_you_mean(name, known)
    if not hint:
        some = ", ".join(sorted(known))
        hint = f"They are: {some}." if known else "Make one: dibs config set presets.big.gpus 4"
    raise UserError(f'there is no preset "{options.shown(name)}".', hint)


def read(preset: Preset) -> Args:
    """Return the options of a preset; an error names the preset and the option."""
    given = {BY_NAME[key]: read_option(preset.name, key, words) for key, words in preset.options}
    return Args((), given)


def read_option(preset: str, key: str, words: tuple[str, ...]) -> tuple[object, ...]:
    """Return the values of one option of a preset, checked as on the command line."""
    option: Option[object] = BY_NAME[key]
    where = f"presets.{preset}.{key}:"
    if option.kind is None:
        if words:
            raise UserError(f'{where} expected true or false, got "{options.shown(",".join(words))}".')
        return (True,)
    if not words and not option.is_bare:
        raise UserError(f"{where} expected {option.kind.expected}, got true.")
    texts = words if option.is_repeatable else (",".join(words),) if words else (None,)
    return tuple(options.read(option, where, text) for text in texts)
