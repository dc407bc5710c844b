"""The protocols between threads and processes that share memory without a lock, for `machine.explore`.

Each is a function of the set of its faults that are switched on: a memory order weakened, two steps
exchanged. Without any the invariant must hold in every execution; with each one it must fail in some.
"""

from machine import ACQUIRE, RELAXED, RELEASE, SC, Barrier, Exchange, Fence, Load, Store

PLATFORM = "Sources/SyncStore/Platform/"
INDEX = "Sources/SyncStore/Engine/Index/"
SHIMS = "Sources/CLinux/"

PROTOCOLS = {}


def protocol(title, faults, sources):
    """`faults` are the switches. `sources` are lines of the code that must be there for the protocol to be
    the code's."""

    def register(function):
        PROTOCOLS[function.__name__] = (title, faults, sources, function)
        return function

    return register


# Litmus tests: does the machine itself tell what is allowed from what is not?


@protocol("message passing: who sees the flag sees the data", ["relaxed store", "relaxed load"], [])
def message_passing(on):
    def writer():
        yield Store("data", 1, RELAXED)
        yield Store("flag", 1, RELAXED if "relaxed store" in on else RELEASE)

    def reader():
        if (yield Load("flag", RELAXED if "relaxed load" in on else ACQUIRE)) == 0:
            return True
        return (yield Load("data", RELAXED)) == 1

    return {"data": 0, "flag": 0}, [writer, reader], lambda ends, memory: ends[1]


@protocol("store buffering: one of two threads sees the other's store", ["no fence"], [])
def store_buffering(on):
    def thread(own, other):
        def run():
            yield Store(own, 1, RELEASE)
            if "no fence" not in on:
                yield Fence(SC)
            return (yield Load(other, ACQUIRE))

        return run

    return {"x": 0, "y": 0}, [thread("x", "y"), thread("y", "x")], lambda ends, memory: 1 in ends


@protocol("independent reads: two readers agree on the order of two stores", ["no fence"], [])
def independent_reads(on):
    def writer(place):
        def run():
            yield Store(place, 1, RELEASE)

        return run

    def reader(first, second):
        def run():
            one = yield Load(first, ACQUIRE)
            if "no fence" not in on:
                yield Fence(SC)
            return one, (yield Load(second, ACQUIRE))

        return run

    def agrees(ends, memory):
        return not (ends[2] == (1, 0) and ends[3] == (1, 0))

    return {"x": 0, "y": 0}, [writer("x"), writer("y"), reader("x", "y"), reader("y", "x")], agrees


# The journal.


@protocol(
    "the tail: who sees the new tail sees the record before it, and where bytes may stand",
    ["relaxed tail", "relaxed look", "bytes first"],
    [
        (PLATFORM + "ControlPage.swift",
         "$0.store(newValue, ordering: .releasing)"),
        (PLATFORM + "ControlPage.swift",
         "$0.load(ordering: .acquiring)"),
        (PLATFORM + "ControlPage.swift",
         "atomicMemoryFence(ordering: .releasing)"),
    ])
def tail(on):
    def writer():
        # `announce(writing:)`
        if "bytes first" not in on:
            yield Store("writing", 2, RELEASE)
            yield Fence(RELEASE)
        yield Store("record a", 1, RELAXED)
        yield Store("record b", 1, RELAXED)
        if "bytes first" in on:
            yield Store("writing", 2, RELEASE)
        yield Store("tail", 2, RELAXED if "relaxed tail" in on else RELEASE)

    def reader():
        if (yield Load("tail", RELAXED if "relaxed look" in on else ACQUIRE)) == 0:
            return True
        return (yield Load("record a", RELAXED)) + (yield Load("record b", RELAXED)) == 2

    def recoverer():
        # Who took the mutex of one who died: it blanks up to `writing`, and must not miss a byte beyond it.
        found = yield Load("record b", RELAXED)
        yield Fence(ACQUIRE)
        return not found or (yield Load("writing", ACQUIRE)) == 2

    places = {"writing": 0, "record a": 0, "record b": 0, "tail": 0}
    return places, [writer, reader, recoverer], lambda ends, memory: ends[1] and ends[2]


