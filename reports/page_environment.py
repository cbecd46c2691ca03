"""Environment of the HTML pages: templates, filters, hashes of styles and scripts."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from preflight.reports import page_map
from preflight.reports import page_model as model
from preflight.reports.coverage_text import waiting
from preflight.reports.history_text import before
from preflight.reports.sanitize import fold, one_line, visible

_PLAIN_SET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._,\[\]-]*")
_CODE = re.compile(r"`([^`\n]+)`")


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the environment of the templates, with their filters."""
    made = Environment(
        loader=PackageLoader("preflight.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.update(
        visible=_visible, line=_line, prose=_prose, tone=_tone, many=_many, fold=fold, before=before, waiting=waiting,
        node_status=page_map.status_of, plain_set=_is_plain_set,
    )  # fmt: skip
    return made


@lru_cache(maxsize=4)
def joined(names: tuple[str, ...]) -> str:
    """Return the concatenated text of files in the template folder."""
    own = environment()
    assert own.loader is not None
    texts = (own.loader.get_source(own, name)[0] for name in names)
    return "".join(text.replace("\r\n", "\n") for text in texts)


def digest(text: str) -> str:
    """Return the SHA-256 by which a content security policy admits a text, in base64."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _is_plain_set(text: str) -> bool:
    """Return whether a folded set of nodes is a single shell word."""
    return _PLAIN_SET.fullmatch(text) is not None


def _visible(text: object) -> str:
    return visible(str(text))


def _line(text: object) -> str:
    return one_line(str(text))


def _prose(text: object) -> Markup:
    """Escape a sentence and mark text between backticks as code."""
    parts = _CODE.split(visible(str(text)))
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if number % 2 else escape(part) for number, part in enumerate(parts))


def _tone(status: object) -> str:
    """Return a class name for a status; an unrecognised one looks like *unknown*."""
    word = str(status).replace(" ", "-")
    return word if word in (*model.STATUSES, "no-answer") else "unknown"


def _many(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
