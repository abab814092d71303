// Starting a command.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "descriptor.h"
#include "messages.h"

namespace ostinato::reaper {

// What all commands of a reaper run on.
struct Placement {
    std::vector<std::byte> core_mask;  // empty: not bound
    bool idle_priority = false;
};

class Command {
public:
    // `words`: a file of arguments, variables (`name=value`) and the working directory, each ended by a zero byte.
    // `targets`: numbers that `descriptors` have in the command; the others of 0, 1 and 2 are this process's.
    Command(const Descriptor& words, const Spawn& counts, std::vector<int> targets,
            std::span<const Descriptor> descriptors);

    struct Outcome {
        pid_t pid = -1;
        std::int64_t began_ns = 0;  // when the program was executed
        int error = 0;              // 0: it runs
        Stage stage = Stage::fork;  // that failed
    };
    // Returns when the program has been executed, or could not be.
    Outcome start(const Placement& placement);

private:
    [[noreturn]] void become(const Placement& placement, pid_t reaper, volatile Outcome& outcome);
    bool set_up(const Placement& placement, pid_t reaper);
    bool place_descriptors();
    int execute();

    std::vector<char> text_;
    std::vector<char*> arguments_, variables_;  // each ends with a null pointer
    const char* directory_ = "";
    std::vector<std::string> programs_;  // to be tried in this order
    std::vector<int> targets_, sources_;
};

}  // namespace ostinato::reaper