@protocol(
    "the writers' mutex: its holder sees what the one before it has stored",
    ["relaxed taking", "relaxed giving"],
    [
        (PLATFORM + "ControlPage+Mutex.swift",
         "compareExchange(expected: expected, desired: desired, ordering: .acquiring)"),
        (PLATFORM + "ControlPage+Mutex.swift",
         "compareExchange(expected: number, desired: next, ordering: .releasing)"),
    ])
def mutex(on):
    def thread(number):
        def run():
            found = yield Exchange("mutex", 0, number, RELAXED if "relaxed taking" in on else ACQUIRE)
            if found != 0:
                return 0
            count = yield Load("count", RELAXED)
            yield Store("count", count + 1, RELAXED)
            yield Exchange("mutex", number, 0, RELAXED if "relaxed giving" in on else RELEASE)
            return 1

        return run

    def counted(ends, memory):
        return memory["count"] == sum(ends)

    return {"mutex": 0, "count": 0}, [thread(1), thread(2), thread(3)], counted


@protocol(
    "an event count: nobody sleeps on a number that has changed without being woken",
    ["no count before", "relaxed count", "relaxed look"],
    [
        (PLATFORM + "EventCount.swift",
         "sleepers.add(1, ordering: .sequentiallyConsistent)"),
        (PLATFORM + "EventCount.swift",
         "guard sleepers.load(ordering: .sequentiallyConsistent) > 0 else { return }"),
    ])
def event_count(on):
    def sleeper():
        if "no count before" not in on:
            yield Exchange("sleepers", 0, 1, RELAXED if "relaxed count" in on else SC)
        # futex(2) compares under a lock of its own; the order of that load is left to the count before it.
        sleeps = (yield Load("number", RELAXED if "relaxed count" in on else SC)) == 0
        return "sleeps" if sleeps else "runs"

    def waker():
        yield Exchange("number", 0, 1, RELAXED if "relaxed look" in on else SC)
        return (yield Load("sleepers", RELAXED if "relaxed look" in on else SC)) > 0

    def woken(ends, memory):
        return ends[0] == "runs" or ends[1]

    return {"number": 0, "sleepers": 0}, [sleeper, waker], woken


@protocol(
    "faults: who has read zeros in place of a page that was refused sees that there was a fault",
    ["no fence", "zeros first"],
    [(SHIMS + "include/CLinuxFaults.h", "__atomic_thread_fence(__ATOMIC_ACQUIRE);")])
def faults(on):
    def handler():
        if "zeros first" in on:
            yield Store("page", 0, RELEASE)
        yield Store("count", 1, RELAXED)
        # mmap(2) puts the zeros there: a full fence in the kernel.
        yield Fence(SC)
        if "zeros first" not in on:
            yield Store("page", 0, RELAXED)

    def reader():
        found = yield Load("page", RELAXED)
        if "no fence" not in on:
            yield Fence(ACQUIRE)
        return found == 1 or (yield Load("count", RELAXED)) == 1

    return {"page": 1, "count": 0}, [handler, reader], lambda ends, memory: ends[1]


# Reclaiming what readers use.


EPOCH_SOURCES = [
    (PLATFORM + "EpochReclamation.swift",
     "defer { unsafe since.pointee.store(before, ordering: .releasing) }"),
    (PLATFORM + "EpochReclamation.swift", "current.load(ordering: .sequentiallyConsistent)"),
    (SHIMS + "include/CLinux.h", "__atomic_store_n(word, epoch, __ATOMIC_RELAXED);"),
    (SHIMS + "include/CLinux.h", "__atomic_exchange_n(word, epoch, __ATOMIC_SEQ_CST);"),
    (SHIMS + "shim.c", "syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0"),
]


