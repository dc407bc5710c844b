import Foundation
import SyncStore
import SyncTestSupport
import Testing

@testable import sync_cli

/// The manual pages, made from the table of commands.
@Suite struct ManualTests {
  private static let schema = (#filePath as NSString).deletingLastPathComponent + "/../../schemas/config.md"

  @Test("each command has a page with its summary, its options and its other names")
  func pages() {
    let pages = ManualPages(Program.commands).pages
    let texts = Dictionary(uniqueKeysWithValues: pages.map { ($0.file, $0.text) })
    for command in Program.commands {
      let name = "sync-cli-" + command.name.replacingOccurrences(of: " ", with: "-")
      let text = texts[name + ".1"] ?? ""
      #expect(text.contains(".TH \(Roff.escaped(name.uppercased())) 1 "), "\(name)")
      for option in command.options { #expect(text.contains(Roff.escaped("--\(option.name)")), "\(name)") }
      for alias in command.aliases { #expect(text.contains(alias), "\(name) \(alias)") }
      #expect(texts["sync-cli.1"]?.contains(".BR \(Roff.escaped(name)) (1)\n") == true, "\(name)")
    }
    #expect(pages.count == Program.commands.count + 1)
  }

  @Test("the page of the configuration has each member that the schema names, and each is a setting")
  func configuration() throws {
    let markdown = try String(contentsOfFile: Self.schema, encoding: .utf8)
    let page = ConfigurationPage.page(from: markdown)
    #expect(page.file == "sync-cli.conf.5")
    let members = markdown.matches(of: /(?m)^\| `([a-z_]+)`/).map { String($0.1) }
    #expect(members.count > 10)
    for member in members { #expect(page.text.contains("\n.TP\n\\fB\(member)\\fR"), "\(member)") }
    // A member that does not exist has another error than one of the wrong type.
    for member in members {
      let settings = [JSON.object([.init(name: member, value: .null)])]
      let inBlobs = settings.map { JSON.object([.init(name: "blobs", value: $0)]) }
      let reasons = (settings + inBlobs).map { json in
        do throws(Reason) {
          _ = try ServeConfiguration(json: json)
          return ""
        } catch {
          return error.text
        }
      }
      #expect(reasons.contains { !$0.hasSuffix("is no setting") }, "\(member): \(reasons)")
    }
  }

  @Test("text that means something to roff is escaped")
  func escapes() {
    #expect(Roff.escaped("a-b \\ 'c' … é \u{1F600}") == #"a\-b \e \(aqc\(aq ... \[u00E9] \[u1F600]"#)
    var page = Roff("x", section: 1, summary: "y", source: "z")
    page.plain(".not a request\n\n'nor this")
    #expect(page.text.hasSuffix("\n\\&.not a request\n.PP\n\\(aqnor this\n"))
  }

  @Test("`make man` writes pages that mandoc finds no fault with")
  func lint() throws {
    let scratch = try Scratch()
    let tool = scratch.tool()
    let folder = scratch.path + "/new/man"
    let result = try tool.succeed("manual", folder, "--configuration", Self.schema)
    let files = try FileManager.default.contentsOfDirectory(atPath: folder)
    #expect(result.text == "\(files.count) pages\n")
    #expect(files.contains("sync-cli.1") && files.contains("sync-cli.conf.5"))
    // Existing pages are replaced.
    try tool.succeed("manual", folder)
    guard FileManager.default.isExecutableFile(atPath: "/usr/bin/mandoc") else {
      return print("not checked: mandoc is not installed")
    }
    let lint = try scratch.shell("mandoc -Tlint new/man/*")
    #expect(lint.code == 0 && lint.out.isEmpty, "\(lint.out)")
  }
}
