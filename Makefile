# SPDX-License-Identifier: Apache-2.0
# `make` lists the targets. Everything is installed into .venv, from package registries, without root.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BUILD := build/release
JOBS ?= $(shell nproc)
Q := $(if $(V),,@)
QUIET := $(if $(V),,> /dev/null)
# One more than CPUs, because many tests wait for processes. Each needs a gigabyte or two for TensorFlow and models.
TEST_JOBS ?= $(shell n=$$(nproc); echo $$((n < 4 ? n + 1 : 4)))
# --no-loadscope-reorder keeps the order of tests/conftest.py; otherwise files with the most tests would come first.
PYTEST := $(BIN)/python -m pytest -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder
# A killed test that built a wheel in the same folder leaves SKBUILD variables in the cache of CMake.
CONFIGURE := $(BIN)/cmake -S . -G Ninja -U 'SKBUILD*' -DPython_EXECUTABLE=$(abspath $(BIN)/python) -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja)
export TF_CPP_MIN_LOG_LEVEL ?= 3

.DEFAULT_GOAL := help
.PHONY: help bench-cost-model bench-slo-capacity bench-fused bench-batching bench-user-items bench-deepctr bench-kernels bench-live bench-elastic bench-tiers bench-fleet bench-graph-tools bench-session-group bench-aot bench-claims bench-hosts bench-large-table load-test demo demo-proxy demo-online build host-go lib lib-asan lib-tsan test test-fast test-lib test-py test-asan test-faults test-tsan lint fmt typecheck bench endurance fuzz \
        docs proto check clean dist image deploy-tools manifests

## help: list the targets
help:
	@grep -hE '^## ' $(MAKEFILE_LIST) | sed -e 's/^## //' | awk '{i = index($$0, ": "); printf "  %-20s %s\n", substr($$0, 1, i - 1), substr($$0, i + 2)}'

# Installed without dependencies: these are `tensorflow`, which would overwrite tensorflow-cpu, or an older protobuf.
WITHOUT_TENSORFLOW := 'tensorflow-serving-api==2.21.*' 'tf-keras==2.21.*' 'tritonclient==2.73.*'

# One stamp per set of packages: a later `make` installs only what has changed in pyproject.toml.
$(VENV)/.stamp-%: pyproject.toml
	$(Q)test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(Q)echo "Installing the Python packages of the group '$*' into $(VENV); the first time this takes a minute or two"
	$(Q)$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(Q){ $(BIN)/python -m pip install --progress-bar off --disable-pip-version-check --group $*; \
		echo "pip: $$?"; } | sed -unf tools/pip_progress.sed
	$(Q)$(if $(filter test lint bench load-test demo-proxy demo-online,$*),$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(WITHOUT_TENSORFLOW))
	$(Q)touch $@

# Engines that benchmarks compare with have an environment of their own, since users do not need them.
.venv-peers/.stamp: pyproject.toml
	$(Q)test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	$(Q)echo "Installing ONNX Runtime and OpenVINO into .venv-peers, for comparison"
	$(Q).venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(Q).venv-peers/bin/python -m pip install --quiet --disable-pip-version-check --group peers
	$(Q)touch $@

# TFRA needs TensorFlow 2.16. Where it cannot be installed, its benchmark says so and goes on without it.
.venv-tfra/.stamp: pyproject.toml
	$(Q)test -x .venv-tfra/bin/python || $(PYTHON) -m venv .venv-tfra
	$(Q)echo "Installing TFRA and TensorFlow 2.16 into .venv-tfra, for comparison"
	$(Q).venv-tfra/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(Q).venv-tfra/bin/python -m pip install --quiet --disable-pip-version-check --group tfra \
		&& touch $@ || echo 'TFRA cannot be installed here'

# Clients that need an old protobuf; tests use them.
.venv-clients/.stamp: pyproject.toml
	$(Q)test -x .venv-clients/bin/python || $(PYTHON) -m venv .venv-clients
	$(Q)echo "Installing eas-prediction into .venv-clients, for tests"
	$(Q).venv-clients/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(Q).venv-clients/bin/python -m pip install --quiet --disable-pip-version-check --group clients
	$(Q)touch $@

# Installs the commands, the version and the import path of the checkout; nothing is compiled or copied.
$(VENV)/.stamp-in-place: $(VENV)/.stamp-build
	$(Q)$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(Q)touch $@

