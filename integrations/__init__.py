"""placeholder"""

if __name__ != "rayad.integrations":  # pragma: no cover - a second copy would have its own classes
    raise ImportError(
        f"this package is rayad.integrations, but it was imported as {__name__!r}; "
        "install the project (pip install -e .) and import rayad.integrations"
    )
