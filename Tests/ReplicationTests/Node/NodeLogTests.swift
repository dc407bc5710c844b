import Testing

@testable import Replication

@Suite struct NodeLogTests {
  @Test func `F94 a flood of log lines caused by strangers is bounded`() {
    let kept = TestLog()
    let log = NodeLog { kept.add($0, $1) }
    for number in 0..<100_000 { log.emitRateLimited(.warning, "line \(number)") }
    #expect(kept.lines.count >= 20)
    #expect(kept.lines.count < 60)
    #expect(kept.lines.first == "warning line 0")
  }

  @Test func `F94 the node's own log lines are never dropped`() {
    let kept = TestLog()
    let log = NodeLog { kept.add($0, $1) }
    for number in 0..<500 { log.emit(.error, "line \(number)") }
    #expect(kept.lines.count == 500)
  }
}
