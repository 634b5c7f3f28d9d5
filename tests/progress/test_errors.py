"""Errors travel between processes with everything they carry."""

import pickle

import pytest

from rayad.progress import ConfigError, DataflowError, DepthError, InternalError, ProtocolError, RayadError, SnapshotError

ERRORS = [RayadError, DataflowError, DepthError, ProtocolError, SnapshotError, ConfigError, InternalError]


class DemandingError(DataflowError):
    """A subclass with arguments of its own."""

    def __init__(self, vertex: str, replica: int) -> None:
        super().__init__(f"{vertex}[{replica}] failed", vertex=vertex, replica=replica)


@pytest.mark.parametrize("error_class", ERRORS)
@pytest.mark.parametrize("details", [{}, {"vertex": "count", "replica": 2, "time": (3, 1)}])
def test_error_pickles_with_message_details_and_notes(error_class: type[RayadError], details: dict[str, object]) -> None:
    error = error_class("7 is not even; use an even number", **details)
    error.add_note("while testing")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is error_class
    assert str(copy) == "7 is not even; use an even number"
    assert copy.__notes__ == ["while testing"]
    assert {name: getattr(copy, name) for name in details} == details


def test_error_with_its_own_arguments_pickles() -> None:
    copy = pickle.loads(pickle.dumps(DemandingError("count", 2)))
    assert (str(copy), copy.vertex, copy.replica) == ("count[2] failed", "count", 2)


def test_missing_detail_names_those_present() -> None:
    with pytest.raises(AttributeError, match=r"ProtocolError has no detail 'chanel'; it has \['channel'\]"):
        _ = ProtocolError("gap", channel=7).chanel


@pytest.mark.parametrize("error_class", ERRORS)
def test_every_error_is_a_rayad_error(error_class: type[RayadError]) -> None:
    assert issubclass(error_class, RayadError)


def test_depth_error_is_a_type_error_too() -> None:
    assert issubclass(DepthError, TypeError)
