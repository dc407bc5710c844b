/// The table of all metrics: the page, its documentation and the tests use it.
struct MetricFamily: Sendable {
  enum Kind: String, Sendable { case gauge, counter, histogram }

  /// The name without the prefix `syncstore_`; names of process figures have no prefix, as in other programs.
  let name: String
  let kind: Kind
  let help: String
  /// The names of its labels.
  let labels: [String]

  private init(_ name: String, _ kind: Kind, help: String, labels: [String] = []) {
    (self.name, self.kind, self.help, self.labels) = (name, kind, help, labels)
  }

  /// The name on the page.
  static func fullName(of name: String) -> String {
    name.utf8.starts(with: "process_".utf8) ? name : "syncstore_" + name
  }

  static let all: [MetricFamily] = [
    MetricFamily("build_info", .gauge, help: "Always 1; the program's version.", labels: ["version"]),
    MetricFamily(
      "store_info", .gauge, help: "Always 1; name, id and actor of the copy.",
      labels: ["name", "store", "actor"]),
    MetricFamily("check_passes", .gauge, help: "Whether a check of /healthz passes.", labels: ["check"]),
    MetricFamily(
      "index_entries", .gauge, help: "Entries of the index: keys, tombstones and the store's own keys."),
    MetricFamily(
      "counted_timestamp_seconds", .gauge,
      help: "When keys, tombstones, values and blobs were last counted, by a pass over all keys."),
    MetricFamily("keys", .gauge, help: "Keys with a value, as last counted."),
    MetricFamily("tombstones", .gauge, help: "Deleted keys whose tombstone is kept, as last counted."),
    MetricFamily("value_bytes", .gauge, help: "Bytes of all values, as last counted."),
    MetricFamily("blob_keys", .gauge, help: "Keys whose value lies in the blob tier, as last counted."),
    MetricFamily("blob_bytes", .gauge, help: "Bytes of those values, as last counted."),
    MetricFamily(
      "absent_blobs", .gauge, help: "Large values that are not here, by the reason.", labels: ["state"]),
    MetricFamily("absent_blob_bytes", .gauge, help: "Bytes of those values.", labels: ["state"]),
    MetricFamily(
      "files", .gauge, help: "Files of the store, by their kind, as last counted.", labels: ["kind"]),
    MetricFamily("file_bytes", .gauge, help: "Bytes of those files.", labels: ["kind"]),
    MetricFamily("segments", .gauge, help: "Files of the journal."),
    MetricFamily("journal_bytes", .gauge, help: "Bytes of the journal's files."),
    MetricFamily(
      "journal_live_bytes", .gauge, help: "Bytes in closed segments that a compaction would keep."),
    MetricFamily(
      "journal_dead_bytes", .gauge, help: "Bytes in closed segments that a compaction would reclaim."),
    MetricFamily("journal_records_total", .counter, help: "The journal's position: records ever appended."),
    MetricFamily("held_bytes", .gauge, help: "Bytes of compacted segments that readers still need."),
    MetricFamily("readers", .gauge, help: "Snapshots and rounds that keep segments readable."),
    MetricFamily("disk_free_bytes", .gauge, help: "Bytes that the file system has free."),
    MetricFamily("reserve_bytes", .gauge, help: "Bytes of the space reserve that are allocated."),
    MetricFamily("reserve_wanted_bytes", .gauge, help: "Bytes that the space reserve should have."),
    MetricFamily("index_on_disk", .gauge, help: "0 if the index had to be built in memory."),
    MetricFamily("poisoned", .gauge, help: "1 if a sync has failed: nothing more is acknowledged."),
    MetricFamily("read_only", .gauge, help: "1 if this copy may not write."),
    MetricFamily("recovering", .gauge, help: "1 if this copy needs another one's state."),
    MetricFamily("unconfirmed", .gauge, help: "1 if own writes are in doubt until a member confirms them."),
    MetricFamily(
      "clock_lead_seconds", .gauge, help: "How far the stamps of this copy are ahead of its clock."),
    MetricFamily("conflicts", .gauge, help: "Beaten values that are kept."),
    MetricFamily("parked_keys", .gauge, help: "Keys with writes stamped ahead of this clock."),
    MetricFamily("damaged_places", .gauge, help: "Damaged places of the journal that no peer has repaired."),
    MetricFamily(
      "repaired_keys_total", .counter, help: "Keys that differed under the same writes and were repaired."),
    MetricFamily("puts_total", .counter, help: "Values written through this process."),
    MetricFamily("deletes_total", .counter, help: "Deletes written through this process."),
    MetricFamily("lookups_total", .counter, help: "Keys looked up by this process."),
    MetricFamily("compactions_total", .counter, help: "Runs of segments compacted by this process."),
    MetricFamily(
      "sync_requests_total", .counter,
      help: "Requests for durability: divided by the number of syncs, the size of a group commit."),
    MetricFamily(
      "sync_duration_seconds", .histogram, help: "Duration of the journal's syncs in this process."),
    MetricFamily(
      "sessions_total", .counter, help: "Sessions that have ended, and attempts that failed, by the result.",
      labels: ["direction", "result"]),
    MetricFamily("identity_conflicts", .gauge, help: "Devices that two copies seem to use at once."),
    MetricFamily(
      "peer_failures", .gauge, help: "Consecutive failed attempts to reach a peer.", labels: ["peer"]),
    MetricFamily(
      "member_connected", .gauge, help: "1 if a session with the member runs.", labels: ["member"]),
    MetricFamily(
      "member_in_step", .gauge, help: "1 if the member has everything that is here.", labels: ["member"]),
    MetricFamily(
      "member_last_seen_timestamp_seconds", .gauge, help: "When the member was last connected.",
      labels: ["member"]),
    MetricFamily(
      "member_last_success_timestamp_seconds", .gauge,
      help: "When the member was last in step, since the daemon began.", labels: ["member"]),
    MetricFamily(
      "member_unsent_records", .gauge, help: "Keys that the member is not known to have, up to 10000.",
      labels: ["member"]),
    MetricFamily(
      "member_unsent_is_bounded", .gauge, help: "1 if more is unsent than was counted.", labels: ["member"]),
    MetricFamily("member_unsent_bytes", .gauge, help: "Bytes of those keys' records.", labels: ["member"]),
    MetricFamily(
      "member_oldest_unsent_timestamp_seconds", .gauge, help: "When the oldest of those writes was made.",
      labels: ["member"]),
    MetricFamily(
      "member_clock_offset_seconds", .gauge, help: "How far the member's clock is ahead.", labels: ["member"]),
    MetricFamily(
      "member_sent_records_total", .counter, help: "Records sent to the member.", labels: ["member"]),
    MetricFamily(
      "member_received_records_total", .counter, help: "Records received from the member.", labels: ["member"]
    ),
    MetricFamily("member_sent_bytes_total", .counter, help: "Bytes sent to the member.", labels: ["member"]),
    MetricFamily(
      "member_received_bytes_total", .counter, help: "Bytes received from the member.", labels: ["member"]),
    MetricFamily("member_sent_blobs_total", .counter, help: "Blobs sent to the member.", labels: ["member"]),
    MetricFamily(
      "member_received_blobs_total", .counter, help: "Blobs received from the member.", labels: ["member"]),
    MetricFamily(
      "relay_failures", .gauge, help: "Consecutive failed attempts to use a relay.", labels: ["relay"]),
    MetricFamily(
      "relay_last_success_timestamp_seconds", .gauge,
      help: "When the relay was last read to its end, since the daemon began.", labels: ["relay"]),
    MetricFamily(
      "relay_waiting_entries", .gauge, help: "Entries that wait for something that is not in the relay yet.",
      labels: ["relay"]),
    MetricFamily(
      "relay_set_aside_objects", .gauge, help: "Objects that cannot be used, up to 100.", labels: ["relay"]),
    MetricFamily(
      "relay_requests_total", .counter, help: "Requests, retries included, by operation and HTTP status.",
      labels: ["relay", "operation", "status"]),
    MetricFamily(
      "relay_sent_bytes_total", .counter, help: "Bytes of objects written to the relay.", labels: ["relay"]),
    MetricFamily(
      "relay_received_bytes_total", .counter, help: "Bytes of objects read from the relay.", labels: ["relay"]
    ),
    MetricFamily(
      "relay_sent_records_total", .counter, help: "Records published in the relay.", labels: ["relay"]),
    MetricFamily(
      "relay_received_records_total", .counter, help: "Records read from the relay.", labels: ["relay"]),
    MetricFamily(
      "relay_last_collection_timestamp_seconds", .gauge,
      help: "When this copy last deleted from the relay what no member needs.", labels: ["relay"]),
    MetricFamily(
      "relay_failed_collections", .gauge, help: "Consecutive attempts at that which failed.",
      labels: ["relay"]),
    MetricFamily(
      "relay_collected_objects_total", .counter, help: "Objects deleted from the relay.", labels: ["relay"]),
    MetricFamily(
      "relay_collected_bytes_total", .counter, help: "Bytes of those objects.", labels: ["relay"]),
    MetricFamily("process_cpu_seconds_total", .counter, help: "Processor time of the daemon."),
    MetricFamily("process_start_time_seconds", .gauge, help: "When the daemon began."),
    MetricFamily("process_resident_memory_bytes", .gauge, help: "Bytes of the daemon in memory."),
    MetricFamily("process_open_fds", .gauge, help: "Open descriptors of the daemon."),
    MetricFamily("process_max_fds", .gauge, help: "Bound on the open descriptors of the daemon."),
  ]
}
