import SyncStore

/// The status page: one document without external resources, which reads `/status.json` every few seconds.
///
/// Its policy allows no script but this one, by its hash: a name of a member that holds markup stays text
/// twice over, since the script only sets text.
enum StatusPage {
  /// The page as an answer.
  static let response = HTTPResponse(
    type: "text/html; charset=utf-8", body: Array(document.utf8),
    policy: "default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
      + "frame-ancestors 'none'; img-src data:; style-src 'sha256-\(hash(of: style))'; "
      + "script-src 'sha256-\(hash(of: script))'")

  private static func hash(of text: String) -> String {
    Base64.encode(SHA256.hash(Array(text.utf8)))
  }

  static let document = """
    <!doctype html>
    <html lang="en">
    <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <meta name="color-scheme" content="light dark">
    <title>SyncStore</title>
    <link rel="icon" href="data:,">
    <style>\(style)</style>
    </head>
    <body>
    <header>
    <h1><span id="dot" class="dot"></span><span id="name">SyncStore</span></h1>
    <p id="verdict" aria-live="polite">Loading …</p>
    <p id="stale" class="bad" hidden></p>
    </header>
    <main>
    <section id="problems" hidden><h2>Needs attention</h2><ul id="problem-list"></ul></section>
    <section><h2>Members</h2><div id="members" class="cards"></div></section>
    <section id="relays-section" hidden><h2>Relays</h2><div id="relays" class="cards"></div></section>
    <section><h2>Last hour</h2><div id="plots" class="cards"></div></section>
    <section><h2>This copy</h2><dl id="store"></dl></section>
    <section id="log-section"><h2>Log</h2><ol id="log"></ol></section>
    <section><details><summary>Configuration in force</summary><pre id="configuration"></pre></details></section>
    </main>
    <footer id="footer"></footer>
    <script>\(script)</script>
    </body>
    </html>

    """

  private static let style = """
    :root{--back:#f7f7f5;--card:#fff;--ink:#1c1e21;--soft:#5c6370;--line:#dcdfe4;--good:#1a7f4b;--bad:#b3261e;
    --plot:#2563a8;--plot2:#b26a00}
    @media(prefers-color-scheme:dark){:root{--back:#15171a;--card:#1f2226;--ink:#e7e9ec;--soft:#9aa3af;
    --line:#33383f;--good:#4ccb8a;--bad:#ff8a80;--plot:#74b0f0;--plot2:#e5b04d}}
    *{box-sizing:border-box}
    body{margin:0 auto;max-width:70rem;padding:1rem;background:var(--back);color:var(--ink);
    font:16px/1.45 system-ui,sans-serif}
    h1{font-size:1.15rem;margin:0 0 .3rem;display:flex;align-items:center;gap:.5rem;overflow-wrap:anywhere}
    h2{font-size:1rem;margin:1.6rem 0 .6rem;color:var(--soft);font-weight:600}
    #verdict{font-size:1.5rem;line-height:1.3;margin:.2rem 0;overflow-wrap:anywhere}
    .dot{width:.8rem;height:.8rem;border-radius:50%;background:var(--soft);flex:none}
    .dot.ok{background:var(--good)}.dot.no{background:var(--bad)}
    .bad{color:var(--bad)}.good{color:var(--good)}.soft{color:var(--soft)}
    ul,ol{margin:0;padding:0;list-style:none}
    #problem-list li{border-left:4px solid var(--bad);background:var(--card);padding:.5rem .75rem;margin:.4rem 0;
    overflow-wrap:anywhere}
    .cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,19rem),1fr));gap:.75rem}
    .card{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.75rem;min-width:0}
    .card h3{margin:0 0 .25rem;font-size:1rem;overflow-wrap:anywhere}
    .card p{margin:.15rem 0;font-size:.9rem;overflow-wrap:anywhere}
    dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem;margin:0;background:var(--card);
    border:1px solid var(--line);border-radius:.5rem;padding:.75rem}
    dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
    svg{width:100%;height:4rem;display:block}
    code,pre,#log{font:13px/1.5 ui-monospace,monospace}
    #log,pre{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.6rem;overflow-x:auto;
    max-height:22rem;overflow-y:auto;margin:0}
    #log li{white-space:pre-wrap;overflow-wrap:anywhere}
    footer{margin:2rem 0 1rem;color:var(--soft);font-size:.85rem}
    """

