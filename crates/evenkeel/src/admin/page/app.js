// Draws /api/v1/status once a second. Text goes in through textContent only, so a name is never markup.
"use strict";

const REFRESH_MS = 1000;
const ANSWER_TIMEOUT_MS = 3000;
const SVG = "http://www.w3.org/2000/svg";
const GRAPH_SECONDS = 60;

const $ = (id) => document.getElementById(id);

// --- Small DOM helpers: built once, then only changed text is touched, so nothing jumps or flickers.

function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function setData(element, key, value) {
  if (element.dataset[key] !== value) element.dataset[key] = value;
}

/// Keeps one child per item, in order, made when new and dropped when gone.
function reconcile(parent, views, items, keyOf, build) {
  const wanted = new Set();
  items.forEach((item, index) => {
    let key = keyOf(item);
    while (wanted.has(key)) key += "\u0000";
    wanted.add(key);
    if (!views.has(key)) views.set(key, build(item));
    const view = views.get(key);
    if (parent.children[index] !== view.root) parent.insertBefore(view.root, parent.children[index] || null);
    view.update(item);
  });
  for (const [key, view] of views) {
    if (!wanted.has(key)) {
      view.root.remove();
      views.delete(key);
    }
  }
}

// --- Numbers as people read them.

const count = (number) => number.toLocaleString("en");

function bytes(number) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (number >= 999.5 && unit < units.length - 1) {
    number /= 1000;
    unit += 1;
  }
  return `${unit === 0 || number >= 99.95 ? Math.round(number) : number.toFixed(1)} ${units[unit]}`;
}

function span(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const [d, h, m, s] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60, seconds % 60];
  if (d > 0) return `${d} d ${h} h`;
  if (h > 0) return `${h} h ${m} min`;
  return m > 0 ? `${m} min ${s} s` : `${s} s`;
}

function micros(us) {
  if (us < 1000) return `${us} µs`;
  if (us < 1e6) return `${Number((us / 1e3).toFixed(us < 1e4 ? 2 : us < 1e5 ? 1 : 0))} ms`;
  return us < 60e6 ? `${Number((us / 1e6).toFixed(1))} s` : span(us / 1000).replace(/ 0 \w+$/, "");
}

/// The bound below which a share of the values lies, as far as the buckets can tell.
function within(histogram, share, unitUs) {
  const need = histogram.count * share;
  if (histogram.count === 0) return "–";
  let seen = 0;
  for (let i = 0; i < histogram.bounds.length; i += 1) {
    seen += histogram.counts[i] || 0;
    if (seen >= need) return `≤ ${micros(histogram.bounds[i] * unitUs)}`;
  }
  return `> ${micros((histogram.bounds.at(-1) || 0) * unitUs)}`;
}

const words = (key) => key.replaceAll("_", " ");

function kinds(errors) {
  const found = Object.entries(errors).filter(([, number]) => number > 0);
  return found.map(([kind, number]) => `${words(kind)} ${count(number)}`).join(" · ");
}

const sum = (object) => Object.values(object).reduce((total, number) => total + number, 0);

// --- Graphs: a minute, newest at the right edge.

function chart(className) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", className);
  svg.setAttribute("viewBox", `0 0 ${GRAPH_SECONDS - 1} 100`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  const area = document.createElementNS(SVG, "path");
  area.setAttribute("class", "area");
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("class", "line");
  svg.append(area, line);

  const update = (values, label, format) => {
    const peak = Math.max(0, ...values);
    const left = GRAPH_SECONDS - values.length;
    const y = (value) => (96 - (value / Math.max(peak, 1)) * 90).toFixed(1);
    const points = values.map((value, index) => `${left + index} ${y(value)}`);
    line.setAttribute("d", points.length ? `M${points.join("L")}` : "");
    area.setAttribute("d", points.length ? `M${left} 100L${points.join("L")}L${GRAPH_SECONDS - 1} 100Z` : "");
    const now = values.length ? values.at(-1) : 0;
    svg.setAttribute("aria-label", `${label}, last minute: now ${format(now)}, peak ${format(peak)}`);
    return { now, peak };
  };
  return { root: svg, update };
}

