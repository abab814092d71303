// Starting, contexts, errors, and what tests ask for.
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <sstream>

#include "fake.h"

namespace fake {

namespace {

struct Driver {
    std::mutex mutex;
    bool started = false, read = false;
    std::map<std::string, std::uint64_t> calls;
    std::map<std::string, std::vector<std::pair<std::uint64_t, int>>> failures;  // at which call, with which code
    std::vector<std::unique_ptr<FakeContext>> devices;
};

Driver& driver() {
    static Driver& made = *new Driver;  // threads outlive main
    return made;
}

thread_local std::vector<FakeContext*> contexts;
thread_local int capture_mode = kCaptureGlobal;

const char* setting(const char* name, const char* otherwise) {
    const char* const value = std::getenv(name);
    return value != nullptr ? value : otherwise;
}

// "cuMemAlloc_v2@3=2": its third call from now fails with code 2.
void ask_for(Driver& made, const std::string& failures) {
    std::istringstream all(failures);
    for (std::string each; std::getline(all, each, ',');) {
        const std::size_t at = each.find('@'), is = each.find('=');
        if (is == std::string::npos)
            continue;
        const std::string name = each.substr(0, std::min(at, is));
        const std::uint64_t count = at == std::string::npos ? 1 : std::stoull(each.substr(at + 1));
        made.failures[name].emplace_back(made.calls[name] + count, std::stoi(each.substr(is + 1)));
    }
}

// Mask as CUDA reads it: indices up to the first that is none.
void make_devices(Driver& made) {
    const int there = std::atoi(setting("FAKE_CUDA_DEVICES", "2"));
    const char* const mask = std::getenv("CUDA_VISIBLE_DEVICES");
    std::istringstream entries(mask != nullptr ? mask : "");
    std::vector<int> visible;
    for (std::string each; std::getline(entries, each, ',');) {
        if (each.empty() || each.find_first_not_of("0123456789") != std::string::npos || std::stoi(each) >= there)
            break;
        visible.push_back(std::stoi(each));
    }
    for (int number = 0; mask == nullptr && number < there; ++number)
        visible.push_back(number);
    for (const int number : visible) {
        made.devices.push_back(std::make_unique<FakeContext>());
        made.devices.back()->ordinal = static_cast<int>(made.devices.size()) - 1;
        made.devices.back()->physical = number;
    }
}

struct Known {
    int code;
    const char *name, *text;
};
constexpr Known kKnown[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capture was not ended in the same stream as it began"},
};

}  // namespace

Captures& captures() {
    static Captures& made = *new Captures;
    return made;
}

FakeContext* current() { return contexts.empty() ? nullptr : contexts.back(); }

Result enter(const char* name, int needs) {
    Driver& made = driver();
    {
        const std::lock_guard<std::mutex> lock(made.mutex);
        if (!made.read) {
            made.read = true;
            ask_for(made, setting("FAKE_CUDA_FAIL", ""));
        }
        const std::uint64_t count = ++made.calls[name];
        for (const auto& [at, code] : made.failures[name])
            if (at == count)
                return code;
        if ((needs & (kDriver | kContext)) != 0 && !made.started)
            return kNotInitialized;
    }
    if ((needs & kContext) != 0) {
        if (current() == nullptr)
            return kInvalidContext;
        if (const int failure = current()->failure(); failure != 0)
            return failure;
    }
    if ((needs & kNoCapture) != 0) {
        Captures& all = captures();
        const std::lock_guard<std::mutex> lock(all.mutex);
        bool forbidden = false;
        for (const auto& each : all.all) {
            const bool own = each->by == std::this_thread::get_id() && each->mode != kCaptureRelaxed;
            const bool others = each->mode == kCaptureGlobal && capture_mode == kCaptureGlobal;
            if ((own && capture_mode != kCaptureRelaxed) || others) {
                each->valid = false;
                forbidden = true;
            }
        }
        if (forbidden)
            return kCaptureUnsupported;
    }
    return kSuccess;
}

}  // namespace fake

using namespace fake;

FAKE_CUDA void fake_cuda_fail(const char* failures) {
    const std::lock_guard<std::mutex> lock(driver().mutex);
    ask_for(driver(), failures);
}

FAKE_CUDA std::uint64_t fake_cuda_calls(const char* name) {
    const std::lock_guard<std::mutex> lock(driver().mutex);
    return driver().calls[name];
}

// As if a device that broke had been made whole, which CUDA never does.
FAKE_CUDA void fake_cuda_heal() {
    const std::lock_guard<std::mutex> lock(driver().mutex);
    for (const auto& device : driver().devices) {
        const std::lock_guard<std::mutex> own(device->mutex);
        device->broken = 0;
    }
}