## build: build the library and the Python binding, and install the three commands into .venv/bin
build: lib $(VENV)/.stamp-in-place $(VENV)/.stamp-command-lines

## lib: build only libprocessor.so, the Python binding and libelastic_training.so, in their packages
lib: $(VENV)/.stamp-build
	$(Q)test -e $(BUILD)/.ninja_log || echo "Compiling libprocessor.so, $(JOBS) files at a time; the first time this takes some 8 minutes of CPU time"
	$(Q)$(CONFIGURE) -B $(BUILD) -DPROCESSOR_BENCH=ON $(QUIET)
	$(Q)$(BIN)/cmake --build $(BUILD) --parallel $(JOBS)

# The host program finds the library in processor/ by a relative path, and the library finds TensorFlow in .venv.
# Go compiles `net`, and all that imports it, once for each value of these variables, and everything again without
# -trimpath. So the demo and the tests have the same; only the path of the library, which is for the linker, differs.
GO_BUILD = CGO_ENABLED=1 CGO_CFLAGS='-O2 -I$(abspath libprocessor/include)' \
           CGO_LDFLAGS='-L$(abspath processor) -Wl,--allow-shlib-undefined' \
           go build -C libprocessor/go -trimpath -ldflags '-extldflags=-Wl,-rpath,$$ORIGIN/../../processor'

## host-go: build the Go host, a load generator and a client into build/host-go
host-go: lib
	$(Q)command -v go > /dev/null || { echo "go: not found, expected Go 1.24 or newer"; exit 1; }
	$(Q)mkdir -p build/host-go
	$(Q)$(GO_BUILD) -o $(abspath build/host-go)/ ./cmd/recprocessor-host ./cmd/loadgen ./cmd/client-example

## demo: train a click model, optimize it, serve it from C, Python and Go, and compare the scores
demo: lib $(VENV)/.stamp-in-place $(VENV)/.stamp-demo
	$(Q)$(BIN)/python -m demo

## demo-proxy: split traffic, promote and roll back under load, and draw the dashboard
demo-proxy: lib $(VENV)/.stamp-in-place $(VENV)/.stamp-demo-proxy
	$(Q)$(BIN)/python -m demo.proxy

## demo-online: learn a stream of ratings while it is served, and draw what that is worth
demo-online: lib $(VENV)/.stamp-in-place $(VENV)/.stamp-demo-online
	$(Q)$(BIN)/python -m demo.online

# Builds what the tests of C++ need, so that no other test has to wait for that folder.
.PHONY: test-programs
test-programs: lib $(VENV)/.stamp-test
	$(Q)if test -e /usr/include/gtest/gtest.h; then \
		$(CONFIGURE) -B $(BUILD) -DPROCESSOR_TESTS=ON $(QUIET) && \
		$(BIN)/cmake --build $(BUILD) --parallel $(JOBS) --target processor_tests processor_kernel_tests \
			processor_thread_tests processor_fuzz_sources processor_bench_sources elastic_training_tests \
			elastic_optimizer_probe; fi

## test: run all tests that CI runs
test: lib test-programs .venv-clients/.stamp
	$(Q)$(PYTEST) -m 'not long' $(PYTEST_ARGS)

## test-fast: run the tests that take less than ten seconds each
test-fast: lib $(VENV)/.stamp-test .venv-clients/.stamp
	$(Q)$(PYTEST) -m 'not slow and not long' $(PYTEST_ARGS)

## test-lib: run the tests of the library
test-lib: lib test-programs
	$(Q)$(PYTEST) tests/libprocessor $(PYTEST_ARGS)

# Without optimization the tests would take minutes.
SANITIZED := $(CONFIGURE) -DPROCESSOR_TESTS=ON -DCMAKE_BUILD_TYPE=Sanitize -DCMAKE_C_FLAGS_SANITIZE=-O1 \
             -DCMAKE_CXX_FLAGS_SANITIZE=-O1
RUN_SANITIZED := $(BIN)/python tests/libprocessor/sanitizers/run_programs.py --seconds $(or $(STRESS_SECONDS),10)
ASAN_PROGRAMS := processor_tests processor_kernel_tests processor_test_c_api processor_test_c_api_drop_in \
                 processor_test_c_api_host processor_stress processor_early_reads elastic_training_tests
TSAN_PROGRAMS := processor_thread_tests elastic_training_tests