function graph(title, format) {
  const drawing = chart("plot");
  const numbers = make("span");
  const root = make("figure", "graph", make("figcaption", "", make("span", "", title), numbers), drawing.root);
  const update = (values) => {
    const { now, peak } = drawing.update(values, title, format);
    setText(numbers, `now ${format(now)} · peak ${format(peak)}`);
  };
  return { root, update };
}

// --- One number with its name, and room for a remark below.

function figure(title) {
  const value = make("span");
  const remark = make("small");
  const root = make("div", "", make("dt", "", title), make("dd", "", value, remark));
  const update = (text, below = "") => {
    setText(value, text);
    setText(remark, below);
  };
  return { root, update };
}

function stateWord() {
  const root = make("span", "state");
  const update = (state) => {
    setData(root, "state", state);
    setText(root, state);
  };
  return { root, update };
}

// --- A service.

function serviceView(first) {
  const title = make("h2");
  const state = stateWord();
  const age = make("span", "quiet");
  const why = make("span", "why");
  const about = make("p", "about");
  const figures = {};
  const numbers = make("dl", "numbers");
  for (const [key, name] of SERVICE_FIGURES) {
    figures[key] = figure(name);
    numbers.append(figures[key].root);
    if (key === "errors") figures[key].root.className = "wide";
  }
  const sessions = graph("New sessions per second", count);
  const traffic = graph("Bytes per second", bytes);
  const requests = graph("Requests per second", count);
  const http = httpView();
  const pools = poolsView();
  const table = serverTable();
  const root = make("section", "service", make("header", "", title, state.root, age, why, about), numbers,
    make("div", "graphs", requests.root, sessions.root, traffic.root), table.root, http.root, pools.root);
  root.id = anchor(first.name);

  const update = (service) => {
    setText(title, service.name);
    state.update(service.state);
    setText(age, since(service));
    setText(why, service.reason);
    const role = service.role && service.role !== "any" ? ` · ${service.role} only` : "";
    const cluster = service.cluster ? ` · cluster ${service.cluster}` : "";
    setText(about, `${service.protocol} on ${service.listen.join(", ") || "–"} · ${service.balance}${role}${cluster}`);
    updateFigures(figures, service);
    sessions.update(service.history.map((point) => point.sessions_per_s));
    traffic.update(service.history.map((point) => point.bytes_per_s));
    table.update(service);
    requests.root.hidden = !service.http;
    http.root.hidden = !service.http;
    if (service.http) {
      requests.update(service.history.map((point) => point.requests_per_s));
      http.update(service);
    }
    pools.root.hidden = !service.database;
    if (service.database) pools.update(service.database);
  };
  return { root, update };
}

const SERVICE_FIGURES = [
  ["sessions", "Sessions"], ["queue", "Queue"], ["rate", "New sessions/s"], ["in", "From clients"],
  ["out", "To clients"], ["retries", "Retries"], ["connect", "Connect time (median)"], ["length", "Session length (median)"], ["errors", "Errors"],
];

function updateFigures(figures, service) {
  const { sessions, queue, rates, bytes: moved } = service;
  figures.sessions.update(count(sessions.current), `of ${count(sessions.limit)}\n${count(sessions.total)} total\n${count(sessions.refused)} refused`);
  figures.queue.update(count(queue.current), `of ${count(queue.limit)}\nfor ≤ ${micros(queue.wait_ms_limit * 1000)}\n${count(queue.timed_out_total)} timed out`);
  figures.rate.update(count(rates.sessions), "sessions");
  figures.in.update(`${bytes(rates.bytes_in)}/s`, `${bytes(moved.from_clients)} total`);
  figures.out.update(`${bytes(rates.bytes_out)}/s`, `${bytes(moved.to_clients)} total`);
  figures.errors.update(count(sum(service.errors)), kinds(service.errors));
  figures.retries.update(count(service.retries_total), "on another server");
  figures.connect.update(within(service.connect_us, 0.5, 1), `p99 ${within(service.connect_us, 0.99, 1)}`);
  figures.length.update(within(service.session_ms, 0.5, 1000), `p99 ${within(service.session_ms, 0.99, 1000)}`);
}

const anchor = (name) => `service-${encodeURIComponent(name)}`;

const since = (object) => (object.since_unix_ms ? `for ${span(current.now_unix_ms - object.since_unix_ms)}` : "");

// --- Its requests, if it speaks HTTP.

