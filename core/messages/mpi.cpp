#include "messages/mpi.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace ostinato {

namespace {

// One thread at a time, `Handle` being int for MPICH and a pointer for Open MPI and the standard ABI.
template <class Handle>
class MpiTransport final : public Transport {
public:
    MpiTransport(void* library, const MpiHandles& given)
        : communicator_(static_cast<Handle>(given.communicator)), byte_(static_cast<Handle>(given.byte)),
          any_source_(given.any_source), status_bytes_(given.status_bytes) {
        find(library, "MPI_Isend", isend_);
        find(library, "MPI_Irecv", irecv_);
        find(library, "MPI_Testsome", test_some_);
        find(library, "MPI_Cancel", cancel_);
    }

    void start(Request& request) override {
        if (error_ != 0)
            return;
        Handle handle{};
        const auto count = static_cast<int>(request.count);
        error_ = request.sends
                     ? isend_(request.bytes, count, byte_, request.peer, request.tag, communicator_, &handle)
                     : irecv_(request.bytes, count, byte_, request.peer == kAnyRank ? any_source_ : request.peer,
                              request.tag, communicator_, &handle);
        if (error_ != 0)
            return;
        handles_.push_back(handle);
        requests_.push_back(&request);
    }

    void progress(std::vector<Request*>& ended) override {
        const std::size_t n = handles_.size();
        if (n == 0 || error_ != 0)
            return;
        if (indices_.size() < n) {
            indices_.resize(2 * n);
            statuses_.resize(2 * n * status_bytes_);
        }
        int found = 0;
        error_ = test_some_(static_cast<int>(n), handles_.data(), &found, indices_.data(), statuses_.data());
        if (error_ != 0 || found <= 0)  // none, or MPI_UNDEFINED
            return;
        std::sort(indices_.begin(), indices_.begin() + found);
        for (int i = 0; i < found; ++i)
            ended.push_back(requests_[static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)])]);
        // From the last on, so that what takes a place has not ended.
        for (int i = found; i-- > 0;) {
            const auto at = static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)]);
            handles_[at] = handles_.back();
            requests_[at] = requests_.back();
            handles_.pop_back();
            requests_.pop_back();
        }
    }

    void cancel(Request& request) override {
        const auto at = std::find(requests_.begin(), requests_.end(), &request);
        if (at != requests_.end() && error_ == 0)
            error_ = cancel_(&handles_[static_cast<std::size_t>(at - requests_.begin())]);
    }

    int error() const override { return error_; }

private:
    template <class Function>
    static void find(void* library, const char* name, Function& function) {
        void* const found = dlsym(library, name);
        if (found == nullptr)
            throw std::runtime_error(std::string("the MPI library has no function ") + name);
        std::memcpy(&function, &found, sizeof found);
    }

    const Handle communicator_, byte_;
    const int any_source_;
    const std::size_t status_bytes_;
    int error_ = 0;
    int (*isend_)(const void*, int, Handle, int, int, Handle, Handle*) = nullptr;
    int (*irecv_)(void*, int, Handle, int, int, Handle, Handle*) = nullptr;
    int (*test_some_)(int, Handle*, int*, int*, void*) = nullptr;
    int (*cancel_)(Handle*) = nullptr;
    std::vector<Handle> handles_;
    std::vector<Request*> requests_;  // beside their requests
    std::vector<int> indices_;
    std::vector<std::byte> statuses_;
};

}  // namespace

std::unique_ptr<Transport> transport_by_mpi(const std::string& library, const MpiHandles& given) {
    void* const loaded = dlopen(library.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (loaded == nullptr)
        throw std::runtime_error(library + " is not loaded");
    if (given.handle_bytes == sizeof(std::uint32_t))
        return std::make_unique<MpiTransport<std::uint32_t>>(loaded, given);
    if (given.handle_bytes == sizeof(std::uint64_t))
        return std::make_unique<MpiTransport<std::uint64_t>>(loaded, given);
    throw std::runtime_error("handles of MPI have 4 or 8 bytes, not " + std::to_string(given.handle_bytes));
}

}  // namespace ostinato
