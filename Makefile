# What there is to do here. Everything is built and left below target/ and build/.

CARGO ?= cargo
ARCH := $(shell uname -m)
STATIC_TARGET := $(ARCH)-unknown-linux-musl
BINARY := target/release/agentcontainer
STATIC_BINARY := target/$(STATIC_TARGET)/release/agentcontainer

.PHONY: build demo demo-handoff demo-carrier test check lint static bench bench-capsule bench-carrier carrier-i686 crash soak fuzz clean

build:
	$(CARGO) build --release --locked

# The main job: four nodes on this machine, a scout that searches them, an agent that comes home.
demo: build
	AGENTCONTAINER=$(BINARY) sh examples/lab.sh

# An agent hands its workspace to another as a signed capsule in a chat message; the page is build/handoff/report.html.
demo-handoff: build
	AGENTCONTAINER=$(BINARY) python3 examples/handoff/handoff.py

# Bytes as model-shaped text, there and back; the three models compared; experiments; the page is
# build/carrier/report.html.
demo-carrier: build
	AGENTCONTAINER=$(BINARY) sh examples/carrier/demo.sh

# All tests. What a test needs and this machine lacks (nc, jq, openssl, other Pythons) it names and passes over.
test:
	$(CARGO) test --locked --no-fail-fast

lint:
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --locked --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --no-deps --quiet

# What CI runs: the static binary and its size, lints, the demo, and last the tests with their closing line.
check: lint static demo test

# One static binary of this machine's architecture. Needs the target (rustup target add $(STATIC_TARGET)) and a C
# compiler for ring, the cryptography below TLS: musl-gcc (Debian: musl-tools), or clang.
static:
	@sh tools/static.sh $(STATIC_TARGET) $(STATIC_BINARY)

# Times beside what they are compared with, in one run.
bench:
	$(CARGO) bench --locked --bench speed

# Kills nodes (KILLS, 300) while agents move between them over bad links, and counts what was lost: nothing.
KILLS ?= 300
crash:
	$(CARGO) build --locked
	python3 tools/crash.py --kills $(KILLS)

# Capsules beside the reference program (from PyPI, into a virtual environment below target/) and beside sha256sum
# and base64, in one run.
bench-capsule: build
	python3 tools/bench_capsule.py

# Carriers beside the reference program, process start excluded and included, and how time grows with the payload.
bench-carrier:
	$(CARGO) bench --locked --bench carrier

# Carriers as a 32-bit program: the tests of what has to be exact, and models and texts compared with this machine's own.
# Needs the target (rustup target add i686-unknown-linux-musl) and gcc or clang.
carrier-i686:
	@sh tools/carrier_i686.sh

# Two nodes under four times the load that they carry, most of it misbehaving; what became of memory, descriptors
# and processes. SECONDS=600 make soak
soak:
	SECONDS=$(or $(SECONDS),60) $(CARGO) bench --locked --bench soak

# Mutated texts for the readers of what strangers send; a panic ends it. SECONDS=600 make fuzz; TARGET=bridge: one alone.
fuzz:
	SECONDS=$(or $(SECONDS),60) TARGET=$(TARGET) $(CARGO) bench --locked --profile fuzz --bench fuzz

clean:
	$(CARGO) clean
	rm -rf build
