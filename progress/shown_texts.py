r"""Texts that people see: without secrets (`mask`), and without characters that a terminal obeys (`visible`).

Both are for texts alone. What is used to connect stays as it was given.

`mask` finds what looks like a secret, and so works on texts of which nothing more is known, also those of other libraries. Where it is
known what a library was given, that is passed along: then the secrets in it are found in whatever form the library quotes them. In doubt
it masks too much: a password may have a raw ``/`` or ``@``, so all up to the last ``@`` of a URI with a password is taken for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, unquote

C = TypeVar("C", bound=type)
MASK = "***"

_NAME = (
    r"(?:passw(?:or)?d|passphrase|\bpwd|secret|token|credentials?|authorization|signature|\bsig|jaas\.config|user\.info|key\.pem"
    r"|(?:account|access|secret|api|private|shared|sas|service)[ ._-]?(?:access[ ._-]?|account[ ._-]?)?key|connection[ ._-]?string)"
)
"""How names of settings end whose values are secrets, in the libraries that Rayad hands options to."""
_QUOTED = r"""b?(?P<quote>['"])(?:\\.|(?!(?P=quote)).)*+(?:(?P=quote)|$)"""
_QUOTED_AGAIN = r"""\\(?P<again>['"])(?:\\\\(?:\\.)?|\\(?!['"]).|[^\\])*+(?:\\(?P=again)|$)"""
"""A quoted value in a text that is quoted itself."""
_BARE = r"""(?:(?![&;,][\w.%-]+=|['"]?[)\]},;:]*['"]?(?:\s|$)|['"][,)\]}&])\S)++"""
_NAMED = re.compile(
    rf"""(?P<name>{_NAME})(?P<is>\\?['"]\s*[:=]\s*(?=b?\\?['"])|\s*=\s*|(?:(?<=password)|(?<=passwd)):\ *|:\ *(?=bearer\ |basic\ ))"""
    rf"(?P<value>(?!\.\.\.|{re.escape(MASK)}|(?:None|True|False)\b)(?:(?:bearer|basic)\ +)?(?:{_QUOTED}|{_QUOTED_AGAIN}|{_BARE}))",
    re.IGNORECASE | re.DOTALL,
)
_PAIRED = re.compile(
    rf"""(?P<name>[(\[]\s*(?P<around>\\?['"])[\w.\- ]{{0,80}}{_NAME})(?P<is>(?P=around)\s*,\s*)(?!b?['"]{re.escape(MASK)}['"])"""
    rf"(?P<value>{_QUOTED}|{_QUOTED_AGAIN})(?=\s*[)\]]|$)",
    re.IGNORECASE | re.DOTALL,
)
"""One of a list of pairs; a list of names may have ``'token', 'size'``, too."""
_SCHEME = r"\b[a-zA-Z][\w+.-]{0,30}://"
_URI = re.compile(
    rf"""(?P<open>['"])?(?P<scheme>{_SCHEME})(?P<rest>(?(open)(?:\\.|(?!(?P=open)|{_SCHEME}).)++|(?:(?!{_SCHEME})\S)++))""", re.DOTALL
)
_HAS_PORTS = re.compile(r"(?:https?|hdfs|tcp|grpc|ws)s?://", re.IGNORECASE)
_NO_SECRET_ALONE = re.compile(r"(?:abfss?|wasbs?|ssh|sftp|hdfs)://", re.IGNORECASE)
"""Schemes whose user info is no secret where it has no ``:``: a container, a user's name."""
_PIECE_MIN = 3
"""Libraries take a secret apart where it has a ``/`` or ``@``, and quote pieces; shorter ones are in too many texts."""


def mask(text: str, *given: Any) -> str:
    """The text without secrets: ``***`` for user info of URIs, and for values of settings that are called password, secret, token or so.

    ``given``: what a library was given that may quote it: URIs, words ``key=value``, options as a dict or a list of pairs.

    >>> mask("cannot open 's3://key:se/cret@bucket/a': no such bucket")
    "cannot open 's3://***@bucket/a': no such bucket"
    >>> mask("{'sasl.username': 'ann', 'sasl.password': 'hunter2'}"), mask("host=db password='a b' user=ann")
    ("{'sasl.username': 'ann', 'sasl.password': '***'}", "host=db password='***' user=ann")
    >>> mask('invalid token: "p%zz"', "postgresql://ann:p%zz@db/shop")
    'invalid token: "***"'
    """
    secrets = {form for value in given for secret in _secrets_of(value) for form in _forms(secret)}
    for form in sorted(secrets, key=len, reverse=True):
        text = _without(text, form)
    return _PAIRED.sub(_masked_value, _NAMED.sub(_masked_value, _URI.sub(_masked_uri, text)))


def _masked_value(found: re.Match[str]) -> str:
    value, quoted = found["value"], found["quote"] or found["again"]
    if not quoted:
        return f"{found['name']}{found['is']}{MASK}"
    opening = value[: value.index(quoted) + 1]
    closing = opening.lstrip("b") if len(value) > len(opening) and value.endswith(quoted) else ""
    return f"{found['name']}{found['is']}{opening}{MASK}{closing}"


def _masked_uri(found: re.Match[str]) -> str:
    scheme, rest = found["scheme"], found["rest"]
    first = re.split(r"\s", rest, maxsplit=1)[0]
    at = _end_of_info(scheme, first if "@" in first else rest)
    return f"{found['open'] or ''}{scheme}{MASK}@{rest[at + 1 :]}" if at >= 0 else found[0]


def _end_of_info(scheme: str, rest: str) -> int:
    """Where the ``@`` behind a URI's user info is, of which one part may be a secret; -1: there is none."""
    authority = re.split(r"[/?#\s]", rest, maxsplit=1)[0]
    info, at, _ = authority.rpartition("@")
    if at and ":" not in info:
        return -1 if _NO_SECRET_ALONE.match(scheme) else len(info)
    after = authority.partition(":")[2]
    if not after or (not at and (authority.startswith("[") or (after.isdigit() and _HAS_PORTS.match(scheme)))):
        return -1
    return rest.rfind("@")


def _secrets_of(value: Any) -> Iterable[str]:
    """The secrets in what a library is given."""
    if isinstance(value, Mapping):
        yield from _secrets_of(list(value.items()))
    elif isinstance(value, list | tuple | set | frozenset):
        if len(value) == 2 and all(isinstance(one, str) for one in value):
            name, told = value
            if re.search(f"{_NAME}$", name, re.IGNORECASE):
                yield told
            yield from _secrets_of(told)
        else:
            for one in value:
                yield from _secrets_of(one)
    elif isinstance(value, str):
        for uri in re.finditer(rf"(?P<scheme>{_SCHEME})(?P<rest>.*)", value, re.DOTALL):
            at = _end_of_info(uri["scheme"], uri["rest"])
            if at >= 0:
                user, colon, password = uri["rest"][:at].partition(":")
                yield password if colon else user
        for named in (*_NAMED.finditer(value), *_PAIRED.finditer(value)):
            yield re.sub(r"\\(.)", r"\1", named["value"][1:-1]) if named["quote"] else named["value"]


def _forms(secret: str) -> Iterable[str]:
    """A secret as it may be quoted: as given, decoded, encoded, as ``repr`` has it, and in pieces."""
    plain = unquote(secret)
    for form in (secret, plain, quote(plain, ""), quote(secret, ""), quote(plain)):
        yield form
        yield repr(form)[1:-1]
    yield from (piece for form in (secret, plain) for piece in re.split(r"[/@:?#%&\s]", form) if len(piece) >= _PIECE_MIN)


def _without(text: str, secret: str) -> str:
    if not secret or secret in MASK:
        return text
    if len(secret) > _PIECE_MIN:
        return text.replace(secret, MASK)
    return re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", MASK, text)


_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control characters but newline and tab, and those that change the direction of text."""


def visible(text: str) -> str:
    r"""The text with characters that a terminal obeys as escapes.

    >>> visible("a\x1b[2Jb\r\n\u202ec")
    'a\\x1b[2Jb\\r\n\\u202ec'
    """
    return _OBEYED.sub(lambda found: repr(found[0])[1:-1], text)


def presentable(text: str, *given: Any) -> str:
    """The text for people: :func:`mask`, then :func:`visible`."""
    return visible(mask(text, *given))


def masks_repr(cls: C) -> C:
    """A class whose ``repr`` shows no secrets."""
    own: Any = cls.__repr__

    def masked(self: Any) -> str:
        return mask(own(self))

    cls.__repr__ = masked  # type: ignore[assignment]
    return cls


__all__ = ["MASK", "mask", "masks_repr", "presentable", "visible"]
