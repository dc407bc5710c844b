internal import SyncStore

/// Asking connected members which blobs they hold, before an eviction.
extension BlobFetchCoordinator {
  /// Connects to every member that has an address and is not connected. Calls `completion` once all were
  /// tried; the sessions stay open until `releaseSessions`.
  func connectAllMembers(_ completion: @escaping () -> Void) {
    sessionHolds += 1
    routes { [weak self] result in
      guard let self, case .success(let known) = result else { return completion() }
      let asked = Set(core.devices.filter { $0.driver.canAsk }.map(\.device))
      let others = known.filter { route in route.target.device.map { !asked.contains($0) } ?? true }
      var left = others.count
      guard left > 0 else { return completion() }
      for route in others {
        connect(route) { _ in
          left -= 1
          if left == 0 { completion() }
        }
      }
    }
  }

  /// Ends one hold of `connectAllMembers`: control-only sessions may end.
  func releaseSessions() {
    sessionHolds -= 1
    lingerIfIdle()
  }

  /// Asks every member whose session allows it what it holds. `completion` gets the answers that arrive
  /// within `answerMilliseconds`.
  func ask(
    _ blobs: [BlobReference], _ completion: @escaping ([DeviceID: HoldingsStated.Statement]) -> Void
  ) {
    var drivers: [DeviceID: SessionDriver] = [:]
    for (device, driver) in core.devices where driver.canAsk { drivers[device] = driver }
    guard !drivers.isEmpty, !isStopped else { return completion([:]) }
    lastQuestion += 1
    let number = lastQuestion
    questions[number] = Question(waiting: Set(drivers.keys), completion: completion)
    questions[number]?.timer = loop.schedule(after: Self.answerMilliseconds) { [weak self] in
      self?.questions[number]?.timer = nil
      self?.conclude(number)
    }
    for driver in drivers.values { driver.ask(HoldingsWanted(number: number, blobs: blobs)) }
  }

  func answered(_ stated: HoldingsStated, by device: DeviceID) {
    guard questions[stated.number]?.waiting.remove(device) != nil else { return }
    questions[stated.number]?.answers[device] = stated.statement
    if questions[stated.number]?.waiting.isEmpty == true { conclude(stated.number) }
  }

  func conclude(_ number: UInt64) {
    guard let question = questions.removeValue(forKey: number) else { return }
    if let timer = question.timer { loop.cancel(timer) }
    question.completion(question.answers)
  }
}
