"""SQL on collections: DataFusion plans a query, and collections keep its result up to date. See docs/sql.md."""

if __name__ != "rayad.sql":  # pragma: no cover - a second copy would have its own classes
    raise ImportError(
        f"this package is rayad.sql, but it was imported as {__name__!r}; install the project (pip install -e .) and import rayad.sql"
    )
