"""Messages between ranks."""



class LocalRanks:
    """Ranks in one process, for tests."""

    def __init__(self, size: int, latency_ns: int = 0, jitter_ns: int = 0, seed: int = 0) -> None: ...

    def kill(self, rank: int, noticed: bool = False) -> None:
        """
        From now on nothing leaves this rank, and nothing arrives there; if noticed, others' transports fail.
        """

    def messenger(self, rank: int) -> Messenger: ...

class Messenger:
    """The messages of one rank."""

    def post(self, to: int, message: bytes) -> None: ...

    def wait(self) -> object:
        """Make progress until there are news; None once it is closed."""

    def watch_process(self, rank: int, descriptor: int) -> None:
        """
        Tell when a rank's process ends; the descriptor is the messenger's from now on.
        """

    def close(self) -> None: ...

    def progress(self) -> bool: ...

    @property
    def sending(self) -> int:
        """How many messages of `post` are still on their way from here."""

    @property
    def by_workers(self) -> bool:
        """Whether idle workers make progress; set before there is a program."""

    @by_workers.setter
    def by_workers(self, arg: bool, /) -> None: ...

    @property
    def forked(self) -> bool: ...

class Traffic:
    """The channels of one program."""

    def __init__(self, messenger: Messenger) -> None: ...

    @property
    def first_tag(self) -> int: ...

    @first_tag.setter
    def first_tag(self, arg: int, /) -> None: ...

    def abandon(self) -> None: ...

    def close(self) -> None: ...

    def channel(self, sends: bool, peer: int, number: int, bytes: int) -> Channel: ...

    def channels(self) -> list[Channel]:
        """Those in use."""

class Channel:
    """What one operation sends to another rank, or receives from one."""

    @property
    def sends(self) -> bool: ...

    @property
    def peer(self) -> int: ...

    @property
    def number(self) -> int: ...

    @property
    def slots(self) -> int:
        """How many messages it has memory for."""

    @property
    def is_shared(self) -> bool:
        """Whether both ends map that memory, so that no transport carries them."""

    @property
    def shared_bytes(self) -> int:
        """How much memory its slots take between ranks of one host."""

    def share(self, file: int, offset: int) -> None:
        """Have the slots in a file of zeros that the other end maps as well."""

def messenger_to_itself() -> Messenger:
    """The messages of the only rank of a process."""

def messenger_by_mpi(rank: int, size: int, library: str, communicator: int, byte: int, any_source: int, handle_bytes: int, status_bytes: int) -> Messenger: ...
