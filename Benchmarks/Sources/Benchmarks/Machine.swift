import CMalloc
import Foundation
import Synchronization

/// Why a benchmark cannot continue.
struct BenchmarkError: Error, CustomStringConvertible {
  let description: String
  init(_ description: String) { self.description = description }
}

/// Time, memory and disk as reported by the operating system.
enum Machine {
  /// Nanoseconds of a monotonic clock.
  static func now() -> UInt64 {
    var time = timespec()
    unsafe clock_gettime(CLOCK_MONOTONIC, &time)
    return UInt64(time.tv_sec) &* 1_000_000_000 &+ UInt64(time.tv_nsec)
  }

  /// Nanoseconds per operation.
  @inline(__always)
  static func nanoseconds(each count: Int, _ work: () throws -> Void) rethrows -> Double {
    let start = now()
    try work()
    return Double(now() - start) / Double(max(count, 1))
  }

  /// The model of its processor, as the kernel names it.
  static let processor: String = {
    let information = (try? String(contentsOfFile: "/proc/cpuinfo", encoding: .utf8)) ?? ""
    let line = information.split(separator: "\n").first { $0.hasPrefix("model name") }
    return line?.split(separator: ":").last?.trimmingCharacters(in: .whitespaces) ?? "unknown processor"
  }()

  /// Anonymous memory of this process in bytes: its cost beyond the page cache. Memory that the allocator
  /// keeps for freed results is returned first.
  static func anonymousBytes() throws -> Int {
    malloc_trim(0)
    let status = try String(contentsOfFile: "/proc/self/status", encoding: .utf8)
    guard let line = status.split(separator: "\n").first(where: { $0.hasPrefix("RssAnon:") }),
      let kibibytes = line.split(whereSeparator: { !$0.isNumber }).first.flatMap({ Int($0) })
    else { throw BenchmarkError("memory cannot be measured: /proc/self/status has no RssAnon") }
    return kibibytes << 10
  }

  /// Disk space used by the files below a folder, or with `apparent` the sum of their lengths.
  ///
  /// - Parameter where: which paths, relative to the folder, to count.
  static func diskBytes(
    of folder: String, apparent: Bool = false, where isCounted: (String) -> Bool = { _ in true }
  ) -> Int {
    guard let walk = FileManager.default.enumerator(atPath: folder) else { return 0 }
    var total = 0
    for case let path as String in walk where isCounted(path) {
      var information = stat()
      guard unsafe lstat(folder + "/" + path, &information) == 0 else { continue }
      guard information.st_mode & S_IFMT == S_IFREG else { continue }
      total += apparent ? Int(information.st_size) : Int(information.st_blocks) * 512
    }
    return total
  }

  /// Writes back dirty pages of earlier work, so that the next benchmark does not pay for them.
  static func settle() { Glibc.sync() }

  /// As `settle()`, and also touches that much memory through a file in `directory`: a virtual machine
  /// returns free memory to its host, and the next user waits for it, up to 8 us a page. The kernel takes
  /// memory for files in larger pieces than for programs, so touching anonymous memory does not help.
  static func settle(touching bytes: Int, in directory: String) throws {
    settle()
    let path = directory + "/settling"
    let file = unsafe open(path, O_RDWR | O_CREAT | O_TRUNC, 0o600)
    guard file >= 0 else { throw BenchmarkError("cannot make \(path): errno \(errno)") }
    defer { close(file) }
    unsafe unlink(path)
    let piece = [UInt8](repeating: 1, count: 1 << 20)
    for start in stride(from: 0, to: bytes, by: piece.count) {
      guard unsafe pwrite(file, piece, piece.count, start) == piece.count else {
        throw BenchmarkError("cannot write \(bytes) bytes in \(directory): errno \(errno)")
      }
    }
  }

  /// Sink for results, so that the optimiser cannot drop the work that made them.
  static func keep(_ result: Int) { sink.wrappingAdd(result, ordering: .relaxed) }

  private static let sink = Atomic<Int>(0)
}

/// Time its thread is blocked: by locks and disks, not by lack of a core.
struct BlockedTime {
  private let file: Int32
  private var start: UInt64 = 0
  private var ran: UInt64 = 0

  init() throws {
    file = unsafe open("/proc/thread-self/schedstat", O_RDONLY)
    guard file >= 0 else {
      throw BenchmarkError("waiting cannot be measured: there is no /proc/thread-self/schedstat")
    }
  }

