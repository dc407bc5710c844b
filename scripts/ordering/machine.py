"""An abstract machine for C11 atomics, explored exhaustively.

A memory location is a list of messages in modification order; a message is a value and the view that
reading it may give. A view maps each location to the oldest message that may still be read. Loads choose
any message that their thread's view allows, so stale values are explored as an ARM processor would give
them. This is the view semantics of J. Kang, C.-K. Hur, O. Lahav, V. Vafeiadis and D. Dreyer, "A Promising
Semantics for Relaxed-Memory Concurrency", POPL 2017, without promises:

- Loads and stores of one thread take place in program order, so a relaxed load cannot see a store that
  comes after it in every other order (load buffering). A protocol that depends on the absence of that is
  given as two programs.
- A store is appended to the modification order. Two threads that store to one location do so by read-
  modify-write, or under a mutex.

A thread is a generator: it yields operations and is sent their results. It must be a function of those
results alone, since it is run anew for every state. It returns its outcome.
"""

import collections

RELAXED, ACQUIRE, RELEASE, SC = "relaxed", "acquire", "release", "sc"

Load = collections.namedtuple("Load", "place order")
Store = collections.namedtuple("Store", "place value order")
# Stores `value` if `expected` is there. The result is what was there.
Exchange = collections.namedtuple("Exchange", "place expected value order")
Fence = collections.namedtuple("Fence", "order")
# membarrier(2): each other thread executes a full fence at some moment of the call.
Barrier = collections.namedtuple("Barrier", "")


class Violation(Exception):
    """An execution after which the invariant does not hold."""


def joined(left, right):
    if left == right or not right:
        return left
    merged = dict(left)
    for place, time in right:
        if merged.get(place, 0) < time:
            merged[place] = time
    return tuple(sorted(merged.items()))


class Thread(collections.namedtuple("Thread", "results current acquired released awaited done")):
    """What has come of a thread: the results of its operations so far, its three views, the threads whose
    fence its barrier still awaits (None outside of one), and its outcome in a tuple (None until it has
    ended)."""


class State(collections.namedtuple("State", "memory total threads")):
    """Memory as a tuple of (place, messages), the view of the last sequentially consistent fence, and the
    threads."""


def explore(places, programs, invariant, limit=3_000_000):
    """Visits every reachable state; calls `invariant(outcomes, memory)` at the end of each execution.

    `places` are the initial values, `programs` the functions that make the threads. Returns the number of
    states; raises Violation with the steps that led there.
    """
    memory = tuple(sorted((place, ((value, ()),)) for place, value in places.items()))
    start = State(memory, (), tuple(Thread((), (), (), (), None, None) for _ in programs))
    seen = {start}
    stack = [(start, None)]
    ends = 0
    while stack:
        state, path = stack.pop()
        successors = list(steps(state, programs))
        if all(thread.done is not None for thread in state.threads):
            ends += 1
            newest = {place: messages[-1][0] for place, messages in state.memory}
            if not invariant([thread.done[0] for thread in state.threads], newest):
                raise Violation(trace(path))
        for name, successor in successors:
            if successor not in seen:
                if len(seen) >= limit:
                    raise RuntimeError(f"more than {limit} states: make the protocol smaller")
                seen.add(successor)
                stack.append((successor, (name, path)))
    if ends == 0:
        raise RuntimeError("no execution came to an end")
    return len(seen)


def trace(path):
    steps = []
    while path:
        steps.append(path[0])
        path = path[1]
    return list(reversed(steps))


def operation(program, results):
    """The next operation of a thread after these results; its outcome, in a tuple, if there is none."""
    thread = program()
    try:
        next_one = next(thread)
        for result in results:
            next_one = thread.send(result)
        return next_one, None
    except StopIteration as end:
        return None, (end.value,)