const HTTP_FIGURES = [
  ["rate", "Requests/s"], ["requests", "Requests"], ["progress", "In progress"], ["connections", "Server connections"],
  ["request", "Request time (median)"], ["first", "First byte (median)"], ["trouble", "Errors"],
];

const ROUTE_COLUMNS = ["Route", "Requests", "By status", "Median time", "p99"];
const HTTP_COLUMNS = ["Server", "Requests in progress", "Connections", "Idle", "Opening", "Waiting"];

function httpView() {
  const figures = {};
  const numbers = make("dl", "numbers");
  for (const [key, name] of HTTP_FIGURES) {
    figures[key] = figure(name);
    numbers.append(figures[key].root);
  }
  figures.trouble.root.className = "wide";
  const pools = plainTable("pools", HTTP_COLUMNS, (pool) => pool.server, httpPoolValues);
  const routes = plainTable("pools", ROUTE_COLUMNS, (route) => route.route, httpRouteValues);
  const root = make("div", "", numbers, pools.root, routes.root);
  const update = (service) => {
    routes.update(service.http.routes ?? [], "Routes");
    updateHttpFigures(figures, service.http, service.rates);
    pools.update(service.http.pools, "Connections to servers");
  };
  return { root, update };
}

function httpRouteValues(route) {
  const classes = route.responses.filter((one) => one.count > 0);
  return [route.route, count(route.requests_total), classes.map((one) => `${count(one.count)} ${one.what}`).join(", "),
    within(route.request_us, 0.5, 1), within(route.request_us, 0.99, 1)];
}

function httpPoolValues(pool) {
  const waiting = pool.waiting ? `${count(pool.waiting)}, longest ${micros(pool.longest_wait_ms * 1000)}` : "0";
  return [pool.server, count(pool.requests), count(pool.connections), count(pool.idle), count(pool.opening), waiting];
}

function updateHttpFigures(figures, http, rates) {
  const total = (key) => http.all_pools[key];
  const classes = http.responses.filter((one) => one.count > 0);
  figures.rate.update(count(rates.requests), "requests");
  figures.requests.update(count(http.requests_total), classes.map((one) => `${count(one.count)} ${one.what}`).join("\n"));
  figures.progress.update(count(total("requests")), `${count(total("waiting"))} waiting\n${count(http.tunnels_total)} tunnels so far`);
  figures.connections.update(count(total("connections")), `${count(total("idle"))} idle\n${count(total("opening"))} opening`);
  figures.request.update(within(http.request_us, 0.5, 1), `p99 ${within(http.request_us, 0.99, 1)}`);
  figures.first.update(within(http.first_byte_us, 0.5, 1), `p99 ${within(http.first_byte_us, 0.99, 1)}`);
  const trouble = {
    answered_by_Evenkeel: http.own_responses_total, refused: http.refused_total, aborted: http.aborted_total, retried: http.retried_total,
  };
  figures.trouble.update(count(http.own_responses_total + http.aborted_total), kinds(trouble));
}

// --- Its pools, if it speaks a database's protocol.

const POOL_FIGURES = [
  ["clients", "Clients"], ["connections", "Server connections"], ["queries", "Queries"], ["query", "Query time (median)"],
  ["transaction", "Transaction time (median)"], ["wait", "Wait time (median)"], ["trouble", "Errors"],
];

const POOL_COLUMNS = ["Database", "User", "Server", "Connections", "Idle", "Waiting"];
const WORK_COLUMNS = ["Queries", "Errors", "Rows returned", "Rows changed", "Total time", "Mean", "p95"];
const USER_COLUMNS = ["Database", "User", "Transactions", ...WORK_COLUMNS];
const DIGEST_COLUMNS = ["Statement", "On replicas", ...WORK_COLUMNS, "Last run"];
const CAUSE_COLUMNS = ["Statement", "Reason", "Times"];
const RULE_COLUMNS = ["Rule", "Action", "Matches"];

