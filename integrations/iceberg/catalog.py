"""Catalogs of Iceberg, by ``pyiceberg``: how they are given, and what their clients raise, as errors of ours without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rayad.progress import ConfigError, DataflowError, say, show, without_secrets


def library(where: str) -> Any:
    """The package ``pyiceberg``. Raises ConfigError where it is not installed."""
    try:
        import pyiceberg.catalog
        import pyiceberg.conversions
        import pyiceberg.exceptions
        import pyiceberg.expressions
        import pyiceberg.io.pyarrow
        import pyiceberg.manifest
        import pyiceberg.partitioning
        import pyiceberg.transforms
        import pyiceberg.typedef
        import pyiceberg.types
    except ImportError as error:
        raise ConfigError(f"{where} needs the package pyiceberg: pip install 'rayad[iceberg]' ({error})") from error
    return pyiceberg


class Refusing:
    """What is raised inside, of whatever class a catalog's client has, becomes a DataflowError."""

    def __init__(self, told: str, given: Mapping[str, Any]) -> None:
        self._told, self._given = told, given

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, ConfigError | DataflowError):
            raise DataflowError(f"{self._told}: {first_line(error, self._given)}") from without_secrets(error, self._given)


def texts(properties: Any, where: str) -> dict[str, str]:
    """Properties of a table. Raises ConfigError for what is none."""
    if properties is None:
        return {}
    if not isinstance(properties, Mapping) or not all(isinstance(part, str) for item in properties.items() for part in item):
        raise ConfigError(f"{where} is {show(properties)}: it must be a dict from names to texts, or None")
    return dict(properties)


def catalog_of(catalog: Any, where: str) -> tuple[str, dict[str, Any]]:
    """The name and the properties of a catalog. Raises ConfigError for what is none."""
    if isinstance(catalog, str) and catalog:
        return catalog, {}
    if isinstance(catalog, Mapping) and catalog and all(isinstance(name, str) for name in catalog):
        properties = dict(catalog)
        return str(properties.pop("name", "default")), properties
    raise ConfigError(
        f"{where}: catalog is of type {type(catalog).__name__}: it must be a name in the configuration of pyiceberg, or a dict of the "
        "properties of a catalog, such as {'type': 'rest', 'uri': ...}"
    )


def first_line(error: BaseException, given: object = None) -> str:
    """What an error says, without the secrets in what was ``given``."""
    return say(error, given).strip().split("\n", 1)[0] or type(error).__name__


__all__ = ["Refusing", "catalog_of", "first_line", "library", "texts"]
