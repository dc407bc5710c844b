internal import SyncStore

/// Puts one blob together of what the other side sends and of what other blobs here have in common with it.
///
/// Invariants: the blob grows from its start, in order, and is kept as it is if the connection breaks; what is asked for is what
/// no blob here has; one thing is asked of the store at a time. Whoever fails to find what was found before goes on without
/// recipes; the hash of the whole decides at the end.
struct BlobAssembly {
  /// What came of it.
  enum Ending: Equatable {
    /// It is complete.
    case complete
    /// It is to be asked for plainly, from here on.
    case plainly(BlobNeed)
    /// The other side does not have it.
    case lacking
  }

  private enum Work: Equatable { case matching, assembling, storing(BlobRange) }

  let hash: BlobHash
  let size: UInt64
  /// Bytes that are here.
  private var held: UInt64
  /// Up to where recipes were asked for; nil while one is under way that will tell.
  private var recipeEnd: UInt64?
  private var recipes: [EncryptedRecipe] = []
  /// Of the recipe that is being followed.
  private var missing: [BlobPart] = []
  private var end: UInt64
  private var ranges = Queue<BlobRange>()
  /// Has the other side sent the last of what was asked for?
  private var isSent = true
  private var work: Work?
  /// Why nothing more is stored: then what is still to come is thrown away.
  private var ending: Ending?
  private(set) var unstoredBytes = 0
  private var withoutRecipes = false

  init(_ need: BlobNeed, _ port: inout SessionPort) {
    (hash, size, held, end) = (need.hash, need.size, need.offset, need.offset)
    askForRecipe(from: held, &port)
  }

  private mutating func askForRecipe(from offset: UInt64, _ port: inout SessionPort) {
    recipeEnd = nil
    port.send(.recipeWant(BlobNeed(hash: hash, size: size, offset: offset)))
  }

  /// What became of it, once nothing is under way.
  var result: Ending? {
    guard let ending, work == nil, isSent, recipeEnd != nil else { return nil }
    return ending
  }

  mutating func arrived(_ recipe: EncryptedRecipe) throws(SessionEnd) {
    guard recipeEnd == nil, recipe.hash == hash else {
      throw .violation("a recipe came that was not asked for")
    }
    recipes.append(recipe)
    recipeEnd = recipe.offset
  }

  mutating func arrived(_ range: BlobRange) throws(SessionEnd) {
    guard !isSent else { throw .violation("a part of a blob came that was not asked for") }
    if range.isLast { isSent = true }
    guard ending == nil else { return }
    ranges.append(range)
    unstoredBytes += range.queuedBytes
  }

  /// The other side does not have it, or not any more.
  mutating func lacking() throws(SessionEnd) {
    guard !isSent else { throw .violation("a blob is not there that was not asked for") }
    isSent = true
    give(.lacking)
  }

  /// The other side cannot say what it is made of.
  mutating func recipeLacking() throws(SessionEnd) {
    guard recipeEnd == nil else { throw .violation("a recipe is not there that was not asked for") }
    recipeEnd = size
    // What was asked for before still comes, and counts.
    withoutRecipes = true
  }

  private mutating func give(_ ending: Ending) {
    self.ending = self.ending ?? ending
    (ranges, recipes, unstoredBytes) = (Queue(), [], 0)
  }

  /// Takes the next step that waits for nothing.
  mutating func pump(_ port: inout SessionPort) {
    guard ending == nil, work == nil else { return }
    if held == end, missing.isEmpty, !recipes.isEmpty {
      work = .matching
      return port.actions.append(.matchRecipe(recipes.removeFirst(), size: size))
    }
    guard held < end else {
      if withoutRecipes, missing.isEmpty { give(.plainly(need)) }
      return
    }
    if let part = missing.first, part.offset == held {
      guard let range = ranges.popFirst() else {
        // The other side has ended it, and gave less than it was asked for.
        if isSent { give(.plainly(need)) }
        return
      }
      unstoredBytes -= range.queuedBytes
      guard range.offset == held else { return give(.plainly(need)) }
      work = .storing(range)
      port.actions.append(.storeBlobRanges([range], size: size))
    } else {
      work = .assembling
      port.actions.append(.assembleBlob(hash, size: size, upTo: missing.first?.offset ?? end))
    }
  }

  private var need: BlobNeed { BlobNeed(hash: hash, size: size, offset: held) }

  /// The recipe was looked at: what of it is not here.
  mutating func matched(end: UInt64, missing: [BlobPart], _ port: inout SessionPort) {
    precondition(work == .matching, "no recipe was being matched")
    work = nil
    guard ending == nil else { return }
    // Another session may have stored some of it meanwhile.
    guard end > held, missing.first?.offset ?? held >= held else { return give(.plainly(need)) }
    self.end = end
    recipeEnd = end
    // While this is followed the next one is made.
    if end < size { askForRecipe(from: end, &port) }
    guard !missing.isEmpty else { return }
    self.missing = missing
    isSent = false
    port.send(.partsWant(BlobPartsWanted(hash: hash, size: size, parts: missing)))
  }

  mutating func stored(held: UInt64, isComplete: Bool, _ port: inout SessionPort) {
    guard let work, work != .matching else { preconditionFailure("nothing was being stored") }
    self.work = nil
    let before = self.held
    self.held = held
    if work == .assembling { port.figures.assembledBytes += held - min(held, before) }
    if isComplete { return give(.complete) }
    guard ending == nil else { return }
    switch work {
    case .assembling:
      if held != missing.first?.offset ?? end { give(.plainly(need)) }
    case .storing:
      guard held > before, var part = missing.first, held <= part.end else { return give(.plainly(need)) }
      part.count = part.end - held
      part.offset = held
      if part.count == 0 { missing.removeFirst() } else { missing[0] = part }
    case .matching: break
    }
  }

  /// The whole was not what it must be, and was thrown away.
  mutating func rejected() {
    (work, held) = (nil, 0)
    give(.plainly(need))
  }
}