  private static let script = #"""
    "use strict";
    const el = id => document.getElementById(id);
    const make = (tag, text, kind) => {
      const node = document.createElement(tag);
      if (text !== undefined) node.textContent = text;
      if (kind) node.className = kind;
      return node;
    };
    const number = n => n.toLocaleString("en-US");
    const count = (n, noun) => number(n) + " " + noun + (n === 1 ? "" : "s");
    const size = n => {
      const units = ["B", "KiB", "MiB", "GiB", "TiB"];
      let place = 0;
      while (n >= 1024 && place < units.length - 1) { n /= 1024; place++; }
      return (place && n < 100 ? n.toFixed(1) : Math.round(n)) + " " + units[place];
    };
    const span = ms => {
      const s = Math.max(0, Math.round(ms / 1000));
      if (s < 90) return s + " s";
      if (s < 5400) return Math.round(s / 60) + " min";
      if (s < 129600) return Math.round(s / 3600) + " h";
      return Math.round(s / 86400) + " days";
    };
    const ago = (now, time) => time === undefined ? "never" : span(now - time) + " ago";
    const fill = (id, nodes) => el(id).replaceChildren(...nodes);

    function member(m, now) {
      const card = make("div", undefined, "card");
      const title = make("h3", m.name);
      card.append(title);
      if (m.in_step === undefined) card.append(make("p", "met only through others", "soft"));
      else card.append(make("p", m.in_step ? "in step" : m.last_seen_ms === undefined ? "not met yet" : "not in step",
        m.in_step ? "good" : "bad"));
      card.append(make("p", m.connected ? "connected" : "last seen " + ago(now, m.last_seen_ms)));
      if (m.last_success_ms !== undefined) card.append(make("p", "last success " + ago(now, m.last_success_ms)));
      if (m.lacking > 0) {
        const more = m.lacking_is_bounded ? "more than " : "";
        card.append(make("p", "lacks " + more + count(m.lacking, "key") + ", " + size(m.lacking_bytes)
          + (m.oldest_lacking_ms ? ", the oldest written " + ago(now, m.oldest_lacking_ms) : "")));
        if (m.first_lacking) card.append(make("p", "first: " + m.first_lacking.join(", "), "soft"));
      }
      if (m.last_error) card.append(make("p", m.last_error, "bad"));
      if (m.next_try_ms > now) card.append(make("p", "next try in " + span(m.next_try_ms - now), "soft"));
      card.append(make("p", "sent " + count(m.sent_records, "record") + ", " + size(m.sent_bytes) + "; received "
        + number(m.received_records) + ", " + size(m.received_bytes), "soft"));
      if (m.clock_offset_ms !== undefined) {
        card.append(make("p", "clock " + (m.clock_offset_ms < 0 ? "" : "+") + m.clock_offset_ms + " ms, "
          + m.right, "soft"));
      }
      return card;
    }

    function relay(r, now) {
      const card = make("div", undefined, "card");
      const add = (text, kind) => card.append(make("p", text, kind));
      card.append(make("h3", r.name));
      add(r.location, "soft");
      if (r.last_error) add(count(r.failures, "failed attempt") + ", the last: " + r.last_error, "bad");
      else if (r.last_success_ms === undefined) add("not read yet", "soft");
      else add("in step", "good");
      add("last read to its end " + ago(now, r.last_success_ms));
      add(r.last_news_ms === undefined ? "no other member has written there"
        : "last news of others " + ago(now, r.last_news_ms));
      if (r.waiting_entries > 0) {
        add(number(r.waiting_entries) + (r.waiting_entries === 1 ? " entry waits" : " entries wait")
          + " for something that is not there", "bad");
      }
      if (r.set_aside > 0) add(count(r.set_aside, "object") + " set aside", "bad");
      if (r.last_error && r.next_try_ms > now) add("next try in " + span(r.next_try_ms - now), "soft");
      add("published " + count(r.sent_records, "record") + ", " + size(r.sent_bytes) + "; read "
        + number(r.received_records) + ", " + size(r.received_bytes) + "; " + count(r.requests, "request"), "soft");
      if (r.last_collection_ms !== undefined) {
        add("cleared of what no member needs " + ago(now, r.last_collection_ms)
          + (r.stored_bytes === undefined ? "" : ", holds " + size(r.stored_bytes)), "soft");
      }
      if (r.failed_collections > 0) add("clearing failed " + count(r.failed_collections, "time"), "bad");
      if (r.cost && r.usage) {
        const money = n => n.toFixed(n < 1 ? 4 : 2) + " " + r.cost.currency;
        add(money(r.cost.requests) + " for requests in " + span(now - r.usage.since_ms)
          + (r.cost.month === undefined ? "" : ", " + money(r.cost.month) + " a month for what is stored"), "soft");
      }
      return card;
    }

    function plot(title, points, unit, color) {
      const card = make("div", undefined, "card");
      const top = Math.max(0, ...points.map(p => p[1]));
      card.append(make("h3", title));
      const space = "http://www.w3.org/2000/svg";
      const svg = document.createElementNS(space, "svg");
      svg.setAttribute("viewBox", "0 0 300 60");
      svg.setAttribute("preserveAspectRatio", "none");
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", title + ", at most " + unit(top));
      const line = document.createElementNS(space, "polyline");
      const end = points.length ? points[points.length - 1][0] : 0;
      const width = points.length ? Math.max(60000, end - points[0][0]) : 1;
      line.setAttribute("points", points.map(p =>
        (300 - 300 * (end - p[0]) / width).toFixed(1) + "," + (58 - (top ? 54 * p[1] / top : 0)).toFixed(1)).join(" "));
      line.setAttribute("fill", "none");
      line.setAttribute("stroke", "var(" + color + ")");
      line.setAttribute("stroke-width", "2");
      line.setAttribute("vector-effect", "non-scaling-stroke");
      svg.append(line);
      card.append(svg);
      const last = points.length ? points[points.length - 1][1] : 0;
      card.append(make("p", points.length ? "now " + unit(last) + ", at most " + unit(top) : "no samples yet", "soft"));
      return card;
    }

