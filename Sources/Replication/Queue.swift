/// A first-in, first-out queue. Removed elements are released at once, even if the queue never becomes empty.
struct Queue<Element>: Sequence {
  /// The slots before `head` have been removed.
  private var places: [Element?] = []
  private var head = 0

  var count: Int { places.count - head }
  var isEmpty: Bool { head == places.count }

  /// The next element to be removed; setting it replaces that element.
  var first: Element? {
    get { isEmpty ? nil : places[head] }
    set {
      precondition(!isEmpty && newValue != nil, "one is put in the place of one that is there")
      places[head] = newValue
    }
  }

  mutating func append(_ element: Element) { places.append(element) }

  mutating func popFirst() -> Element? {
    guard !isEmpty else { return nil }
    let element = places[head].take()
    head += 1
    // Amortized: at most one move per removed element.
    if head * 2 >= places.count {
      places.removeFirst(head)
      head = 0
    }
    return element
  }

  mutating func removeAll(where isUnwanted: (Element) -> Bool) {
    places = places[head...].filter { $0.map { !isUnwanted($0) } ?? false }
    head = 0
  }

  /// Changes the first element for which `isWanted` is true, if there is one.
  mutating func change(first isWanted: (Element) -> Bool, _ body: (inout Element) -> Void) {
    for index in head..<places.count {
      guard var element = places[index], isWanted(element) else { continue }
      body(&element)
      places[index] = element
      return
    }
  }

  func makeIterator() -> some IteratorProtocol<Element> {
    places[head...].lazy.compactMap(\.self).makeIterator()
  }
}
