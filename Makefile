# push-gateway: the commands for developers. `make help` lists the targets.

SWIFT ?= swift
.DEFAULT_GOAL := help
.PHONY: needs-root help setup build release test test-swift test-sql fuzz sim sim-mutants demo test-api test-alerts test-dashboard bench bench-ops bench-scrape soak soak-providers lint format schema clean test-hostile sbom dependencies tarball tarball-check image site deb test-shards test-failover test-upgrade test-clients test-xmpp

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install the Debian packages that are missing (sudo when not root)
	@scripts/setup.sh

build: setup ## debug build
	$(SWIFT) build

release: setup ## release build: .build/release/push-gateway and push-gateway-lab, which need no Swift where they run
	$(SWIFT) build -c release --product push-gateway --static-swift-stdlib
	$(SWIFT) build -c release --product push-gateway-lab --static-swift-stdlib

test: setup ## all tests, against a private Postgres in .local/
	@scripts/test.sh

test-swift: setup ## the Swift tests alone: make test-swift FILTER=JSON
	@scripts/test.sh --swift $(FILTER)

test-sql: setup ## tests of the schema, of backends (psql, psycopg, pgbouncer), and of the commands in docs/
	@scripts/test.sh --sql

fuzz: setup ## fuzz the parsers of provider input, coverage-guided: make fuzz SECONDS=600 (in all), TARGET=hpack for one
	@scripts/fuzz.sh --seconds $(or $(SECONDS),60) $(TARGET)

sim: setup ## simulate replicas that freeze and a Postgres that crashes: make sim SEEDS=5000, or SEED=17 for one seed and its events
	@scripts/sim.sh $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),500) $(if $(FIRST),--first $(FIRST)))

sim-mutants: setup ## check that the simulation detects every broken rule: a build and a minute
	@scripts/sim-mutants.py $(if $(SEEDS),--seeds $(SEEDS)) $(MUTANTS)

test-api: setup ## test the HTTP API with schemathesis, then with attacks: five minutes
	@scripts/test-api.sh

test-alerts: setup build ## make every alert fire in a real Prometheus, by faults of simulators: two minutes
	@scripts/test-alerts.sh

test-hostile: setup ## test misbehaving providers and lost packets, on an idle machine: a minute; ONLY=GOAWAY
	@scripts/test-hostile.sh $(if $(UPDATE_DOCS),--update-docs) $(if $(ONLY),'$(ONLY)')

test-dashboard: setup build ## test the dashboard in headless Chromium
	@Tests/dashboard/run.sh

test-shards: build ## test several databases behind a PL/Proxy router, in five clusters: some minutes; ONLY="a_shard_is_added" for some
	@scripts/setup.sh --also postgresql-15-plproxy
	@scripts/test-shards.sh $(ONLY)

demo: setup ## ring three simulated phones and print the timeline
	@scripts/demo.sh

bench: release ## run every benchmark and update docs/performance.md; ONLY="pipeline latency" for some, SMALL=1 for a short run
	$(SWIFT) build -c release --package-path benchmarks --static-swift-stdlib
	@SWIFT="$(SWIFT)" benchmarks/bench $(if $(SMALL),--small,--update-docs) $(ONLY)

bench-ops: setup ## time every view for operators on 20 million rows of history: about eight minutes
	@scripts/bench-ops.sh

bench-scrape: release ## measure a scrape while 100,000 deliveries are owed
	@PUSH_GATEWAY=.build/release/push-gateway scripts/bench-scrape.sh

soak: release ## ten minutes with a cut, a crash, a freeze or a promotion every 5 s (docs/soak.md); SMALL=1, SEED=N
	@PUSH_GATEWAY=.build/release/push-gateway scripts/soak.sh $(if $(SMALL),--small) $(if $(SEED),--seed $(SEED)) $(ARGS)

soak-providers: setup ## soak tests with stalls, GOAWAYs, a key rotation, hangs: about ten minutes; SMALL=1 for a short run
	@scripts/soak-providers.sh $(if $(SMALL),--small) $(FILTER)

test-failover: needs-root release ## promote a standby under Patroni while calls ring, about six minutes (docs/failover.md); SMALL=1, ARGS=…
	@scripts/setup.sh --also patroni etcd-server haproxy python3-etcd
	@PUSH_GATEWAY=.build/release/push-gateway scripts/failover.sh $(if $(SMALL),--small) $(ARGS)

needs-root:
	@[ "$$(id -u)" = 0 ] || { echo "make $(MAKECMDGOALS): needs root: sudo env \"PATH=\$$PATH\" make $(MAKECMDGOALS)" >&2; exit 1; }

test-clients: build ## run the programs of docs/integrations/clients.md in every language: a minute
	@scripts/setup.sh --also golang-go php-cli
	@scripts/test-clients.sh

test-xmpp: build ## run docs/integrations/xmpp.md with Debian's ejabberd as well as Prosody: a minute
	@scripts/setup.sh --also ejabberd
	@scripts/test-xmpp.sh

test-upgrade: release ## upgrade a fleet from the previous release and back while calls ring, three minutes and a build; ARGS=…
	@scripts/test-upgrade.sh $(ARGS)

sbom: setup ## release build, and its SBOM (CycloneDX): .build/push-gateway.cdx.json, checked for completeness
	$(SWIFT) build -c release --product push-gateway --static-swift-stdlib -Xlinker --dependency-file=$(CURDIR)/.build/push-gateway.link.d
	@scripts/sbom.py

dependencies: build ## update the tables of docs/dependencies.md from a debug build
	@scripts/sbom.py --page --write --configuration debug

tarball: setup ## the release tarball of the last commit, with its SHA-256, into dist/ (docs/releases.md)
	@SWIFT="$(SWIFT)" scripts/release.sh

tarball-check: setup ## build the tarball twice, in two folders, and compare the bytes: two release builds
	@SWIFT="$(SWIFT)" scripts/release-check.sh

deb: ## the Debian packages of the last commit, into dist/, installed and used in a Debian 12 of their own: as root, half an hour
	@SWIFT="$(SWIFT)" scripts/deb.sh

image: needs-root build ## the container image of the last commit (OCI), into dist/, started with runc: as root, a quarter of an hour
	@SWIFT="$(SWIFT)" scripts/image.sh

site: ## the documentation as a static site, checked: dist/site, with search, for use without a network
	@$(if $(SITE),SITE='$(SITE)' )scripts/site.sh

lint: setup ## check every file without changing any: ONLY="swift text" for some linters of scripts/lint.sh
	@SWIFT="$(SWIFT)" scripts/lint.sh $(ONLY)

format: ## format the sources
	$(SWIFT) format --in-place --recursive Package.swift Plugins Sources Tests benchmarks/Package.swift benchmarks/Sources

schema: setup ## write docs/schema.sql, the complete schema, from migrations/
	@scripts/dump-schema.sh --write

clean: ## remove build and .local/ (stops the private Postgres)
	@for cluster in .local/*/data .local/*/*/data; do [ ! -d "$$cluster" ] || scripts/postgres.sh stop "$${cluster%/data}"; done
	rm -rf .build .local
