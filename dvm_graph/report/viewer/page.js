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
  let full = { x: whole.x, y: whole.y, width: whole.width, height: whole.height };
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
    const block = blocks.find((b) => b.box && (b.summary.contains(event.target) || b.frame.contains(event.target)));
    if (block) return toggle([block]);
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

  // ---- blocks: columns, each of which folds to a small box; those that are shown fill rows anew

  const SVG = "http://www.w3.org/2000/svg";
  const FOLD = { width: 190, height: 58 };
  const MANY = 40;
  const graph = svg.querySelector("g.graph");
  graph.querySelector(":scope > polygon")?.remove(); // the background, as large as the picture was

  function shape(tag, attributes, text) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    return element;
  }

  const blocks = data.blocks.map((block) => {
    const all = [...svg.querySelectorAll(`.${block.class}`)];
    const frame = all.find((part) => part.matches(".frame.column"));
    if (!frame) return { ...block, parts: all, box: null, folded: false };
    const summary = shape("g", { class: "fold folded", tabindex: 0, role: "button", "aria-label": `Unfold ${block.title}` });
    summary.append(shape("rect", { ...FOLD, rx: 8 }), shape("text", { x: 10, y: 20 }, block.title),
      shape("text", { x: 10, y: 35 }, `${block.kernels} kernel${block.kernels > 1 ? "s" : ""}${block.like ? `, like ${block.like}` : ""}`),
      shape("text", { x: 10, y: 49 }, block.time));
    graph.append(summary);
    return { ...block, parts: all, frame, summary, box: frame.getBBox(), folded: false };
  });
  const framed = blocks.filter((block) => block.box);
  const [columnGap, rowGap] = data.gaps;
  const widest = Math.max(0, ...framed.map((block) => block.box.x + block.box.width)) -
    Math.min(0, ...framed.map((block) => block.box.x)) + 1;

  const links = [...svg.querySelectorAll("g.between")].map((edge) => {
    const [from, to] = ["from", "to"].map((end) => Number(edge.getAttribute("class").match(`\\b${end}(\\d+)`)[1]));
    const numbers = edge.querySelector("path").getAttribute("d").match(/-?[\d.]+/g).map(Number);
    return { edge, from: blocks[from], to: blocks[to], start: numbers.slice(0, 2), end: numbers.slice(-2) };
  });

  function arrange() {
    const left = Math.min(...framed.map((block) => block.box.x));
    let x = left, y = Math.min(...framed.map((block) => block.box.y)), tallest = 0, row = 0;
    for (const block of framed) {
      const { width, height } = block.folded ? FOLD : block.box;
      if (x > left && x + width - left > widest) {
        y += tallest + rowGap;
        x = left; tallest = 0; row += 1;
      }
      Object.assign(block, { x, y, width, height, row });
      const place = `translate(${x - block.box.x} ${y - block.box.y})`;
      for (const part of block.parts) {
        part.setAttribute("transform", place);
        part.classList.toggle("folded", block.folded);
      }
      block.summary.setAttribute("transform", `translate(${x} ${y})`);
      block.summary.classList.toggle("folded", !block.folded);
      x += width + columnGap;
      tallest = Math.max(tallest, height);
    }
    links.forEach(draw);
    const box = graph.getBBox(), matrix = graph.transform.baseVal.consolidate()?.matrix ?? new DOMMatrix();
    const corner = new DOMPoint(box.x, box.y).matrixTransform(matrix);
    const zoomed = matrix.a || 1;
    full = { x: corner.x - 10, y: corner.y - 10, width: box.width * zoomed + 20, height: box.height * zoomed + 20 };
  }

  // A line out of the right side of a box, along the gap, into the left of another.
  function draw({ edge, from, to, start, end }) {
    edge.classList.toggle("folded", from.row !== to.row);
    const [x0, y0] = from.folded ? [from.x + from.width, from.y + from.height / 2]
      : [start[0] + from.x - from.box.x, start[1] + from.y - from.box.y];
    const [x3, y3] = to.folded ? [to.x - 6, to.y + to.height / 2]
      : [end[0] + to.x - to.box.x, end[1] + to.y - to.box.y];
    const gap = from.x + from.width + columnGap / 2, middle = (y0 + y3) / 2;
    edge.querySelector("path").setAttribute("d",
      `M${x0},${y0}C${gap},${y0} ${gap},${y0} ${gap},${middle} ${gap},${y3} ${gap},${y3} ${x3},${y3}`);
    edge.querySelector("polygon").setAttribute("points", `${x3},${y3 - 3} ${x3 + 6},${y3} ${x3},${y3 + 3}`);
  }

  function toggle(some, folded) {
    for (const block of some) block.folded = folded ?? !block.folded;
    arrange();
  }

  function foldAll() {
    toggle(framed, !framed.every((block) => block.folded));
    show({ ...full });
  }

  for (const block of framed) {
    block.summary.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle([block]); }
    });
  }

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
    if (kernel.time) details.append(make("p", `${kernel.time} of the run`));
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
    const block = blocks.find((b) => b.folded && b.parts.some((part) => part.id === id));
    if (block) toggle([block]);
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
    "zoom-in": () => zoom(1.4), "zoom-out": () => zoom(1 / 1.4), fit, fold: foldAll, summary: showSummary,
    next: () => step(1), previous: () => step(-1), close: () => { select(null); stage.focus(); },
  };
  for (const [id, action] of Object.entries(actions)) document.getElementById(id).addEventListener("click", action);
  const keys = {
    "+": actions["zoom-in"], "=": actions["zoom-in"], "-": actions["zoom-out"], 0: fit, s: showSummary, f: foldAll,
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
  // Layers that repeat an earlier one are folded where there is much to look at.
  if (kernels.length > MANY && framed.length) {
    toggle(framed.filter((block) => block.like), true);
    show({ ...full });
  }
  svg.removeAttribute("width");
  svg.removeAttribute("height");
  for (const title of svg.querySelectorAll("g.graph > title")) title.remove();
  if (data.subgraphs[location.hash.slice(1)]) go(location.hash.slice(1));
})();
