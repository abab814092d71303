"""Ray as the engine of a fleet: an actor on each node, which has the agent of its host."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ostinato.errors import DeviceError, TuningError
from ostinato.tune.fleet.agent import Agent, Found, Settings
from ostinato.tune.fleet.joining import HostLostError, UnreachableError
from ostinato.tune.fleet.messages import Numbered

START_SECONDS = 60.0
"""That a node has to start an actor, and before that to reserve its GPUs."""

_NODE = "ray.io/node-id"  # the label that Ray gives each node
_CONNECT_SECONDS = 5.0  # for the port of a cluster to answer; Ray itself would try for more than a minute
_ANSWER_SECONDS = 5.0  # beyond those for which an exchange waits
_THREADS = 8  # of an actor: exchanges may overlap
_GPUS = ("cuda", "hip", "all")


def connect(address: str) -> list[NodeEndpoint]:
    """Return the nodes of a Ray cluster, those with the first addresses first.

    `address`: ``"ray://host:port"``, or ``"ray"``, which means the first of these that there is: the cluster that
    the process belongs to, the one that ``RAY_ADDRESS`` names, the one that ``ray start`` started on this host, a new
    one on this host.

    Raises
    ------
    ImportError
        Ray is not installed, or for ``"ray://host:port"`` its client.
    TuningError
        There is no such cluster.
    """
    ray = _import_ray(address)
    if not ray.is_initialized():
        named = os.environ.get("RAY_ADDRESS") if address == "ray" else address
        address = named or _find_running()
        try:
            if named:
                _check_port(named)
            ray.init(address, log_to_driver=False, logging_level="error")
        except (OSError, RuntimeError, ValueError) as error:
            raise TuningError(
                f"the Ray cluster at {address!r} cannot be reached: {error}; start it (ray start --head), or give the "
                "address of another one (fleet='ray://HOST:10001', or RAY_ADDRESS with fleet='ray')"
            ) from error
    nodes = [node for node in ray.nodes() if node["Alive"]]
    nodes.sort(key=lambda node: (node["NodeManagerHostname"], node["NodeManagerAddress"], node["NodeID"]))
    return [NodeEndpoint(ray, node) for node in nodes]


def _find_running() -> str:
    """Return the address of the running cluster that ``ray start`` started on this host.

    If there is none, the address is ``"local"``, for which Ray starts a new cluster.
    """
    # `ray start` writes the address of its cluster to this file. A cluster that is killed leaves the file behind.
    with suppress(OSError, ValueError):  # ValueError: the file is no text, or no address
        address = Path(os.environ.get("RAY_TMPDIR") or "/tmp", "ray", "ray_current_cluster").read_text().strip()
        _check_port(address)
        return address or "local"
    return "local"


def _check_port(address: str) -> None:
    """Connect to the port of a cluster and close the connection. OSError: it cannot be reached.

    An address without a port, such as ``"local"``, is not checked.
    """
    parts = urlsplit(address if "://" in address else f"//{address}")
    if parts.hostname and parts.port:
        socket.create_connection((parts.hostname, parts.port), timeout=_CONNECT_SECONDS).close()


def _import_ray(address: str) -> Any:
    try:
        import ray

        if address.startswith("ray://"):
            import_module("grpc")  # of the extra "client" of Ray
    except ImportError as error:
        raise ImportError(
            f"fleet={address!r} needs Ray with its client: pip install 'ostinato[ray]' ({error})"
        ) from error
    return ray


class AgentActor:
    """The actor of a node."""

    def __init__(self, settings: Settings, node: str) -> None:
        self._agent: Agent | None = None
        self._problem = ""
        try:
            self._agent = Agent(settings, node)
        except DeviceError as error:
            self._problem = str(error)

    def found(self) -> list[Found] | str:
        """Return the devices, or why there are none."""
        return self._problem if self._agent is None else self._agent.found

    def exchange(self, acknowledged: int, commands: bytes, seconds: float) -> bytes:
        """Call `Agent.exchange`; messages are pickled, since Ray's own pickler calls Python for each object."""
        assert self._agent is not None
        return pickle.dumps(self._agent.exchange(acknowledged, pickle.loads(commands), seconds))

    def close(self) -> None:
        """Call `Agent.close`."""
        if self._agent is not None:
            self._agent.close()


