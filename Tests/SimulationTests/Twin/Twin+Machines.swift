import SyncStore
import SyncTestSupport

/// Machine events: power losses, backups, copies.
extension Twin {
  func crash(_ copy: Int) throws {
    try wake(copy)
    let machine = machines[copy]
    machine.host.losePower(seed: random.next())
    machine.store = try Store.open(machine.path, on: machine.host, configuration: Self.configuration)
    dropRounds(of: copy)
    let (state, index) = try findPast(of: machine.store, in: copy, machine.past[machine.durable...])
    model.copies[copy].durable = state
    try model.step(.crash(copy))
    machine.past.removeLast(machine.past.count - 1 - index)
    // If a tail that may have been seen was cut, it is a new actor.
    if try machine.store.actor.low != state.actor.number { model.renew(copy) }
    capture(copy)
    settle(copy)
  }

  func backUp(_ copy: Int) throws {
    try wake(copy)
    try model.step(.backup(copy))
    let machine = machines[copy]
    let files = try machine.host.storage.files(below: machine.path)
    machine.backups = (machine.backups + [(files, machine.path, machine.past.count)]).suffix(3)
    backups[copy, default: []] = Array((backups[copy, default: []] + [machine.past]).suffix(3))
  }

  func restore(_ copy: Int, _ which: Int) throws {
    let machine = machines[copy]
    guard let pasts = backups[copy], !pasts.isEmpty else { return }
    let number = which % pasts.count
    let backup = machine.backups[number]
    machine.path = "/store.\(machine.past.count).\(random.next() % 1_000_000)"
    try machine.host.storage.install(backup.files, from: backup.path, at: machine.path)
    machine.store = try Store.open(machine.path, on: machine.host, configuration: Self.configuration)
    dropRounds(of: copy)
    model.copies[copy].backups[number] = try findPast(of: machine.store, in: copy, pasts[number][...]).state
    try model.step(.restore(copy, which: which))
    machine.past = [model.copies[copy].live]
    settle(copy)
  }

  func clone(_ copy: Int, _ ofBackup: Bool) throws {
    guard machines.count < Model.mostCopies, model.copies[copy].isAlive else { return }
    if ofBackup, backups[copy, default: []].isEmpty { return }
    let machine = machines[copy]
    let source = ofBackup ? machine.backups[0].path : machine.path
    let files = try ofBackup ? machine.backups[0].files : machine.host.storage.files(below: machine.path)
    let host = self.machine(skew: model.copies[copy].skew)
    try host.storage.install(files, from: source, at: "/store")
    let store = try Store.open("/store", on: host, configuration: Self.configuration)
    let pasts = ofBackup ? backups[copy]![0] : machine.past
    let (state, index) = try findPast(of: store, in: copy, pasts[...])
    if ofBackup {
      model.copies[copy].backups[0] = state
      try model.step(.clone(copy, ofBackup: true))
    } else {
      let durable = model.copies[copy].durable
      model.copies[copy].durable = state
      try model.step(.clone(copy, ofBackup: false))
      model.copies[copy].durable = durable
    }
    machines.append(Machine(host, "/store", store))
    machines[machines.count - 1].past = Array(pasts[...index])
    machines[machines.count - 1].beaten = machine.beaten
    capture(machines.count - 1)
    settle(machines.count - 1)
    try compare(machines.count - 1, .clone(copy, ofBackup: ofBackup))
  }
}