function poolsView() {
  const figures = {};
  const numbers = make("dl", "numbers");
  for (const [key, name] of POOL_FIGURES) {
    figures[key] = figure(name);
    numbers.append(figures[key].root);
  }
  figures.trouble.root.className = "wide";
  const paused = make("p", "flag");
  const bound = make("p", "quiet");
  const pools = plainTable("pools", POOL_COLUMNS, poolKey, poolValues);
  const users = plainTable("pools", USER_COLUMNS, userKey, userValues);
  const digests = plainTable("pools digests", DIGEST_COLUMNS, (one) => one.digest, digestValues);
  const causes = plainTable("pools digests", CAUSE_COLUMNS, causeKey, causeValues);
  const problems = make("p", "failed");
  const rules = plainTable("rules", RULE_COLUMNS, (rule) => rule.name, ruleValues);
  const tables = [pools, rules, causes, users, digests].map((table) => table.root);
  const root = make("div", "", numbers, problems, paused, bound, ...tables);
  const update = (pooled) => {
    updatePoolFigures(figures, pooled);
    setText(problems, pooled.problems.join("; "));
    const names = pooled.all_paused ? "all databases" : pooled.paused.join(", ");
    setText(paused, names && `Paused by operator: ${names}. New transactions wait.`);
    const pins = pooled.pins.map((pin) => `${count(pin.count)} by ${pin.what}`).join(", ");
    setText(bound, pins && `Clients pinned to their server connection: ${pins}.`);
    causes.update(pooled.pin_causes, "Statements that pinned clients to a server connection");
    causes.root.hidden = pooled.pin_causes.length === 0;
    pools.update(pooled.pools, `Pools (${pooled.pool_mode} mode, up to ${count(pooled.pool_size)} connections each)`);
    rules.update(pooled.rules, "Rules, in order");
    users.update(pooled.users, "Users (since process start)");
    digests.update(pooled.digests, "Top statements by total time (normalized)");
    rules.root.hidden = pooled.rules.length === 0;
    users.root.hidden = pooled.users.length === 0;
    digests.root.hidden = pooled.digests.length === 0;
  };
  return { root, update };
}

const causeKey = (cause) => [cause.statement, cause.reason, cause.object].join("\u0000");
const causeValues = (cause) => [
  cause.statement || "the login or a text that was not read",
  cause.object ? `${cause.reason} (${cause.object})` : cause.reason,
  count(cause.pinned_total),
];
const poolKey = (pool) => [pool.database, pool.user, pool.server].join("\u0000");
const userKey = (user) => [user.database, user.user].join("\u0000");

function poolValues(pool) {
  const waiting = pool.waiting ? `${count(pool.waiting)}, longest ${micros(pool.longest_wait_ms * 1000)}` : "0";
  return [pool.database, pool.user, pool.server, count(pool.connections), count(pool.idle), waiting];
}

const ruleValues = (rule) => [rule.name, rule.active ? rule.action : `inactive: ${rule.action}`, count(rule.hits_total)];

function workValues(work) {
  const mean = work.queries_total ? Math.round(work.busy_us_total / work.queries_total) : 0;
  const counts = [work.queries_total, work.errors_total, work.rows_sent_total, work.rows_affected_total];
  return [...counts.map(count), micros(work.busy_us_total), micros(mean), `≈ ${micros(work.p95_us)}`];
}

const userValues = (user) => [user.database, user.user, count(user.transactions_total), ...workValues(user)];

function digestValues(one) {
  const text = one.statement || "other";
  const ago = `${span(current.now_unix_ms - one.last_seen_unix_ms)} ago`;
  return [text, count(one.on_replicas_total), ...workValues(one), ago];
}

/// A table of texts, the first of each row its head.
function plainTable(className, columns, keyOf, valuesOf) {
  const headRow = make("tr", "", ...columns.map((name) => {
    const head = make("th", "", name);
    head.scope = "col";
    head.setAttribute("role", "columnheader");
    return head;
  }));
  headRow.setAttribute("role", "row");
  const body = make("tbody");
  const caption = make("caption");
  const root = make("table", className, caption, make("thead", "", headRow), body);
  root.setAttribute("role", "table");
  const views = new Map();
  const update = (items, title) => {
    setText(caption, title);
    reconcile(body, views, items, keyOf, () => plainRow(columns, valuesOf));
  };
  return { root, update };
}

function plainRow(columns, valuesOf) {
  const cells = columns.map((name, index) => {
    const cell = make(index === 0 ? "th" : "td");
    cell.setAttribute("role", index === 0 ? "rowheader" : "cell");
    if (index === 0) cell.scope = "row";
    else cell.dataset.label = name;
    return cell;
  });
  const texts = cells.map((cell) => cell.appendChild(make("span")));
  const root = make("tr", "", ...cells);
  root.setAttribute("role", "row");
  const update = (item) => valuesOf(item).forEach((value, index) => setText(texts[index], value));
  return { root, update };
}

