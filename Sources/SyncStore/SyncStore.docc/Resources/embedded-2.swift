import SyncStore

@main
struct Logger {
  static func main() throws {
    let store = try Store.openOrCreate(at: "readings")
    try store.put("temperature", 21.5)
    print(try store.get("temperature", default: 0.0))
    try store.close()
  }
}
