"""Which keys have changed since the last snapshot: what incremental snapshots of rows write.

Nothing is done for a key: the dicts and lists of keys that an operator has made anyway are kept. When they hold about as many keys
as half of the state they are put together; when that many keys differ, all of the state is to be written, and nothing is kept any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

FEW_ITEMS = 1 << 12
"""So many are always kept before they are put together."""


class MutableTouchedKeys:
    """The keys touched since :meth:`take`; nothing is known before its first call.

    Args:
        key: from an item of what is noted to its key; by default the item.

    >>> touched = MutableTouchedKeys()
    >>> touched.note(["a"], 2)
    >>> touched.take() is None
    True
    >>> touched.note({"a": 1, "b": 2}, 10)
    >>> touched.note(["b"], 10)
    >>> sorted(touched.take()()), touched.take()()
    (['a', 'b'], set())
    """

    def __init__(self, key: Callable[[Any], Any] | None = None) -> None:
        self._key = key
        self._parts: list[Collection[Any]] | None = None
        self._keys: set[Any] = set()
        self._items = 0

    def note(self, items: Collection[Any], kept: int) -> None:
        """These have been touched, in a state of ``kept`` keys. ``items`` must stay as they are."""
        parts = self._parts
        if parts is None:
            return
        parts.append(items)
        self._items += len(items)
        if self._items > FEW_ITEMS and 2 * self._items > kept:
            _put(self._keys, parts, self._key)
            self._parts, self._items = [], len(self._keys)
            if 2 * self._items > kept:
                self.forget()

    def forget(self) -> None:
        """All may have changed."""
        self._parts, self._keys, self._items = None, set(), 0

    def take(self) -> Callable[[], set[Any]] | None:
        """A function that gives the keys touched since the last call, None where all may have been; from now on it begins anew."""
        parts, keys, key = self._parts, self._keys, self._key
        self._parts, self._keys, self._items = [], set(), 0
        if parts is None:
            return None
        return lambda: _put(keys, parts, key)


def _put(keys: set[Any], parts: Iterable[Iterable[Any]], key: Callable[[Any], Any] | None) -> set[Any]:
    for part in parts:
        keys.update(part if key is None else map(key, part))
    return keys


def now_and_gone(keys: Iterable[Any], state: dict[Any, Any]) -> tuple[dict[Any, Any], list[Any]]:
    """What touched keys hold now, and those that are gone.

    >>> now_and_gone(["a", "b"], {"a": 1, "c": 3})
    ({'a': 1}, ['b'])
    """
    gone: list[Any] = []
    now = {}
    for key in keys:
        if key in state:
            now[key] = state[key]
        else:
            gone.append(key)
    return now, gone
