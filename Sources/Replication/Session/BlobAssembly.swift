internal import SyncStore

/// Assembles one blob from parts that the other side sends and chunks that other blobs here contain.
///
/// Invariants: the blob grows in order from its start, and what is stored survives a lost connection; only
/// parts that no blob here contains are requested; one store action is in flight at a time. If chunks that
/// were found before are gone, the blob is fetched without recipes. The hash of the whole blob is verified at
/// the end.
struct BlobAssembly {
  /// The result of an assembly.
  enum Ending: Equatable {
    /// The blob is complete.
    case complete
    /// Fetch the rest as ordinary ranges, from this offset on.
    case plainly(BlobNeed)
    /// The other side does not hold the blob.
    case lacking
  }

  private enum Work: Equatable { case matching, assembling, storing(BlobRange) }

  let hash: BlobHash
  let size: UInt64
  /// Bytes stored here.
  private var held: UInt64
  /// Offset up to which recipes were requested; nil while a recipe is being matched, which determines it.
  private var recipeEnd: UInt64?
  private var recipes: [EncryptedRecipe] = []
  /// Parts of the current recipe that are still missing.
  private var missing: [BlobPart] = []
  private var end: UInt64
  private var ranges = Queue<BlobRange>()
  /// Whether the other side has sent the last of the requested parts.
  private var isSent = true
  private var work: Work?
  /// Set once nothing more is stored; parts that still arrive are discarded.
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

  /// The result, once no store action or transfer is in flight.
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

  /// The other side does not hold the blob, or no longer.
  mutating func lacking() throws(SessionEnd) {
    guard !isSent else { throw .violation("a blob is not there that was not asked for") }
    isSent = true
    give(.lacking)
  }

  /// The other side cannot make a recipe for it.
  mutating func recipeLacking() throws(SessionEnd) {
    guard recipeEnd == nil else { throw .violation("a recipe is not there that was not asked for") }
    recipeEnd = size
    // Parts requested before still arrive and are used.
    withoutRecipes = true
  }

  private mutating func give(_ ending: Ending) {
    self.ending = self.ending ?? ending
    (ranges, recipes, unstoredBytes) = (Queue(), [], 0)
  }

  /// Takes the next step that need not wait.
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
        // The other side ended the transfer early.
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

  /// The recipe was matched: `missing` are its parts that are not here.
  mutating func matched(end: UInt64, missing: [BlobPart], _ port: inout SessionPort) {
    precondition(work == .matching, "no recipe was being matched")
    work = nil
    guard ending == nil else { return }
    // Another session may have stored some of it concurrently.
    guard end > held, missing.first?.offset ?? held >= held else { return give(.plainly(need)) }
    self.end = end
    recipeEnd = end
    // Request the next recipe while this one is processed.
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

  /// The complete blob did not match its hash and was deleted.
  mutating func rejected() {
    (work, held) = (nil, 0)
    give(.plainly(need))
  }
}
