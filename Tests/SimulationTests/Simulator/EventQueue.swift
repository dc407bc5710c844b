/// Events ordered by time, and by insertion within the same time.
struct EventQueue<Event> {
  private struct Entry {
    var time: UInt64
    var number: Int
    var event: Event

    func isBefore(_ other: Entry) -> Bool { (time, number) < (other.time, other.number) }
  }

  /// A binary heap.
  private var heap: [Entry] = []
  private var number = 0

  var isEmpty: Bool { heap.isEmpty }
  var nextTime: UInt64? { heap.first?.time }

  mutating func schedule(_ event: Event, at time: UInt64) {
    number += 1
    heap.append(Entry(time: time, number: number, event: event))
    var child = heap.count - 1
    while child > 0, heap[child].isBefore(heap[(child - 1) / 2]) {
      heap.swapAt(child, (child - 1) / 2)
      child = (child - 1) / 2
    }
  }

  mutating func next() -> (time: UInt64, event: Event)? {
    guard let first = heap.first else { return nil }
    let last = heap.removeLast()
    if !heap.isEmpty {
      heap[0] = last
      var parent = 0
      while true {
        var least = parent
        for child in [2 * parent + 1, 2 * parent + 2]
        where child < heap.count && heap[child].isBefore(heap[least]) {
          least = child
        }
        if least == parent { break }
        heap.swapAt(parent, least)
        parent = least
      }
    }
    return (first.time, first.event)
  }
}