FAKE_CUDA Result cuInit(unsigned) {
    ENTER(kNothing);
    const std::lock_guard<std::mutex> lock(driver().mutex);
    if (!driver().started)
        make_devices(driver());
    driver().started = true;
    return driver().devices.empty() ? kNoDevice : kSuccess;
}

FAKE_CUDA Result cuGetErrorName(Result code, const char** name) {
    for (const Known& each : kKnown)
        if (each.code == code) {
            *name = each.name;
            return kSuccess;
        }
    *name = nullptr;
    return kInvalidValue;
}

FAKE_CUDA Result cuGetErrorString(Result code, const char** text) {
    for (const Known& each : kKnown)
        if (each.code == code) {
            *text = each.text;
            return kSuccess;
        }
    *text = nullptr;
    return kInvalidValue;
}

FAKE_CUDA Result cuDriverGetVersion(int* version) {
    *version = 12080;
    return kSuccess;
}

FAKE_CUDA Result cuDeviceGetCount(int* count) {
    ENTER(kDriver);
    *count = static_cast<int>(driver().devices.size());
    return kSuccess;
}

FAKE_CUDA Result cuDeviceGet(Number* device, int ordinal) {
    ENTER(kDriver);
    *device = ordinal;
    return kSuccess;
}

FAKE_CUDA Result cuDeviceGetName(char* name, int length, Number) {
    ENTER(kDriver);
    std::strncpy(name, "Fake GPU", static_cast<std::size_t>(length));
    return kSuccess;
}

FAKE_CUDA Result cuDeviceGetUuid(Uuid* uuid, Number device) {
    ENTER(kDriver);
    for (int at = 0; at < 16; ++at)
        uuid->bytes[at] =
            static_cast<unsigned char>(at * 16 + driver().devices[static_cast<std::size_t>(device)]->physical);
    return kSuccess;
}

// The second device is an instance of a GPU in MIG mode.
FAKE_CUDA Result cuDeviceGetUuid_v2(Uuid* uuid, Number device) {
    ENTER(kDriver);
    cuDeviceGetUuid(uuid, device);
    if (driver().devices[static_cast<std::size_t>(device)]->physical == 1)
        uuid->bytes[0] = 0xff;
    return kSuccess;
}

FAKE_CUDA Result cuDevicePrimaryCtxRetain(Context* context, Number device) {
    ENTER(kDriver);
    *context = reinterpret_cast<Context>(driver().devices[static_cast<std::size_t>(device)].get());
    return kSuccess;
}

FAKE_CUDA Result cuCtxGetCurrent(Context* context) {
    ENTER(kDriver);
    *context = reinterpret_cast<Context>(current());
    return kSuccess;
}

FAKE_CUDA Result cuCtxSetCurrent(Context context) {
    ENTER(kDriver);
    if (!contexts.empty())
        contexts.pop_back();
    if (context != nullptr)
        contexts.push_back(reinterpret_cast<FakeContext*>(context));
    return kSuccess;
}

FAKE_CUDA Result cuCtxPushCurrent_v2(Context context) {
    ENTER(kDriver);
    contexts.push_back(reinterpret_cast<FakeContext*>(context));
    return kSuccess;
}

FAKE_CUDA Result cuCtxPopCurrent_v2(Context* context) {
    ENTER(kDriver);
    if (contexts.empty())
        return kInvalidContext;
    *context = reinterpret_cast<Context>(contexts.back());
    contexts.pop_back();
    return kSuccess;
}

FAKE_CUDA Result cuThreadExchangeStreamCaptureMode(int* mode) {
    ENTER(kDriver);
    std::swap(*mode, capture_mode);
    return kSuccess;
}

FAKE_CUDA Result cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t, int* status) {
    *function = nullptr;
    *status = 1;
    if (std::getenv("FAKE_CUDA_OLD") != nullptr || version > 12080)  // a driver without it
        return kInvalidValue;
    Dl_info own{};
    dladdr(reinterpret_cast<void*>(&cuGetProcAddress_v2), &own);
    void* const self = dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    // The oldest form of a function is not the one that is asked for: there are second ones only where there were
    // first.
    const std::string second = std::string(name) + "_v2";
    const bool first_form = std::strcmp(name, "cuDeviceGetUuid") == 0 && version < 11040;
    *function = first_form ? nullptr : dlsym(self, second.c_str());
    if (*function == nullptr)
        *function = dlsym(self, name);
    *status = *function == nullptr ? 1 : 0;
    return kSuccess;
}
