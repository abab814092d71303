#include "program/run.h"

#include <utility>

namespace ostinato {

// A long chain of finished runs is released one by one, not by recursion.
Run::~Run() {
    std::shared_ptr<Run> rest = std::move(next);
    while (rest && rest.use_count() == 1) {
        std::shared_ptr<Run> following = std::move(rest->next);
        rest = std::move(following);
    }
}

}  // namespace ostinato
