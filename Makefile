# push-gateway: the commands for developers. `make help` lists those of every day, `make help-all` the others, too.

SWIFT ?= swift
.DEFAULT_GOAL := help
# Targets that are scripts of the same name: test-api is scripts/test-api.sh. `make help-all` shows what their second lines say.
scripts := $(patsubst scripts/%.sh,%,$(wildcard scripts/bench-*.sh scripts/soak*.sh scripts/test-*.sh))
options = $(if $(SMALL),--small) $(if $(UPDATE_DOCS),--update-docs) $(if $(SEED),--seed $(SEED)) $(FILTER) $(ONLY) $(N) $(ARGS)
.PHONY: $(scripts) $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

help-all: ## all targets, also those for a release, for measurements, and for tests that take minutes
	@awk -F ':.*#[#:] ' '/^[a-z-]+:.*#[#:] / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@for name in $(scripts); do printf '  make %-16s %s\n' "$$name" "$$(sed -n '2s/^# //p' "scripts/$$name.sh")"; done

setup: #: install the Debian packages that are missing (sudo when not root)
	@scripts/setup.sh

build: setup ## debug build
	$(SWIFT) build

release: setup #: release build: .build/release/push-gateway and push-gateway-lab, which need no Swift where they run
	$(SWIFT) build -c release --product push-gateway --static-swift-stdlib
	$(SWIFT) build -c release --product push-gateway-lab --static-swift-stdlib

test: setup ## all tests, against a private Postgres in .local/
	@scripts/test.sh

test-swift: setup ## the Swift tests alone: make test-swift FILTER=JSON
	@scripts/test.sh --swift $(FILTER)

test-sql: setup ## tests of the schema, of backends (psql, psycopg, pgbouncer), and of the commands in docs/
	@scripts/test.sh --sql

fuzz: setup #: fuzz the parsers of provider input, coverage-guided: make fuzz SECONDS=600 (in all), TARGET=hpack for one
	@scripts/fuzz.sh --seconds $(or $(SECONDS),60) $(TARGET)

sim: setup ## simulate replicas that freeze and a Postgres that crashes: make sim SEEDS=5000, or SEED=17 for one seed and its events
	@scripts/sim.sh $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),500) $(if $(FIRST),--first $(FIRST)))

sim-mutants: setup #: check that the simulation detects every broken rule: a build and a minute
	@scripts/sim-mutants.py $(if $(SEEDS),--seeds $(SEEDS)) $(MUTANTS)

# Options of a script: SMALL=1, SEED=N, ONLY="one two", and ARGS="--its --own", as far as it knows them.
$(scripts): %: scripts/%.sh setup
	@$(if $(packages),scripts/setup.sh --also $(packages))
	@scripts/$@.sh $(options)

test-failover image: needs-root
test-alerts test-clients test-dashboard test-shards test-xmpp image: build
test-blame test-failover test-upgrade bench-scrape soak: release
test-clients: packages = golang-go
test-postgres: options = $(VERSION) $(ONLY)
test-failover: packages = patroni etcd-server haproxy python3-etcd
test-shards: packages = postgresql-15-plproxy
test-xmpp: packages = ejabberd
bench-scrape: export PUSH_GATEWAY = .build/release/push-gateway

needs-root:
	@[ "$$(id -u)" = 0 ] || { echo "make $(MAKECMDGOALS): needs root: sudo env \"PATH=\$$PATH\" make $(MAKECMDGOALS)" >&2; exit 1; }

demo: setup ## ring three simulated phones and print the timeline
	@scripts/demo.sh

bench: release ## run every benchmark and update docs/performance.md; ONLY="pipeline latency" for some, SMALL=1 for a short run
	$(SWIFT) build -c release --package-path benchmarks --static-swift-stdlib
	@SWIFT="$(SWIFT)" benchmarks/bench $(if $(SMALL),--small,--update-docs) $(ONLY)

sbom: setup #: release build, and its SBOM (CycloneDX): .build/push-gateway.cdx.json, checked for completeness
	$(SWIFT) build -c release --product push-gateway --static-swift-stdlib -Xlinker --dependency-file=$(CURDIR)/.build/push-gateway.link.d
	@scripts/sbom.py

dependencies: build #: update the tables of docs/dependencies.md from a debug build
	@scripts/sbom.py --page --write --configuration debug

tarball: setup #: the release tarball of the last commit, with its SHA-256, into dist/ (docs/releases.md)
	@SWIFT="$(SWIFT)" scripts/release.sh

tarball-demo: #: the first commands of README.md with the tarball in dist/, in a Debian 12 of their own without Swift: as root, minutes
	@scripts/setup.sh --also debootstrap systemd-container
	@unshare --mount --propagation private /usr/bin/python3 Tests/debian/tarball.py dist

tarball-check: setup #: build the tarball twice, in two folders, and compare the bytes: two release builds
	@SWIFT="$(SWIFT)" scripts/release-check.sh

deb: #: the Debian packages of the last commit, into dist/, installed and used in a Debian 12 of their own: as root, half an hour
	@SWIFT="$(SWIFT)" scripts/deb.sh

image: #: the container image of the last commit (OCI), into dist/, started with runc: as root, a quarter of an hour
	@SWIFT="$(SWIFT)" scripts/image.sh

site: ## the documentation as a static site, checked: dist/site, with search, for use without a network
	@$(if $(SITE),SITE='$(SITE)' )scripts/site.sh

lint: setup ## check every file without changing any: ONLY="swift text" for some linters of scripts/lint.sh
	@SWIFT="$(SWIFT)" scripts/lint.sh $(ONLY)

format: ## format the sources
	$(SWIFT) format --in-place --recursive Package.swift Plugins Sources Tests benchmarks/Package.swift benchmarks/Sources

schema: setup #: write docs/schema.sql, the complete schema, from migrations/
	@scripts/dump-schema.sh --write

clean: ## remove build and .local/ (stops the private Postgres)
	@for cluster in .local/*/data .local/*/*/data; do [ ! -d "$$cluster" ] || scripts/postgres.sh stop "$${cluster%/data}"; done
	rm -rf .build .local