def reclaiming(on, fenced):
    def reader():
        epoch = yield Load("epoch", ACQUIRE)
        if fenced:
            yield Exchange("word", 0, epoch, RELAXED if "no fence" in on else SC)
        else:
            yield Store("word", epoch, RELAXED)
        view = yield Load("published", ACQUIRE)
        if "done early" in on:
            # What a relaxed store of the word at the end could become: it passes the loads before it.
            yield Store("word", 0, RELAXED)
        sound = yield Load(view, RELAXED)
        if "done early" not in on:
            yield Store("word", 0, RELEASE)
        return sound == 1

    def publisher():
        retired = yield Load("epoch", RELAXED)
        if "epoch before" in on:
            yield Store("epoch", retired + 1, SC)
        yield Store("published", "new", SC)
        if "epoch before" not in on:
            yield Store("epoch", retired + 1, SC)
        if "no barrier" not in on:
            yield Fence(SC) if fenced else Barrier()
        since = yield Load("word", SC)
        if since == 0 or since > retired or "any epoch" in on:
            yield Store("old", 0, RELAXED)

    places = {"epoch": 1, "word": 0, "published": "old", "old": 1, "new": 1}
    return places, [reader, publisher], lambda ends, memory: ends[0]


@protocol(
    "epochs with membarrier(2): what a reader uses is not reclaimed",
    ["no barrier", "epoch before", "done early", "any epoch"], EPOCH_SOURCES)
def epochs(on):
    return reclaiming(on, fenced=False)


@protocol(
    "epochs with a fence of each reader, where membarrier(2) is refused",
    ["no fence", "epoch before", "done early", "any epoch"], EPOCH_SOURCES)
def fenced_epochs(on):
    return reclaiming(on, fenced=True)


# The index. A key is its number; 0 is an empty slot, -1 a free one behind which a search must go on.

EMPTY, REMOVED = 0, -1


def look(key, slots, order, reverse=True):
    """`HashIndex.find` within one bucket: is the key there; else, can the search end here?"""
    words = []
    for slot in reversed(slots) if reverse else slots:
        words.append((yield Load(slot, order)))
    last = words[0] if reverse else words[-1]
    return key in words, last == EMPTY


@protocol(
    "settle and find: a key that moves within its bucket is found all the time",
    ["first slot first", "relaxed loads", "removed before copied"],
    [
        (SHIMS + "include/CLinuxLine.h",
         "for (int index = 7; index >= 0; index--) {"),
        (SHIMS + "include/CLinuxLine.h",
         "__atomic_load_n(words + index, __ATOMIC_ACQUIRE);"),
        (PLATFORM + "MappedPages.swift",
         "      word, ordering: .releasing)"),
        (INDEX + "HashIndex+Change.swift",
         "write(word, to: page, Self.slotOffset(bucket, end))"),
    ])
def settle(on):
    slots = ["slot 0", "slot 1", "slot 2"]

    def writer():
        # `remove` of key 5, then `settle`: keys move before the free slots, which become empty from the
        # last on.
        yield Store("slot 0", REMOVED, RELEASE)
        end = 0
        for index, slot in enumerate(slots):
            word = yield Load(slot, ACQUIRE)
            copy = Store(slots[end], word, RELEASE)
            rest = Store(slot, word if index == end else REMOVED, RELEASE)
            for store in [rest, copy] if "removed before copied" in on else [copy, rest]:
                yield store
            end += word > 0
        for slot in reversed(slots[end:]):
            yield Store(slot, EMPTY, RELEASE)

    def reader():
        order = RELAXED if "relaxed loads" in on else ACQUIRE
        found, _ = yield from look(7, slots, order, reverse="first slot first" not in on)
        return found

    places = {"slot 0": 5, "slot 1": 7, "slot 2": REMOVED}
    return places, [writer, reader], lambda ends, memory: ends[1]


@protocol(
    "settle and search on: a key of a later bucket is found although the earlier one gets an empty slot",
    ["empty too early"],
    [(INDEX + "HashIndex+Change.swift", "let free = isPassed ? Slot.removed : Slot.empty")])
def search_on(on):
    # Key 9 belongs in the first bucket and lies in the second. Key 5 of the first is removed; 9 is
    # displaced, so the free slots stay `removed` until 9 is removed, too.
    def writer():
        yield Store("a0", REMOVED, RELEASE)
        yield Store("a1", EMPTY if "empty too early" in on else REMOVED, RELEASE)

    def reader():
        found, ends = yield from look(9, ["a0", "a1"], ACQUIRE)
        if found or ends:
            return found
        found, _ = yield from look(9, ["b0", "b1"], ACQUIRE)
        return found

    places = {"a0": 5, "a1": REMOVED, "b0": 9, "b1": EMPTY}
    return places, [writer, reader], lambda ends, memory: ends[1]


