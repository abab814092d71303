// What is to happen when, soonest first, without an allocation once it has grown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

namespace ostinato::passes {

struct Happening {
    double time;
    uint32_t kind, which;

    // Of what happens at the same time, the order is fixed: models must say the same whenever they are asked.
    bool before(const Happening& other) const {
        return std::tie(time, kind, which) < std::tie(other.time, other.kind, other.which);
    }
};

// A heap of four children a node. What is pushed while the first one is dealt with takes its slot, which is most often
// near where it belongs: an op's end brings the next one's.
class EventQueue {
public:
    // When the first one happens; infinity: nothing does.
    double soonest() {
        close();
        return heap_.empty() ? std::numeric_limits<double>::infinity() : heap_.front().time;
    }

    Happening pop() {
        close();
        open_ = true;
        return heap_.front();
    }

    void push(const Happening& what) {
        if (open_) {
            open_ = false;
            heap_.front() = what;
            sink();
            return;
        }
        std::size_t i = heap_.size();
        heap_.push_back(what);
        for (; i > 0 && what.before(heap_[(i - 1) / kChildren]); i = (i - 1) / kChildren)
            heap_[i] = heap_[(i - 1) / kChildren];
        heap_[i] = what;
    }

private:
    static constexpr std::size_t kChildren = 4;

    void close() {
        if (!open_)
            return;
        open_ = false;
        heap_.front() = heap_.back();
        heap_.pop_back();
        if (!heap_.empty())
            sink();
    }

    void sink() {
        const Happening what = heap_.front();
        std::size_t i = 0;
        for (;;) {
            const std::size_t first = kChildren * i + 1;
            if (first >= heap_.size())
                break;
            const std::size_t end = first + kChildren < heap_.size() ? first + kChildren : heap_.size();
            std::size_t least = first;
            for (std::size_t c = first + 1; c < end; ++c)
                least = heap_[c].before(heap_[least]) ? c : least;
            if (!heap_[least].before(what))
                break;
            heap_[i] = heap_[least];
            i = least;
        }
        heap_[i] = what;
    }

    std::vector<Happening> heap_;
    bool open_ = false;  // the first one was taken, and its slot is free
};

}  // namespace ostinato::passes
