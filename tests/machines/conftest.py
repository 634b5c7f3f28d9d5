"""One cluster of machines for all tests on machines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.machines import links
from tests.machines.machines import Machines


@pytest.fixture(scope="session")
def machines() -> Iterator[Machines]:
    """Two machines. A test may add others, and must leave two. Skips, with the reason, if machines cannot be made here."""
    reason = links.why_not()
    if reason:
        pytest.skip(f"no machines can be made here: {reason}")
    made = Machines(2)
    try:
        yield made
    finally:
        made.close()