## lib-asan: build test programs with AddressSanitizer and UndefinedBehaviorSanitizer
lib-asan: $(VENV)/.stamp-test
	$(Q)$(SANITIZED) -B build/asan -DPROCESSOR_SANITIZE=address,undefined $(QUIET)
	$(Q)$(BIN)/cmake --build build/asan --parallel $(JOBS) --target $(ASAN_PROGRAMS)

## test-asan: run these programs (STRESS_SECONDS=10)
test-asan: lib-asan
	$(Q)$(RUN_SANITIZED) build/asan $(ASAN_PROGRAMS)

## lib-tsan: build test programs with ThreadSanitizer
lib-tsan: $(VENV)/.stamp-test
	$(Q)$(SANITIZED) -B build/tsan -DPROCESSOR_SANITIZE=thread $(QUIET)
	$(Q)$(BIN)/cmake --build build/tsan --parallel $(JOBS) --target $(TSAN_PROGRAMS)

## test-tsan: run these programs
test-tsan: lib-tsan
	$(Q)$(RUN_SANITIZED) build/tsan $(TSAN_PROGRAMS)

## test-faults: inject faults into a running proxy and its hosts; 30 min, needs Go (FAULT_ARGS='--only kills')
test-faults: host-go $(VENV)/.stamp-load-test
	$(Q)$(BIN)/python -m load_tests.faults $(FAULT_ARGS)

## test-upgrade: replace the programs of the commit FROM=COMMIT one by one by today's under load, and go back; needs Go
.PHONY: test-upgrade
test-upgrade: host-go $(VENV)/.stamp-bench $(VENV)/.stamp-load-test
	$(Q)test -n '$(FROM)' || { echo 'FROM: not set, expected a commit'; exit 1; }
	$(Q)$(BIN)/python -m load_tests.upgrade --from '$(FROM)' $(UPGRADE_ARGS)

## test-py: run the tests of the Python packages
test-py: lib $(VENV)/.stamp-test .venv-clients/.stamp
	$(Q)$(PYTEST) tests/processor tests/graph_tools tests/cost_model tests/serving_proxy tests/elastic_training tests/demo tests/load_tests $(PYTEST_ARGS)

## bench: measure speed, latency, CPU time and memory against stock TensorFlow
bench: lib $(VENV)/.stamp-bench
	$(Q)$(BIN)/python -m load_tests.bench_serving
	$(Q)$(BIN)/cmake --build $(BUILD) --parallel $(JOBS) --target bench_codec
	$(Q)$(BIN)/python -m load_tests.bench_codec
	$(Q)$(BIN)/python -m load_tests.python_threads
	$(Q)$(BIN)/python -m load_tests.bench_memory --only sessions
	$(Q)$(MAKE) --no-print-directory bench-fused bench-batching bench-user-items bench-deepctr bench-kernels

## bench-fused: measure fused models against TensorFlow, ONNX Runtime, OpenVINO and oneDNN
bench-fused: lib $(VENV)/.stamp-bench .venv-peers/.stamp
	$(Q)$(BIN)/python -m load_tests.bench_fused $(BENCH_ARGS)

## bench-batching: measure one-row requests of 16 threads with and without batching
bench-batching: lib $(VENV)/.stamp-bench
	$(Q)$(BIN)/python -m load_tests.bench_batching $(BENCH_ARGS)

## bench-hosts: measure the hosts, and the effect of deployments on clients; 30 min, needs Go
bench-hosts: host-go $(VENV)/.stamp-bench
	$(Q)$(BIN)/python -m load_tests.bench_hosts $(BENCH_ARGS)

## bench-user-items: measure requests of one user and 512 items, with and without --user-inputs
bench-user-items: lib $(VENV)/.stamp-bench
	$(Q)$(BIN)/python -m load_tests.bench_user_items $(BENCH_ARGS)

## bench-deepctr: measure eight fused DeepCTR models against stock TensorFlow
bench-deepctr: lib $(VENV)/.stamp-bench
	$(Q)$(BIN)/python -m load_tests.bench_deepctr $(BENCH_ARGS)

## bench-kernels: measure kernels against oneDNN and memory bandwidth
bench-kernels: lib
	$(Q)$(BIN)/cmake --build $(BUILD) --parallel $(JOBS) --target bench_kernels
	$(Q)$(BUILD)/bench/bench_kernels $(BENCH_ARGS)

