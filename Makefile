# Needs Rust, Python 3.11 or newer with venv, a C compiler and make; no root.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
HEADWATER := $(BIN)/headwater
DEMO := demo

# Everything is compiled for this interpreter, and the extension is not linked against it.
export PYO3_PYTHON := $(CURDIR)/$(BIN)/python
export PYO3_BUILD_EXTENSION_MODULE := 1
CARGO := cargo --locked
# The extension, the MPI command and the tests have these features, and so share what is compiled.
SHARED := --features arrayrecord,same-features
TEST := $(CARGO) test --release --quiet $(SHARED)
PYTEST := $(BIN)/python -m pytest --quiet --durations=10 --numprocesses 2 --dist worksteal
# The MPI of the virtual environment, and what bindings to it are made with.
export PATH := $(CURDIR)/$(BIN):$(PATH)
export LIBCLANG_PATH = $(shell echo $(CURDIR)/$(VENV)/lib/python3*/site-packages/clang/native)
export BINDGEN_EXTRA_CLANG_ARGS = -I$(shell $(CC) -print-file-name=include)
# The hand-off of the sampler, for a model checker.
MODEL := RUSTFLAGS="--cfg shuttle" CARGO_TARGET_DIR="$${CARGO_TARGET_DIR:-target}/model"
MODEL_OPTIONS := --release --quiet --no-default-features

RUST_SOURCES := $(shell find src extension mpi -type f) mpi-examples/sample.rs Cargo.toml Cargo.lock
PYTHON_SOURCES := $(shell find python -type f -name '*.py*' -not -name '*.pyc')

# MaxText needs a newer Python than the package.
MAXTEXT_PYTHON ?= python3.12
MAXTEXT := .venv-maxtext
# An index of packages with PyTorch for CPUs; the default one for Linux brings the libraries of CUDA.
TORCH_INDEX ?=
TORCH := .venv-torch

.PHONY: help setup demo check build-tests test test-arrayrecord build-burn test-burn test-engines test-maxtext \
	test-torch mutants-python mutants-rust bench wheels test-wheels docs docs-links lint lint-burn clean-demo

help: ## list what can be made
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 26

setup: $(VENV)/.built ## build the command and the Python package in .venv

$(VENV)/.tools: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "headwater needs Python 3.11 or newer; say make PYTHON=python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing what building and testing need into $(VENV)"
	@$(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb")); \
		e = p["project"]["optional-dependencies"]; \
		own = lambda r: r.startswith("headwater["); \
		r = p["build-system"]["requires"] + p["project"]["dependencies"] + sum(e.values(), []); \
		print(*[x for x in r if not own(x)], sep="\n")' > $(VENV)/requirements.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $(VENV)/requirements.txt
	@touch $@

$(VENV)/.built: $(VENV)/.tools $(RUST_SOURCES) $(PYTHON_SOURCES)
	@echo "building the Python package and the command (5 to 15 minutes on two cores when nothing is built yet)"
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) PIP_QUIET=1 $(BIN)/maturin develop --release $(SHARED)
	@$(CARGO) build --release --package headwater-mpi $(SHARED) --bins --examples
	@cp --remove-destination "$${CARGO_TARGET_DIR:-target}/release/examples/mpi-sample" $(BIN)/
	@cp --remove-destination "$${CARGO_TARGET_DIR:-target}/release/headwater-reduce-mpi" $(BIN)/headwater-reduce
	@touch $@
	@echo "$(BIN) has the commands headwater, headwater-reduce and confluence, and a Python with both packages"

demo: setup clean-demo ## prepare stores, sample, fold a matrix, train a model, kill it and resume
	@$(BIN)/python examples/demo.py $(DEMO)

# Only what an earlier demo made is removed.
clean-demo:
	@test ! -e $(DEMO) || test -e $(DEMO)/.made-by-make \
		|| { echo "$(DEMO) was not made by make demo; move it away"; exit 1; }
	@rm -rf $(DEMO) && mkdir $(DEMO) && touch $(DEMO)/.made-by-make

# What one runs at each change: no MPI, no training, no process that is killed.
check: setup ## run the quick tests, in under 3 minutes
	$(TEST) --lib --test tidy --test plan --test store --test fold --test reducer --test sampler
	$(PYTEST) -m "not slow"

build-tests: setup
	$(TEST) --no-run

test: build-tests ## run all tests; say what was skipped
	$(TEST)
	$(MODEL) $(CARGO) test $(MODEL_OPTIONS) --lib handoff
	@echo "skipped: what pytest lists as skipped below"
	@test -d "$${HEADWATER_SHARED:-../shared}/data/f1db" \
		|| echo "skipped: the Rust tests on f1db, which is not at $${HEADWATER_SHARED:-../shared}/data"
	@test "$$(id -u)" = 0 || echo "skipped: the Rust test of a full disk, which mounts one as root"
	$(PYTEST)
# Apart: where JAX is loaded, other tests may not fork.
	$(PYTEST) tests/confluence

test-arrayrecord: setup ## run the tests of ArrayRecord files, which are among all tests, too
	$(TEST) --test arrayrecord
	$(PYTEST) tests/python/test_arrayrecord.py

# A package of its own, because Burn's crates take 20 minutes to compile.
BURN := --release --quiet --manifest-path burn/Cargo.toml

build-burn:
	$(CARGO) test $(BURN) --features train --no-run

test-burn: ## run the tests of headwater-burn; needs no setup
	$(CARGO) check $(BURN) --no-default-features --lib
	$(CARGO) test $(BURN) --features train

$(MAXTEXT)/.tools: tests/maxtext/requirements.txt
	@test -x $(MAXTEXT)/bin/python \
		|| $(MAXTEXT_PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 12))' \
		|| { echo "MaxText needs Python 3.12 or newer; say make test-maxtext MAXTEXT_PYTHON=python3.13"; exit 1; }
	@test -x $(MAXTEXT)/bin/python || $(MAXTEXT_PYTHON) -m venv $(MAXTEXT)
	@echo "installing MaxText into $(MAXTEXT) (1.6 GB)"
	@$(MAXTEXT)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

