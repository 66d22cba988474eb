/* Conversations: trees of messages, each with the branch that is shown. Every one is an item of the browser's storage, so two tabs do not
 * write over each other's. */

const PREFIX = "milkit.talk.";
const ROLES = ["user", "assistant"];

function newId() {
    return Date.now().toString(36) + Math.random().toString(36).slice(2, 8);
}

function newTalk() {
    return {id: newId(), title: "", changed: Date.now(), first: null, nodes: {}};
}

/* The messages that are shown, first to last. */
function talkPath(talk) {
    const path = [];
    for (let id = talk.first; id && talk.nodes[id]; id = talk.nodes[id].next) path.push(talk.nodes[id]);
    return path;
}

function siblings(talk, node) {
    return Object.values(talk.nodes).filter(n => n.parent === node.parent);
}

function showNode(talk, node) {
    if (node.parent) talk.nodes[node.parent].next = node.id;
    else talk.first = node.id;
}

function addNode(talk, parent, role, text) {
    const node = {id: newId(), parent: parent ? parent.id : null, next: null, role, text};
    talk.nodes[node.id] = node;
    showNode(talk, node);
    if (!talk.title && role === "user") talk.title = text.trim().replace(/\s+/g, " ").slice(0, 60);
    return node;
}

/* What came from a file or from storage, as far as it is what this page writes. NULL: nothing of it. */
function readTalk(from) {
    if (!from || typeof from !== "object" || !from.nodes || typeof from.nodes !== "object") return null;
    const talk = {id: String(from.id || newId()), title: String(from.title || ""), changed: Number(from.changed) || 0, first: null, nodes: {}};
    for (const [id, n] of Object.entries(from.nodes)) {
        if (!n || !ROLES.includes(n.role) || typeof n.text !== "string") return null;
        const node = {id, parent: n.parent == null ? null : String(n.parent), next: n.next == null ? null : String(n.next), role: n.role, text: n.text};
        if (typeof n.thought === "string") node.thought = n.thought;
        if (typeof n.thoughtSeconds === "number") node.thoughtSeconds = n.thoughtSeconds;
        if (typeof n.stats === "string") node.stats = n.stats;
        if (typeof n.model === "string") node.model = n.model;
        if (typeof n.used === "number") node.used = n.used;
        if (typeof n.error === "string") node.error = n.error;
        if (n.isStopped || n.isRunning) node.isStopped = true;
        if (Array.isArray(n.calls)) node.calls = n.calls.map(c => ({id: String(c.id), name: String(c.name), text: String(c.text)}));
        talk.nodes[id] = node;
    }
    const seen = new Set();
    for (const node of Object.values(talk.nodes)) {
        if (node.parent && !talk.nodes[node.parent]) return null;
        if (node.next && !(talk.nodes[node.next] && talk.nodes[node.next].parent === node.id)) node.next = null;
    }
    talk.first = talk.nodes[from.first] && !talk.nodes[from.first].parent ? from.first : null;
    for (let id = talk.first; id; id = talk.nodes[id].next) {
        if (seen.has(id)) return null;
        seen.add(id);
    }
    return talk;
}

function loadTalks() {
    const talks = [];
    for (let i = 0; i < localStorage.length; i++) {
        const key = localStorage.key(i);
        if (!key.startsWith(PREFIX)) continue;
        let talk = null;
        try { talk = readTalk(JSON.parse(localStorage.getItem(key))); } catch { /* not ours */ }
        if (talk) talks.push(talk);
    }
    return talks.sort((a, b) => b.changed - a.changed);
}

/* Tokens with their alternatives are too many to keep: they last until the page is left. False: there is no room. */
function saveTalk(talk) {
    const text = JSON.stringify(talk, (key, value) => key === "tokens" ? undefined : value);
    try {
        localStorage.setItem(PREFIX + talk.id, text);
        return true;
    } catch {
        return false;
    }
}

function dropTalk(talk) {
    localStorage.removeItem(PREFIX + talk.id);
}

function exportTalks(talks) {
    return JSON.stringify({milkit: 1, conversations: talks}, (key, value) => key === "tokens" ? undefined : value, 1);
}

/* Under ids of their own, beside what is there. */
function importTalks(text) {
    const list = JSON.parse(text).conversations, talks = Array.isArray(list) ? list.map(readTalk) : [];
    if (!talks.length || talks.includes(null)) throw new Error("the file has no conversations of this page");
    for (const talk of talks) talk.id = newId();
    return talks;
}

function talkAsMarkdown(talk) {
    return talkPath(talk).map(n => `**${n.role === "user" ? "You" : "Model"}**\n\n${n.text}`).join("\n\n---\n\n") + "\n";
}

/* ---- settings ---- */

function loadSettings() {
    try { return JSON.parse(localStorage.getItem("milkit.settings")) || {}; } catch { return {}; }
}

function saveSettings(settings) {
    try { localStorage.setItem("milkit.settings", JSON.stringify(settings)); } catch { /* they last as long as the page */ }
}

/* A field's text as what a request has: undefined when empty. Throws when it is none. */
function settingValue(text, kind) {
    if (!text || !text.trim()) return undefined;
    if (kind === "number") {
        const value = Number(text.trim().replace(",", "."));
        if (!Number.isFinite(value)) throw new Error("expected a number");
        return value;
    }
    if (kind === "lines") return text.split("\n").filter(l => l);
    return kind === "json" ? JSON.parse(text) : text;
}