## bench-live: measure live models, and check answers over 10,000 epochs and 1,000 damaged deltas; an hour
bench-live: lib $(VENV)/.stamp-bench
	$(Q)$(BIN)/cmake --build $(BUILD) --parallel $(JOBS) --target bench_kernels
	$(Q)$(BIN)/python -m load_tests.bench_live $(BENCH_ARGS)

## bench-elastic: measure elastic_training beside TFRA, TensorFlow and Keras; 20 min (BENCH_ARGS='--only lookup')
bench-elastic: lib $(VENV)/.stamp-bench .venv-tfra/.stamp
	$(Q)$(BIN)/python -m load_tests.bench_elastic $(BENCH_ARGS)

## bench-tiers: measure tables larger than memory; 65 min, 9 GB of disk (BENCH_ARGS='--folder /ssd')
bench-tiers: lib $(VENV)/.stamp-bench
	$(Q)$(BIN)/cmake --build $(BUILD) --parallel $(JOBS) --target bench_row_log
	$(Q)$(BIN)/python -m load_tests.bench_tiers $(BENCH_ARGS)

## bench-fleet: measure many machines as state directories of this one; 10 min, needs Go
bench-fleet: host-go $(VENV)/.stamp-bench $(VENV)/.stamp-load-test
	$(Q)$(BIN)/python -m load_tests.bench_fleet $(BENCH_ARGS)

## bench-graph-tools: measure what graph-tools saves on real exports (CASES='exports nodes')
bench-graph-tools: lib $(VENV)/.stamp-bench
	$(Q)$(BIN)/python -m load_tests.bench_graph_tools $(addprefix --only ,$(CASES)) $(BENCH_ARGS)

## bench-cost-model: measure predictions and plans, and simulate 128 cores; hours, needs Go (BENCH_ARGS=--quick)
bench-cost-model: host-go $(VENV)/.stamp-bench $(VENV)/.stamp-command-lines
	$(Q)$(BIN)/python -m load_tests.cost_model.predictions $(filter --quick --strict,$(BENCH_ARGS))
	$(Q)$(BIN)/python -m load_tests.cores $(filter --quick --strict,$(BENCH_ARGS))
	$(Q)$(BIN)/python -m load_tests.bench_cost_model $(BENCH_ARGS)

## bench-slo-capacity: measure requests/s within all SLOs without a plan, with a plan and with control; needs Go
bench-slo-capacity: host-go $(VENV)/.stamp-bench $(VENV)/.stamp-command-lines
	$(Q)$(BIN)/python -m load_tests.bench_slo_capacity $(BENCH_ARGS)

## bench-session-group: measure one session with all CPUs against one session per CPU, and sessions bound to CPUs
bench-session-group: lib $(VENV)/.stamp-bench
	$(Q)$(BIN)/python -m load_tests.bench_session_group $(BENCH_ARGS)

## bench-aot: measure models compiled ahead of time by TensorFlow against stock and fused ones
bench-aot: lib $(VENV)/.stamp-bench
	$(Q)$(BIN)/python -m load_tests.bench_aot $(BENCH_ARGS)

## bench-claims: compare published claims with the results of the benchmarks (BENCH_ARGS=--run measures them)
bench-claims: $(VENV)/.stamp-bench
	$(Q)$(BIN)/python -m load_tests.bench_claims $(BENCH_ARGS)

## load-test: run SCENARIO=steady, burst, version_switch, overload, noisy_variant or soak; needs Go
load-test: host-go $(VENV)/.stamp-load-test
	$(Q)$(BIN)/python -m load_tests.scenarios $(or $(SCENARIO),steady) $(LOAD_ARGS)

## bench-large-table: measure the memory of a cut of a table of GB=20 gigabytes; needs 1.7 times that on disk
bench-large-table: lib $(VENV)/.stamp-bench
	$(Q)$(BIN)/python -m load_tests.bench_large_table --gb $(or $(GB),20) $(BENCH_ARGS)

## endurance: load, serve and free a model CYCLES=10000 times, and check for leaks
endurance: lib $(VENV)/.stamp-bench
	$(Q)$(BIN)/python -m load_tests.bench_memory --only cycles --cycles $(or $(CYCLES),10000) --strict

CLANG := $(firstword $(foreach name,clang++ clang++-19 clang++-18 clang++-17 clang++-16 clang++-15 clang++-14,$(shell command -v $(name))))

