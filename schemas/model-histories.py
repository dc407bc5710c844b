"""Plays the golden histories of the model: python3 schemas/model-histories.py, in the top directory.

A second implementation of what model-histories.md says, with nothing but the standard library. The rules are
those under which the histories were recorded; the page names where the present ones differ.
"""
TICK, DRIFT, RETIREMENT, AHEAD, MEMBER, MOST, NEVER = 64, 3, 80, 30, 1000, 7, 1 << 62

class Record:                   # one write; two records are the same only if they are one object
    def __init__(r, stamp, actor, sequence, key, value, dead, deadline, base, open, frontier):
        r.stamp, r.actor, r.sequence, r.key, r.value = stamp, actor, sequence, key, value
        r.dead, r.deadline, r.base, r.open, r.frontier = dead, deadline, base, open, frontier
        r.dot, r.reserved, r.order = (actor, sequence), key >= MEMBER, (stamp, actor, sequence)
    def gone(r, wall): return r.dead or r.deadline != NEVER and r.deadline + DRIFT < wall
    def live(r, wall): return not r.dead and r.deadline > wall

covers = lambda vector, dot: vector.get(dot[0], 0) >= dot[1]
contains = lambda a, b: all(a.get(actor, 0) >= sequence for actor, sequence in b.items())

def merge(a, b):
    for actor, sequence in b.items(): a[actor] = max(a.get(actor, 0), sequence)

class State:                    # what a copy keeps; a loss of power puts the durable one in its place
    def __init__(s, actor):
        s.actor, s.sequence, s.clock, s.vector, s.floor, s.horizon = actor, 0, 0, {}, {}, 0
        s.held, s.parked = {}, {}            # by key, in the order in which the keys came; parked: lists
        s.log, s.position = [], 0            # (position, record)
        s.cursors = {}                       # by the sender's actor: (position, mark, closed)
        s.marks, s.mark, s.marked = [], None, (0, 0)     # marked: position, sequence
        s.losers, s.mine, s.suspects, s.mending = [], [actor], [], False
    def copy(s):
        t = State(s.actor)
        for name, value in vars(s).items():
            setattr(t, name, value.copy() if isinstance(value, (dict, list)) else value)
        t.parked = {key: group.copy() for key, group in s.parked.items()}
        return t
    def current(s, r): return s.held.get(r.key) is r or r in s.parked.get(r.key, [])
    def greatest(s, key):
        best = s.held.get(key)
        for r in s.parked.get(key, []):
            if best is None or r.order > best.order: best = r
        return best
    def suspect(s, r): return any(r.actor == actor and r.sequence > above for actor, above in s.suspects)
    def park(s, r): s.parked.setdefault(r.key, []).append(r)
    def set_parked(s, key, group):
        if group: s.parked[key] = group
        else: s.parked.pop(key, None)
    def lose(s, r):
        if r not in s.losers: s.losers.append(r)
    def append(s, r):
        s.position += 1
        s.log.append((s.position, r))
    def strip(s, key): s.log = [e for e in s.log if e[1].key != key or e[1] in s.parked.get(key, [])]
    def remove(s, r): s.log = [e for e in s.log if e[1] is not r]
    def mint(s, actor):
        s.actor, s.sequence, s.marks, s.mark, s.marked = actor, 0, [], None, (0, 0)
        s.mine.append(actor)

class Copy:
    def __init__(c, member, state, scope):
        c.member, c.live, c.durable, c.scope = member, state.copy(), state.copy(), scope
        c.skew, c.alive, c.away, c.backups = 0, True, False, []
    def wants(c, key): return c.scope is None or key >= MEMBER or key in c.scope

class Round:
    def __init__(d, sender, receiver, full, snapshot, items, mark, narrow):
        d.pair, d.full, d.snapshot, d.items = (sender, receiver), full, snapshot, items
        d.mark, d.narrow, d.next = mark, narrow, 0

