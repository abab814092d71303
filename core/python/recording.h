// The streams that Python bodies are captured on, as Python objects.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "devices/device_ops.h"
#include "python/plan.h"

namespace ostinato {

class RecordingStreams {
public:
    struct Body {
        PythonReference make;  // from a handle, what the body gets as its stream
        std::vector<std::uint32_t> positions;
    };
    std::map<std::uint32_t, Body> bodies;  // by PythonPlan::ops

    // For this body and stream, borrowed; null: the error is set.
    PyObject* get(const Body& body, StreamHandle handle) {
        PythonReference& known = made_[{body.make.get(), handle}];
        if (known.get() == nullptr) {
            PyObject* const stream =
                PyObject_CallFunction(body.make.get(), "K", static_cast<unsigned long long>(handle));
            known = PythonReference(stream);
            Py_XDECREF(stream);
        }
        return known.get();
    }

private:
    std::map<std::pair<PyObject*, StreamHandle>, PythonReference> made_;
};

}  // namespace ostinato
