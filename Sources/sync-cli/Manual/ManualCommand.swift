/// `manual`: writes the manual pages, for `make man`.
enum ManualCommand {
  static let command = Command(
    "manual", "write the manual pages into a directory",
    operands: [Operand("DIR")],
    options: [Option("configuration", value: "F", "the schema of the daemon's configuration, in Markdown")],
    notes: "\"make man\" calls it. A file of that name is replaced."
  ) { invocation, output in
    var pages = ManualPages(Program.commands).pages
    if let file = invocation.value("configuration") {
      let text = try Descriptor.reading(file.bytes).readAll(limit: ServeConfiguration.fileBytes)
      pages.append(ConfigurationPage.page(from: String(decoding: text, as: UTF8.self)))
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
  }
}
