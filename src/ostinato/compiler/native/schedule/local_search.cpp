#include "schedule/local_search.h"

#include <utility>

#include "at.h"

namespace ostinato::passes {

namespace {

// What is less by less is noise of the model's steps.
constexpr double kLess = 0.999;

class Search {
public:
    Search(std::vector<int32_t> chosen, const std::function<double(const std::vector<int32_t>&)>& judge, int64_t tries)
        : chosen_(std::move(chosen)), judge_(judge), tries_(tries - 1), best_(judge(chosen_)) {}

    bool move(std::span<const int32_t> movable, int32_t choices) {
        bool better = false;
        for (const int32_t op : movable) {
            for (int32_t choice = 0; choice < choices && tries_ > 0; ++choice) {
                const int32_t before = chosen_[at(op)];
                if (choice == before)
                    continue;
                chosen_[at(op)] = choice;
                if (accept())
                    better = true;
                else
                    chosen_[at(op)] = before;
            }
        }
        return better;
    }

    bool swap(std::span<const int32_t> movable) {
        for (std::size_t i = 1; i < movable.size(); ++i) {
            for (std::size_t j = 0; j < i && tries_ > 0; ++j) {
                int32_t &a = chosen_[at(movable[i])], &b = chosen_[at(movable[j])];
                if (a == b)
                    continue;
                std::swap(a, b);
                if (accept())
                    return true;
                std::swap(a, b);
            }
        }
        return false;
    }

    std::vector<int32_t> take() { return std::move(chosen_); }

private:
    bool accept() {
        --tries_;
        const double value = judge_(chosen_);
        if (value >= best_ * kLess)
            return false;
        best_ = value;
        return true;
    }

    std::vector<int32_t> chosen_;
    const std::function<double(const std::vector<int32_t>&)>& judge_;
    int64_t tries_;
    double best_;
};

}  // namespace

std::vector<int32_t> local_search(std::vector<int32_t> chosen, std::span<const int32_t> movable, int32_t choices,
                                  const std::function<double(const std::vector<int32_t>&)>& judge, int64_t tries) {
    Search search(std::move(chosen), judge, tries);
    while (search.move(movable, choices) || search.swap(movable))
        continue;
    return search.take();
}

}  // namespace ostinato::passes
