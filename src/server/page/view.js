/* Messages on the page. `actions` are what their buttons do: edit, regenerate, choose, copy, announce. */

function button(text, label, click) {
    return make("button", {type: "button", "aria-label": label, onclick: click}, text);
}

async function copyText(text) {
    try {
        await navigator.clipboard.writeText(text);
    } catch { /* pages that did not come over a safe connection have no clipboard */
        const area = make("textarea", {value: text, className: "skip"});
        document.body.append(area);
        area.select();
        document.execCommand("copy");
        area.remove();
    }
}

/* ---- tokens: how likely each was, and what else could have come ---- */

function likeness(p) {
    return p >= 0.9 ? "" : p >= 0.5 ? "p1" : p >= 0.15 ? "p2" : "p3";
}

function percent(p) {
    return p >= 0.0995 ? (p * 100).toFixed(0) + " %" : p >= 0.0001 ? (p * 100).toFixed(2) + " %" : "under 0.01 %";
}

function shown(text) {
    return text === "" ? "∅" : text.replace(/\n/g, "⏎").replace(/^ | $/g, "␣");
}

function showTip(token, span, announce) {
    const tip = document.getElementById("tip"), rows = token.others.map(o => ({...o, taken: o.text === token.text}));
    if (!rows.some(r => r.taken)) rows.push({text: token.text, p: token.p, taken: true});
    const body = make("table");
    for (const r of rows) body.append(make("tr", {className: r.taken ? "taken" : ""}, make("td", {}, shown(r.text)), make("td", {}, percent(r.p))));
    tip.replaceChildren(body);
    tip.hidden = false;
    const at = span.getClientRects()[0] || span.getBoundingClientRect(), box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(at.left, innerWidth - box.width - 4)) + "px";
    tip.style.top = (at.bottom + box.height + 6 < innerHeight ? at.bottom + 4 : Math.max(4, at.top - box.height - 4)) + "px";
    if (announce) announce(rows.map(r => `${shown(r.text)} ${percent(r.p)}`).join(", "));
}

function hideTip() {
    document.getElementById("tip").hidden = true;
}

function tokenView(node, announce) {
    const view = make("div", {className: "tokens", tabIndex: 0, role: "group", "aria-label": "Tokens of the answer: arrows go from one to the next"});
    let current = -1;
    const draw = () => {
        while (view.childNodes.length < (node.tokens || []).length) {
            const t = node.tokens[view.childNodes.length];
            view.append(make("span", {className: likeness(t.p)}, t.text));
        }
    };
    const choose = (i, tells) => {
        const span = view.childNodes[i];
        if (!span) return;
        if (view.childNodes[current]) view.childNodes[current].classList.remove("on");
        current = i;
        span.classList.add("on");
        showTip(node.tokens[i], span, tells ? announce : null);
    };
    const index = target => Array.prototype.indexOf.call(view.childNodes, target);
    view.onmouseover = e => { if (e.target !== view) choose(index(e.target), false); };
    view.onmouseleave = view.onblur = () => {
        if (view.childNodes[current]) view.childNodes[current].classList.remove("on");
        hideTip();
    };
    view.onkeydown = e => {
        const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[e.key];
        if (!step) return;
        e.preventDefault();
        choose(Math.max(0, Math.min(view.childNodes.length - 1, current + step)), true);
    };
    view.draw = draw;
    draw();
    return view;
}

/* ---- a message ---- */

function callView(call) {
    let text = call.text;
    try { text = JSON.stringify(JSON.parse(text), null, 2); } catch { /* not all of it has come */ }
    const code = make("code");
    highlight(code, text, "json");
    return make("div", {className: "call"}, make("b", {}, "calls " + (call.name || "…")), make("pre", {tabIndex: 0}, code));
}

function fillTools(element, node, siblings, actions) {
    const tools = element.querySelector(".tools"), i = siblings.indexOf(node);
    tools.replaceChildren();
    if (siblings.length > 1)
        tools.append(make("span", {className: "branches"}, button("‹", "Earlier version", () => actions.choose(siblings[(i + siblings.length - 1) % siblings.length])),
            make("span", {className: "stats"}, `${i + 1}/${siblings.length}`), button("›", "Later version", () => actions.choose(siblings[(i + 1) % siblings.length]))));
    tools.append(button("Copy", "Copy the message", () => actions.copy(node.text)));
    if (node.role === "user") {
        tools.append(button("Edit", "Edit the message", () => actions.edit(node, element)));
    } else if (!node.isRunning) {
        tools.append(button(node.error ? "Retry" : "Again", node.error ? "Ask again" : "Another answer", () => actions.regenerate(node)));
        if (node.tokens) {
            const toggle = button("Tokens", "Tokens and their alternatives", () => {
                element.showsTokens = !element.showsTokens;
                toggle.setAttribute("aria-pressed", element.showsTokens);
                drawNode(element, node, actions);
            });
            toggle.setAttribute("aria-pressed", !!element.showsTokens);
            tools.append(toggle);
        }
    }
    tools.append(make("span", {className: "stats"}, node.stats || (node.isStopped ? "stopped" : "")));
}

