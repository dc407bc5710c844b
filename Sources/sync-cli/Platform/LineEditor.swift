private import CEdit
private import Glibc
import SyncStore

/// Lines edited by libedit, with history, search and completion.
///
/// libedit calls back while it reads: for the prompt, for each character, and for completion. Characters are
/// read here, so that a signal ends the reading without a handler: the process has threads that a handler
/// could run on.
@safe final class LineEditor: TerminalLines {
  private let editor: OpaquePointer
  private let history: OpaquePointer
  private let inbox: SignalInbox
  private let complete: ([UInt8]) -> ShellCompletion.Change
  private let screen: Descriptor
  /// Ctrl-D.
  private static let endOfFile: UInt8 = 4

  /// The text of the prompt, for C.
  private var prompt: UnsafeMutablePointer<CChar>?
  /// Why reading ended before the line did.
  private var ending: TypedLine?
  private var decoder = CharacterDecoder()
  /// Bytes typed before the terminal left its line mode, and not read yet.
  private var typedAhead: Int32 = 0

  /// Nil if the terminal cannot be used. Call it before any thread begins.
  init?(
    _ inbox: SignalInbox, output: Int32, history lines: [[UInt8]],
    complete: @escaping ([UInt8]) -> ShellCompletion.Change
  ) {
    sync_edit_use_utf8()
    guard let editor = unsafe sync_edit_open("sync-cli", 0, output), let history = unsafe history_init()
    else {
      return nil
    }
    unsafe (self.editor, self.history) = (editor, history)
    (self.inbox, self.complete) = (inbox, complete)
    screen = Descriptor(standard: output)
    unsafe sync_edit_set_client(editor, Unmanaged.passUnretained(self).toOpaque())
    unsafe sync_edit_set_history(editor, history, Int32(ShellHistory.mostLines))
    unsafe sync_edit_set_prompt(editor) { unsafe LineEditor.of($0)?.prompt }
    unsafe sync_edit_set_reader(editor) { editor, character in
      guard let own = unsafe LineEditor.of(editor), let character = unsafe character else { return -1 }
      return unsafe own.readCharacter(character)
    }
    unsafe sync_edit_set_completion(editor) { editor, _ in
      UInt8(truncatingIfNeeded: unsafe LineEditor.of(editor)?.completeWord() ?? CC_ERROR)
    }
    // The user's own keys.
    _ = unsafe el_source(editor, nil)
    for line in lines { remember(line) }
  }

  deinit {
    unsafe el_end(editor)
    unsafe history_end(history)
    unsafe free(prompt)
  }

  private static func of(_ editor: OpaquePointer?) -> LineEditor? {
    guard let client = unsafe sync_edit_client(editor) else { return nil }
    return unsafe Unmanaged<LineEditor>.fromOpaque(client).takeUnretainedValue()
  }

  func next(_ shown: Prompt) -> TypedLine {
    let mark = String(UnicodeScalar(UInt8(sync_edit_escape)))
    unsafe free(prompt)
    unsafe prompt = strdup(shown.text(mark: mark))
    ending = nil
    decoder = CharacterDecoder()
    takeTerminal()
    var count: Int32 = 0
    guard let text = unsafe el_gets(editor, &count), count > 0 else {
      let ending = ending ?? .end
      try? screen.write(Array((ending == .interrupted ? "^C\n" : "\n").utf8))
      return ending
    }
    var line = unsafe Array(UnsafeRawBufferPointer(start: text, count: strlen(text)))
    if line.last == 0x0A { line.removeLast() }
    return .text(line)
  }

  func remember(_ line: [UInt8]) {
    guard !line.contains(0) else { return }
    unsafe sync_edit_remember(history, String(decoding: line, as: UTF8.self))
  }

