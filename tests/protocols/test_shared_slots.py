"""Messages through memory that two ranks share arrive once, whole and in order, and neither end sleeps for ever.

The sender writes messages into slots in turn, the receiver reads them. A word in each slot says whose it is. An end
that finds a slot with the other end has its rank's messenger watch the word, and sleeps until the messenger has told
the signal. Mirrors `Channel::send`, `receive`, `watch` and `ended` (channel.cpp), and `Messenger::look`
(messenger.cpp).
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from explorer import ProtocolError, Thread, commit_wait, explore, load, notify, store, swap

SLOTS, MESSAGES = 2, 3
EMPTY, FULL = 0, 1


@dataclass(frozen=True)
class Protocol:
    written_first: bool = True  # the sender writes a message before it gives the slot away
    read_first: bool = True  # the receiver reads it before it gives the slot back
    sender_looks: bool = True  # whether the slot is empty, before it writes
    receiver_looks: bool = True  # whether the slot is full, before it reads
    looks_again: bool = True  # the messenger looks at a word after it has begun to watch it, not only when one changes


def end(p: Protocol, side: str, wanted: int) -> Thread:
    for message in range(MESSAGES):
        slot = message % SLOTS
        looks = p.sender_looks if side == "sender" else p.receiver_looks
        while looks:
            epoch = yield load(f"{side} signal")
            owner = yield load(f"owner {slot}")
            if owner == wanted:
                break
            yield swap(f"{side} watches", slot)
            yield commit_wait(f"{side} signal", epoch)
        # A message is two words, so that half of one shows.
        if side == "sender":
            if not p.written_first:
                yield store(f"owner {slot}", FULL)
            yield store(f"low {slot}", message)
            yield store(f"high {slot}", message)
            if p.written_first:
                yield store(f"owner {slot}", FULL)
        else:
            if not p.read_first:
                yield store(f"owner {slot}", EMPTY)
            low = yield load(f"low {slot}")
            high = yield load(f"high {slot}")
            assert low == high == message, f"message {message} is not there, or only a half of it"
            if p.read_first:
                yield store(f"owner {slot}", EMPTY)
    yield store(f"{side} over", 1)


def messenger(p: Protocol, side: str, wanted: int) -> Thread:
    """The thread that watches slots for one rank: a worker that polls, or the rank's own thread between naps."""
    while True:
        slot = yield load(f"{side} watches")
        over = yield load(f"{side} over")
        if over:
            return
        if slot is None:
            continue
        if not p.looks_again:
            owner = yield load(f"owner {slot}")
            if owner == wanted:  # it waits for a change that has been
                return
        owner = yield load(f"owner {slot}")
        if owner == wanted:
            yield swap(f"{side} watches", None)
            yield notify(f"{side} signal")


def check(p: Protocol) -> int:
    words: dict[str, object] = {}
    for slot in range(SLOTS):
        words |= {f"owner {slot}": EMPTY, f"low {slot}": -1, f"high {slot}": -1}
    for side in ("sender", "receiver"):
        words |= {f"{side} signal": 0, f"{side} watches": None, f"{side} over": 0}
    threads = {
        "sender": lambda: end(p, "sender", EMPTY),
        "receiver": lambda: end(p, "receiver", FULL),
        "sender's messenger": lambda: messenger(p, "sender", EMPTY),
        "receiver's messenger": lambda: messenger(p, "receiver", FULL),
    }
    return explore(words, threads, lambda memory: memory["sender over"] == memory["receiver over"] == 1)


def test_messages_arrive_whole_and_in_order():
    assert check(Protocol()) > 10


@pytest.mark.parametrize(
    "broken",
    [
        Protocol(written_first=False),
        Protocol(read_first=False),
        Protocol(sender_looks=False),
        Protocol(receiver_looks=False),
        Protocol(looks_again=False),
    ],
    ids=str,
)
def test_they_do_not_without(broken):
    with pytest.raises(ProtocolError):
        check(broken)
