import Foundation
import Glibc
import Testing

@testable import sync_cli

/// A log that is not read.
@Suite struct UnreadLogTests {
  @Test("SIGTERM ends a daemon whose log is not read")
  func daemon() throws {
    let scratch = try Scratch()
    _ = try scratch.store()
    let result = try scratch.shell(
      """
      mkfifo log; exec 3<>log; head -c 65536 /dev/zero >&3
      $CLI --store store serve --listen 127.0.0.1:0 > out 2>&3 & daemon=$!
      until grep -q listening out; do sleep 0.01; done
      kill -TERM $daemon; (sleep 10; kill -KILL $daemon) 2> /dev/null & wait $daemon
      """)
    #expect(result.code == 0, "\(result.out)")
  }

  @Test("log lines that cannot be written are buffered up to a bound, and the dropped ones counted in place")
  func held() throws {
    var ends: [Int32] = [-1, -1]
    let isMade = unsafe pipe(&ends) == 0
    try #require(isMade)
    let (reader, stream) = (Descriptor(standard: ends[0]), Descriptor(standard: ends[1]))
    var lines = BoundedLineBuffer { "\($0) lost\n" }
    let count = 40_000
    var isDrained = true
    for number in 0..<count {
      lines.add(Array("line \(number)\n".utf8))
      isDrained = lines.drain(to: stream)
    }
    #expect(!isDrained && lines.lost > 0 && lines.bytes.count <= BoundedLineBuffer.mostBytes)
    var text: [UInt8] = []
    while !lines.drain(to: stream) { text += try reader.read(1 << 16) }
    lines.add(Array("last\n".utf8))
    isDrained = lines.drain(to: stream)
    #expect(isDrained)
    text += try reader.read(1 << 16)
    let read = String(decoding: text, as: UTF8.self).split(separator: "\n")
    let kept = read.count - 2
    #expect(read.prefix(kept) == (0..<kept).map { "line \($0)" }[...])
    #expect(read.suffix(2) == ["\(count - kept) lost", "last"])
  }

  @Test("a log whose reader is gone loses lines, and nothing else")
  func gone() throws {
    var ends: [Int32] = [-1, -1]
    let isMade = unsafe pipe(&ends) == 0
    try #require(isMade)
    close(ends[0])
    signal(SIGPIPE, SIG_IGN)
    var lines = BoundedLineBuffer { "\($0) lost\n" }
    lines.add(Array("line\n".utf8))
    let isDrained = lines.drain(to: Descriptor(standard: ends[1]))
    #expect(isDrained && lines.bytes.isEmpty)
  }
}
