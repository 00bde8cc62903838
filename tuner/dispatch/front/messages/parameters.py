"""The parameters of KServe's requests: which of them the fronts obey, pass on, or refuse.

=========================  =========================================================================
parameter                  what becomes of it
=========================  =========================================================================
``timeout``                microseconds until the deadline; 0 stands for none
``binary_data_output``     whether all outputs of an HTTP answer are binary
``sequence_id`` and those  refused: the requests of a sequence have to reach one server, one after
like it                    the other
any other                  goes to the backend; requests with unlike ones do not share a batch
of an input or an output:
``shared_memory_region``   refused: clients share no memory with the servers behind the dispatcher
``classification``         refused: servers refuse it for batches of unlike requests
=========================  =========================================================================
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sized

from tuner.dispatch.front.messages.datatype import invalid
from tuner.dispatch.request import Refused, Status

__all__ = ["Value", "check_parameter_count", "check_tensor_parameters", "split_parameters"]

Value = bool | int | float | str
SEQUENCE = ("sequence_id", "sequence_start", "sequence_end")
TENSOR_PARAMETERS = {
    "shared_memory_region": "shared memory is not offered: servers behind the dispatcher cannot reach it",
    "classification": "classification is not offered; ask for the output itself",
}
INTEGERS = 2**63
MOST_PARAMETERS = 64
"""Parameters of a request."""


def check_parameter_count(parameters: Sized) -> None:
    """Check how many parameters a request has.

    Raises:
        Refused: They are too many.
    """
    if len(parameters) > MOST_PARAMETERS:
        raise invalid(f"a request has at most {MOST_PARAMETERS} parameters, but got {len(parameters)}")


def split_parameters(parameters: Mapping[str, Value]) -> tuple[dict[str, Value], float | None]:
    """Return the parameters that go to the backend, and the timeout in seconds.

    Raises:
        Refused: One of them has a value that it cannot have, or asks for what is not offered.
    """
    check_parameter_count(parameters)
    if any(type(value) is int and not -INTEGERS <= value < 2 * INTEGERS for value in parameters.values()):
        raise invalid("a parameter that is a whole number has at most 64 bits")
    if any(parameters.get(name) for name in SEQUENCE):
        raise Refused(
            Status.UNSUPPORTED, "sequences are not offered: their requests may reach different servers"
        )
    further = {name: value for name, value in parameters.items() if name not in SEQUENCE}
    timeout = further.pop("timeout", 0)
    if isinstance(timeout, str) and timeout.isascii() and timeout.isdigit() and len(timeout) < 20:
        timeout = int(timeout)
    if isinstance(timeout, bool | str | float) or not 0 <= timeout < INTEGERS:
        raise invalid(f"timeout is a number of microseconds, but got {timeout!r:.40}")
    return further, timeout / 1e6 if timeout else None


def check_tensor_parameters(name: str, parameters: Container[str]) -> None:
    """Check the parameters of an input or an output.

    Raises:
        Refused: One of them asks for what is not offered.
    """
    for parameter, problem in TENSOR_PARAMETERS.items():
        if parameter in parameters:
            raise Refused(Status.UNSUPPORTED, f"'{name}': {problem}")
