/// `manual`: writes the manual pages, for `make man`, or the articles of the site, for `make docs`.
enum ManualCommand {
  static let command = Command(
    "manual", "write the manual pages into a directory",
    operands: [Operand("DIR")],
    options: [
      Option("configuration", value: "F", "the schema of the daemon's configuration, in Markdown"),
      Option("site", "write articles for the documentation site instead"),
    ],
    notes: "\"make man\" and \"make docs\" call it. A file of that name is replaced."
  ) { invocation, output in
    let schema = try invocation.value("configuration").map { file in
      let text = try Descriptor.reading(file.bytes).readAll(limit: ServeConfiguration.fileBytes)
      return String(decoding: text, as: UTF8.self)
    }
    var pages: [ManualPages.Page]
    if invocation.has("site") {
      pages = SiteArticles(Program.commands, configuration: schema).pages
    } else {
      pages = ManualPages(Program.commands).pages
      if let schema { pages.append(ConfigurationPage.page(from: schema)) }
    }
    let path = invocation.operands[0].bytes
    try Descriptor.makeDirectories(path)
    let directory = try Descriptor.reading(path, waiting: false)
    for page in pages {
      let name = Array(page.file.utf8)
      directory.remove(name)
      try directory.creating(name).write(Array(page.text.utf8))
    }
    try invocation.report(
      "\(Text.count(pages.count, noun: "page"))", json: ["pages": .integer(pages.count)], output)
    return .done
  }.printing([JSONLine("the result", [JSONMember("pages", .whole, "files that were written")])])
}