function updatePoolFigures(figures, pooled) {
  const total = (key) => pooled.pools.reduce((sum, pool) => sum + pool[key], 0);
  const states = pooled.clients.filter((one) => one.count > 0);
  const clients = states.reduce((sum, one) => sum + one.count, 0);
  figures.clients.update(count(clients), states.map((one) => `${count(one.count)} ${one.what}`).join("\n"));
  figures.connections.update(count(total("connections")), `${count(total("idle"))} idle\n${count(total("opening"))} opening`);
  figures.queries.update(count(pooled.queries_total), `${count(pooled.on_replicas_total)} on replicas\n${count(pooled.transactions_total)} transactions`);
  figures.query.update(within(pooled.query_us, 0.5, 1), `p99 ${within(pooled.query_us, 0.99, 1)}`);
  figures.transaction.update(within(pooled.transaction_us, 0.5, 1), `p99 ${within(pooled.transaction_us, 0.99, 1)}`);
  figures.wait.update(within(pooled.wait_us, 0.5, 1), `p99 ${within(pooled.wait_us, 0.99, 1)}\n${count(pooled.wait_us.count)} waits`);
  const trouble = {
    wait_timeouts: pooled.wait_timeouts_total, transactions_lost: pooled.lost_transactions_total, queries_retried: pooled.retried_total,
    failed_logins: pooled.failed_logins_total, waiting_for_a_primary: pooled.waiting_for_primary,
  };
  figures.trouble.update(count(pooled.wait_timeouts_total + pooled.lost_transactions_total), kinds(trouble));
}

// --- Its servers.

const COLUMNS = [
  ["name", "Server"], ["state", "State"], ["weight", "Weight"], ["sessions", "Sessions"], ["graph", "New sessions/s"],
  ["bytes", "Bytes"], ["errors", "Errors"], ["probe", "Last probe"], ["act", "Action"],
];

function serverTable() {
  const heads = COLUMNS.map(([key, name]) => {
    const head = make("th", `c-${key}`, name);
    head.scope = "col";
    head.setAttribute("role", "columnheader");
    return head;
  });
  const headRow = make("tr", "", ...heads);
  const body = make("tbody");
  const caption = make("caption");
  const root = make("table", "", caption, make("thead", "", headRow), body);
  // On a phone the table is laid out as blocks, which would take its meaning away from screen readers.
  root.setAttribute("role", "table");
  headRow.setAttribute("role", "row");
  const views = new Map();
  const update = (service) => {
    const { total, up, omitted } = service.server_counts;
    const rest = omitted ? `; only servers with a problem are listed (${count(omitted)} are not)` : "";
    setText(caption, `${count(up)} of ${count(total)} servers up${rest}`);
    reconcile(body, views, service.servers, (server) => `${server.name}\u0000${server.address}`, () => serverView(service.name));
  };
  return { root, update };
}

