/// `manual`: writes the manual pages, for `make man`, the articles of the site, for `make docs`, or the
/// schemas of the configuration, for `make schemas`.
enum ManualCommand {
  static let command = Command(
    "manual", "write the manual pages into a directory",
    operands: [Operand("DIR")],
    options: [
      Option("configuration", value: "F", "the schema of the daemon's configuration, in Markdown"),
      Option("site", "write articles for the documentation site instead"),
      Option("schemas", "write the schemas of the daemon's configuration instead"),
    ],
    notes: "\"make man\", \"make docs\" and \"make schemas\" call it. A file of that name is replaced."
  ) { invocation, output in
    let schema = try invocation.value("configuration").map { file in
      let text = try Descriptor.reading(file.bytes).readAll(limit: ConfigurationFile.maximumBytes)
      return String(decoding: text, as: UTF8.self)
    }
    var pages: [ManualPages.Page]
    if invocation.has("site") {
      pages = SiteArticles(Program.commands, configuration: schema).pages
    } else if invocation.has("schemas") {
      pages = ConfigurationSchema.pages
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
