internal import SyncStore

/// Assembling blobs from chunks.
extension SessionStore {
  func makeRecipe(_ blob: BlobReference, offset: UInt64) throws -> SessionEvent {
    let blobs = try store.blobs
    guard let actor = state.withLock({ $0.handshake.actor }), offset < blob.size, try blobs.has(blob) else {
      return .recipeUnavailable(blob.hash)
    }
    let recipe: BlobRecipe
    do throws(StoreError) {
      recipe = try blobs.recipe(of: blob, from: offset, bytes: WireLimits.recipeBytes)
    } catch {
      guard error.code == .blobUnavailable || error.code == .damaged else { throw error }
      return .recipeUnavailable(blob.hash)
    }
    let context = BatchContext.recipe(store: store.id, sender: actor, offset: offset)
    let encrypted = try BatchCodec.encrypt(
      RecipeCodec.encode(recipe.chunks), as: context, keys: ring(),
      randomness: SecureRandom.bytes(BatchCodec.randomnessBytes))
    return .recipeMade(EncryptedRecipe(hash: blob.hash, offset: offset, encrypted: encrypted))
  }

  func match(_ recipe: EncryptedRecipe, size: UInt64, from sender: ActorID) throws -> SessionEvent {
    let context = BatchContext.recipe(store: store.id, sender: sender, offset: recipe.offset)
    let payload = try BatchCodec.decrypt(recipe.encrypted, expecting: context, keys: ring())
    let opened = try RecipeCodec.decode(payload, offset: recipe.offset, size: size)
    let match = try store.blobs.match(opened)
    state.withLock { $0.match = (recipe.hash, match) }
    return .recipeMatched(hash: recipe.hash, end: match.end, missing: match.missing)
  }

  func assemble(_ blob: BlobReference, upTo end: UInt64) throws -> SessionEvent {
    let blobs = try store.blobs
    // Another session may have completed the blob first, in this process or another.
    if try blobs.has(blob) { return .blobStored(hash: blob.hash, held: blob.size, isComplete: true) }
    guard let match = state.withLock({ $0.match }), match.hash == blob.hash else {
      return .blobStored(hash: blob.hash, held: try blobs.partialSize(blob.hash), isComplete: false)
    }
    let held: UInt64
    do throws(StoreError) { held = try blobs.assemble(blob.hash, match.match, upTo: end) } catch {
      guard error.code == .outOfBounds else { throw error }
      return .blobStored(hash: blob.hash, held: try blobs.partialSize(blob.hash), isComplete: false)
    }
    return try complete(blob, held: held)
  }
}
