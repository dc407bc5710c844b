# Everything a developer or a CI machine runs. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

SWIFT ?= swift
PREFIX ?= /usr/local
TIME ?= 60
COUNT ?= 1000

.PHONY: help deps s3-servers build build-examples release test sim model relays relay-networks relay-fleet twin relay-twin clones scopes scripts check format lint alerts status-page docs api examples example-sensors \
  example-config example-documents man schemas demo acceptance faults bench fuzz memory joiners sizing hub rounds passes kills killpoints calls exchanges refused refused-suite arm ordering filesystems pages damage soak mutants sealed tsan asan \
  install deb tarball deb-twice deb-test units clean

help: ## list these targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

deps: ## install the missing Debian packages
	@scripts/deps.sh

s3-servers: ## install the S3 servers that tests start into .build/s3-servers, where PyPI can be reached
	@scripts/s3-servers.sh

build: deps ## debug build of everything
	$(SWIFT) build --build-tests

release: deps ## optimised build of sync-cli
	$(SWIFT) build -c release --product sync-cli

# So many tests at once: with all of them some would wait for a thread longer than a peer may be silent.
WIDTH = --experimental-maximum-parallelization-width 8

test: deps s3-servers ## run the whole test suite, and repeat its failures at the end
	SWIFT=$(SWIFT) scripts/test.sh --parallel $(WIDTH)

# Long runs, optimised, of the tests in one directory below Tests: the others are not compiled.
OPTIMISED = SYNC_STORE_SUITE=$(1) $(SWIFT) test -c release -Xswiftc -enable-testing --scratch-path .build/simulation
SIMULATE = $(call OPTIMISED,SimulationTests) --parallel --filter

sim: deps ## simulate networks of machines on virtual time (SEEDS=1000 FIRST=0, or SEED=7; COPIES=4 HOURS=2; CHECKS=1 checks all after each event)
	$(if $(SEED),SIM_SEED=$(SEED)) SIM_FIRST=$(or $(FIRST),0) SIM_SEEDS=$(or $(SEEDS),1000) $(if $(COPIES),SIM_COPIES=$(COPIES)) \
	  $(if $(HOURS),SIM_HOURS=$(HOURS)) $(if $(CHECKS),SIM_CHECKS=$(CHECKS)) $(SIMULATE) NetworkTests

model: deps ## run random histories of the model, and up to 20,000 with each rule switched off (SEEDS=20000 FIRST=0)
	MODEL_FIRST=$(or $(FIRST),0) MODEL_SEEDS=$(or $(SEEDS),20000) MODEL_RULES=20000 $(SIMULATE) 'ModelTests|ModelRuleTests'

relays: deps ## run random histories of the model with a relay, and up to 20,000 with each of its rules switched off (SEEDS=2000 FIRST=0)
	RELAY_FIRST=$(or $(FIRST),0) RELAY_SEEDS=$(or $(SEEDS),2000) RELAY_RULES=20000 $(SIMULATE) 'RelayModelTests|RelayModelRuleTests'

relay-networks: deps ## simulate networks of machines with a relay (SEEDS=1000 FIRST=0, or NETWORK=7)
	$(if $(NETWORK),RELAY_NETWORK=$(NETWORK)) RELAY_NETWORK_FIRST=$(or $(FIRST),0) RELAY_NETWORKS=$(or $(SEEDS),1000) $(SIMULATE) RelayNetworkTests

relay-fleet: deps ## measure what a relay costs each of MEMBERS=100 members a day, for DAYS=30 of virtual time
	RELAY_FLEET_MEMBERS=$(or $(MEMBERS),100) RELAY_FLEET_DAYS=$(or $(DAYS),30) $(SIMULATE) RelayFleetTests

twin: deps ## compare the store with the model, step by step (SEEDS=2000 FIRST=0)
	TWIN_FIRST=$(or $(FIRST),0) TWIN_SEEDS=$(or $(SEEDS),2000) $(SIMULATE) '[.]TwinTests'

relay-twin: deps ## compare the store and a relay with the model, step by step (SEEDS=500 FIRST=0)
	RELAY_TWIN_FIRST=$(or $(FIRST),0) RELAY_TWIN_SEEDS=$(or $(SEEDS),500) $(SIMULATE) RelayTwinTests

clones: deps ## simulate running machines cloned with their memory (SEEDS=2000 FIRST=0)
	CLONE_FIRST=$(or $(FIRST),0) CLONE_SEEDS=$(or $(SEEDS),2000) $(SIMULATE) ClonedMachineTests

scopes: deps ## simulate selective copies among full ones (SEEDS=2000 FIRST=1)
	SCOPE_FIRST=$(or $(FIRST),1) SCOPE_SEEDS=$(or $(SEEDS),2000) $(SIMULATE) ScopeSimulationTests

scripts: deps ## compare the store with a dictionary (SEEDS=1000 FIRST=0)
	SCRIPT_FIRST=$(or $(FIRST),0) SCRIPT_SEEDS=$(or $(SEEDS),1000) $(SIMULATE) StoreScriptTests