test-maxtext: setup $(MAXTEXT)/.tools ## train MaxText itself on token rows; needs Python 3.12
	PYTHONPATH=$(CURDIR)/python $(MAXTEXT)/bin/python -m pytest --quiet -p no:cacheprovider tests/maxtext

$(TORCH)/.tools: tests/pytorch/requirements.txt $(VENV)/.tools
	@test -x $(TORCH)/bin/python || $(BIN)/python -m venv $(TORCH)
	@echo "installing PyTorch, Keras and Transformers into $(TORCH) (6 GB; builds for CPUs are smaller)"
	@$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check \
		$(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -r $<
	@touch $@

test-torch: setup $(TORCH)/.tools ## run the tests of headwater.torch and of examples/clients
	PYTHONPATH=$(CURDIR)/python $(TORCH)/bin/python -m pytest --quiet -p no:cacheprovider \
		tests/python/test_torch.py tests/python/test_torch_sum.py tests/python/test_clients.py

ENGINES := .venv-engines
$(ENGINES)/.tools: tests/engines/requirements.txt $(VENV)/.tools
	@test -x $(ENGINES)/bin/python || $(BIN)/python -m venv $(ENGINES)
	@echo "installing Dask, Ray, Spark and Beam into $(ENGINES) (1.5 GB)"
	@$(ENGINES)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

test-engines: setup $(ENGINES)/.tools ## fold by Dask, Ray, Spark and Beam; Spark needs Java
	PYTHONPATH=$(CURDIR)/python $(ENGINES)/bin/python -m pytest --quiet -p no:cacheprovider tests/python/test_examples.py -k engines

# The share of the changes that are tried: each Nth; 1 takes hours.
SHARE ?= 6
mutants-python: setup ## change the Python code in small ways, and list what no test notices; an hour
	$(BIN)/python tests/mutants/run.py --share $(SHARE)

# A room such as plan; default: all six.
ROOM ?=
mutants-rust: $(VENV)/.tools ## change the Rust code of ROOM in small ways, and list what no test notices; an hour
	$(BIN)/python tests/mutants/rust.py --share $(SHARE) $(ROOM)

bench: setup ## measure; takes minutes and 20 GB in target/bench
	$(CARGO) bench $(SHARED)
	$(BIN)/python benches/prepare.py --scale 1
	$(BIN)/python benches/sampler.py
	$(BIN)/python benches/gram.py
	$(BIN)/python benches/reduce.py
	$(BIN)/python benches/step.py

# Wheels for each platform: the same profile and features everywhere, without the tables of lines, which are most of
# an extension's bytes. Zig is C compiler and linker, so that no image of an older Linux is needed.
WHEELS := .venv-wheels
WHEEL_TARGETS := x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu
DIST := dist
# A folder with the C library and a Python of aarch64, see tests/wheels/aarch64-root.
AARCH64_ROOT ?=
$(WHEELS)/.tools: tests/wheels/requirements.txt
	@test -x $(WHEELS)/bin/python || $(PYTHON) -m venv $(WHEELS)
	@echo "installing maturin, Zig and the checks of wheels into $(WHEELS) (500 MB)"
	@$(WHEELS)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# The wheels are for the stable ABI, so that no Python of the platform is needed.
wheels: export HEADWATER_COMMIT = $(shell git describe --always --dirty --abbrev=12 --exclude '*')
wheels: export PATH := $(CURDIR)/$(WHEELS)/bin:$(PATH)
wheels: $(WHEELS)/.tools ## build the wheels for Linux and the source package in dist, and check them
	@for target in $(WHEEL_TARGETS); do \
		test -d "$$(rustc --print sysroot)/lib/rustlib/$$target/lib" || rustup target add $$target \
			|| { echo "wheels need Rust's standard library for $$target: rustup target add $$target"; exit 1; }; \
	done
	@rm -f $(DIST)/headwater-*
	maturin sdist --out $(DIST)
	for target in $(WHEEL_TARGETS); do \
		$(WHEELS)/bin/python extension/licences.py $$target LICENSE-THIRD-PARTY || exit 1; \
		env -u PYO3_PYTHON maturin build --release --locked --strip --zig --compatibility manylinux_2_28 \
			--target $$target --out $(DIST) || exit 1; \
	done
	$(WHEELS)/bin/python tests/wheels/files.py $(DIST)

test-wheels: $(WHEELS)/.tools ## use what `make wheels` built in new environments, and build the source package
	$(WHEELS)/bin/python tests/wheels/installed.py --dist $(DIST) $(if $(AARCH64_ROOT),--aarch64-root $(AARCH64_ROOT))

# The packages themselves, and what they import, come after what the site is made with.
DOCS := .venv-docs
SITE := target/site
$(DOCS)/.tools: docs/requirements.txt $(VENV)/.tools
	@test -x $(DOCS)/bin/python || $(BIN)/python -m venv $(DOCS)
	@echo "installing Sphinx into $(DOCS) (100 MB)"
	@$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@printf '%s\n' $(CURDIR)/python $(CURDIR)/$(VENV)/lib/python3*/site-packages \
		> $$(echo $(DOCS)/lib/python3*/site-packages)/headwater.pth
	@touch $@

# Each page is read again, since a page that is kept does not repeat its warnings.
SPHINX := $(DOCS)/bin/sphinx-build --quiet --fresh-env --fail-on-warning --keep-going --nitpicky \
	--conf-dir docs --doctree-dir target/site-doctrees

docs: $(DOCS)/.tools ## make the documentation site in target/site; a warning is an error
	@rm -rf $(SITE)
	$(SPHINX) . $(SITE)
	@echo "the site is made: open $(SITE)/index.html"

docs-links: $(DOCS)/.tools ## ask each external link of the site whether it is there; needs the network
	$(SPHINX) --builder linkcheck . target/site-links

# An item that a feature gates is missed only in the builds without that feature.
FEWER := $(CARGO) clippy --release --quiet

lint: $(VENV)/.tools ## check formatting, lints and types
	cargo fmt --all --check
	$(CARGO) clippy --release --quiet --workspace --all-targets $(SHARED) -- -D warnings
	$(FEWER) --no-default-features -- -D warnings
	$(FEWER) --no-default-features --features prepare -- -D warnings
	$(FEWER) --no-default-features --features reduce -- -D warnings
	$(FEWER) --no-default-features --features reduce,parquet -- -D warnings
	$(FEWER) --features same-features -- -D warnings
	$(MODEL) $(CARGO) clippy $(MODEL_OPTIONS) --tests -- -D warnings
	$(BIN)/ruff check --quiet
	$(BIN)/ruff format --check --quiet
	$(BIN)/mypy

lint-burn: ## check formatting and lints of headwater-burn
	cargo fmt --check --manifest-path burn/Cargo.toml
	$(CARGO) clippy $(BURN) --all-targets --features train -- -D warnings
