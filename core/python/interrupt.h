// Ctrl-C while the main thread runs Python tasks. Python's own handler would raise in the middle of a task and leave
// half a step behind. While programs with Python tasks are replayed from the main thread, a handler of ours stands in
// for the default one (never for the user's): between tasks it is the default one, inside a task it only takes note.
// The second Ctrl-C is raised inside the tasks that are running.
#pragma once

namespace ostinato {

// Puts our handler in place, if this is the main thread and the default one is there. The GIL is held. Cheap when done.
void defer_interrupts();

// Has the main thread put the default handler back when it next runs Python code. Any thread, without the GIL.
void restore_interrupts();

// Whether an interrupt was noted, which is forgotten with this. Main thread.
bool take_interrupt();

// The replay of this thread is ending since it was interrupted: the next interrupt is not noted but raised.
void expect_interrupt(bool another);

}  // namespace ostinato