    function growth(history, name, scale) {
      const points = [];
      for (let i = 1; i < history.length; i++) {
        const seconds = (history[i].time_ms - history[i - 1].time_ms) / 1000;
        if (seconds > 0) points.push([history[i].time_ms, scale(history[i], history[i - 1], seconds)]);
      }
      return points;
    }

    function show(s) {
      const now = s.time_ms;
      document.title = (s.ok ? "" : "! ") + s.store.name + " – SyncStore";
      el("name").textContent = s.store.name;
      el("dot").className = "dot " + (s.ok ? "ok" : "no");
      el("verdict").textContent = s.verdict;
      const problems = s.checks.filter(c => !c.ok);
      el("problems").hidden = problems.length === 0;
      fill("problem-list", problems.map(c => make("li", c.name + ": " + c.problem)));
      fill("members", s.members.length ? s.members.map(m => member(m, now))
        : [make("p", "none yet: sync-cli invite", "soft")]);
      el("relays-section").hidden = s.relays.length === 0;
      fill("relays", s.relays.map(r => relay(r, now)));
      const rate = name => growth(s.history, name, (a, b, t) => Math.max(0, a[name] - b[name]) / t);
      const perSecond = n => size(n) + "/s";
      const records = n => (n < 10 ? n.toFixed(1) : number(Math.round(n))) + "/s";
      const sync = growth(s.history, "sync", (a, b) => a.syncs > b.syncs
        ? 1000 * (a.sync_seconds - b.sync_seconds) / (a.syncs - b.syncs) : 0);
      fill("plots", [
        plot("Sent", rate("sent_bytes"), perSecond, "--plot"),
        plot("Received", rate("received_bytes"), perSecond, "--plot"),
        plot("Records received", rate("received_records"), records, "--plot"),
        plot("Duration of a sync", sync, n => n.toFixed(1) + " ms", "--plot2")
      ]);
      const c = s.store.counted;
      const facts = [
        ["Keys", c ? number(c.keys) + ", " + size(c.value_bytes) + " (counted " + ago(now, c.time_ms) + ")" : "counting …"],
        ["Deleted", c ? count(c.tombstones, "tombstone") : "counting …"],
        ["Blobs", c ? number(c.blob_keys) + ", " + size(c.blob_bytes) + "; absent: " + number(c.awaited_blobs)
          + " to come, " + number(c.left_out_blobs) + " left out, " + number(c.evicted_blobs) + " evicted" : "counting …"],
        ["Journal", count(s.store.segments, "segment") + ", " + size(s.store.journal_bytes) + ", position "
          + number(s.store.position)],
        ["Conflicts", number(s.store.conflicts) + " kept"],
        ["Damage", count(s.store.damaged_places, "place") + "; " + count(s.store.repaired_keys, "key") + " repaired"],
        ["Disk", size(s.store.free_bytes) + " free"],
        ["Listens on", s.store.listening || "nothing"],
        ["Up for", span(now - s.store.since_ms)],
        ["Memory", s.store.resident_bytes ? size(s.store.resident_bytes) : "unknown"]
      ];
      fill("store", facts.flatMap(f => [make("dt", f[0]), make("dd", f[1])]));
      el("log-section").hidden = !s.log;
      fill("log", (s.log || []).slice().reverse().map(l =>
        make("li", new Date(l.time_ms).toISOString().slice(0, 19) + "Z " + l.level + " " + l.message,
          l.level === "error" || l.level === "warning" ? "bad" : undefined)));
      el("configuration").textContent = JSON.stringify(s.configuration, null, 2);
      el("footer").textContent = "SyncStore " + s.version + " · store " + s.store.store + " · as of "
        + new Date(now).toISOString().slice(0, 19) + "Z";
    }

    let timer;
    async function refresh() {
      try {
        const answer = await fetch("status.json", { cache: "no-store" });
        if (!answer.ok) throw new Error((await answer.text()).trim());
        show(await answer.json());
        el("stale").hidden = true;
      } catch (error) {
        el("stale").textContent = "The daemon does not answer: " + error.message;
        el("stale").hidden = false;
        el("dot").className = "dot no";
      }
      clearTimeout(timer);
      timer = setTimeout(refresh, document.hidden ? 15000 : 3000);
    }
    document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
    refresh();
    """#
}