class World:
    def __init__(w, copies, keys, forks):
        w.keys, w.forks, w.now, w.copies, w.rounds = keys, forks, 100, [], []
        w.actors = w.values = w.marks = w.members = 0
        for _ in range(copies): w.add()

    def actor(w):               # actors are numbered from 1, and compared and shown by their names
        w.actors += 1
        return w.actors * 37 % 101 * 100 + w.actors
    def add(w, state=None, member=None, scope=None):
        state = state or State(w.actor())
        w.copies.append(Copy(w.members if member is None else member, state, scope))
        if member is None: w.members += 1
    def wall(w, c): return w.now + w.copies[c].skew
    def limit(w, c): return (w.wall(c) + DRIFT) * TICK
    def sync(w, c): w.copies[c].durable = w.copies[c].live.copy()
    def drop_rounds(w, c): w.rounds = [d for d in w.rounds if c not in d.pair]
    def round(w, sender, receiver):
        return next((d for d in w.rounds if d.pair == (sender, receiver)), None)

    # One copy

    def issue(w, c, key, value, dead=False, deadline=NEVER, source=None, stamp=None, names=(),
              frontier=None):
        s = w.copies[c].live
        s.sequence += 1
        if stamp is None: stamp = s.clock = max(s.clock + 1, w.wall(c) * TICK)
        base, open, old = None, [], source or s.held.get(key)
        if old:
            base = old.base if old.actor == s.actor else old.dot
            open = [dot for dot in [old.dot, *old.open, *names] if not covers(s.vector, dot)]
        r = Record(stamp, s.actor, s.sequence, key, value, dead, deadline, base, open, frontier or {})
        s.vector[s.actor] = s.sequence
        s.append(r)
        if stamp > w.limit(c): s.park(r)
        else: s.held[key] = r
    def reissue(w, c, r, names=()): w.issue(c, r.key, r.value, r.dead, r.deadline, r, names=names)

    def beats(w, r, old):
        # One dot with two contents: the greater value.
        if r.order == old.order and not r.reserved: return r.value > old.value
        return r.order > old.order
    def receive(w, c, r):
        s = w.copies[c].live
        if covers(s.vector, r.dot) and not s.mending or s.current(r): return
        old = s.held.get(r.key)
        if not s.mending and not r.reserved and r.stamp <= s.horizon and not r.gone(w.wall(c)) \
                and (old is None or w.beats(r, old)):
            return w.reissue(c, r)
        if r.stamp > w.limit(c):
            if all(p.dot != r.dot for p in s.parked.get(r.key, [])):
                s.append(r)
                s.park(r)
            return
        w.apply(c, r)
    def apply(w, c, r):
        s = w.copies[c].live
        s.clock = max(s.clock, r.stamp)
        old = s.held.get(r.key)
        wins = old is None or w.beats(r, old)
        if wins:
            if not s.current(r) and all(e[1] is not r for e in s.log): s.append(r)
            s.held[r.key] = r
        if old is None or r.reserved: return
        winner, loser = (r, old) if wins else (old, r)
        if not loser.dead and winner.base != loser.dot and winner.actor != loser.actor: s.lose(loser)
        lost = [d for d in loser.open
                if not covers(s.vector, d) and d not in winner.open and d != winner.dot]
        if lost: w.reissue(c, winner, lost)
    def unpark(w, c):
        s = w.copies[c].live
        for key in list(s.parked):
            due = sorted((r for r in s.parked[key] if r.stamp <= w.limit(c)), key=lambda r: r.order)
            s.set_parked(key, [r for r in s.parked[key] if r.stamp > w.limit(c)])
            for r in due: w.apply(c, r)
    def wake(w, c):
        if w.copies[c].alive: w.unpark(c)
        return w.copies[c].alive

    # Rounds

    def knows_more(w, c, other):
        own, theirs = w.copies[c].live, w.copies[other].live
        if theirs.vector.get(own.actor, 0) > own.sequence: return True
        if any(r.actor == own.actor and r.sequence > own.sequence for r in theirs.held.values()): return True
        return own.actor in theirs.cursors and theirs.cursors[own.actor][1] not in own.marks
    def rolled_back(w, c):
        s = w.copies[c].live
        s.suspects.append((s.actor, s.marked[1]))
        s.vector[s.actor] = max(s.marked[1], s.floor.get(s.actor, 0))
        s.cursors = {}
        s.mint(w.actor())
        w.drop_rounds(c)
        w.sync(c)
    def open(w, sender, receiver):
        if sender == receiver or max(sender, receiver) >= len(w.copies): return False
        if w.round(sender, receiver): return False
        a, b = w.copies[sender], w.copies[receiver]
        if not a.alive or not b.alive or a.away or b.away: return False
        w.unpark(sender)
        w.unpark(receiver)
        if abs(a.skew - b.skew) > DRIFT: return False
        if a.live.actor == b.live.actor: w.rolled_back(receiver)
        if w.knows_more(sender, receiver): w.rolled_back(sender)
        if w.knows_more(receiver, sender): w.rolled_back(receiver)
        narrow = a.scope is not None
        if narrow and b.scope is not None: return False
        if a.live.position > a.live.marked[0] or a.live.mark is None:
            w.marks += 1
            a.live.mark, a.live.marked = w.marks, (a.live.position, a.live.sequence)
            a.live.marks.append(w.marks)
            w.sync(sender)
        snapshot, s = a.durable.copy(), b.live
        full = not contains(s.vector, snapshot.floor) and not narrow or bool(s.suspects) or s.mending
        if s.mending and (snapshot.suspects or not contains(snapshot.vector, s.floor)): return False
        if full and (narrow or snapshot.mending): return False
        if full and not contains(snapshot.vector, snapshot.floor): return False
        start = 0 if full else s.cursors.get(snapshot.actor, (0,))[0]
        items = [(position, r) for position, r in snapshot.log
                 if position > start and (s.mending or not covers(s.vector, r.dot)) and b.wants(r.key)
                 and not snapshot.suspect(r) and snapshot.current(r)]
        w.rounds.append(Round(sender, receiver, full, snapshot, items, a.live.mark, narrow))
        return True
    def deliver(w, sender, receiver, count):
        d = w.round(sender, receiver)
        if not d: return
        w.unpark(receiver)
        for position, r in d.items[d.next:][:count]:
            d.next += 1
            w.receive(receiver, r)
            if not d.full: w.copies[receiver].live.cursors[d.snapshot.actor] = (position, d.mark, 0)
    def close(w, sender, receiver):
        w.deliver(sender, receiver, NEVER)
        d = w.round(sender, receiver)
        if not d: return
        w.rounds.remove(d)
        s, snapshot = w.copies[receiver].live, d.snapshot
        if d.full: w.close_full(receiver, snapshot)
        if d.narrow and not snapshot.mending:
            rest = {actor: n for actor, n in snapshot.vector.items() if actor != snapshot.actor}
            if snapshot.sequence > 0 and contains(s.vector, rest) and contains(s.vector, snapshot.floor):
                merge(s.vector, {snapshot.actor: snapshot.sequence})
        elif not snapshot.mending:
            merge(s.vector, snapshot.vector)
        s.cursors[snapshot.actor] = (snapshot.position, d.mark, 1)
    def close_full(w, c, snapshot):
        s, again, dropped = w.copies[c].live, [], []
        for r in s.held.values():
            if r.reserved or snapshot.current(r) and not snapshot.suspect(r): continue
            theirs, covered = snapshot.greatest(r.key), covers(snapshot.vector, r.dot)
            if theirs and snapshot.suspect(theirs): theirs = None
            if s.suspect(r):
                if not covered or not theirs and r.stamp > snapshot.horizon: again.append(r)
                elif theirs:
                    if r.order > theirs.order: again.append(r)
                else:
                    dropped.append(r.key)
                    if not r.gone(w.wall(c)): s.lose(r)
            elif covered: dropped.append(r.key)
            elif s.mending and r.actor in s.mine: again.append(r)
            elif not r.gone(w.wall(c)) and r.stamp <= snapshot.horizon: again.append(r)
        for key, group in list(s.parked.items()):
            left = []
            for r in group:
                covered = covers(snapshot.vector, r.dot)
                if covered and not snapshot.current(r): s.remove(r)
                elif not covered and r.stamp <= snapshot.horizon and not r.dead:
                    again.append(r)
                    s.remove(r)
                else: left.append(r)
            s.set_parked(key, left)
        for key in dropped:
            del s.held[key]
            s.strip(key)
        merge(s.floor, snapshot.floor)
        s.horizon, s.clock = max(s.horizon, snapshot.horizon), max(s.clock, snapshot.horizon)
        if s.mending: s.vector, s.mending = {s.actor: s.sequence}, False
        merge(s.vector, snapshot.vector)
        for r in again: w.reissue(c, r)
        s.suspects = []
    def meet(w, one, other):
        if max(one, other) >= len(w.copies): return
        for sender, receiver in ((one, other), (other, one)):
            if w.round(sender, receiver): w.rounds.remove(w.round(sender, receiver))
            if w.copies[sender].alive and not w.copies[sender].away: w.sync(sender)
            if w.open(sender, receiver): w.close(sender, receiver)
        w.compare(one, other)

    # Digests

    def digest(w, c, time):
        best = [w.copies[c].live.greatest(key) for key in range(w.keys)]
        return [(r.key, r.dot, r.value) for r in best if r and r.live(time)]
    def compare(w, one, other):
        (a, b), time = (w.copies[one], w.copies[other]), min(w.wall(one), w.wall(other))
        if not a.alive or not b.alive or a.scope is not None or b.scope is not None: return
        nonzero = lambda v: {actor: n for actor, n in v.items() if n}
        here, there = a.live.cursors.get(b.live.actor), b.live.cursors.get(a.live.actor)
        if nonzero(a.live.vector) != nonzero(b.live.vector) or not here or not there: return
        if not here[2] or not there[2] or here[0] != b.live.position or there[0] != a.live.position: return
        if w.digest(one, time) == w.digest(other, time): return
        for key in range(w.keys):       # repair
            left, right = w.copies[one].live.greatest(key), w.copies[other].live.greatest(key)
            if left is right or not any(r and not r.dead for r in (left, right)): continue
            if left and right:
                is_left = (left.order, left.value) > (right.order, right.value)
            else: is_left = right is None
            winner, loser = (left, right) if is_left else (right, left)
            if loser and not loser.dead: w.copies[other if is_left else one].live.lose(loser)
            w.reissue(one if is_left else other, winner)
            if left and right and left.dot == right.dot:
                for c in (one, other):
                    if w.copies[c].live.actor == left.actor:
                        w.copies[c].live.mint(w.actor())
                        w.drop_rounds(c)

    # Purging

    def purge(w, c):
        s, wall, copy = w.copies[c].live, w.wall(c), w.copies[c]
        reserved = [r for r in s.held.values() if r.reserved]
        oldest, own = (wall - RETIREMENT) * TICK, MEMBER + copy.member
        active = [f for f in reserved if f.key != own and f.stamp >= oldest]
        complete = {x.member for x in w.copies if x.scope is None}
        wide = [f for f in reserved if f.key - MEMBER in complete]
        for r in list(s.held.values()):
            expired = r.deadline != NEVER and r.deadline + DRIFT < wall
            if r.reserved or not r.dead and (not expired or abs(copy.skew) > DRIFT): continue
            if s.suspects or s.mending or not contains(s.vector, s.floor): continue
            if not covers(s.vector, r.dot): continue
            if copy.scope is not None and not any(covers(f.frontier, r.dot) for f in wide): continue
            if not all(covers(s.vector, dot) for dot in r.open): continue
            if not all(covers(f.frontier, r.dot) and f.stamp > r.stamp and contains(s.vector, f.frontier)
                       for f in active): continue
            merge(s.floor, {r.actor: r.sequence})
            s.horizon = max(s.horizon, r.stamp)
            del s.held[r.key]
            s.strip(r.key)

    # Operations: a letter and numbers

    def step(w, op):
        letter, *n = op.split()
        n = [int(x) for x in n]
        c = n[0]
        if letter != "t" and c >= len(w.copies): return
        copy = w.copies[c] if letter != "t" else None
        if letter == "t": w.now += c
        elif letter == "p":                                     # copy, key, life: put
            if w.wake(c) and copy.wants(n[1]):
                w.values += 1
                w.issue(c, n[1], w.values, deadline=w.wall(c) + n[2] if n[2] else NEVER)
        elif letter == "d":                                     # copy, key: delete
            if w.wake(c) and n[1] in copy.live.held and copy.live.held[n[1]].live(w.wall(c)):
                w.issue(c, n[1], 0, dead=True)
        elif letter == "f":                                     # copy, key, delete?: a write by a wrong clock
            if w.wake(c) and copy.wants(n[1]) and (not n[2] or n[1] in copy.live.held):
                w.values += 1
                w.issue(c, n[1], 0 if n[2] else w.values, dead=bool(n[2]),
                        stamp=(w.now + AHEAD) * TICK + w.values % TICK)
        elif letter == "s":
            if w.wake(c): w.sync(c)
        elif letter == "x":                                     # loss of power
            if w.wake(c):
                copy.live = copy.durable.copy()
                w.drop_rounds(c)
        elif letter == "o": w.open(c, n[1])
        elif letter == "v": w.deliver(c, n[1], n[2])
        elif letter == "c": w.close(c, n[1])
        elif letter == "k": w.rounds = [d for d in w.rounds if d.pair != (c, n[1])]
        elif letter == "m": w.meet(c, n[1])
        elif letter == "a":                                     # write a frontier
            s = copy.live
            if w.wake(c) and not s.suspects and not s.mending and contains(s.vector, s.floor):
                w.issue(c, MEMBER + copy.member, 0, frontier=s.vector.copy())
        elif letter == "g":
            if w.wake(c): w.purge(c)
        elif letter == "z":                                     # compact
            if w.wake(c): copy.live.log = [e for e in copy.live.log if copy.live.current(e[1])]
        elif letter == "w": copy.skew = n[1]
        elif letter == "y":
            copy.away = n[1] == 1
            if copy.away: w.drop_rounds(c)
        elif letter == "b":
            if w.wake(c): copy.backups = (copy.backups + [copy.durable.copy()])[-3:]
        elif letter in "rq":                                    # r: restored, seen at opening; q: unseen
            if copy.alive and copy.backups:
                copy.live = copy.backups[n[1] % len(copy.backups)].copy()
                if letter == "r": copy.live.mint(w.actor())
                w.sync(c)
                w.drop_rounds(c)
        elif letter == "n":                                     # copy, of a backup?: a copied directory
            if len(w.copies) < MOST and copy.alive and (not n[1] or copy.backups):
                state = (copy.backups[0] if n[1] else copy.durable).copy()
                state.mint(w.actor())
                w.add(state, copy.member, copy.scope)
                w.copies[-1].skew = copy.skew
        elif letter == "j":                                     # copy, selective?: a new member
            if len(w.copies) < MOST and copy.alive:
                w.add(scope=set(range(0, w.keys, 2)) if n[1] else None)
                w.meet(c, len(w.copies) - 1)
        elif letter == "l":                                     # the machine is gone for ever
            if copy.scope is not None or sum(x.alive and x.scope is None for x in w.copies) > 2:
                copy.alive = False
                w.drop_rounds(c)
        elif letter == "e":                                     # copy, key: its record is damaged
            if w.wake(c) and n[1] in copy.live.held and not copy.live.suspects:
                w.drop_rounds(c)
                del copy.live.held[n[1]]
                copy.live.strip(n[1])
                copy.live.cursors, copy.live.mending = {}, True
                copy.live.mint(w.actor())
                w.sync(c)
        elif letter == "u":                                     # a running machine is cloned
            if copy.alive and len(w.copies) < MOST:
                w.add(copy.live, copy.member, copy.scope)
                w.copies[-1].skew = copy.skew

    def heal(w):
        w.rounds = []
        for c, copy in enumerate(w.copies):
            copy.skew, copy.away = 0, False
            w.wake(c)
        w.now += AHEAD + 3 * DRIFT
        alive = [c for c, copy in enumerate(w.copies) if copy.alive]
        def mingle(times):
            for _ in range(times):
                for one in alive:
                    for other in alive:
                        if one < other: w.step(f"m {one} {other}")
        mingle(6 if w.forks else 3)
        states = [w.copies[c].live for c in alive]
        unsettled = [s for s in states if s.mending or s.suspects]
        if unsettled and (any(s.mending for s in unsettled) or len(unsettled) == len(alive)): return
        w.now += RETIREMENT + 5
        for _ in range(3):
            for c in alive: w.step(f"a {c}")
            mingle(2)
            for c in alive: w.step(f"g {c}")
            w.now += 1
        mingle(3)

    def text(w, c):
        s = w.copies[c].live
        join = lambda parts: ",".join(parts) or "-"
        vector = lambda v: join(f"{actor}:{n}" for actor, n in sorted(v.items()) if n)
        records = lambda rs: join(f"{r.key}/{r.actor}:{r.sequence}{'!' * r.dead}" for r in rs)
        flags = ("" if w.copies[c].alive else "L") + ("m" if s.mending else "")
        return " ".join([
            str(s.actor), str(s.sequence), str(s.clock), str(s.position), flags or "-",
            "v" + vector(s.vector), "f" + vector(s.floor), str(s.horizon),
            "h" + records(s.held[key] for key in sorted(s.held)),
            "p" + records(r for key in sorted(s.parked) for r in s.parked[key]),
            "l" + records(sorted(s.losers, key=lambda r: (r.key, r.actor, r.sequence, r.value))),
            "s" + join(f"{actor}:{above}" for actor, above in s.suspects),
            "c" + join(f"{actor}:{p}:{mark}:{end}" for actor, (p, mark, end) in sorted(s.cursors.items())),
            "d" + join(f"{key}={value}" for key, _, value in w.digest(c, w.wall(c)))])

def fnv(state, texts):
    for text in texts:
        for byte in text.encode(): state = (state ^ byte) * 0x100000001b3 % 2**64
    return state

def play(block):
    head, *ops = block[0].split(";")
    kind, copies, keys = head.split()
    w, h = World(int(copies), int(keys), kind == "rollbacks"), 0xcbf29ce484222325
    texts = lambda: [w.text(c) for c in range(len(w.copies))]
    for op in ops:
        w.step(op)
        h = fnv(h, texts())
    assert block[2:] == texts() and block[1].split()[0] == f"{h:016x}"
    w.heal()
    assert block[1].split()[1] == f"{fnv(0xcbf29ce484222325, texts()):016x}"

if __name__ == "__main__":
    blocks = open("schemas/vectors/model-histories.txt").read().strip("\n").split("\n\n")
    for block in blocks: play(block.split("\n"))
    print(len(blocks), "histories")
