import Foundation

// Measurements run in functions: variables of this file are globals, and slow.
do {
  let arguments = Array(CommandLine.arguments.dropFirst())
  if arguments.first == Child.command {
    try Child.run(Array(arguments.dropFirst()))
  } else if arguments.first == SyncServer.command {
    try SyncServer.run(Array(arguments.dropFirst()))
  } else {
    try Bench(try Options(arguments)).run()
  }
} catch {
  FileHandle.standardError.write(Data("benchmarks: \(error)\n".utf8))
  exit(1)
}
