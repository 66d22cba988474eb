/* The page itself: what is asked, shown and kept. */

const $ = id => document.getElementById(id);
const REDRAW_MS = 50, SAVE_MS = 1000;

let talks = loadTalks(), talk = talks[0] || newTalk(), settings = loadSettings(), models = [];
let running = null; /* {node, talk, abort} */

function say(text) {
    $("status").textContent = text;
}

function keep(t) {
    t.changed = Date.now();
    if (!saveTalk(t)) say("The browser has no room for this conversation: export or delete some.");
}

/* ---- the list ---- */

function drawList() {
    const wanted = $("search").value.trim().toLowerCase();
    talks.sort((a, b) => b.changed - a.changed);
    $("list").replaceChildren(...talks.filter(t => !wanted || t.title.toLowerCase().includes(wanted) || Object.values(t.nodes).some(n => n.text.toLowerCase().includes(wanted))).map(t => {
        const title = t.title || "Conversation", item = make("li", {},
            button(title, "Open: " + title, () => open(t)),
            button("✎", "Rename: " + title, () => rename(t)),
            button("⤓", "Export as Markdown: " + title, () => download(talkAsMarkdown(t), "conversation.md", "text/markdown")),
            button("✕", "Delete: " + title, () => remove(t)));
        if (t === talk) {
            item.setAttribute("data-current", "");
            item.firstChild.setAttribute("aria-current", "true");
        }
        return item;
    }));
}

function open(t) {
    talk = t;
    showSide(false);
    drawList();
    drawTalk();
    $("input").focus();
}

function rename(t) {
    const title = prompt("Title", t.title);
    if (title === null) return;
    t.title = title.slice(0, 200);
    keep(t);
    drawList();
}

function remove(t) {
    if (!confirm(`Delete "${t.title}"?`)) return;
    if (running && running.talk === t) running.abort.abort();
    dropTalk(t);
    talks = talks.filter(other => other !== t);
    if (t === talk) open(talks[0] || newTalk());
    else drawList();
}

function download(text, name, type) {
    const a = make("a", {href: URL.createObjectURL(new Blob([text], {type})), download: name});
    a.click();
    setTimeout(() => URL.revokeObjectURL(a.href), 1000);
}

function showSide(shows) {
    $("side").toggleAttribute("data-open", shows);
    $("menu").setAttribute("aria-expanded", shows);
}

/* ---- the conversation ---- */

const actions = {
    announce: say,
    async copy(text) {
        await copyText(text);
        say("Copied.");
    },
    choose(node) {
        showNode(talk, node);
        keep(talk);
        drawTalk();
    },
    regenerate(node) {
        if (!running) answer(talk.nodes[node.parent]);
    },
    edit(node, element) {
        const area = make("textarea", {className: "edit", value: node.text, rows: Math.min(12, node.text.split("\n").length + 1), "aria-label": "Edit the message"});
        const send = () => {
            if (running || !area.value.trim()) return;
            const parent = node.parent ? talk.nodes[node.parent] : null;
            answer(addNode(talk, parent, "user", area.value));
        };
        area.onkeydown = e => {
            if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
                e.preventDefault();
                send();
            } else if (e.key === "Escape") {
                e.stopPropagation();
                drawTalk();
            }
        };
        element.querySelector(".body").replaceChildren(area);
        element.querySelector(".tools").replaceChildren(button("Send", "Send the edited message", send), button("Cancel", "Leave the message as it was", drawTalk));
        area.focus();
    },
};

function isAtEnd() {
    const log = $("log");
    return log.scrollHeight - log.scrollTop - log.clientHeight < 60;
}

function toEnd() {
    $("log").scrollTop = $("log").scrollHeight;
}

function drawContext() {
    const last = talkPath(talk).filter(n => n.used).pop(), used = last ? last.used : 0, model = models.find(m => m.id === $("model").value), most = model && model.meta ? model.meta.n_ctx : 0;
    $("context").max = most || 1;
    $("context").value = used;
    $("context-text").textContent = most ? `${used}/${most}` : "–";
    return used;
}