function nodeView(node, siblings, actions) {
    const isUser = node.role === "user";
    const element = make("article", {"data-role": node.role, "data-id": node.id, "aria-label": isUser ? "You" : "Answer"},
        make("header", {}, isUser ? "You" : node.model || "Answer"));
    if (!isUser) {
        const thought = make("details", {className: "thought", hidden: true}, make("summary"), make("div"));
        thought.ontoggle = () => drawThought(element, node);
        element.append(thought);
    }
    element.append(make("div", {className: "body", dir: "auto"}));
    if (!isUser) element.append(make("div", {className: "calls"}), make("p", {className: "error", role: "alert", hidden: true}));
    element.append(make("div", {className: "tools"}));
    drawNode(element, node, actions);
    fillTools(element, node, siblings, actions);
    return element;
}

function drawThought(element, node) {
    const thought = element.querySelector(".thought");
    if (!thought) return;
    thought.hidden = !node.thought;
    const seconds = node.thoughtSeconds;
    thought.querySelector("summary").textContent = seconds !== undefined ? `Thought for ${seconds.toFixed(1)} s` : node.isRunning ? "Thinking …" : "Thought";
    if (thought.open) thought.lastChild.textContent = node.thought || "";
}

function drawNode(element, node, actions) {
    const body = element.querySelector(".body"), error = element.querySelector(".error");
    if (node.role === "user") {
        body.textContent = node.text;
        return;
    }
    element.setAttribute("aria-busy", !!node.isRunning);
    drawThought(element, node);
    if (element.showsTokens) {
        const view = body.firstChild && body.firstChild.draw ? body.firstChild : tokenView(node, actions.announce);
        if (view.parentNode) view.draw();
        else body.replaceChildren(view);
        body.sources = null;
    } else {
        if (!body.sources) body.replaceChildren();
        drawMarkdown(body, node.text);
    }
    body.classList.toggle("busy", !!node.isRunning);
    element.querySelector(".calls").replaceChildren(...(node.calls || []).map(callView));
    error.hidden = !node.error;
    error.textContent = node.error || "";
}

/* ---- the model's view ---- */

function bytesText(n) {
    return n >= 1e9 ? (n / 1e9).toFixed(2) + " GB" : n >= 1e6 ? (n / 1e6).toFixed(1) + " MB" : (n / 1e3).toFixed(1) + " kB";
}

function facts(rows) {
    const element = make("dl");
    for (const [name, value] of rows) if (value !== undefined && value !== null) element.append(make("dt", {}, name), make("dd", {}, String(value)));
    return element;
}

function grid(label, heads, rows) {
    const element = make("table", {"aria-label": label}, make("tr", {}, ...heads.map(h => make("th", {}, h))));
    for (const r of rows) element.append(make("tr", {}, ...r.map(c => make("td", {}, String(c)))));
    return make("div", {className: "table", tabIndex: 0}, element);
}

function modelView(p, used) {
    const bar = make("meter", {min: 0, max: p.context_length, value: used, "aria-label": "Context in use"});
    return [
        facts([["Package", p.name], ["Served as", p.id], ["Architecture", p.architecture], ["Layers", p.num_layers], ["Width", p.hidden_size], ["Vocabulary", p.vocab_size],
            ["Batch of prompts", p.batch_size], ["Answers at once", p.slots], ["Memory of states", bytesText(p.state_bytes) + " for each answer"],
            ["Prompts", p.sequential ? "in order only: states are recurrent or windows" : "can be cut back anywhere"]]),
        make("p", {}, `Context: ${used} of ${p.context_length} tokens `, bar),
        make("h3", {}, "Weights"),
        grid("Weights", ["Model", "Functions", "Widths", "Bytes"], p.models.map(m => [m.path, m.functions.join(", "), m.widths.map(w => w.dtype + " " + bytesText(w.bytes)).join(", "), bytesText(m.bytes)])),
        make("h3", {}, "States"),
        p.states.length ? grid("States", ["Name", "Type", "Bytes"], p.states.map(s => [s.name, s.type, bytesText(s.bytes)])) : make("p", {}, "none"),
    ];
}
