#include "devices/cuda/branches.h"

#include <algorithm>
#include <array>
#include <functional>

namespace ostinato::cuda {

namespace {

using Known = std::array<std::uint32_t, Branches::kMost>;  // by branch, one more than the last part that is implied

void add(Known& known, const Known& more) {
    for (std::size_t branch = 0; branch < known.size(); ++branch)
        known[branch] = std::max(known[branch], more[branch]);
}

}  // namespace

Branches::Branches(std::span<const std::vector<std::uint32_t>> after) : parts(after.size()) {
    std::vector<Known> done(after.size());                        // what the end of each part implies
    std::vector<std::vector<std::uint32_t>> needs(after.size());  // parts that each waits for
    std::vector<std::uint32_t> waiting(after.size());             // how many wait for each
    Known last{};                                                 // by branch, one more than its last part
    for (std::uint32_t at = 0; at < after.size(); ++at) {
        Part& part = parts[at];
        Known implied{};
        for (const std::uint32_t before : after[at])
            add(implied, done[before]);
        // The branch whose last part is the latest of those that this one comes after in any case.
        std::uint32_t chosen = kMost;
        for (std::uint32_t branch = 0; branch < count; ++branch)
            if (implied[branch] == last[branch] && (chosen == kMost || last[branch] > last[chosen]))
                chosen = branch;
        part.first = chosen == kMost && count < kMost;
        if (part.first)
            chosen = count++;
        else if (chosen == kMost)  // the one that has waited longest
            chosen = static_cast<std::uint32_t>(std::min_element(last.begin(), last.end()) - last.begin());
        part.branch = chosen;
        Known& known = done[at];
        if (!part.first)
            known = done[last[chosen] - 1];
        std::vector<std::uint32_t> latest = after[at];  // first, as they may imply others
        std::sort(latest.begin(), latest.end(), std::greater<>());
        for (const std::uint32_t before : latest) {
            if (known[parts[before].branch] > before)
                continue;
            needs[at].push_back(before);
            ++waiting[before];
            add(known, done[before]);
        }
        known[chosen] = last[chosen] = at + 1;
    }
    std::vector<std::uint32_t> unused;
    for (std::uint32_t at = 0; at < after.size(); ++at) {
        for (const std::uint32_t before : needs[at]) {
            parts[at].waits.push_back(parts[before].mark);
            if (--waiting[before] == 0)
                unused.push_back(parts[before].mark);
        }
        if (waiting[at] == 0)
            continue;
        if (unused.empty())
            unused.push_back(marks++);
        parts[at].mark = unused.back();
        unused.pop_back();
    }
}

}  // namespace ostinato::cuda
