# A thin front for the CMake presets. `make` builds build/release/milkit.
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
PROMPT ?= In the beginning

.PHONY: all release test test-arm demo asan tsan clang fuzz fuzz-run bench cov format format-check deps install clean

all: release

# Configures once, then builds: ninja itself notices changed CMake files and new sources.
build/%/build.ninja:
	cmake --preset $*

release: build/release/build.ninja
	cmake --build --preset release -j $(JOBS)

test: release
	ctest --preset release -j $(JOBS)

asan: build/asan/build.ninja
	cmake --build --preset asan -j $(JOBS)
	ctest --preset asan -j $(JOBS)

tsan: build/tsan/build.ninja
	cmake --build --preset tsan -j $(JOBS)
	ctest --preset tsan -j $(JOBS)

clang: build/clang/build.ninja
	cmake --build --preset clang -j $(JOBS)

# The suite on 64-bit Arm, emulated: slow. What it needs is said where it is missing.
test-arm:
	sh tools/test-arm.sh $(JOBS)

demo: release
	sh tools/demo.sh build/release/milkit tests/data/models/qwen3-tiny "$(PROMPT)"

fuzz: build/fuzz/build.ninja
	cmake --build --preset fuzz -j $(JOBS)

# Runs every target for FUZZ_SECONDS from its corpus; what it finds goes to build/fuzz/found/<name>/.
fuzz-run: fuzz
	bash tools/fuzz.sh build/fuzz $(FUZZ_SECONDS)

bench: build/release/build.ninja
	cmake --build --preset release -j $(JOBS) --target bench

cov: build/cov/build.ninja
	cmake --build --preset cov -j $(JOBS)
	ctest --preset cov -j $(JOBS)
	bash tools/coverage.sh build/cov

format:
	bash tools/format.sh

format-check:
	bash tools/format.sh --check

deps:
	sh tools/install-deps.sh

install: release
	cmake --install build/release

clean:
	rm -rf build
