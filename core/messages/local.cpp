#include "messages/local.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "park/threads.h"

namespace ostinato {

class LocalRanks::Endpoint final : public Transport {
public:
    Endpoint(std::shared_ptr<LocalRanks> owned, LocalRanks& ranks, int rank)
        : owned_(std::move(owned)), ranks_(ranks), rank_(rank) {}

    void start(Request& request) override {
        const std::lock_guard<std::mutex> lock(ranks_.mutex_);
        Rank& own = ranks_.ranks_[static_cast<std::size_t>(rank_)];
        if (request.sends) {
            ranks_.send(rank_, request);
            own.ended.push_back(&request);
        } else {
            own.receives.push_back(&request);
        }
    }
    void progress(std::vector<Request*>& ended) override {
        const std::lock_guard<std::mutex> lock(ranks_.mutex_);
        Rank& own = ranks_.ranks_[static_cast<std::size_t>(rank_)];
        ranks_.match(own);
        ended.insert(ended.end(), own.ended.begin(), own.ended.end());
        own.ended.clear();
    }
    void cancel(Request& request) override {
        const std::lock_guard<std::mutex> lock(ranks_.mutex_);
        Rank& own = ranks_.ranks_[static_cast<std::size_t>(rank_)];
        if (std::erase(own.receives, &request) != 0)
            own.ended.push_back(&request);
    }
    int error() const override {
        const std::lock_guard<std::mutex> lock(ranks_.mutex_);
        return ranks_.ranks_[static_cast<std::size_t>(rank_)].error;
    }

private:
    const std::shared_ptr<LocalRanks> owned_;
    LocalRanks& ranks_;
    const int rank_;
};

LocalRanks::LocalRanks(int size, std::int64_t latency_ns, std::int64_t jitter_ns, std::uint64_t seed)
    : ranks_(static_cast<std::size_t>(size)), latency_ns_(latency_ns), jitter_ns_(jitter_ns),
      random_(static_cast<std::minstd_rand::result_type>(seed)) {}

std::unique_ptr<Transport> LocalRanks::transport(int rank) {
    if (rank < 0 || rank >= size())
        throw std::invalid_argument("there is no such rank");
    return std::make_unique<Endpoint>(nullptr, *this, rank);
}

void LocalRanks::kill(int rank, bool noticed) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ranks_.at(static_cast<std::size_t>(rank)).dead = true;
    for (Rank& each : ranks_)
        each.error = noticed && !each.dead ? 1 : each.error;
}

void LocalRanks::send(int from, const Request& request) {
    Rank& to = ranks_.at(static_cast<std::size_t>(request.peer));
    if (to.dead || ranks_[static_cast<std::size_t>(from)].dead)
        return;
    std::int64_t due = 0;
    if (latency_ns_ + jitter_ns_ != 0) {
        due = monotonic_ns() + latency_ns_;
        if (jitter_ns_ != 0)
            due += std::uniform_int_distribution<std::int64_t>(0, jitter_ns_)(random_);
    }
    to.arriving.push_back({from, request.tag, due, {request.bytes, request.bytes + request.count}});
}

void LocalRanks::match(Rank& rank) {
    const std::int64_t now = latency_ns_ + jitter_ns_ != 0 ? monotonic_ns() : 0;
    // The first receive that fits takes the first message of a source and tag, once that is due; later ones wait for
    // it.
    std::vector<std::pair<int, std::int32_t>> waiting;
    for (auto message = rank.arriving.begin(); message != rank.arriving.end();) {
        const std::pair<int, std::int32_t> from{message->source, message->tag};
        const bool behind = std::find(waiting.begin(), waiting.end(), from) != waiting.end();
        const auto receive = std::find_if(rank.receives.begin(), rank.receives.end(), [&](const Request* each) {
            return each->tag == message->tag && (each->peer == kAnyRank || each->peer == message->source);
        });
        if (behind || message->due > now || receive == rank.receives.end()) {
            waiting.push_back(from);
            ++message;
            continue;
        }
        Request& request = **receive;
        if (!message->bytes.empty())
            std::memcpy(request.bytes, message->bytes.data(), std::min(request.count, message->bytes.size()));
        rank.ended.push_back(&request);
        rank.receives.erase(receive);
        message = rank.arriving.erase(message);
    }
}

std::unique_ptr<Transport> transport_to_itself() {
    struct Alone final : Transport {
        LocalRanks ranks{1, 0, 0, 0};
        std::unique_ptr<Transport> own = ranks.transport(0);
        void start(Request& request) override { own->start(request); }
        void progress(std::vector<Request*>& ended) override { own->progress(ended); }
        void cancel(Request& request) override { own->cancel(request); }
    };
    return std::make_unique<Alone>();
}

}  // namespace ostinato
