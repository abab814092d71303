#include "devices/cuda/api.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>

namespace ostinato::cuda {

namespace {

using Find = Result (*)(const char* name, void** function, int version, std::uint64_t flags, int* status);

constexpr std::uint64_t kLegacyStream = 1;  // as without --default-stream per-thread

// Finds functions: by the name and the version of CUDA in which their form came, or, before CUDA 12, by their symbols.
class Finder {
public:
    explicit Finder(void* library)
        : library_(library), find_(reinterpret_cast<Find>(dlsym(library, "cuGetProcAddress_v2"))) {}

    template <typename Function>
    void operator()(Function& function, const char* name, int version, const char* symbol) {
        optional(function, name, version, symbol);
        if (function == nullptr && missing_.empty())
            missing_ = symbol;
    }

    template <typename Function>
    void optional(Function& function, const char* name, int version, const char* symbol) {
        void* found = nullptr;
        int status = 0;
        if (find_ == nullptr || find_(name, &found, version, kLegacyStream, &status) != kSuccess || status != 0)
            found = nullptr;
        if (found == nullptr)
            found = dlsym(library_, symbol);
        function = reinterpret_cast<Function>(found);
    }

    const std::string& missing() const { return missing_; }

private:
    void* library_;
    Find find_;
    std::string missing_;
};

std::string find_all(void* library, Api& api) {
    Finder find(library);
#define OSTINATO_FIND(entry, name, suffix, version, parameters) find(api.entry, name, version, name suffix);
#define OSTINATO_FIND_OPTIONAL(entry, name, suffix, version, parameters) \
    find.optional(api.entry, name, version, name suffix);
    OSTINATO_CUDA_ENTRIES(OSTINATO_FIND)
    OSTINATO_CUDA_OPTIONAL_ENTRIES(OSTINATO_FIND_OPTIONAL)
#undef OSTINATO_FIND
#undef OSTINATO_FIND_OPTIONAL
    return find.missing();
}

}  // namespace

std::shared_ptr<const Api> Api::load(const std::string& library, bool& broken, std::string& why) {
    broken = false;
    // Never closed: its threads, and whoever else uses it, live as long as the process.
    void* const opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) {
        const char* const error = dlerror();
        why = error != nullptr ? error : "cannot be opened";
        // What was searched for in vain is named as it was given; what was found, by its path.
        const bool given_a_path = library.find('/') != std::string::npos;
        broken = given_a_path ? access(library.c_str(), F_OK) == 0 : why.rfind(library + ": ", 0) != 0;
        return nullptr;
    }
    const auto api = std::make_shared<Api>();
    if (const std::string missing = find_all(opened, *api); !missing.empty()) {
        broken = true;
        why = library + " has no " + missing + "; a driver of CUDA 11.4 or newer is needed";
        return nullptr;
    }
    if (const Result code = api->init(0); code != kSuccess) {
        broken = code != kNoDevice;
        why = "cuInit: " + api->words(code);
        return nullptr;
    }
    return api;
}

std::string Api::words(Result code) const {
    const char* name = nullptr;
    const char* text = nullptr;
    if (error_name(code, &name) != kSuccess || name == nullptr)
        return "CUDA error " + std::to_string(code);
    std::string words = std::string(name) + " (" + std::to_string(code) + ")";
    if (error_string(code, &text) == kSuccess && text != nullptr)
        words += std::string(": ") + text;
    return words;
}

}  // namespace ostinato::cuda