function serverView(serviceName) {
  const cells = {};
  const parts = COLUMNS.map(([key, name]) => {
    const cell = make(key === "name" ? "th" : "td", `c-${key}`);
    cell.setAttribute("role", key === "name" ? "rowheader" : "cell");
    if (key === "name") cell.scope = "row";
    else cell.dataset.label = name;
    cells[key] = cell;
    return cell;
  });
  const root = make("tr", "", ...parts);
  root.setAttribute("role", "row");

  const line = (cell, className) => cells[cell].appendChild(make("small", className));
  const value = (cell) => cells[cell].appendChild(make("span"));
  const name = value("name"), address = line("name"), role = line("name", "role"), marks = line("name", "flag");
  const state = stateWord();
  const age = make("span", "quiet");
  cells.state.append(state.root, " ", age);
  const why = line("state"), unused = line("state", "flag"), monitor = line("state", "failed"), differs = line("state", "flag");
  const weight = value("weight"), fileWeight = line("weight");
  const sessions = value("sessions"), total = line("sessions"), queries = line("sessions"), slow = line("sessions");
  const spark = chart("spark");
  cells.graph.append(spark.root);
  const sparkNow = line("graph");
  const sent = value("bytes"), received = line("bytes");
  const errors = value("errors"), errorKinds = line("errors");
  const probe = value("probe"), probeText = line("probe"), latency = line("probe");
  const button = cells.act.appendChild(make("button"));
  button.type = "button";
  let shown = null;
  button.addEventListener("click", () => askForChange(serviceName, shown));

  const update = (server) => {
    shown = server;
    setData(root, "state", server.state);
    setText(name, server.name);
    setText(address, addressText(server));
    setText(marks, server.backup ? "backup" : "");
    setText(role, server.role ? roleText(server.role) : "");
    setData(role, "role", server.role ? server.role.role : "");
    // A replica behind a port for writes is where it should be.
    setData(unused, "expected", String(/^server is (a replica|the primary)$/.test(server.unused_reason || "")));
    setText(unused, server.unused_reason && server.state === "up" ? `not used by this service: ${server.unused_reason}` : "");
    state.update(server.state);
    setText(age, since(server));
    setText(why, server.reason);
    setText(monitor, server.monitor_problem ? `monitor: ${server.monitor_problem}` : "");
    const difference = server.config_override || "";
    setText(differs, server.reason.includes(difference) ? "" : difference);
    setText(weight, weightText(server));
    setText(fileWeight, server.weight === server.file_weight ? "" : `file: ${server.file_weight}`);
    setText(sessions, `${count(server.sessions.current)}${server.sessions.limit === null ? "" : ` of ${count(server.sessions.limit)}`}`);
    setText(total, `${count(server.sessions.total)} total`);
    setText(queries, server.work ? `${count(server.work.queries_total)} queries` : "");
    setText(slow, server.work ? `p95 ≈ ${micros(server.work.p95_us)}` : "");
    const rate = spark.update(server.history.map((point) => point.sessions_per_s), `New sessions per second on ${server.name}`, count);
    setText(sparkNow, `now ${count(rate.now)}`);
    setText(sent, `${bytes(server.bytes.to_clients)} out`);
    setText(received, `${bytes(server.bytes.from_clients)} in`);
    setText(errors, count(sum(server.errors)));
    setText(errorKinds, kinds(server.errors));
    updateProbe(probe, probeText, server.last_probe);
    setText(latency, server.latency_us === null ? "" : `first byte ${micros(server.latency_us)}`);
    const verb = server.state === "draining" ? "Undrain" : "Drain";
    setText(button, verb);
    button.setAttribute("aria-label", `${verb} ${server.name}`);
    button.hidden = server.state === "removed";
  };
  return { root, update };
}

function roleText({ role, lag_ms, lag_bytes }) {
  if (role !== "replica") return role === "unknown" ? "role unknown" : role;
  const behind = lag_ms === null ? "lag unknown" : lag_ms === 0 ? "up to date" : `${micros(lag_ms * 1000)} behind`;
  return `replica, ${behind}${lag_bytes ? `, ${bytes(lag_bytes)}` : ""}`;
}

function addressText(server) {
  const resolved = server.resolved.filter((address) => address !== server.address).join(", ");
  const named = server.address === server.name ? "" : server.address;
  return [named, resolved && `→ ${resolved}`].filter(Boolean).join(" ");
}

function weightText(server) {
  const slow = server.state === "up" && Math.abs(server.weight_effective - server.weight) > 0.005;
  return slow ? `${server.weight_effective.toFixed(1)} → ${server.weight}` : String(server.weight);
}

function updateProbe(value, text, probe) {
  if (!probe) {
    setText(value, "–");
    setText(text, "");
    return;
  }
  value.className = probe.ok ? "" : "failed";
  setText(value, `${probe.ok ? "ok" : "failed"} in ${micros(probe.took_us)}`);
  setText(text, `${span(current.now_unix_ms - probe.at_unix_ms)} ago${probe.message ? `: ${probe.message}` : ""}`);
}

// --- The page as a whole.

let current = null;
const serviceViews = new Map();
const overviewViews = new Map();

function overviewItem(first) {
  const name = make("span");
  const state = stateWord();
  const root = make("a", "", name, state.root);
  root.href = `#${encodeURIComponent(anchor(first.name))}`;
  const update = (service) => {
    setText(name, service.name);
    state.update(service.state);
  };
  return { root, update };
}

