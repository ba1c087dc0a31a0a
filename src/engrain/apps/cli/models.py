"""`engrain models`: added, listed, shown, verified and removed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cyclopts import App

from engrain.apps.cli.options import DEFAULTS, AnyText, Flag, Options, home_of
from engrain.apps.cli.output import Screen, give, local_time, note
from engrain.apps.cli.progress import Bar

if TYPE_CHECKING:
    from engrain.contracts.models import Model, ModelRecord, VerifiedModel
    from engrain.services.models import Models

app: Final = App(name="models", help="Models that sessions are bound to.", help_format="plaintext")


@app.command(usage="Usage: engrain models add [OPTIONS] NAME [PATH]")
def add(
    name: str,
    path: Path | None = None,
    /,
    *,
    move: Flag = False,
    link: Flag = False,
    provider: AnyText = None,
    model: AnyText = None,
    endpoint: AnyText = None,
    revision: AnyText = None,
    key_variable: AnyText = None,
    options: Options = DEFAULTS,
) -> None:
    """Add a model: files of this machine, or one behind an endpoint.

    Files are copied into the home and hashed. A provider is one that pydantic-ai
    knows (openai, anthropic, ollama, …); a server that speaks OpenAI's protocol
    is openai with an endpoint. No key is stored, only the variable's name.

    For example:

        $ engrain models add small ~/models/small.gguf
        $ engrain models add big ~/models/big --link
        $ engrain models add claude --provider anthropic --model claude-opus-4-5
        $ engrain models add local --provider openai --model small \\
            --endpoint http://127.0.0.1:8080/v1

    Parameters
    ----------
    name
        What it is called from now on.
    path
        A file or a folder.
    move
        Take the files over instead of copying them.
    link
        Leave them where they are; they are read whole at every binding.
    provider
        Who serves it.
    model
        What the provider calls it.
    endpoint
        Where, when not the provider's own address.
    revision
        What is pinned there: a deployment or a date.
    key_variable
        The environment variable that holds the key.
    """
    from engrain.contracts.errors import InvalidValue
    from engrain.contracts.models import ProviderModel

    if (path is None) == (provider is None) or (provider is None) != (model is None):
        raise InvalidValue("path", "give a PATH, or --provider and --model")
    if move and link:
        raise InvalidValue("move", "either --move or --link")
    models = _models(options)
    added: Model
    if path is None:
        added = models.add_provider(
            ProviderModel(
                name=name,
                provider=provider or "",
                model=model or "",
                endpoint=endpoint,
                endpoint_revision=revision,
                key_variable=key_variable,
            )
        )
    else:
        arrival: Any = "move" if move else "link" if link else "copy"
        with _bar(options) as bar:
            added = models.add(name, path, arrival=arrival, progress=_progress(bar))
    give(added, lambda screen: _show_model(screen, added), is_json=options.json)


@app.command(name="list")
def list_(*, options: Options = DEFAULTS) -> None:
    """List the models of this home.

    For example:

        $ engrain models list
    """
    records = _models(options).list()
    page = {"items": [_record_of(one) for one in records], "next": None}
    give(page, lambda screen: _show_list(screen, records), is_json=options.json)


@app.command
def show(name: str, /, *, options: Options = DEFAULTS) -> None:
    """Show a model and its files.

    For example:

        $ engrain models show small

    Parameters
    ----------
    name
        Its name.
    """
    record = _models(options).read(name)
    shown = _record_of(record) | {"files": record.manifest.files}
    give(shown, lambda screen: _show_record(screen, record), is_json=options.json)


@app.command
def verify(name: str, /, *, options: Options = DEFAULTS) -> None:
    """Read every byte of a model; fails unless it is what was added.

    For example:

        $ engrain models verify small

    Parameters
    ----------
    name
        Its name.
    """
    with _bar(options) as bar:
        verified = _models(options).verify(name, progress=_progress(bar))
    give(verified, lambda screen: _show_verified(screen, verified), is_json=options.json)


@app.command
def remove(name: str, /, *, options: Options = DEFAULTS) -> None:
    """Remove a model; refused while a session is bound to it.

    Files that were linked stay where they are.

    For example:

        $ engrain models remove small

    Parameters
    ----------
    name
        Its name.
    """
    _models(options).remove(name)
    give({"removed": name}, lambda screen: screen.line(f"removed {name}"), is_json=options.json)


def _models(options: Options) -> Models:
    from engrain.memory import open_models

    return open_models(home_of(options), place=options.db)


def _bar(options: Options) -> Bar:
    return Bar(is_quiet=options.json)


def _progress(bar: Bar) -> Any:
    return lambda done, total: bar(done, total, "checking")


def _record_of(record: ModelRecord) -> dict[str, Any]:
    from engrain.contracts.models import model_builtins

    link = None if record.link is None else record.link.path
    return model_builtins(record.model) | {"added_at": record.added_at, "link": link}


def _show_list(screen: Screen, records: tuple[ModelRecord, ...]) -> None:
    if not records:
        note("no models; add one with: engrain models add NAME PATH")
        return
    rows = [
        (one.model.name, *_kind_and_what(one.model), local_time(one.added_at)) for one in records
    ]
    screen.table(("=Model", "Kind", "What", "=Added"), rows)


def _kind_and_what(model: Model) -> tuple[str, str]:
    from engrain.contracts.models import InstalledModel

    if isinstance(model, InstalledModel):
        return model.arrival, f"{model.size:,} bytes in {model.file_count:,} file(s)"
    return model.provider, model.model


def _show_model(screen: Screen, model: Model) -> None:
    from engrain.contracts.models import InstalledModel

    kind, what = _kind_and_what(model)
    pairs = [("model", model.name), ("kind", kind), ("what", what), ("reference", model.reference)]
    if isinstance(model, InstalledModel):
        pairs.append(("snapshot", model.snapshot))
    else:
        pairs += [
            (label, value)
            for label, value in (
                ("endpoint", model.endpoint),
                ("revision", model.endpoint_revision),
                ("key in", model.key_variable),
            )
            if value is not None
        ]
    screen.facts(pairs)


def _show_record(screen: Screen, record: ModelRecord) -> None:
    _show_model(screen, record.model)
    if record.link is not None:
        screen.facts([("link", record.link.path)])
    rows = [(one.name, f"{one.size:,}", one.sha256[:16]) for one in record.manifest.files]
    if rows:
        screen.line()
        screen.table(("=File", ">Bytes", "=SHA-256"), rows)


def _show_verified(screen: Screen, verified: VerifiedModel) -> None:
    what = f"{verified.file_count:,} file(s), {verified.size:,} bytes"
    pairs = [("verified", what)]
    if verified.restamped:
        pairs.append(("outside", "had changed (a copied or restored home?); noted anew"))
    screen.facts(pairs)