  /// Nanoseconds that the thread was running or runnable.
  private var runnable: UInt64 {
    var text = [UInt8](repeating: 0, count: 64)
    let count = unsafe pread(file, &text, text.count, 0)
    let fields = text.prefix(max(count, 0)).split(separator: 0x20)
    let delay = fields.count > 1 ? UInt64(String(decoding: fields[1], as: UTF8.self)) ?? 0 : 0
    // Exact, unlike the running time in schedstat, which lags behind.
    var ran = timespec()
    unsafe clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran)
    return delay + UInt64(ran.tv_sec) * 1_000_000_000 + UInt64(ran.tv_nsec)
  }

  mutating func begin() {
    // In this order: time spent waiting for a core between the two must not count.
    ran = runnable
    start = Machine.now()
  }

  /// Nanoseconds since `begin`.
  var nanoseconds: UInt64 {
    let time = Machine.now() - start
    let running = runnable - ran
    return time - min(running, time)
  }

  func end() { close(file) }

  /// The longest wait, in microseconds, of a thread that calls `read` repeatedly, with the iteration number,
  /// while `work` runs.
  static func longest(
    during work: () throws -> Void, of read: @escaping @Sendable (_ turn: Int) -> Void
  ) throws -> Double {
    let isOver = Atomic(false)
    let longest = Atomic<UInt64>(0)
    let reader = Thread {
      guard var blocked = try? BlockedTime() else { return }
      defer { blocked.end() }
      var turn = 0
      while !isOver.load(ordering: .relaxed) {
        blocked.begin()
        read(turn)
        longest.max(blocked.nanoseconds, ordering: .relaxed)
        turn += 1
      }
    }
    reader.start()
    defer {
      isOver.store(true, ordering: .relaxed)
      while !reader.isFinished { usleep(1000) }
    }
    try work()
    return Double(longest.load(ordering: .relaxed)) / 1000
  }
}

/// Threads that start simultaneously.
enum Threads {
  /// Seconds from the time all threads were ready to the end of the last one.
  ///
  /// - Parameters:
  ///   - background: runs concurrently until its closure argument returns true, once the threads have ended;
  ///     its time is not counted.
  ///   - body: gets the thread's number; prepares itself, waits at the gate, then does the work.
  static func run(
    _ count: Int, with background: (@Sendable (_ isOver: () -> Bool) throws -> Void)? = nil,
    _ body: @escaping @Sendable (_ number: Int, _ gate: Gate) throws -> Void
  ) throws -> Double {
    let gate = Gate(count + (background == nil ? 0 : 1))
    let results = Mutex<[Result<UInt64, any Error>]>([])
    let isOver: @Sendable () -> Bool = { results.withLock { $0.count } >= count }
    let all = DispatchGroup()
    for number in 0..<count {
      start(in: all) {
        let result = Result {
          defer { gate.giveUp() }
          try body(number, gate)
          return Machine.now()
        }
        results.withLock { $0.append(result) }
      }
    }
    let failure = Mutex<(any Error)?>(nil)
    if let background {
      start(in: all) {
        gate.wait()
        do { try background(isOver) } catch { failure.withLock { $0 = error } }
      }
    }
    all.wait()
    if let failure = failure.withLock({ $0 }) { throw failure }
    let ends = try results.withLock { try $0.map { try $0.get() } }
    return Double((ends.max() ?? 0) - gate.opened) / 1e9
  }

  private static func start(in group: DispatchGroup, _ body: @escaping @Sendable () -> Void) {
    group.enter()
    Thread {
      body()
      group.leave()
    }.start()
  }

  /// A barrier for threads.
  final class Gate: Sendable {
    private let missing: Atomic<Int>
    private let opening = Atomic<UInt64>(0)
    /// When the last one arrived, on the clock of `Machine.now()`; 0 before.
    var opened: UInt64 { opening.load(ordering: .acquiring) }

    init(_ count: Int) { missing = Atomic(count) }

    /// Waits until all have arrived.
    func wait() {
      if missing.wrappingSubtract(1, ordering: .acquiringAndReleasing).newValue == 0 { giveUp() }
      while opened == 0 { sched_yield() }
    }

    /// Opens the barrier, so that the others do not wait for a thread that failed before it arrived.
    func giveUp() {
      _ = opening.compareExchange(expected: 0, desired: Machine.now(), ordering: .acquiringAndReleasing)
    }
  }
}