check: lint build build-examples test ## run the checks that every commit must pass

build-examples: deps ## debug build of Examples
	$(SWIFT) build --package-path Examples

format: ## format all sources
	$(SWIFT) format --in-place --parallel --recursive Package.swift Sources Tests Benchmarks Fuzz Examples

lint: ## report formatting violations
	$(SWIFT) format lint --strict --parallel --recursive Package.swift Sources Tests Benchmarks Fuzz Examples

status-page: ## show the daemon's status page in Chromium, check it, and take pictures
	scripts/status-page.sh

alerts: ## check and test the alert rules for Prometheus (promtool of Debian's package prometheus)
	@command -v promtool > /dev/null || scripts/deps.sh prometheus
	cd packaging/prometheus && promtool check rules syncstore.rules.yml && promtool test rules syncstore.rules.test.yml

docs: deps ## build the documentation into .build/docs, and all of it as one page, all.html; warnings fail it
	@SWIFT="$(SWIFT)" scripts/docs.sh

man: deps ## write the manual pages into .build/man
	$(SWIFT) build --product sync-cli
	rm -rf .build/man
	"$$($(SWIFT) build --show-bin-path)/sync-cli" manual .build/man --configuration schemas/config.md

schemas: deps ## write the schemas of the daemon's configuration, schemas/config.md and config.schema.json
	$(SWIFT) build --product sync-cli
	"$$($(SWIFT) build --show-bin-path)/sync-cli" --quiet manual schemas --schemas

api: deps ## fail if the public API broke since BASE (BASE=REVISION, by default the last tag or where main was left)
	@SWIFT="$(SWIFT)" scripts/api.sh $(BASE)

examples: deps ## run the three example services for some seconds each
	@SWIFT="$(SWIFT)" scripts/examples.sh

example-sensors: deps ## run an edge that keeps logging while its hub is away and it is killed
	@SWIFT="$(SWIFT)" scripts/examples.sh edge-sensors

example-config: deps ## run processes that share and reload settings
	@SWIFT="$(SWIFT)" scripts/examples.sh config-store

example-documents: deps ## run a document store with attachments, backup and restore
	@SWIFT="$(SWIFT)" scripts/examples.sh document-store

demo: ## demonstrate the product on a real directory tree
	@scripts/demo.sh

acceptance: ## verify the promises of the product on real input, with figures
	@scripts/acceptance.sh

faults: ## list the rows of docs/faults.txt with their tests; fails if a row has none
	@scripts/faults.sh

bench: ## compare the store with LMDB, LevelDB, RocksDB, SQLite (KEYS=1000000 ONLY=put,get PEERS=lmdb ROUNDS=3 PLOT=FILE.svg KEYS10M=1 LARGE=1024)
	@scripts/deps.sh bench
	$(SWIFT) run -c release --package-path Benchmarks Benchmarks $(if $(KEYS),--keys $(KEYS)) \
	  $(if $(ONLY),--only $(ONLY)) $(if $(PEERS),--peers $(PEERS)) $(if $(ROUNDS),--rounds $(ROUNDS)) \
	  $(if $(NAME),--name $(NAME)) $(if $(PLOT),--plot $(PLOT)) $(if $(KEYS10M),--ten-million) \
	  $(if $(LARGE),--large $(LARGE))

fuzz: deps ## fuzz the codecs for TIME seconds each (TIME=60)
	@Fuzz/run.sh $(TIME)

memory: deps ## measure the memory of connected members, in a separate process
	MEASURE_MEMORY=1 $(SWIFT) test --filter ManyMembersTests

joiners: deps ## let COUNT=100 devices and as many strangers dial one node at once; every device must join
	JOINERS=$(if $(filter command line,$(origin COUNT)),$(COUNT),100) $(SWIFT) test --filter InvitationTests

sizing: deps ## measure disk, memory, descriptors, processor time and backups of a daemon (KEYS="10000 100000" MEMBERS="0 4 16" REST=20)
	@SWIFT="$(SWIFT)" KEYS="$(KEYS)" MEMBERS="$(MEMBERS)" REST="$(REST)" scripts/sizing.sh

hub: deps ## measure one hub with MEMBERS=2000 live members, each writing every PAUSE=600 s: memory, processor, latency (SECONDS=30)
	MEASURE_HUB=$(or $(MEMBERS),2000) MEASURE_SECONDS=$(or $(SECONDS),30) MEASURE_PAUSE=$(or $(PAUSE),600) \
	  $(call OPTIMISED,ReplicationTests) --filter HubMeasurement

rounds: deps ## measure the longest wait of a put while a round for a first copy of KEYS=1000000 is opened
	MEASURE_ROUNDS=$(or $(KEYS),1000000) \
	  $(call OPTIMISED,SyncStoreTests) --filter RoundMeasurement

passes: deps ## the longest put during status, verify, conflicts and explain of 1,000,000 keys
	MEASURE_PASSES=1 $(call OPTIMISED,SyncStoreTests) --no-parallel --filter PassMeasurement

