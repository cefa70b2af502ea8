"use strict";
// Pan, zoom, search and details for a picture that graphviz drew. Kernels are <g class="kernel">
// with ids k0, k1, ...; all that is known about them is in the JSON of the page.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const stage = document.getElementById("stage");
  const svg = stage.querySelector("svg");
  const panel = document.getElementById("panel");
  const details = document.getElementById("details");
  const search = document.getElementById("search");
  const kernels = [...svg.querySelectorAll("g.kernel")].sort((a, b) => number(a) - number(b));
  const whole = svg.viewBox.baseVal;
  const full = { x: whole.x, y: whole.y, width: whole.width, height: whole.height };
  let view = { ...full };
  let matches = [];
  let current = -1;

  function number(kernel) { return Number(kernel.id.slice(1)); }

  // ---- view: the part of the picture on screen, as an SVG viewBox

  function show(next) {
    view = next;
    svg.setAttribute("viewBox", `${view.x} ${view.y} ${view.width} ${view.height}`);
  }

  function scale() {
    const matrix = svg.getScreenCTM();
    return matrix ? matrix.a : 1;
  }

  function pointAt(clientX, clientY) {
    const matrix = svg.getScreenCTM();
    return new DOMPoint(clientX, clientY).matrixTransform(matrix.inverse());
  }

  function zoom(factor, clientX, clientY) {
    const box = stage.getBoundingClientRect();
    const at = pointAt(clientX ?? box.left + box.width / 2, clientY ?? box.top + box.height / 2);
    const width = view.width / factor;
    if (width < 60 || width > full.width * 8) return;
    show({
      x: at.x - (at.x - view.x) / factor, y: at.y - (at.y - view.y) / factor,
      width, height: view.height / factor,
    });
  }

  function move(pixelsX, pixelsY) {
    const k = scale();
    show({ ...view, x: view.x - pixelsX / k, y: view.y - pixelsY / k });
  }

  function boxOf(element) {
    // In the coordinates of the viewBox, whatever transform graphviz put in between.
    const box = element.getBBox();
    const matrix = svg.getScreenCTM().inverse().multiply(element.getScreenCTM());
    const from = new DOMPoint(box.x, box.y).matrixTransform(matrix);
    const to = new DOMPoint(box.x + box.width, box.y + box.height).matrixTransform(matrix);
    return { x: from.x, y: from.y, width: to.x - from.x, height: to.y - from.y };
  }

  function jump(element) {
    const box = boxOf(element);
    const room = stage.getBoundingClientRect();
    const wanted = Math.max(scale(), 1);
    const width = room.width / wanted, height = room.height / wanted;
    show({ x: box.x + box.width / 2 - width / 2, y: box.y + box.height / 2 - height / 2, width, height });
  }

  // ---- pointer: drag moves, wheel zooms, click selects

  let grabbed = null;
  stage.addEventListener("pointerdown", (event) => {
    if (event.button === 0) grabbed = { x: event.clientX, y: event.clientY, moved: false };
  });
  stage.addEventListener("pointermove", (event) => {
    if (!grabbed) return;
    const dx = event.clientX - grabbed.x, dy = event.clientY - grabbed.y;
    if (!grabbed.moved && Math.hypot(dx, dy) < 4) return;
    if (!grabbed.moved) stage.setPointerCapture(event.pointerId);
    stage.classList.add("dragging");
    move(dx, dy);
    grabbed = { x: event.clientX, y: event.clientY, moved: true };
  });
  for (const name of ["pointerup", "pointercancel"]) {
    stage.addEventListener(name, () => {
      stage.classList.remove("dragging");
      if (grabbed?.moved) setTimeout(() => { grabbed = null; });
      else grabbed = null;
    });
  }
  stage.addEventListener("click", (event) => {
    if (grabbed?.moved) return;
    const kernel = event.target.closest("g.kernel");
    if (kernel) return select(kernel.id);
    const entry = event.target.closest("g.entry");
    if (entry) {
      const tensor = entry.querySelector("title").textContent.replace(/^in\d+:/, "");
      if (data.producers[tensor]) return go(data.producers[tensor]);
    }
    select(null);
  });
  stage.addEventListener("wheel", (event) => {
    event.preventDefault();
    const pixels = event.deltaMode === 1 ? event.deltaY * 16 : event.deltaY;
    zoom(Math.exp(-Math.max(-200, Math.min(200, pixels)) * 0.002), event.clientX, event.clientY);
  }, { passive: false });

  // ---- details

  function make(tag, text, className) {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (className) element.className = className;
    return element;
  }

  function section(title, rows) {
    if (!rows.length) return;
    const list = make("ul");
    for (const row of rows) {
      const item = make("li");
      item.append(...[].concat(row));
      list.append(item);
    }
    details.append(make("h3", title), list);
  }

  function link(id, text) {
    const button = make("button", text, "link");
    button.type = "button";
    button.addEventListener("click", () => go(id));
    return button;
  }

  function tensorRow([name, type]) {
    const maker = data.producers[name];
    return [maker ? link(maker, name) : make("span", name), " ", make("code", type)];
  }

  function open(...content) {
    details.replaceChildren(...content);
    panel.hidden = false;
    panel.scrollTop = 0;
  }

  function showKernel(id) {
    const kernel = data.subgraphs[id];
    const line = make("p");
    line.append(make("span", kernel.kind, `badge ${kernel.kind}`), ` ${kernel.place}`);
    open(make("h2", kernel.name), line);
    if (kernel.scope) details.append(make("p", kernel.scope, "muted"));
    const symbols = kernel.symbols.length ? ` Depends on ${kernel.symbols.join(", ")}.` : "";
    section("Verdict", [[make("strong", kernel.verdict || "alone"), ` ${kernel.reason}.${symbols}`]]);
    section("Where it does not fit", kernel.fallback.map((name) => [name]));
    section(`Operators (${kernel.operators.length})`, kernel.operators.map(([op, name, onnx]) =>
      [make("code", op), ` ${name} `, make("div", onnx.length ? `from ${onnx.join(", ")}` : "", "muted")]));
    section("Reads", kernel.inputs.map(tensorRow));
    section("Writes", kernel.outputs.map(([name, type]) => [name, " ", make("code", type)]));
    section(`Constants (${kernel.constantSize})`, kernel.constants.map(([name, type]) => [name, " ", make("code", type)]));
    section("ONNX nodes", kernel.onnx.map((name) => [name]));
    section("Decisions", kernel.decisions.map((text) => [text]));
  }

  function showSummary() {
    select(null);
    open(make("h2", "Summary"));
    section("Model", data.summary.map(([key, value]) => [make("strong", key), ` ${value}`]));
    section("Kernels", Object.entries(data.subgraphs).map(([id, kernel]) =>
      [make("span", kernel.kind, `badge ${kernel.kind}`), " ", link(id, kernel.name)]));
    section(`Decisions (${data.decisions.length})`, data.decisions.map((text) => [text]));
  }

  const edges = [...svg.querySelectorAll("g.flow")].map((edge) => {
    const [from, to] = edge.querySelector("title").textContent.split("->");
    return { edge, from, to };
  });

  function select(id) {
    for (const kernel of svg.querySelectorAll(".kernel.selected")) kernel.classList.remove("selected");
    for (const { edge, from, to } of edges) edge.classList.toggle("near", id !== null && (from === id || to === id));
    if (id === null) { panel.hidden = true; return; }
    document.getElementById(id).classList.add("selected");
    showKernel(id);
    history.replaceState(null, "", `#${id}`);
  }

  function go(id) {
    select(id);
    jump(document.getElementById(id));
  }

  // ---- search: all words have to occur

  const texts = new Map(kernels.map((kernel) => {
    const known = data.subgraphs[kernel.id];
    const words = [known.name, known.kind, known.scope, known.verdict, known.reason,
      known.operators.map(([op, name, onnx]) => `${op} ${name} ${onnx.join(" ")}`).join(" "),
      [...known.inputs, ...known.outputs, ...known.constants].map(([name, type]) => `${name} ${type}`).join(" ")];
    return [kernel.id, words.join(" ").toLowerCase()];
  }));

  function find() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    matches = words.length ? kernels.filter((k) => words.every((word) => texts.get(k.id).includes(word))) : [];
    current = -1;
    svg.classList.toggle("searching", words.length > 0);
    for (const kernel of kernels) kernel.classList.toggle("match", matches.includes(kernel));
    tell(words.length);
  }

  function tell(searching) {
    const place = current < 0 ? "" : `${current + 1} of `;
    document.getElementById("matches").textContent = searching ? `${place}${matches.length} found` : "";
  }

  function step(by) {
    if (!matches.length) return;
    current = (current + by + matches.length + (current < 0 && by < 0 ? 1 : 0)) % matches.length;
    go(matches[current].id);
    tell(true);
  }

  search.addEventListener("input", find);
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
  });

  // ---- buttons and keys

  const fit = () => show({ ...full });
  const actions = {
    "zoom-in": () => zoom(1.4), "zoom-out": () => zoom(1 / 1.4), fit, summary: showSummary,
    next: () => step(1), previous: () => step(-1), close: () => { select(null); stage.focus(); },
  };
  for (const [id, action] of Object.entries(actions)) document.getElementById(id).addEventListener("click", action);
  const keys = {
    "+": actions["zoom-in"], "=": actions["zoom-in"], "-": actions["zoom-out"], 0: fit, s: showSummary,
    ArrowLeft: () => move(60, 0), ArrowRight: () => move(-60, 0),
    ArrowUp: () => move(0, 60), ArrowDown: () => move(0, -60),
    "/": () => search.focus(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      if (document.activeElement === search && search.value) { search.value = ""; find(); }
      else actions.close();
      return;
    }
    if (document.activeElement === search || panel.contains(document.activeElement)) return;
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });

  for (const kernel of kernels) {
    const known = data.subgraphs[kernel.id];
    kernel.setAttribute("tabindex", "0");
    kernel.setAttribute("role", "button");
    kernel.setAttribute("aria-label", `${known.kind} kernel ${known.name}`);
    kernel.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); select(kernel.id); }
    });
    kernel.addEventListener("focus", () => { if (kernel.matches(":focus-visible")) jump(kernel); });
  }
  svg.removeAttribute("width");
  svg.removeAttribute("height");
  for (const title of svg.querySelectorAll("g.graph > title")) title.remove();
  if (data.subgraphs[location.hash.slice(1)]) go(location.hash.slice(1));
})();
