"""What people read who left an argument out, or gave an option where there is none: what to write."""

from __future__ import annotations

from collections.abc import Sequence

import click
from click.types import StringParamType


class Word(StringParamType):
    """A text. `missing`: what to say where there is none."""

    def __init__(self, missing: str) -> None:
        self._missing = missing

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        return self._missing


class Verbs(click.Group):
    """A verb with verbs of its own: of one that is not there, the one that was probably meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            from swell.core.spelling import instead_of

            ctx.fail(f"there is no verb {args[0]!r} of `swell {ctx.info_name}`; {instead_of(args[0], self.commands)}")
        return super().resolve_command(ctx, args)


class FieldsAreNoOptions(click.Command):
    """A verb whose jobs have fields: `--gpus 2` is answered with how a field is changed here."""

    how = "FIELD=VALUE"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            field = error.option_name.lstrip("-").replace("-", "_")
            if field not in self.fields():
                raise
            how = self.how.replace("FIELD", field)
            raise click.UsageError(f"there is no option {error.option_name}; write {how}", ctx) from error

    def fields(self) -> Sequence[str]:
        from swell.jobfile.schema import JobModel

        return tuple(JobModel.model_fields)
