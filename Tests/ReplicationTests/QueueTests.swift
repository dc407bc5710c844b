@testable import Replication
import Testing

@Suite struct QueueTests {
  private final class Thing {}

  @Test("Removed elements are released, also when the queue is never empty")
  func releases() {
    var queue = Queue<Thing>()
    for _ in 0..<10 { queue.append(Thing()) }
    for _ in 0..<100 {
      queue.append(Thing())
      weak let gone = queue.first
      _ = queue.popFirst()
      #expect(gone == nil)
    }
    #expect(queue.count == 10)
  }

  @Test("Elements are removed in insertion order, and unwanted ones are skipped")
  func order() {
    var queue = Queue<Int>()
    var left: [Int] = []
    for number in 0..<100 {
      queue.append(number)
      if !number.isMultiple(of: 3), let next = queue.popFirst() { left.append(next) }
    }
    queue.first? += 1000
    queue.removeAll { $0.isMultiple(of: 7) }
    #expect(left == Array(0..<66))
    #expect(Array(queue) == [1066] + (67..<100).filter { !$0.isMultiple(of: 7) })
    #expect(queue.count == Array(queue).count)
    while queue.popFirst() != nil {}
    #expect(queue.isEmpty && queue.first == nil)
  }
}
