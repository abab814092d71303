"""What programs, tasks and plain threads wait for, and tell each other: events, barriers, reservations."""

from ostinato.events.barrier import Barrier
from ostinato.events.event import Event, UserEvent, cause_of, event_of, merge
from ostinato.events.reservation import Reservation

__all__ = ["Barrier", "Event", "Reservation", "UserEvent", "cause_of", "event_of", "merge"]
