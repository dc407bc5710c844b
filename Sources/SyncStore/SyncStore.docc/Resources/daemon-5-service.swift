import SyncStore

@main
struct Service {
  static func main() throws {
    let store = try Store.open(at: "shared", configuration: Configuration(mode: .shared))
    try store.put("price/apples", 1.2)
    for entry in try store.list(KeyRange(prefix: "order/")) {
      print(entry.key, try store.get(entry.key, as: String.self) ?? "")
    }
    try store.close()
  }
}