function drawTalk() {
    const path = talkPath(talk);
    hideTip();
    if (path.length) $("log").replaceChildren(...path.map(n => nodeView(n, siblings(talk, n), actions)));
    else $("log").replaceChildren(make("p", {className: "empty"}, "Ask the model something. The conversation stays in this browser."));
    $("send").hidden = !!running;
    $("stop").hidden = !running;
    drawContext();
    toEnd();
}

function redrawNode(node) {
    const element = $("log").querySelector(`article[data-id="${CSS.escape(node.id)}"]`), follows = isAtEnd();
    if (!element) return;
    drawNode(element, node, actions);
    if (follows) toEnd();
}

/* An answer to the message, as a branch behind it. */
async function answer(question) {
    const own = talk, node = addNode(own, question, "assistant", ""), abort = new AbortController();
    let drawn = 0, saved = performance.now(), timer = 0;
    node.model = $("model").value;
    node.isRunning = true;
    running = {node, talk: own, abort};
    if (!talks.includes(own)) talks.push(own);
    keep(own);
    drawList();
    drawTalk();
    say("Waiting for the answer …");
    const draw = () => {
        timer = 0;
        drawn = performance.now();
        redrawNode(node);
        const p = node.progress;
        say(node.text || node.thought ? "Answering …" : p && p.processed < p.total ? `Reading the prompt: ${p.processed} of ${p.total} tokens` : "Waiting for the answer …");
        if (drawn - saved > SAVE_MS) {
            saved = drawn;
            keep(own);
        }
    };
    const path = talkPath(own).slice(0, -1);
    try {
        await streamAnswer(node.model, path, settings, node, abort.signal, () => {
            if (!timer) timer = setTimeout(draw, Math.max(0, REDRAW_MS - (performance.now() - drawn)));
        });
        say("The answer is complete.");
    } catch (e) {
        if (abort.signal.aborted) {
            node.isStopped = true;
            say("Stopped.");
        } else {
            node.error = e instanceof Refusal ? e.message : e instanceof SyntaxError ? "a setting or an answer is not JSON: " + e.message : "the server can't be reached: " + e.message;
            say("There was an error.");
            if (e.status === 401) askKey();
        }
    }
    clearTimeout(timer);
    delete node.isRunning;
    delete node.progress;
    running = null;
    keep(own);
    drawList();
    if (own !== talk) {
        $("send").hidden = false;
        $("stop").hidden = true;
        return;
    }
    redrawNode(node);
    const follows = isAtEnd();
    for (const n of talkPath(own)) {
        const element = $("log").querySelector(`article[data-id="${CSS.escape(n.id)}"]`);
        if (element && n === node) fillTools(element, n, siblings(own, n), actions);
    }
    $("send").hidden = false;
    $("stop").hidden = true;
    drawContext();
    if (follows) toEnd();
}

function send() {
    const text = $("input").value, last = talkPath(talk).pop();
    if (running || !text.trim()) return;
    $("input").value = "";
    grow();
    answer(addNode(talk, last, "user", text));
}

function stop() {
    if (running) running.abort.abort();
}

function grow() {
    $("input").style.height = "auto";
    $("input").style.height = $("input").scrollHeight + 2 + "px";
}

/* ---- models, keys, settings ---- */

async function loadModels() {
    try {
        models = (await getJson("v1/models")).data;
        const before = localStorage.getItem("milkit.model");
        $("model").replaceChildren(...models.map(m => make("option", {value: m.id}, m.id)));
        if (models.some(m => m.id === before)) $("model").value = before;
        drawTalk();
    } catch (e) {
        if (e.status === 401) askKey();
        else say("The server can't be reached: " + e.message);
    }
}

function askKey() {
    if (!$("ask-key").open) $("ask-key").showModal();
    $("key").value = "";
    $("key").focus();
}

function saveKey() {
    if (!$("key").value) return;
    sessionStorage.setItem("milkit.key", $("key").value);
    $("ask-key").close();
    loadModels();
}

async function showModel() {
    const used = drawContext();
    $("about-body").replaceChildren(make("p", {}, "…"));
    $("about").showModal();
    try {
        $("about-body").replaceChildren(...modelView(await getJson("package?model=" + encodeURIComponent($("model").value)), used));
    } catch (e) {
        $("about-body").replaceChildren(make("p", {className: "error"}, e.message));
    }
}

