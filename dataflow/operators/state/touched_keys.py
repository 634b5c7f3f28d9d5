"""Which keys have changed since the last snapshot: what incremental snapshots of rows write.

Nothing is done for a key: the dicts and lists of keys that an operator has made anyway are kept. When they hold about as many keys
as half of the state they are put together; when that many keys differ, all of the state is to be written, and nothing is kept any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import islice
from typing import Any

FEW_ITEMS = 1 << 12
"""So many are always kept before they are put together."""
SAMPLE_KEYS = 16


class TouchedKeys:
    """The keys touched since :meth:`take`; nothing is known before its first call.

    Args:
        key: from an item of what is noted to its key; by default the item.

    >>> touched = TouchedKeys()
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
        if isinstance(items, dict) and len(items) > FEW_ITEMS and 2 * len(items) > kept:
            self.forget()
            return
        parts.append(items)
        self._items += len(items)
        if self._items > FEW_ITEMS and 2 * self._items > kept:
            if self._mostly_new(parts):
                self.forget()
                return
            _put(self._keys, parts, self._key)
            self._parts, self._items = [], len(self._keys)
            if 2 * self._items > kept:
                self.forget()

    def _mostly_new(self, parts: list[Collection[Any]]) -> bool:
        """Whether the latest keys, going by some of them, are others than those before: then it is not worth while to find out which."""
        *before, latest = parts
        if self._key is not None or not isinstance(latest, dict):
            return False
        sample = list(islice(latest, SAMPLE_KEYS))
        known = sum(key in self._keys or any(key in part for part in before) for key in sample)
        return 2 * known < len(sample)

    def forget(self) -> None:
        """All may have changed."""
        self._parts, self._keys, self._items = None, set(), 0

    @property
    def most(self) -> int:
        """At most so many keys have been touched, where that is known."""
        return self._items

    def take(self) -> Callable[[], set[Any]] | None:
        """A function that gives the keys touched since the last call, None where all may have been; from now on it begins anew."""
        parts, keys, key = self._parts, self._keys, self._key
        self._parts, self._keys, self._items = [], set(), 0
        if parts is None:
            return None
        return lambda: _put(keys, parts, key)


class Additions:
    """What has been added since :meth:`take`, by reference, to state that only grows or forgets by rule; nothing is known before its first
    call, nor when it is more than half of the state.

    >>> added = Additions()
    >>> added.take() is None
    True
    >>> added.note("abc", 3, 10)
    >>> added.take(), added.take()
    (['abc'], [])
    """

    def __init__(self) -> None:
        self._parts: list[Any] | None = None
        self._items = 0
        self.nbytes = 0
        """Of the parts, as far as they were told."""

    @property
    def is_known(self) -> bool:
        """Whether anything is noted."""
        return self._parts is not None

    def note(self, part: Any, items: int, kept: int, nbytes: int = 0) -> None:
        """``part``, which must stay as it is, has so many of what are now ``kept`` items, and so many bytes."""
        if self._parts is None:
            return
        self._parts.append(part)
        self._items += items
        self.nbytes += nbytes
        if self._items > FEW_ITEMS and 2 * self._items > kept:
            self.forget()

    def forget(self) -> None:
        """All may have changed."""
        self._parts, self._items, self.nbytes = None, 0, 0

    def take(self) -> list[Any] | None:
        """What has been added since the last call; from now on it begins anew."""
        parts, self._parts, self._items, self.nbytes = self._parts, [], 0, 0
        return parts


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
