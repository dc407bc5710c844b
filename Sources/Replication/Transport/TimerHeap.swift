/// Timers in order of their deadlines: a binary heap. A value without a clock.
///
/// Invariant: the heap holds each live timer once, and at most as many dead entries as live ones, plus a few.
struct TimerHeap<Payload> {
  private struct Entry {
    var deadline: UInt64
    var number: UInt64
    func precedes(_ other: Entry) -> Bool { (deadline, number) < (other.deadline, other.number) }
  }

  private var heap: [Entry] = []
  private var live: [UInt64: Payload] = [:]
  private var lastNumber: UInt64 = 0

  /// Number of live timers.
  var count: Int { live.count }

  /// Adds a timer and returns its number, from 1.
  mutating func insert(deadline: UInt64, _ payload: Payload) -> UInt64 {
    lastNumber += 1
    live[lastNumber] = payload
    heap.append(Entry(deadline: deadline, number: lastNumber))
    siftUp(heap.count - 1)
    return lastNumber
  }

  /// Removes a timer; no effect if it is gone.
  mutating func remove(_ number: UInt64) {
    guard live.removeValue(forKey: number) != nil, heap.count > 2 * live.count + 32 else { return }
    // Each connection reschedules its timers all the time: dead entries must not accumulate.
    heap.removeAll { live[$0.number] == nil }
    for index in heap.indices.reversed() { siftDown(index) }
  }

  /// The deadline of the next timer; nil if there is none.
  mutating func nextDeadline() -> UInt64? {
    while let first = heap.first {
      if live[first.number] != nil { return first.deadline }
      removeFirst()
    }
    return nil
  }

  /// Removes and returns the next timer that is due at `now`.
  mutating func popDue(at now: UInt64) -> Payload? {
    guard let deadline = nextDeadline(), deadline <= now else { return nil }
    return live.removeValue(forKey: removeFirst())
  }

  @discardableResult
  private mutating func removeFirst() -> UInt64 {
    heap.swapAt(0, heap.count - 1)
    let number = heap.removeLast().number
    siftDown(0)
    return number
  }

  private mutating func siftUp(_ start: Int) {
    var index = start
    while index > 0, heap[index].precedes(heap[(index - 1) / 2]) {
      heap.swapAt(index, (index - 1) / 2)
      index = (index - 1) / 2
    }
  }

  private mutating func siftDown(_ start: Int) {
    var index = start
    while true {
      var least = index
      for child in [2 * index + 1, 2 * index + 2]
      where child < heap.count && heap[child].precedes(heap[least]) {
        least = child
      }
      guard least != index else { return }
      heap.swapAt(index, least)
      index = least
    }
  }
}