## fuzz: fuzz codecs, file readers and the Python binding for FUZZ_SECONDS=60 each
fuzz: lib $(VENV)/.stamp-test
	$(Q)$(CONFIGURE) -B build/fuzz -DPROCESSOR_FUZZ=ON $(if $(CLANG),-DCMAKE_CXX_COMPILER=$(CLANG)) $(QUIET)
	$(Q)$(BIN)/cmake --build build/fuzz --parallel $(JOBS) \
		--target fuzz_codec_driver fuzz_table_driver fuzz_delta_driver fuzz_desired_driver fuzz_plan_driver \
		$(if $(CLANG),fuzz_codec fuzz_table fuzz_delta fuzz_desired fuzz_plan)
	$(Q)libprocessor/fuzz/run.sh build/fuzz $(or $(FUZZ_SECONDS),60)
	$(Q)$(BIN)/python -m pytest tests/processor/test_random_requests.py --hypothesis-profile=fuzz

SOURCES = $(shell find libprocessor cost_model elastic_training tests \( -name '*.c' -o -name '*.cc' -o -name '*.h' \) -not -path '*/build/*')

## lint: check format, style, imports and spelling
lint: $(VENV)/.stamp-lint
	$(Q)$(BIN)/ruff check .
	$(Q)$(BIN)/ruff format --check --quiet . || { echo "run 'make fmt'"; exit 1; }
	$(Q)$(BIN)/clang-format --dry-run --Werror $(SOURCES) || { echo "run 'make fmt'"; exit 1; }
	$(Q)if command -v gofmt > /dev/null; then files=$$(gofmt -l libprocessor/go); test -z "$$files" || { echo "gofmt: $$files"; exit 1; }; fi
	$(Q)$(BIN)/python tools/make_abi_reference.py --check
	$(Q)$(BIN)/python tools/make_protos.py --check
	$(Q)$(BIN)/python tools/check_tree.py
	$(Q)$(BIN)/python tools/check_names.py
	$(Q)git ls-files -z | xargs -0 $(BIN)/codespell
	$(Q)found=$$($(BIN)/lint-imports --no-cache) || { echo "$$found"; exit 1; }

## fmt: format C, C++, Go and Python
fmt: $(VENV)/.stamp-lint
	$(Q)$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format --quiet .
	$(Q)$(BIN)/clang-format -i $(SOURCES)
	$(Q)if command -v gofmt > /dev/null; then gofmt -w libprocessor/go; fi

## typecheck: run mypy --strict
typecheck: $(VENV)/.stamp-lint
	$(Q)$(BIN)/mypy

## proto: write the protobuf descriptors from protos/
proto: $(VENV)/.stamp-build
	$(Q)$(BIN)/python tools/make_protos.py

## docs: write docs/abi.md and docs/schemas from the sources
docs: $(VENV)/.stamp-build
	$(Q)$(BIN)/python tools/make_abi_reference.py
	$(Q)$(BIN)/python -m tools.make_schemas

## dist: write dist/libprocessor-VERSION-linux-x86_64.tar.gz, for machines without Python
dist: lib
	$(Q)$(BIN)/cmake --build $(BUILD) --parallel $(JOBS) --target processor_dist
	$(Q)$(BIN)/python tools/make_dist.py --build $(BUILD)

# As `host-go`, but it finds the library as it lies in the image.
IMAGE_HOST = $(subst ../../processor,../lib,$(GO_BUILD)) -o $(abspath build/image-host)/ ./cmd/recprocessor-host
IMAGE_TAG ?= $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

## image: build the images recprocessor-host and recprocessor from `make dist`, with buildah or docker (REGISTRY=, IMAGE_TAG=)
image: dist
	$(Q)mkdir -p build/image-host
	$(Q)$(IMAGE_HOST)
	$(Q)$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist -C build-dir=$(BUILD) .
	$(Q)$(BIN)/python tools/make_images.py --archive dist/libprocessor-*.tar.gz --host build/image-host/recprocessor-host \
		--wheel dist/recprocessor-*.whl --registry '$(REGISTRY)' --tag '$(IMAGE_TAG)'

## test-image: run the Go host in the root file system of its image; needs root, mmdebstrap and Debian's packages
.PHONY: test-image
test-image: dist $(VENV)/.stamp-test
	$(Q)mkdir -p build/image-host
	$(Q)$(IMAGE_HOST)
	$(Q)CI=true $(BIN)/python -m pytest tests/deploy/test_image_root.py

