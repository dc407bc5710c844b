import SyncStore
import Testing

/// The code of the store error that a call must throw.
func code(
  sourceLocation: SourceLocation = #_sourceLocation, _ body: () throws -> Void
) -> StoreError.Code? {
  #expect(throws: StoreError.self, sourceLocation: sourceLocation) { try body() }?.code
}
