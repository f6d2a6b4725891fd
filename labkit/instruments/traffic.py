"""Record every collective call in a piece of code, and its bytes."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from labkit.check import COUNT, check_options, integer, one_of

if TYPE_CHECKING:
    import pandas as pd

# Operator of torch -> kind of call, and the argument that is the payload N. With "* p"
# it is one worker's part, and N is the parts of all p workers together.
_OPERATORS = {
    "c10d": {
        **dict.fromkeys(("allreduce_", "allreduce_coalesced_"), "all_reduce tensors"),
        "allgather_": "all_gather output_tensors",
        "_allgather_base_": "all_gather output_tensor",
        "allgather_coalesced_": "all_gather output_lists",
        "allgather_into_tensor_coalesced_": "all_gather outputs",
        "reduce_scatter_": "reduce_scatter input_tensors",
        "_reduce_scatter_base_": "reduce_scatter input_tensor",
        "reduce_scatter_tensor_coalesced_": "reduce_scatter inputs",
        "alltoall_": "all_to_all input_tensors",
        "alltoall_base_": "all_to_all input",
        "broadcast_": "broadcast tensors",
        "reduce_": "reduce tensors",
        "gather_": "gather input_tensors * p",
        "scatter_": "scatter output_tensors * p",
        "send": "send tensors",
        **dict.fromkeys(("recv_", "recv_any_source_"), "recv tensors"),
        **dict.fromkeys(("barrier", "monitored_barrier_"), "barrier"),
    },
    "_c10d_functional": {  # those that DTensor calls
        "all_reduce": "all_reduce input",
        "all_reduce_": "all_reduce input",
        "all_reduce_coalesced": "all_reduce inputs",
        "all_reduce_coalesced_": "all_reduce inputs",
        "all_gather_into_tensor": "all_gather input * p",
        "all_gather_into_tensor_out": "all_gather input * p",
        "all_gather_into_tensor_coalesced": "all_gather inputs * p",
        "reduce_scatter_tensor": "reduce_scatter input",
        "reduce_scatter_tensor_out": "reduce_scatter input",
        "reduce_scatter_tensor_coalesced": "reduce_scatter inputs",
        "all_to_all_single": "all_to_all input",
        "broadcast": "broadcast input",
        "broadcast_": "broadcast input",
        "isend": "send tensor",
        "irecv": "recv tensor",
    },
}
_SILENT = {"wait_tensor", "_wrap_tensor_autograd", "check_for_nan"}


def wire_bytes(kind: str, payload: int, group: int) -> float:
    r"""Compute the bytes one worker sends for a collective call by a ring algorithm.

    ==================================  ======================================
    kind                                bytes, payload N and group of p
    ==================================  ======================================
    all_reduce                          $2 N (p - 1) / p$
    all_gather, reduce_scatter          $N (p - 1) / p$
    all_to_all, gather, scatter         $N (p - 1) / p$; of the last two the
                                        root's, which receives or sends them
    broadcast, reduce, send             N, and 0 in a group of one
    recv, barrier                       0
    ==================================  ======================================

    N is the whole payload: for a reduction the tensor that is reduced, for a gather and
    a scatter the parts of all workers together. A worker receives as much as it sends.
    A back end may choose another algorithm (a tree for small payloads), which moves the
    same bytes or more; the ring's are the least for an all-reduce.

    Parameters
    ----------
    kind : str, as in :attr:`Collective.kind`
    payload : int, N, in bytes
    group : int, p >= 1

    Raises
    ------
    ValueError : if the kind is unknown

    Examples
    --------
    >>> wire_bytes("all_reduce", 1000, 4)
    1500.0
    """
    check_options(
        {"payload": payload, "group": group},
        {"payload": integer(0, 2**63), "group": COUNT},
    )
    part = (group - 1) / group
    factors = {
        "all_reduce": 2 * part,
        **dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all"), part),
        **dict.fromkeys(("gather", "scatter"), part),
        **dict.fromkeys(("broadcast", "reduce", "send"), float(group > 1)),
        **dict.fromkeys(("recv", "barrier"), 0.0),
    }
    check_options({"kind": kind}, {"kind": one_of([*factors])})
    return payload * factors[kind]


@dataclass(frozen=True)
class Collective:
    """One collective call of this process."""

    kind: str  # all_reduce, all_gather, reduce_scatter, broadcast, ...
    elements: int  # numbers in the payload, all workers' parts together
    bytes: int  # of the payload
    group: int  # processes that take part

    @property
    def wire(self) -> float:
        """Return the bytes that this process sends, by :func:`wire_bytes`."""
        return wire_bytes(self.kind, self.bytes, self.group)


class Traffic(TorchDispatchMode):
    """Record every collective call that this process makes in a ``with`` block.

    It sees calls of ``torch.distributed``, of DTensors, and those that
    ``DistributedDataParallel`` makes itself (the gradients' buckets, buffers), in the
    forward and in the backward pass. (That makes others when it is built, and once, at
    the start of the second pass, to agree on the order of its buckets.) It does not see
    calls from another thread or from compiled code, or what the rendezvous sends.
    Results stay the same to the last bit. Do not measure time inside the block, since
    every operator is inspected.

    Attributes
    ----------
    calls : list of Collective, in order

    Examples
    --------
    Two all-reduces of 8 float32 numbers each, on one of four workers, would give::

        with Traffic() as traffic:
            loss.backward(); optimizer.step()
        traffic.totals()
        #             calls  elements  bytes  wire
        # all_reduce      2        16     64  96.0

    >>> with Traffic() as traffic:
    ...     pass
    >>> traffic.bytes, traffic.wire
    (0, 0)
    """

    def __init__(self):
        from torch.distributed.tensor import DTensor  # half a second, if not needed

        super().__init__()
        self.calls: list[Collective] = []
        self._made_of_others = DTensor

    @property
    def bytes(self) -> int:
        """Return the payload of all calls, in bytes."""
        return sum(call.bytes for call in self.calls)

    @property
    def wire(self) -> float:
        """Return the bytes that this process sends, by :func:`wire_bytes`."""
        return sum(call.wire for call in self.calls)

    def frame(self) -> "pd.DataFrame":
        """Return a frame with a row per call: kind, elements, bytes, group, wire."""
        import pandas as pd

        rows = [(c.kind, c.elements, c.bytes, c.group, c.wire) for c in self.calls]
        columns = ["kind", "elements", "bytes", "group", "wire"]
        return pd.DataFrame(rows, columns=columns)

    def totals(self) -> "pd.DataFrame":
        """Return a frame with a row per kind: calls, and sums of the other columns."""
        by_kind = self.frame().groupby("kind")
        sums = by_kind[["elements", "bytes", "wire"]].sum()
        sums.insert(0, "calls", by_kind.size())
        return sums

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run the operator, and record it if it is a collective one."""
        if any(issubclass(kind, self._made_of_others) for kind in types):
            return NotImplemented  # its constituent calls come back here
        result = func(*args, **(kwargs or {}))
        space = getattr(func, "namespace", None)  # a higher-order operator has none
        if space in _OPERATORS and func._opname not in _SILENT:
            self.calls.append(_read(space, func, args, kwargs or {}))
        return result


def _read(space, func, args, kwargs) -> Collective:
    """Return the call that a collective operator makes."""
    name = func._opname
    if name not in _OPERATORS[space]:
        raise NotImplementedError(f"Traffic cannot count {space}::{name}")
    names = [argument.name for argument in func._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    group = _group_size(given)
    kind, *payload = _OPERATORS[space][name].split()
    tensors = list(_tensors(given[payload[0]])) if payload else []
    times = group if payload[1:] else 1
    elements = times * sum(prod(t.shape) for t in tensors)
    size = times * sum(prod(t.shape) * t.element_size() for t in tensors)
    return Collective(kind, elements, size, group)


def _group_size(given) -> int:
    if "group_size" in given:
        return given["group_size"]
    if "process_group" in given:
        return dist.ProcessGroup.unbox(given["process_group"]).size()
    group = given["group_name"]
    if isinstance(group, str):
        group = dist.distributed_c10d._resolve_process_group(group)
    return group.size()


def _tensors(value) -> Iterator[Tensor]:
    """Yield all tensors of a nested list."""
    if isinstance(value, Tensor):
        yield value
        return
    for each in value:
        yield from _tensors(each)