  /// Has the terminal pass each key on. libedit would do so after it shows the prompt, and what is typed in
  /// between would be in line mode, in which Linux stores a zero byte for Ctrl-D.
  private func takeTerminal() {
    unsafe sync_edit_prepare(editor, 1)
    typedAhead = sync_edit_waiting(0)
  }

  // MARK: - Characters

  /// Reads one character: 1, 0 at the end, -1 if a signal ends the line.
  private func readCharacter(_ character: UnsafeMutablePointer<wchar_t>) -> Int32 {
    while true {
      if let number = inbox.waitReadable(0) {
        guard take(number) else { return -1 }
        continue
      }
      var byte: UInt8 = 0
      let count = unsafe read(0, &byte, 1)
      if count < 0, errno == EINTR || errno == EAGAIN { continue }
      guard count == 1 else {
        ending = .end
        return count < 0 ? -1 : 0
      }
      if typedAhead > 0 {
        typedAhead -= 1
        if byte == 0 { byte = Self.endOfFile }
      }
      guard let scalar = decoder.add(byte) else { continue }
      unsafe character.pointee = wchar_t(bitPattern: scalar.value)
      return 1
    }
  }

  /// Reacts to a signal; false if it ends the line.
  private func take(_ number: Int32) -> Bool {
    switch number {
    case SIGINT: ending = .interrupted
    case SIGTERM, SIGHUP: ending = .signal(number)
    case SIGTSTP:
      unsafe sync_edit_prepare(editor, 0)
      System.takeDefaultAction(of: number)
      fallthrough
    case SIGCONT:
      unsafe sync_edit_prepare(editor, 1)
      unsafe sync_edit_refresh(editor)
    case SIGWINCH:
      unsafe el_resize(editor)
      unsafe sync_edit_refresh(editor)
    default: break
    }
    return ending == nil
  }

  // MARK: - Completion

  private func completeWord() -> Int32 {
    guard let line = unsafe el_line(editor) else { return CC_ERROR }
    let (start, cursor) = unsafe (line.pointee.buffer, line.pointee.cursor)
    guard let start = unsafe start, let cursor = unsafe cursor else { return CC_ERROR }
    let before = unsafe Array(UnsafeRawBufferPointer(start: start, count: cursor - start))
    let change = complete(before)
    if !change.shown.isEmpty {
      show(change.shown)
      return CC_REDISPLAY
    }
    guard !change.text.isEmpty else { return CC_REFRESH_BEEP }
    // libedit counts characters.
    let replaced = String(decoding: before.suffix(change.replaced), as: UTF8.self).unicodeScalars.count
    unsafe el_deletestr(editor, Int32(replaced))
    _ = unsafe el_insertstr(editor, String(decoding: change.text, as: UTF8.self))
    return CC_REFRESH
  }

  /// Shows words in columns below the line.
  private func show(_ words: [String]) {
    let shown = words.map { Text.printable($0.utf8) }
    let width = (shown.map(\.unicodeScalars.count).max() ?? 0) + 2
    let columns = max(1, (System.terminalColumns(screen.number) ?? 80) / width)
    var text = "\n"
    for (index, word) in shown.enumerated() {
      let isLast = (index + 1) % columns == 0 || index == shown.count - 1
      text += word + (isLast ? "\n" : String(repeating: " ", count: width - word.unicodeScalars.count))
    }
    try? screen.write(Array(text.utf8))
  }
}

/// Makes characters of the bytes of UTF-8. Other bytes are dropped: "\xHH" stands for them in a line.
private struct CharacterDecoder {
  private var bytes: [UInt8] = []

  /// The character that the byte ends; nil if there is none yet.
  mutating func add(_ byte: UInt8) -> UnicodeScalar? {
    if byte & 0xC0 != 0x80 { bytes = [] }
    bytes.append(byte)
    if let text = String(validating: bytes, as: UTF8.self), let scalar = text.unicodeScalars.first {
      bytes = []
      return scalar
    }
    if bytes.count >= 4 { bytes = [] }
    return nil
  }
}