@protocol(
    "split, deepen and find: a key that moves to a new page is found all the time",
    ["cleared before turned", "no second look", "relaxed slots", "relaxed depth", "filled after turned"],
    [
        (INDEX + "HashIndex.swift",
         "if header.load(IndexLayout.Header.depth) == depth, entry.load() == used { return nil }"),
        (INDEX + "HashIndex+Growth.swift",
         "for index in 0..<half { try entry(half + index).store(try entry(index).load()) }"),
        (INDEX + "HashIndex+Growth.swift",
         "try entry(index).store(CheckedWord.entry(new))"),
        (PLATFORM + "MappedPages.swift",
         "Atomic<UInt32>.self).pointee.load(ordering: .acquiring)"),
    ])
def split(on):
    # Page "a" holds key 7, whose second bit of the hash is set. The directory doubles (entry 1 is a copy of
    # entry 0), then the key goes to page "b", entry 1 names that, and the key leaves page "a".
    def writer():
        yield Store("entry 1", "a", RELEASE)
        yield Store("depth", 1, RELAXED if "relaxed depth" in on else RELEASE)
        if "filled after turned" not in on:
            yield Store("b", 7, RELEASE)
        if "cleared before turned" in on:
            yield Store("a", EMPTY, RELEASE)
        yield Store("entry 1", "b", RELEASE)
        if "filled after turned" in on:
            yield Store("b", 7, RELEASE)
        if "cleared before turned" not in on:
            yield Store("a", EMPTY, RELEASE)

    def reader():
        for _ in range(3):
            depth = yield Load("depth", ACQUIRE)
            entry = f"entry {depth}"
            page = yield Load(entry, ACQUIRE)
            if page is None:
                return False
            if (yield Load(page, RELAXED if "relaxed slots" in on else ACQUIRE)) == 7:
                return True
            if "no second look" in on:
                return False
            if (yield Load("depth", ACQUIRE)) == depth and (yield Load(entry, ACQUIRE)) == page:
                return False
        # It changes twice at most.
        return False

    places = {"depth": 0, "entry 0": "a", "entry 1": None, "a": 7, "b": EMPTY}
    return places, [writer, reader], lambda ends, memory: ends[1]


@protocol(
    "changes of several keys: a reader between two equal, even counts has seen all of them, or none",
    ["no begin", "no end", "relaxed begin", "relaxed look", "even is enough"],
    [
        (INDEX + "IndexCheckpoint.swift",
         "header.store(seqlock | 1, at: Field.changes)"),
        (INDEX + "IndexCheckpoint.swift",
         "header.store(seqlock &+ 1, at: Field.changes)"),
        ("Sources/SyncStore/Engine/State/Engine+Search.swift",
         "isWritingIndex || changes & 1 == 0 && changes == index.checkpoint.seqlock"),
    ])
def several_keys(on):
    def writer():
        if "no begin" not in on:
            yield Store("changes", 1, RELAXED if "relaxed begin" in on else RELEASE)
        for key in ["key a", "key b"]:
            yield Store(key, 1, RELAXED if "relaxed begin" in on else RELEASE)
        if "no end" not in on:
            yield Store("changes", 2, RELEASE)

    def reader():
        order = RELAXED if "relaxed look" in on else ACQUIRE
        changes = yield Load("changes", ACQUIRE)
        one, two = (yield Load("key a", order)), (yield Load("key b", order))
        again = changes if "even is enough" in on else (yield Load("changes", ACQUIRE))
        if changes % 2 or changes != again:
            return "looks again"
        return "whole" if one == two else "torn"

    def is_whole(ends, memory):
        # And it comes to an end: nobody looks again for ever.
        return ends[1] != "torn" and memory["changes"] % 2 == 0

    return {"changes": 0, "key a": 0, "key b": 0}, [writer, reader], is_whole
