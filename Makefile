# Everything a developer or a CI machine runs. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

SWIFT ?= swift
PREFIX ?= /usr/local
TIME ?= 60
COUNT ?= 1000

.PHONY: help deps build build-examples release test sim model twin clones scopes scripts check format lint docs api examples example-sensors \
  example-config example-documents demo acceptance faults bench fuzz memory joiners hub rounds kills killpoints calls exchanges refused refused-suite arm ordering filesystems pages damage soak mutants sealed tsan asan \
  install clean

help: ## list these targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

deps: ## install the Debian packages that are missing
	@scripts/deps.sh

build: deps ## debug build of everything
	$(SWIFT) build --build-tests

release: deps ## optimised build of sync-cli
	$(SWIFT) build -c release --product sync-cli

# So many tests at once: with all of them some would wait for a thread longer than a peer may be silent.
WIDTH = --experimental-maximum-parallelization-width 8

test: deps ## the whole test suite
	$(SWIFT) test --parallel $(WIDTH)

# Long runs, optimised, of the tests in one directory below Tests: the others are not compiled.
OPTIMISED = SYNC_STORE_SUITE=$(1) $(SWIFT) test -c release -Xswiftc -enable-testing --scratch-path .build/simulation
SIMULATE = $(call OPTIMISED,SimulationTests) --parallel --filter

sim: deps ## networks of machines on virtual time (SEEDS=1000 FIRST=0, or SEED=7; COPIES=4 HOURS=2; CHECKS=1 looks at all after each event)
	$(if $(SEED),SIM_SEED=$(SEED)) SIM_FIRST=$(or $(FIRST),0) SIM_SEEDS=$(or $(SEEDS),1000) $(if $(COPIES),SIM_COPIES=$(COPIES)) \
	  $(if $(HOURS),SIM_HOURS=$(HOURS)) $(if $(CHECKS),SIM_CHECKS=$(CHECKS)) $(SIMULATE) NetworkTests

model: deps ## random histories of the model, and each of its rules switched off in up to 20,000 (SEEDS=20000 FIRST=0)
	MODEL_FIRST=$(or $(FIRST),0) MODEL_SEEDS=$(or $(SEEDS),20000) MODEL_RULES=20000 $(SIMULATE) 'ModelTests|ModelRuleTests'

twin: deps ## the store beside the model, step by step (SEEDS=2000 FIRST=0)
	TWIN_FIRST=$(or $(FIRST),0) TWIN_SEEDS=$(or $(SEEDS),2000) $(SIMULATE) TwinTests

clones: deps ## running machines cloned with their memory (SEEDS=2000 FIRST=0)
	CLONE_FIRST=$(or $(FIRST),0) CLONE_SEEDS=$(or $(SEEDS),2000) $(SIMULATE) ClonedMachineTests

scopes: deps ## copies of some keys among copies of all (SEEDS=2000 FIRST=1)
	SCOPE_FIRST=$(or $(FIRST),1) SCOPE_SEEDS=$(or $(SEEDS),2000) $(SIMULATE) ScopeSimulationTests

scripts: deps ## the store beside a dictionary (SEEDS=1000 FIRST=0)
	SCRIPT_FIRST=$(or $(FIRST),0) SCRIPT_SEEDS=$(or $(SEEDS),1000) $(SIMULATE) StoreScriptTests

check: lint build build-examples test ## what every commit must pass

build-examples: deps ## debug build of Examples, which `make examples` runs
	$(SWIFT) build --package-path Examples

format: ## rewrite all sources in the project's format
	$(SWIFT) format --in-place --parallel --recursive Package.swift Sources Tests Benchmarks Fuzz Examples

lint: ## report what is not in the project's format
	$(SWIFT) format lint --strict --parallel --recursive Package.swift Sources Tests Benchmarks Fuzz Examples

docs: deps ## build the documentation into .build/docs; warnings fail it
	@SWIFT="$(SWIFT)" scripts/docs.sh

api: deps ## fail if the public API broke since BASE (BASE=REVISION, by default the last tag or where main was left)
	@SWIFT="$(SWIFT)" scripts/api.sh $(BASE)

examples: deps ## run the three small services of Examples, each for some seconds
	@SWIFT="$(SWIFT)" scripts/examples.sh

example-sensors: deps ## an edge that logs while its hub is away and is killed
	@SWIFT="$(SWIFT)" scripts/examples.sh edge-sensors

example-config: deps ## settings that several processes share and reload
	@SWIFT="$(SWIFT)" scripts/examples.sh config-store

example-documents: deps ## documents with attachments, backed up and restored
	@SWIFT="$(SWIFT)" scripts/examples.sh document-store

demo: ## show the product on a real tree, end to end
	@scripts/demo.sh

acceptance: ## prove the promises of the product on real input, with figures
	@scripts/acceptance.sh

faults: ## list the rows of docs/faults.txt and the tests that name them; fails if one has none
	@scripts/faults.sh

bench: ## the store beside LMDB, LevelDB, RocksDB, SQLite (KEYS=1000000 ONLY=put,get PEERS=lmdb ROUNDS=3 KEYS10M=1)
	@scripts/deps.sh bench
	$(SWIFT) run -c release --package-path Benchmarks Benchmarks $(if $(KEYS),--keys $(KEYS)) \
	  $(if $(ONLY),--only $(ONLY)) $(if $(PEERS),--peers $(PEERS)) $(if $(ROUNDS),--rounds $(ROUNDS)) \
	  $(if $(NAME),--name $(NAME)) $(if $(KEYS10M),--ten-million)