def steps(state, programs):
    for number, thread in enumerate(state.threads):
        if thread.done is not None:
            continue
        if thread.awaited:
            for other in thread.awaited:
                left = tuple(one for one in thread.awaited if one != other)
                waiting = replace(state, number, thread._replace(awaited=left))
                yield f"{number}: barrier at {other}", fenced(waiting, other, SC)
            continue
        what, outcome = operation(programs[number], thread.results)
        if what is None:
            yield f"{number}: ends with {outcome[0]!r}", replace(state, number, thread._replace(done=outcome))
            continue
        if isinstance(what, Barrier):
            successor, is_over = barrier(state, number)
            if is_over:
                thread_after = successor.threads[number]
                successor = replace(
                    successor, number, thread_after._replace(results=thread_after.results + (None,)))
            yield f"{number}: {what}", successor
            continue
        for result, successor in perform(state, number, what):
            thread_after = successor.threads[number]
            grown = thread_after._replace(results=thread_after.results + (result,))
            yield f"{number}: {what} -> {result!r}", replace(successor, number, grown)


def replace(state, number, thread):
    threads = state.threads[:number] + (thread,) + state.threads[number + 1:]
    return state._replace(threads=threads)


def fenced(state, number, order):
    thread = state.threads[number]
    current, total, released = thread.current, state.total, thread.released
    if order in (ACQUIRE, SC):
        current = joined(current, thread.acquired)
    if order == SC:
        current = joined(current, total)
        total = current
    if order in (RELEASE, SC):
        released = current
    thread = thread._replace(current=current, released=released)
    return replace(state, number, thread)._replace(total=total)


def perform(state, number, what):
    if isinstance(what, Fence):
        yield None, fenced(state, number, what.order)
    else:
        if what.order == SC:
            state = fenced(state, number, SC)
        order = {SC: None}.get(what.order, what.order)
        for result, successor in accessed(state, number, what, order):
            yield result, fenced(successor, number, SC) if what.order == SC else successor


def barrier(state, number):
    """A full fence here, one at some moment in each other thread, and one here at the end."""
    state = fenced(state, number, SC)
    thread = state.threads[number]
    if thread.awaited is None:
        others = tuple(other for other in range(len(state.threads)) if other != number)
        return replace(state, number, thread._replace(awaited=others)), False
    return replace(state, number, thread._replace(awaited=None)), True


def accessed(state, number, what, order):
    if isinstance(what, Load):
        yield from loaded(state, number, what.place, order or ACQUIRE)
    elif isinstance(what, Store):
        yield None, stored(state, number, what.place, what.value, order or RELEASE, ())
    elif isinstance(what, Exchange):
        # A read-modify-write reads the newest message.
        for found, successor in loaded(state, number, what.place, order or ACQUIRE, newest=True):
            if found == what.expected:
                messages = dict(successor.memory)[what.place]
                successor = stored(
                    successor, number, what.place, what.value, order or RELEASE, messages[-1][1])
            yield found, successor
    else:
        raise TypeError(what)


def loaded(state, number, place, order, newest=False):
    thread = state.threads[number]
    messages = dict(state.memory)[place]
    oldest = len(messages) - 1 if newest else dict(thread.current).get(place, 0)
    for time in range(oldest, len(messages)):
        value, view = messages[time]
        own = ((place, time),) if time else ()
        current, acquired = joined(thread.current, own), joined(joined(thread.acquired, own), view)
        if order in (ACQUIRE, SC):
            current = joined(current, view)
        yield value, replace(state, number, thread._replace(current=current, acquired=acquired))


def stored(state, number, place, value, order, before):
    """Appends a message; `before` is the view of the one that a read-modify-write replaces (a release
    sequence)."""
    thread = state.threads[number]
    memory = dict(state.memory)
    own = ((place, len(memory[place])),)
    current = joined(thread.current, own)
    view = joined(joined(current if order == RELEASE else joined(thread.released, own), own), before)
    memory[place] += ((value, view),)
    thread = thread._replace(current=current, acquired=joined(thread.acquired, own))
    return replace(state._replace(memory=tuple(sorted(memory.items()))), number, thread)