# Azurite is an npm package of its own dependencies; scripts of packages are not run.
build/store-tools/node_modules/azurite/package.json:
	$(Q)mkdir -p build/store-tools
	$(Q)npm install --silent --no-progress --ignore-scripts --prefix build/store-tools azurite@3

build/store-tools/versitygw:
	$(Q)GOBIN=$(abspath build/store-tools) go install github.com/versity/versitygw/cmd/versitygw@v1.8.0

## test-stores: test model stores and shared stores at versitygw and azurite; compiles versitygw, needs Go and Node.js
.PHONY: test-stores
test-stores: lib $(VENV)/.stamp-test build/store-tools/node_modules/azurite/package.json build/store-tools/versitygw
	$(Q)CI=true VERSITYGW=$(abspath build/store-tools/versitygw) $(BIN)/python -m pytest \
		tests/serving_proxy/artifacts/test_azure.py tests/serving_proxy/leadership/test_shared_bucket.py

# Programs that only the checks of deploy/ need.
DEPLOY_TOOLS := $(abspath build/deploy-tools)

build/deploy-tools/helm: tools/fetch_helm.py | $(VENV)/.stamp-build
	$(Q)$(BIN)/python tools/fetch_helm.py
	$(Q)touch $@

## deploy-tools: get helm and kubectl, and compile kubeconform into build/deploy-tools, for the checks of deploy/
deploy-tools: build/deploy-tools/helm
	$(Q)GOBIN=$(DEPLOY_TOOLS) go install github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0

# The control plane of Kubernetes from its Go module, in the release that go.mod requires. helm asks the API server for
# its release, which is otherwise only known to the build scripts of Kubernetes. Without optimization it compiles in two
# thirds of the time.
KUBERNETES = $(shell awk '$$2 == "k8s.io/kubernetes" { print $$3 }' tools/cluster/go.mod)
KUBERNETES_VERSION = k8s.io/component-base/version.git
GO_CLUSTER = CGO_ENABLED=0 go build -C tools/cluster -trimpath -p $(JOBS) -gcflags 'k8s.io/...=-N -l' -ldflags '-s -w \
             -X $(KUBERNETES_VERSION)Version=$(KUBERNETES) \
             -X $(KUBERNETES_VERSION)Major=$(word 1,$(subst ., ,$(KUBERNETES:v%=%))) \
             -X $(KUBERNETES_VERSION)Minor=$(word 2,$(subst ., ,$(KUBERNETES:v%=%)))' -o $(abspath build/cluster)/

build/cluster/kube-controller-manager: tools/cluster/go.mod tools/cluster/go.sum
	$(Q)command -v go > /dev/null || { echo "go: not found, expected Go 1.26 or newer"; exit 1; }
	$(Q)mkdir -p build/cluster
	$(Q)echo "Compiling etcd and the control plane of Kubernetes; the first time this takes some 8 minutes of CPU time"
	$(Q)$(GO_CLUSTER)etcd go.etcd.io/etcd/server/v3
	$(Q)$(GO_CLUSTER) k8s.io/kubernetes/cmd/kube-apiserver
	$(Q)$(GO_CLUSTER) k8s.io/kubernetes/cmd/kube-controller-manager
	$(Q)touch $@

## test-kubernetes: install the chart at an API server, and kill proxies that share a Lease; compiles Kubernetes, needs Go
.PHONY: test-kubernetes
test-kubernetes: lib $(VENV)/.stamp-test build/deploy-tools/helm build/cluster/kube-controller-manager
	$(Q)CI=true $(BIN)/python -m pytest tests/deploy/cluster $(PYTEST_ARGS)

## manifests: write deploy/kubernetes/recprocessor.yaml from the Helm chart
manifests: build/deploy-tools/helm
	$(Q)$(PYTHON) tools/make_manifests.py

## check: run lint, typecheck and test
check: lint typecheck test

## clean: remove all build outputs, but not .venv
clean:
	$(Q)rm -rf build dist results .pytest_cache .mypy_cache .ruff_cache .hypothesis
	$(Q)rm -f elastic_training/libelastic_training.so processor/libprocessor.so processor/libprocessor_rules.so processor/_abi.py processor/_build.py