function draw(status) {
  current = status;
  setText($("version"), status.version);
  drawFacts(status);
  drawProblems(status.config.problems);
  drawClusters(status.clusters);
  drawEvents(status.events);
  const nameOf = (service) => service.name;
  $("overview").hidden = status.services.length < 2;
  reconcile($("overview"), overviewViews, status.services, nameOf, overviewItem);
  reconcile($("services"), serviceViews, status.services, nameOf, serviceView);
  const worst = status.services.filter((service) => service.state !== "up").length;
  document.title = worst ? `(${worst}) Evenkeel` : "Evenkeel";
}

const factViews = new Map();

function drawFacts(status) {
  const { engine, config } = status;
  const workers = engine.workers.map((worker) => worker.sessions).join(" + ");
  const facts = [
    ["uptime", span(status.now_unix_ms - status.started_at_unix_ms)],
    ["pid", String(status.pid)],
    ["I/O", `${engine.io}${engine.io_reason ? ` (${engine.io_reason})` : ""}`],
    ["workers", `${engine.workers.length} (${workers || 0} sessions)`],
    ["config", config.path || "command line"],
    ["loaded", `${span(status.now_unix_ms - config.loaded_at_unix_ms)} ago`],
  ];
  reconcile($("facts"), factViews, facts, (fact) => fact[0], ([name]) => {
    const value = make("dd");
    return { root: make("div", "", make("dt", "", name), value), update: (fact) => setText(value, fact[1]) };
  });
}

const problemViews = new Map();

function drawProblems(problems) {
  $("problems").hidden = problems.length === 0;
  reconcile($("problems"), problemViews, problems, (problem) => JSON.stringify(problem), () => {
    const root = make("p");
    return { root, update: (problem) => setText(root, problemText(problem)) };
  });
}

function problemText({ file, line, column, severity, message, help }) {
  const place = [file, line, column].filter((part) => part !== null).join(":");
  return `${place ? `${place}: ` : ""}${severity}: ${message}${help ? ` (${help})` : ""}`;
}

// --- Clusters: who takes writes.

const clusterViews = new Map();

function clusterView() {
  const who = make("strong"), age = make("span", "quiet"), services = make("span", "quiet"), named = make("span", "flag");
  const problems = make("div", "failed");
  const story = make("a", "", "events");
  story.href = "#timeline";
  const root = make("section", "cluster", make("p", "", who, " ", age, " ", services, " ", named, " · ", story), problems);
  const update = (cluster) => {
    setData(root, "state", cluster.primary === null ? "down" : "up");
    setText(who, cluster.primary === null ? "No primary" : `Primary: ${cluster.primary}`);
    setText(age, since(cluster));
    setText(services, `· cluster of ${cluster.services.join(", ")}`);
    setText(named, cluster.operator_override === null ? "" : `· operator's override: ${cluster.operator_override}`);
    const text = cluster.problems.join("\n");
    if (problems.textContent !== text) problems.replaceChildren(...cluster.problems.map((one) => make("p", "", one)));
  };
  return { root, update };
}

function drawClusters(clusters) {
  $("clusters").hidden = clusters.length === 0;
  reconcile($("clusters"), clusterViews, clusters, (cluster) => cluster.services.join(" "), clusterView);
}

// --- The timeline, newest first.

const eventViews = new Map();

function eventView() {
  const time = make("time"), what = make("span"), cause = make("small"), came = make("small", "flag");
  const root = make("li", "", time, make("div", "", what, cause, came));
  const update = (event) => {
    const at = new Date(event.at_unix_ms);
    time.dateTime = at.toISOString();
    time.title = at.toISOString();
    setText(time, `${at.toLocaleTimeString("en-GB")}.${String(at.getMilliseconds()).padStart(3, "0")}`);
    setData(root, "severity", event.severity);
    setText(what, `${event.service ? `${event.service}: ` : ""}${event.what}`);
    setText(cause, event.cause);
    const consequences = [
      event.sessions_terminated ? `sessions terminated: ${count(event.sessions_terminated)}` : "",
      event.queued ? `clients waiting: ${count(event.queued)}` : "",
    ];
    setText(came, consequences.filter(Boolean).join(" · "));
  };
  return { root, update };
}