class NodeEndpoint:
    """The way to the actor of a node."""

    def __init__(self, ray: Any, node: dict[str, Any]) -> None:
        self.node: str = node["NodeManagerHostname"]
        self._ray, self.identity = ray, str(node["NodeID"])
        self._gpus = float(node["Resources"].get("GPU", 0))
        self._actor: Any = None
        self._group: Any = None  # that has reserved its GPUs

    def open(self, settings: Settings, node: str) -> Sequence[Found]:
        ray = self._ray
        self.close()
        gpus = self._gpus if any(name.startswith(_GPUS) for name in settings.names) else 0.0
        try:
            self._actor = (
                ray.remote(AgentActor)
                .options(num_cpus=0, num_gpus=gpus, max_concurrency=_THREADS, scheduling_strategy=self._reserve(gpus))
                .remote(settings, node)
            )
            found: list[Found] | str = ray.get(self._actor.found.remote(), timeout=START_SECONDS)
        except ray.exceptions.GetTimeoutError:
            self.close()
            raise HostLostError(
                f"no actor was started there within {START_SECONDS:g} s: is the cluster busy?"
            ) from None
        except ray.exceptions.RayError as error:
            self.close()
            raise HostLostError(f"no actor can be started there: {_brief(error)}") from error
        if isinstance(found, str):
            self.close()
            raise DeviceError(found)
        return found

    def _reserve(self, gpus: float) -> Any:
        """Return how an actor is pinned to the node; GPUs are reserved before, so that no other job gets them."""
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

        if not gpus:
            return NodeAffinitySchedulingStrategy(self.identity, soft=False)
        self._group = placement_group([{"GPU": gpus}], bundle_label_selector=[{_NODE: self.identity}], name="ostinato")
        if not self._group.wait(START_SECONDS):
            self.close()
            raise HostLostError(
                f"its {gpus:g} GPUs could not be reserved within {START_SECONDS:g} s: other jobs of Ray use them"
            )
        return PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=0)

    def exchange(self, acknowledged: int, commands: Sequence[Numbered], seconds: float) -> tuple[int, list[Numbered]]:
        ray = self._ray
        try:
            answer: tuple[int, list[Numbered]] = pickle.loads(
                ray.get(
                    self._actor.exchange.remote(acknowledged, pickle.dumps(commands), seconds),
                    timeout=seconds + _ANSWER_SECONDS,
                )
            )
        except ray.exceptions.ActorDiedError as error:
            raise HostLostError(_brief(error)) from error
        except (ray.exceptions.ActorUnavailableError, ray.exceptions.GetTimeoutError) as error:
            raise UnreachableError(_brief(error)) from error
        except (ray.exceptions.RayError, ConnectionError, RuntimeError) as error:
            raise HostLostError(_brief(error)) from error
        return answer

    def tell(self, acknowledged: int, commands: Sequence[Numbered]) -> None:
        with suppress(Exception):  # the next exchange tells
            self._actor.exchange.remote(acknowledged, pickle.dumps(commands), 0.0)

    def close(self) -> None:
        actor, self._actor = self._actor, None
        if actor is not None:
            with suppress(Exception):  # the cluster may be gone; what its hosts ran has ended with their agents
                self._ray.get(actor.close.remote(), timeout=_ANSWER_SECONDS)
            with suppress(Exception):
                self._ray.kill(actor)
        group, self._group = self._group, None
        if group is not None:
            with suppress(Exception):
                self._ray.util.remove_placement_group(group)


def _brief(error: BaseException) -> str:
    """Return the first line of an error of Ray's, which has many."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
