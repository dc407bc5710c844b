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
      for (path, _) in command.json.flatMap(\.paths) {
        #expect(text.contains("\n\(Roff.bold(path)) ("), "\(name) \(path)")
      }
      #expect(texts["sync-cli.1"]?.contains(".BR \(Roff.escaped(name)) (1)\n") == true, "\(name)")
    }
    #expect(pages.count == Program.commands.count + 2)
  }

  @Test("the page of the configuration has each setting, with its meaning, unit, default and bounds")
  func configuration() throws {
    let markdown = try String(contentsOfFile: Self.schema, encoding: .utf8)
    let page = ConfigurationPage.page(from: markdown)
    #expect(page.file == "sync-cli.conf.5")
    for setting in Settings.all {
      #expect(page.text.contains("\n.TP\n\(Roff.bold(setting.name))\n"), "\(setting.name)")
    }
    let entry = try #require(page.text.firstRange(of: "\n\(Roff.bold("retry_seconds"))\n"))
    let words = page.text[entry.upperBound...].prefix(500).split(whereSeparator: \.isWhitespace)
      .joined(separator: " ")
    #expect(words.contains("Value: whole number. Unit: seconds. Default: \\fB20\\fR. Bounds: 1 to 86400."))
    #expect(!page.text.contains("–") && !page.text.contains("2013"), "an empty cell is left out")
  }

  @Test("the page of the service names commands and options that exist, and every exit code of the daemon")
  func service() throws {
    let text = ServicePage.blocks.map { block in
      switch block {
      case .section(let title): title
      case .text(let words): words
      case .entry(let term, let words): "\(term): \(words)"
      case .code(let lines): lines.joined(separator: "\n").replacing("\\\n", with: " ")
      }
    }.joined(separator: "\n")
    let parser = ArgumentParser(commands: Program.commands, globals: Help.globals, hidden: [], alone: [:])
    var count = 0
    for match in text.matches(of: /sync-cli ((?:--store \S+ +)?[a-z]+[^`\n]*)/) {
      let words = match.1.split(whereSeparator: \.isWhitespace).map { Argument(String($0)) }
      // `restore` and `join` are named without what they take.
      do { _ = try parser.parse(words) } catch {
        #expect(Failure(error).message.contains("is missing"), "\(match.0): \(error)")
      }
      count += 1
    }
    #expect(count > 8)
    let codes = ServicePage.blocks.compactMap { block in
      if case .entry(let term, _) = block { Int32(term) } else { nil }
    }
    #expect(codes == ExitCode.allCases.map(\.rawValue).filter { $0 != ExitCode.bug.rawValue })
    #expect(ServicePage.manual.text.contains(".TH SYNC\\-STORE 8 "))
    let options = (ServeCommand.command.options + Help.globals).map(\.name)
    for match in text.matches(of: /`--([a-z-]+)`/) {
      #expect(options.contains(String(match.1)), "\(match.0)")
    }
  }

  @Test("the site has an article per command, and every link leads to one")
  func site() throws {
    let pages = SiteArticles(Program.commands, configuration: "# Configuration\n").pages
    let texts = Dictionary(uniqueKeysWithValues: pages.map { ($0.file, $0.text) })
    let landing = try #require(texts["CommandLine.md"])
    for command in Program.commands {
      let name = ReferenceText.page(of: command)
      let text = try #require(texts[name + ".md"])
      #expect(landing.contains("- <doc:\(name)>\n"), "\(name)")
      #expect(text.contains(command.usage), "\(name)")
      for option in command.options { #expect(text.contains("\n- term `\(option.usage)`"), "\(name)") }
      for (path, _) in command.json.flatMap(\.paths) { #expect(text.contains("\n| `\(path)` | "), "\(name)") }
    }
    for page in pages {
      for link in page.text.matches(of: /<doc:([\w-]+)>/) {
        #expect(texts["\(link.1).md"] != nil, "\(page.file): \(link.1)")
      }
    }
    #expect(!landing.contains("More commands"), "give each new command a group in SiteArticles")
  }

  @Test("text that means something to Markdown is escaped, and options and commands are code")
  func markdown() {
    #expect(Markdown.escaped("a_b *c* <d> `e` - [f]") == #"a\_b \*c\* \<d\> \`e\` \- \[f\]"#)
    #expect(
      Markdown.words(#"see "sync-cli list --glob" (--long), "text" --x."#) == ##"""
        see `sync-cli list --glob` \(`--long`\), \"text\" `--x`.
        """##)
    #expect(Markdown.words(#"5" and more"#) == #"5" and more"#.replacing("\"", with: "\\\""))
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
    for file in ["sync-cli.1", "sync-cli.conf.5", "sync-store.8"] { #expect(files.contains(file), "\(file)") }
    // Existing pages are replaced.
    try tool.succeed("manual", folder)
    let site = scratch.path + "/site"
    try tool.succeed("manual", site, "--site", "--configuration", Self.schema)
    #expect(
      try scratch.read("site/Configuration.md") == Array(Data(contentsOf: URL(fileURLWithPath: Self.schema))))
    #expect(try scratch.read("site/sync-cli-put.md").starts(with: "# sync\\-cli put\n".utf8))
    guard FileManager.default.isExecutableFile(atPath: "/usr/bin/mandoc") else {
      return print("not checked: mandoc is not installed")
    }
    let lint = try scratch.shell("mandoc -Tlint new/man/*")
    #expect(lint.code == 0 && lint.out.isEmpty, "\(lint.out)")
  }
}