function fillSettings() {
    for (const field of document.querySelectorAll("[data-setting]")) {
        field.value = settings[field.dataset.setting] || "";
        field.removeAttribute("aria-invalid");
    }
}

function takeSetting(field) {
    let isGood = true;
    try { settingValue(field.value, field.dataset.kind); } catch { isGood = false; }
    if (isGood) field.removeAttribute("aria-invalid");
    else field.setAttribute("aria-invalid", "true");
    if (!isGood) return;
    if (field.value) settings[field.dataset.setting] = field.value;
    else delete settings[field.dataset.setting];
    saveSettings(settings);
}

const THEMES = ["auto", "light", "dark"];
function setTheme(theme) {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    $("theme").textContent = "Theme: " + theme;
    localStorage.setItem("milkit.theme", theme);
}

/* ---- events ---- */

$("send").onclick = send;
$("stop").onclick = stop;
$("new").onclick = () => open(newTalk());
$("search").oninput = drawList;
$("menu").onclick = () => showSide(!$("side").hasAttribute("data-open"));
$("close-side").onclick = () => showSide(false);
$("export").onclick = () => download(exportTalks(talks), "conversations.json", "application/json");
$("import").onclick = () => $("file").click();
$("file").onchange = async () => {
    try {
        const more = importTalks(await $("file").files[0].text());
        for (const t of more) saveTalk(t);
        talks = talks.concat(more);
        open(more[0]);
        say(`${more.length} conversations imported.`);
    } catch (e) {
        say("Not imported: " + e.message);
    }
    $("file").value = "";
};
$("delete-all").onclick = () => {
    if (!confirm("Delete all conversations of this browser?")) return;
    stop();
    talks.forEach(dropTalk);
    talks = [];
    open(newTalk());
};
$("model").onchange = () => {
    localStorage.setItem("milkit.model", $("model").value);
    drawTalk();
};
$("show-model").onclick = showModel;
$("show-settings").onclick = () => {
    fillSettings();
    $("settings").showModal();
};
$("settings").addEventListener("input", e => { if (e.target.dataset.setting) takeSetting(e.target); });
$("reset-settings").onclick = () => {
    settings = {};
    saveSettings(settings);
    fillSettings();
};
$("save-key").onclick = saveKey;
$("key").onkeydown = e => { if (e.key === "Enter") saveKey(); };
for (const b of document.querySelectorAll("[data-close]")) b.onclick = () => b.closest("dialog").close();
$("theme").onclick = () => setTheme(THEMES[(THEMES.indexOf(localStorage.getItem("milkit.theme") || "auto") + 1) % THEMES.length]);
$("input").oninput = grow;
$("input").onkeydown = e => {
    if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
        e.preventDefault();
        send();
    } else if (e.key === "ArrowUp" && !$("input").value && !running) {
        const last = talkPath(talk).filter(n => n.role === "user").pop();
        if (!last) return;
        e.preventDefault();
        actions.edit(last, $("log").querySelector(`article[data-id="${CSS.escape(last.id)}"]`));
    }
};
document.addEventListener("keydown", e => {
    if (e.key !== "Escape" || document.querySelector("dialog[open]")) return;
    if ($("side").hasAttribute("data-open")) showSide(false);
    else stop();
});
document.addEventListener("click", async e => {
    const copy = e.target.closest && e.target.closest("[data-copy]");
    if (copy) await actions.copy(copy.closest(".code").querySelector("code").textContent);
});
/* another tab wrote: its conversations come into the list, this one stays while it is answered */
addEventListener("storage", e => {
    if (!e.key || !e.key.startsWith(PREFIX) || running) return;
    talks = loadTalks();
    talk = talks.find(t => t.id === talk.id) || newTalk();
    drawList();
    drawTalk();
});
addEventListener("pagehide", () => { if (running) keep(running.talk); });

setTheme(localStorage.getItem("milkit.theme") || "auto");
drawList();
drawTalk();
loadModels();
$("input").focus();