kills: deps ## kill a writing process COUNT times, alone and with another one, and check the store (COUNT=1000)
	$(SWIFT) run -c release --package-path Fuzz Kills $(COUNT)
	$(SWIFT) run -c release --package-path Fuzz Kills $(COUNT) steps
	$(SWIFT) run -c release --package-path Fuzz Kills $(COUNT) shared
	[ "$$(id -u)" != 0 ] || $(SWIFT) run -c release --package-path Fuzz Kills $(COUNT) containers

killpoints: deps ## kill a process at each call of each named step, and lose power in more ways (a test run does a part)
	KILL_POINTS=all $(SWIFT) test --filter 'KillPointTests|RealPageSubsetTests'

calls: deps ## fail each disk call in every step of the life of a store (a test run fails some)
	ALL_CALLS=1 $(call OPTIMISED,SyncStoreTests) --parallel --filter 'RecoveryTests|FailingOnceTests|CrashTests|RekeyTests|FirstOpeningTests|RestampTests|EncryptedBlobStoreTests'

exchanges: deps ## fail each disk call while copies sync (a test run fails some)
	EXCHANGES=1 $(SIMULATE) FailingExchangeTests

refused: deps ## refuse each system call with each error (a test run takes one error per call)
	REFUSED_CALLS=all $(SWIFT) test --filter RefusedCallTests

refused-suite: deps ## run the store tests while the kernel refuses each call that has a fallback (TOGETHER=1 refuses all at once; ONLY=FILTER)
	@SWIFT="$(SWIFT)" TOGETHER=$(TOGETHER) scripts/refused-suite.sh $(ONLY)

arm: ## compile the C shims for aarch64 and run their check under an emulator
	@scripts/arm.sh

filesystems: deps ## test crashes, full disks and kills on ext4, XFS, btrfs, F2FS, overlayfs, tmpfs (FILESYSTEMS='xfs btrfs' COUNT=50 ONLY=FILTER)
	@SWIFT="$(SWIFT)" $(if $(COUNT),COUNT=$(COUNT)) $(if $(FILESYSTEMS),FILESYSTEMS='$(FILESYSTEMS)') scripts/filesystems.sh $(ONLY)

ordering: ## model-check the lock-free shared memory under weak memory orders (ONLY='settle split')
	@python3 -B scripts/ordering/check.py $(ONLY)

pages: deps ## run the store tests with simulated 64 KiB pages (ONLY=FILTER)
	@SWIFT="$(SWIFT)" scripts/pages.sh $(ONLY)

damage: deps ## try every bit flip and every length of every file of a small store
	DAMAGE_ALL=1 $(call OPTIMISED,SyncStoreTests) --parallel --filter 'DamageTests'

soak: release ## let a hub and MEMBERS=20 processes write, sync, be killed and cut off for MINUTES=5 (SEED=)
	$(SWIFT) run -c release --package-path Fuzz Soak "$$($(SWIFT) build -c release --show-bin-path)/sync-cli" \
	  $(or $(MINUTES),5) $(or $(MEMBERS),20) $(SEED)

mutants: deps ## plant faults in a copy of the sources; every one must fail a test (ONLY='purge-open …', BUILT=1)
	@SWIFT="$(SWIFT)" $(if $(BUILT),BUILT=1) scripts/mutants.sh $(ONLY)

sealed: deps ## run the journal tests on encrypted stores
	SYNC_TEST_SEALED=1 $(SWIFT) test --filter 'SyncStoreTests|SimulationTests'

SANITIZE = $(SWIFT) test $(WIDTH)

tsan: deps ## run the tests under the thread sanitizer
	$(SANITIZE) --sanitize=thread --scratch-path .build/tsan

asan: deps ## run the tests under the address sanitizer (its runner leaks by itself)
	ASAN_OPTIONS=detect_leaks=0 $(SANITIZE) --sanitize=address --scratch-path .build/asan

install: release ## install sync-cli, its manual pages, completions and units below $(DESTDIR)$(PREFIX)
	packaging/install.sh "$$($(SWIFT) build -c release --show-bin-path)/sync-cli" "$(DESTDIR)" "$(PREFIX)"

deb: ## build the Debian package, which needs no toolchain to run, into .build/packages
	@SWIFT="$(SWIFT)" scripts/package.sh deb

tarball: ## build an archive of the same for other systems
	@SWIFT="$(SWIFT)" scripts/package.sh tarball

deb-twice: ## build both in two directories; every byte must be equal (PACK=1 compiles once)
	@SWIFT="$(SWIFT)" PACK=$(PACK) scripts/deb-twice.sh

deb-test: ## install, upgrade, remove and purge the package in a new Debian 12, and run its units there (as root)
	@SWIFT="$(SWIFT)" scripts/deb-test.sh

units: ## check the systemd units, and how much an attacker of the daemon could reach
	@scripts/units.sh

clean: ## remove everything that was built
	rm -rf .build Benchmarks/.build Fuzz/.build Examples/.build
