// Memory: of devices, at addresses that the host cannot reach, and page-locked.
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "fake.h"

namespace fake {

namespace {

constexpr std::uint64_t kPage = 4096;

struct Allocation {
    FakeContext* context;
    std::uint64_t bytes;
    void* data;
};

struct Memory {
    std::mutex mutex;
    std::map<std::uint64_t, Allocation> allocations;    // by the address that users see
    std::map<std::uint64_t, std::uint64_t> locked;      // page-locked pages: low, high
    std::map<std::uint64_t, std::uint64_t> registered;  // as asked for
    std::uint64_t limit =
        std::strtoull(std::getenv("FAKE_CUDA_BYTES") ? std::getenv("FAKE_CUDA_BYTES") : "1073741824", nullptr, 10);
    std::uint64_t used = 0;
};

Memory& memory() {
    static Memory& made = *new Memory;
    return made;
}

std::uint64_t down(std::uint64_t address) { return address / kPage * kPage; }
std::uint64_t up(std::uint64_t address) { return down(address + kPage - 1); }

const std::pair<const std::uint64_t, Allocation>* around(std::uint64_t address) {
    auto after = memory().allocations.upper_bound(address);
    if (after == memory().allocations.begin())
        return nullptr;
    --after;
    return address <= after->first + after->second.bytes ? &*after : nullptr;
}

}  // namespace

void* reached(std::uint64_t address, std::uint64_t bytes, bool& on_device) {
    const std::lock_guard<std::mutex> lock(memory().mutex);
    const auto* const found = around(address);
    on_device = found != nullptr;
    if (found == nullptr)
        return reinterpret_cast<void*>(address);
    if (address + bytes > found->first + found->second.bytes)
        return nullptr;
    return static_cast<char*>(found->second.data) + (address - found->first);
}

Locked page_locked(std::uint64_t address, std::uint64_t bytes) {
    const std::lock_guard<std::mutex> lock(memory().mutex);
    std::uint64_t inside = 0, pages = 0;
    const void* owner = nullptr;
    bool one = true;
    for (std::uint64_t page = down(address); page < up(address + bytes); page += kPage, ++pages)
        for (const auto& each : memory().locked)
            if (each.first <= page && page < each.second) {
                ++inside;
                one = one && (owner == nullptr || owner == &each);
                owner = &each;
            }
    if (inside == 0)
        return Locked::kNone;
    return inside == pages && one ? Locked::kAll : Locked::kSome;
}

}  // namespace fake

using namespace fake;

FAKE_CUDA Result cuMemAlloc_v2(Pointer* pointer, std::size_t bytes) {
    ENTER(kContext | kNoCapture);
    if (bytes == 0)
        return kInvalidValue;
    const std::lock_guard<std::mutex> lock(memory().mutex);
    if (memory().used + bytes > memory().limit)
        return kOutOfMemory;
    const std::uint64_t size = up(bytes) + kPage;
    void* const face = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void* const data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::memset(data, 0xa5, size);
    *pointer = reinterpret_cast<Pointer>(face);
    memory().allocations[*pointer] = {current(), bytes, data};
    memory().used += bytes;
    return kSuccess;
}

FAKE_CUDA Result cuMemFree_v2(Pointer pointer) {
    ENTER(kContext | kNoCapture);
    drain(current());
    const std::lock_guard<std::mutex> lock(memory().mutex);
    const auto found = memory().allocations.find(pointer);
    if (found == memory().allocations.end())
        return kInvalidValue;
    munmap(reinterpret_cast<void*>(pointer), up(found->second.bytes) + kPage);
    munmap(found->second.data, up(found->second.bytes) + kPage);
    memory().used -= found->second.bytes;
    memory().allocations.erase(found);
    return kSuccess;
}

FAKE_CUDA Result cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
    ENTER(kContext);
    const std::lock_guard<std::mutex> lock(memory().mutex);
    *free = memory().limit - memory().used;
    *total = memory().limit;
    return kSuccess;
}

FAKE_CUDA Result cuMemHostRegister_v2(void* host, std::size_t bytes, unsigned) {
    ENTER(kContext | kNoCapture);
    const std::lock_guard<std::mutex> lock(memory().mutex);
    const auto low = reinterpret_cast<std::uint64_t>(host);
    if (bytes == 0)
        return kInvalidValue;
    for (const auto& [begin, end] : memory().locked)
        if (begin < up(low + bytes) && down(low) < end)
            return kAlreadyRegistered;
    memory().locked[down(low)] = up(low + bytes);
    memory().registered[low] = bytes;
    return kSuccess;
}

FAKE_CUDA Result cuMemHostUnregister(void* host) {
    ENTER(kContext | kNoCapture);
    const std::lock_guard<std::mutex> lock(memory().mutex);
    const auto low = reinterpret_cast<std::uint64_t>(host);
    if (memory().registered.erase(low) == 0)
        return 713;
    memory().locked.erase(down(low));
    return kSuccess;
}

FAKE_CUDA Result cuPointerGetAttribute(void* value, int attribute, Pointer pointer) {
    ENTER(kContext);
    const std::lock_guard<std::mutex> lock(memory().mutex);
    const auto* const found = around(pointer);
    if (found == nullptr)
        return kInvalidValue;
    if (attribute == kPointerOrdinal)
        *static_cast<int*>(value) = found->second.context->ordinal;
    else if (attribute == kPointerRangeStart)
        *static_cast<Pointer*>(value) = found->first;
    else if (attribute == kPointerRangeSize)
        *static_cast<std::size_t*>(value) = found->second.bytes;
    else
        return kInvalidValue;
    return kSuccess;
}
