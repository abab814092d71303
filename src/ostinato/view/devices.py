"""What `ostinato devices` shows: the devices of this process, and who holds what on this host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ostinato.errors import DeviceError
from ostinato.tune.leases.cpu import cpu_devices
from ostinato.tune.leases.cuda import cuda_devices
from ostinato.tune.leases.hip import hip_devices
from ostinato.tune.leases.lock_file import holders, lease_directory
from ostinato.tune.leases.opencl import opencl_devices

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["show_devices"]


def show_devices(console: Console) -> None:
    """Print a table of the devices that this process may use, and of whatever else is leased.

    Examples
    --------
    >>> import io
    >>> from rich.console import Console
    >>> text = io.StringIO()
    >>> show_devices(Console(file=text, width=200))
    >>> "cpu:0" in text.getvalue()
    True
    """
    from rich.table import Table
    from rich.text import Text

    table = Table("Name", "Model", "Driver", "Identity", "Leased by", caption=f"Leases are in {lease_directory()}")
    held = {holder.identity: holder for holder in holders()}
    shown: set[str] = set()
    for find in (cuda_devices, hip_devices, opencl_devices, cpu_devices):
        try:
            found = find()
        except DeviceError as error:  # about these devices only
            console.print(Text(str(error)))
            continue
        for device in found:
            identity = device.identities[0]  # an OpenCL device that is the processor has those of cores besides
            holder = held.get(identity)
            shown.add(identity)
            cells = (device.name, device.model, device.driver, identity, "" if holder is None else str(holder))
            table.add_row(*map(Text, cells))
    for identity, holder in held.items():  # simulated devices, and those of others
        if identity in shown:
            continue
        table.add_row(*map(Text, ("", "", "", identity, str(holder))))
    console.print(table)