fuzz: deps ## fuzz the codecs for TIME seconds each (TIME=60)
	@Fuzz/run.sh $(TIME)

memory: deps ## what members that stay connected cost of memory, in a process of their own
	MEASURE_MEMORY=1 $(SWIFT) test --filter ManyMembersTests

joiners: deps ## COUNT=100 devices join one node at once, as many strangers among them: all must get in
	JOINERS=$(if $(filter command line,$(origin COUNT)),$(COUNT),100) $(SWIFT) test --filter InvitationTests

hub: deps ## one hub as a process and MEMBERS=2000 live members, each writing every PAUSE=600 s: memory, processor, latency (SECONDS=30)
	MEASURE_HUB=$(or $(MEMBERS),2000) MEASURE_SECONDS=$(or $(SECONDS),30) MEASURE_PAUSE=$(or $(PAUSE),600) \
	  $(call OPTIMISED,ReplicationTests) --filter HubMeasurement

rounds: deps ## how long the longest put waits while a round for a first copy of KEYS=1000000 is opened
	MEASURE_ROUNDS=$(or $(KEYS),1000000) \
	  $(call OPTIMISED,SyncStoreTests) --filter RoundMeasurement

kills: deps ## kill a process that writes COUNT times, alone and beside another one, and look what is left (COUNT=1000)
	$(SWIFT) run -c release --package-path Fuzz Kills $(COUNT)
	$(SWIFT) run -c release --package-path Fuzz Kills $(COUNT) steps
	$(SWIFT) run -c release --package-path Fuzz Kills $(COUNT) shared
	[ "$$(id -u)" != 0 ] || $(SWIFT) run -c release --package-path Fuzz Kills $(COUNT) containers

killpoints: deps ## kill a process at each call of each named step, and lose power in more ways (a test run does a part of it)
	KILL_POINTS=all $(SWIFT) test --filter 'KillPointTests|RealPageSubsetTests'

calls: deps ## let each call of a disk fail in every step of a store's life (every test run lets some of them)
	ALL_CALLS=1 $(call OPTIMISED,SyncStoreTests) --parallel --filter 'RecoveryTests|FailingOnceTests|CrashTests|RekeyTests|FirstOpeningTests|RestampTests|SealedBlobStoreTests'

exchanges: deps ## let each call of a disk fail while copies exchange (every test run lets some of them)
	EXCHANGES=1 $(SIMULATE) FailingExchangeTests

refused: deps ## refuse the program each system call with each error (every test run takes one error of each call)
	REFUSED_CALLS=all $(SWIFT) test --filter RefusedCallTests

refused-suite: deps ## the tests of the store while the kernel refuses each call that has a substitute, in turn or all (TOGETHER=1 ONLY=FILTER)
	@SWIFT="$(SWIFT)" TOGETHER=$(TOGETHER) scripts/refused-suite.sh $(ONLY)

arm: ## compile the C shims for aarch64 and run their check under an emulator
	@scripts/arm.sh

filesystems: deps ## crashes, full disks and kills on ext4, XFS, btrfs, F2FS, overlayfs, tmpfs (FILESYSTEMS='xfs btrfs' COUNT=50 ONLY=FILTER)
	@SWIFT="$(SWIFT)" $(if $(COUNT),COUNT=$(COUNT)) $(if $(FILESYSTEMS),FILESYSTEMS='$(FILESYSTEMS)') scripts/filesystems.sh $(ONLY)

ordering: ## explore what threads and processes share without a lock under weak memory orders (ONLY='settle split')
	@python3 -B scripts/ordering/check.py $(ONLY)

pages: deps ## the tests of the store as on a kernel with pages of 64 KiB (ONLY=FILTER)
	@SWIFT="$(SWIFT)" scripts/pages.sh $(ONLY)

damage: deps ## every bit and every length of every file of a small store
	DAMAGE_ALL=1 $(call OPTIMISED,SyncStoreTests) --parallel --filter 'DamageTests'

soak: release ## a hub and MEMBERS=20 processes that write, meet, are killed and cut off for MINUTES=5 (SEED=)
	$(SWIFT) run -c release --package-path Fuzz Soak "$$($(SWIFT) build -c release --show-bin-path)/sync-cli" \
	  $(or $(MINUTES),5) $(or $(MEMBERS),20) $(SEED)

mutants: deps ## plant faults in a copy of the sources: do the tests notice each? (ONLY='purge-open …', BUILT=1)
	@SWIFT="$(SWIFT)" $(if $(BUILT),BUILT=1) scripts/mutants.sh $(ONLY)

sealed: deps ## the tests of the journal once more, on encrypted stores
	SYNC_TEST_SEALED=1 $(SWIFT) test --filter 'SyncStoreTests|SimulationTests'

SANITIZE = $(SWIFT) test $(WIDTH)

tsan: deps ## the tests under the thread sanitizer
	$(SANITIZE) --sanitize=thread --scratch-path .build/tsan

asan: deps ## the tests under the address sanitizer (its runner leaks by itself)
	ASAN_OPTIONS=detect_leaks=0 $(SANITIZE) --sanitize=address --scratch-path .build/asan

install: release ## put sync-cli into $(DESTDIR)$(PREFIX)/bin
	install -D -m 755 "$$($(SWIFT) build -c release --show-bin-path)/sync-cli" "$(DESTDIR)$(PREFIX)/bin/sync-cli"

clean: ## remove all that was built
	rm -rf .build Benchmarks/.build Fuzz/.build Examples/.build