function drawEvents(events) {
  $("timeline").hidden = events.length === 0;
  reconcile($("events"), eventViews, events.toReversed(), (event) => String(event.id), eventView);
}

// --- Asking, again and again.

let lastAnswer = null;

function headers() {
  const token = sessionStorage.getItem("token");
  return token ? { authorization: `Bearer ${token}` } : {};
}

async function refresh() {
  try {
    const response = await fetch("/api/v1/status", { headers: headers(), signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS) });
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.message);
    lastAnswer = new Date();
    document.body.classList.remove("stale");
    draw(answer);
    setText($("liveness"), "Live (refreshed every second)");
  } catch (error) {
    document.body.classList.add("stale");
    const since = lastAnswer ? `Showing data from ${lastAnswer.toLocaleTimeString()}.` : "";
    const why = error.name === "TypeError" || error.name === "TimeoutError" ? "Evenkeel is not responding." : error.message;
    setText($("liveness"), `${why} ${since}`);
  }
}

async function refreshForEver() {
  for (;;) {
    if (!document.hidden) await refresh();
    await new Promise((resolve) => setTimeout(resolve, REFRESH_MS));
  }
}

// --- Changing something.

let pending = null;

function askForChange(service, server) {
  const verb = server.state === "draining" ? "undrain" : "drain";
  const target = `${service}/${server.name}`;
  const mayChange = sessionStorage.getItem("token") !== null;
  pending = mayChange ? { verb, target } : null;
  setText($("change-title"), `${verb === "drain" ? "Drain" : "Undrain"} ${server.name}`);
  setText($("change-text"), verb === "drain"
    ? "The server receives no new clients; its sessions have until the drain limit to finish."
    : "The server receives new clients again.");
  setText($("change-command"), `evenkeel ${verb} ${shellWord(target)}`);
  setText($("change-hint"), mayChange ? "" : "To do this from here, enter the token first.");
  setText($("change-ok"), verb === "drain" ? "Drain" : "Undrain");
  $("change-ok").hidden = !mayChange;
  $("change-dialog").showModal();
}

const shellWord = (text) => (/^[\w@%+=:,./[\]-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

async function change({ verb, target }) {
  let message;
  try {
    const response = await fetch(`/api/v1/servers/${encodeURIComponent(target)}/${verb}`, {
      method: "POST", headers: { ...headers(), "content-type": "application/json" }, body: "{}",
      signal: AbortSignal.timeout(ANSWER_TIMEOUT_MS),
    });
    const reply = await response.json();
    message = reply.ok ? "" : reply.message;
  } catch {
    message = "Evenkeel is not responding.";
  }
  await refresh();
  if (message) explainFailure(message);
}

function explainFailure(message) {
  setText($("change-text"), `Failed: ${message}`);
  setText($("change-hint"), "");
  $("change-ok").hidden = true;
  pending = null;
  $("change-dialog").showModal();
}

function setUpDialogs() {
  $("change-dialog").addEventListener("close", () => {
    const wanted = $("change-dialog").returnValue === "ok" ? pending : null;
    pending = null;
    $("change-dialog").returnValue = "";
    if (wanted) change(wanted);
  });
  $("token-button").addEventListener("click", () => {
    if (sessionStorage.getItem("token") === null) $("token-dialog").showModal();
    else forgetToken();
  });
  $("token-dialog").addEventListener("close", () => {
    const token = $("token-input").value.trim();
    $("token-input").value = "";
    if ($("token-dialog").returnValue === "ok" && token) sessionStorage.setItem("token", token);
    $("token-dialog").returnValue = "";
    showTokenButton();
  });
  showTokenButton();
}

function forgetToken() {
  sessionStorage.removeItem("token");
  showTokenButton();
}

function showTokenButton() {
  setText($("token-button"), sessionStorage.getItem("token") === null ? "Token…" : "Forget token");
}

// --- Light and dark.

const THEMES = ["auto", "light", "dark"];

function setUpTheme() {
  let theme = localStorage.getItem("theme");
  const show = () => {
    if (!THEMES.includes(theme)) theme = "auto";
    document.documentElement.dataset.theme = theme;
    setText($("theme-button"), `Theme: ${theme}`);
  };
  $("theme-button").addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    localStorage.setItem("theme", theme);
    show();
  });
  show();
}

setUpTheme();
setUpDialogs();
refreshForEver();
