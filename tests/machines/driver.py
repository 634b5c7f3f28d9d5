"""A driver on a machine: calls the functions that it is sent, one after the other, and sends back their results or errors.

``python -m tests.machines.driver ADDRESS``: joins that Ray; pickled calls on standard input, pickled answers on standard output. Calls
share objects by :data:`KEPT`.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
import traceback
from typing import IO, Any

KEPT: dict[str, Any] = {}
_LENGTH = struct.Struct("<Q")


def write(pipe: IO[bytes], value: Any) -> None:
    """One message."""
    data = pickle.dumps(value)
    pipe.write(_LENGTH.pack(len(data)) + data)
    pipe.flush()


def read(pipe: IO[bytes]) -> Any:
    """The next message. Raises EOFError at the end."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    return pickle.loads(pipe.read(_LENGTH.unpack(head)[0]))


def main(address: str) -> None:
    """Answer calls until the input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # printed text must not mix with answers
    import ray

    ray.init(address=address, logging_level="ERROR", log_to_driver=False)
    while True:
        try:
            function, arguments = read(sys.stdin.buffer)
        except EOFError:
            break
        try:
            write(answers, (True, function(*arguments)))
        except BaseException as error:
            traceback.print_exc()
            write(answers, (False, f"{type(error).__name__}: {error}"))


if __name__ == "__main__":
    main(*sys.argv[1:])
