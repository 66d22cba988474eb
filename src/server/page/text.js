/* Text of models, always as nodes: nothing that they write is ever read as HTML. All of it takes time in proportion to the text. */

function make(tag, properties, ...children) {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(properties || {})) {
        if (key.startsWith("aria-") || key.startsWith("data-") || key === "role") element.setAttribute(key, value);
        else element[key] = value;
    }
    element.append(...children);
    return element;
}

/* ---- words within a line ---- */

const INLINE_DEPTH_MAX = 6;

/* Only what a reader may follow safely is a link. */
function link(text, address) {
    let url;
    try { url = new URL(address); } catch { return null; }
    if (!["http:", "https:", "mailto:"].includes(url.protocol)) return null;
    return make("a", {href: url.href, title: url.href, rel: "noopener noreferrer nofollow", target: "_blank"}, text);
}

const MARKS = [["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];

function inline(parent, text, depth = 0) {
    const missing = new Set(); /* marks that do not come again */
    const find = (mark, from) => {
        if (missing.has(mark)) return -1;
        const at = text.indexOf(mark, from);
        if (at < 0) missing.add(mark);
        return at;
    };
    const address = /https?:\/\/[^\s<>"')\]]{1,2000}/y, named = /\[([^\[\]\n]{1,500})\]\(([^()\s]{1,2000})\)/y, ticks = /`+/y;
    let plain = "";
    const flush = () => { if (plain) parent.append(plain); plain = ""; };
    const put = (node, end) => { flush(); parent.append(node); return end; };
    for (let at = 0; at < text.length;) {
        const c = text[at];
        if (c === "\\" && /[!-\/:-@\[-`{-~]/.test(text[at + 1] || "")) {
            plain += text[at + 1];
            at += 2;
            continue;
        }
        if (c === "`") {
            ticks.lastIndex = at;
            const mark = ticks.exec(text)[0], end = find(mark, at + mark.length);
            if (end >= 0) {
                at = put(make("code", {}, text.slice(at + mark.length, end).replace(/^ (.*) $/, "$1")), end + mark.length);
            } else {
                plain += mark;
                at += mark.length;
            }
            continue;
        }
        if (c === "h") {
            address.lastIndex = at;
            const found = address.exec(text);
            let whole = found ? found[0] : "";
            while (whole && ".,;:!?".includes(whole[whole.length - 1])) whole = whole.slice(0, -1);
            const node = whole && link(whole, whole);
            if (node) {
                at = put(node, at + whole.length);
                continue;
            }
        }
        if (c === "[") {
            named.lastIndex = at;
            const found = named.exec(text), node = found && link(found[1], found[2]);
            if (node) {
                at = put(node, at + found[0].length);
                continue;
            }
        }
        const mark = depth < INLINE_DEPTH_MAX && MARKS.find(m => text.startsWith(m[0], at));
        if (mark) {
            const from = at + mark[0].length, isWord = mark[0][0] === "_" && /\w/.test(text[at - 1] || "");
            const end = isWord || /^\s|^$/.test(text[from] || "") ? -1 : find(mark[0], from + 1);
            if (end > 0 && !/\s/.test(text[end - 1])) {
                const node = make(mark[1]);
                inline(node, text.slice(from, end), depth + 1);
                at = put(node, end + mark[0].length);
                continue;
            }
            plain += mark[0];
            at = from;
            continue;
        }
        plain += c;
        at++;
    }
    flush();
}

/* ---- code ---- */

const KEYWORDS = new Set(("abstract and as assert async await auto begin bool boolean break byte case catch char class const constexpr continue def default del delete do done double elif else elsif end enum except export extends extern " +
    "false False fi final finally float fn for foreach from func function global go goto if impl implements import in inline int integer interface is lambda let local long loop match mod module mut namespace new nil None nonlocal not null or " +
    "package pass private protected public pub raise ref repeat return self short signed sizeof static str string struct super switch template then this throw trait true True try type typedef typeof union unsigned until use using var virtual void " +
    "volatile when where while with yield SELECT FROM WHERE INSERT INTO VALUES UPDATE SET DELETE CREATE TABLE JOIN ON AND OR NOT NULL ORDER BY GROUP LIMIT AS select insert update create table join order group").split(" "));
const CODE_BYTES_MAX = 200000;

function highlight(parent, text, language) {
    const comment = /^(py|python|sh|bash|zsh|yaml|yml|ruby|rb|perl|pl|r|toml|make|makefile|dockerfile|cmake)$/i.test(language) ? "#[^\\n]*"
        : /^(sql|lua|haskell|hs)$/i.test(language) ? "--[^\\n]*" : "\\/\\/[^\\n]*|\\/\\*[\\s\\S]*?(?:\\*\\/|$)";
    const parts = new RegExp("(" + comment + ")|(\"\"\"[\\s\\S]*?(?:\"\"\"|$)|\"(?:\\\\.|[^\"\\\\\\n])*\"?|'(?:\\\\.|[^'\\\\\\n])*'?|`(?:\\\\.|[^`\\\\])*`?)|\\b(\\d[\\w.]*)|([A-Za-z_]\\w*)", "g");
    if (text.length > CODE_BYTES_MAX) {
        parent.append(text);
        return;
    }
    let plain = "", last = 0;
    for (const m of text.matchAll(parts)) {
        const kind = m[1] ? "c" : m[2] ? "s" : m[3] ? "n" : KEYWORDS.has(m[4]) ? "w" : "";
        plain += text.slice(last, m.index);
        last = m.index + m[0].length;
        if (!kind) {
            plain += m[0];
            continue;
        }
        if (plain) parent.append(plain);
        plain = "";
        parent.append(make("span", {className: kind}, m[0]));
    }
    parent.append(plain + text.slice(last));
}

function codeBlock(text, language) {
    const code = make("code");
    highlight(code, text, language);
    return make("div", {className: "code"},
        make("div", {}, make("span", {}, language || "text"), make("button", {"data-copy": "code", "aria-label": "Copy the code"}, "Copy")),
        make("pre", {tabIndex: 0}, code));
}

/* ---- blocks ---- */

const ITEM = /^( *)([-*+]|\d{1,9}[.)]) +/;

function isTableRule(line) {
    return line.includes("|") && line.includes("-") && /^[\s|:-]+$/.test(line);
}

/* The lines of a text as blocks: [kind, lines, ...]. */
function blocks(text) {
    const lines = text.split("\n"), out = [];
    for (let i = 0; i < lines.length;) {
        const line = lines[i], fence = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]*)/.exec(line), from = i;
        if (!line.trim()) {
            i++;
        } else if (fence) {
            const end = new RegExp("^ {0,3}" + fence[1][0] + "{" + fence[1].length + ",}\\s*$");
            for (i++; i < lines.length && !end.test(lines[i]);) i++;
            out.push(["code", lines.slice(from + 1, i), fence[2]]);
            i++;
        } else if (/^ {0,3}#{1,6} /.test(line)) {
            out.push(["heading", [line.replace(/^ *#+ /, "").trim()], /#+/.exec(line)[0].length]);
            i++;
        } else if (/^ {0,3}([-*_])( *\1){2,} *$/.test(line)) {
            out.push(["rule", [line]]);
            i++;
        } else if (/^ {0,3}>/.test(line)) {
            while (i < lines.length && /^ {0,3}>/.test(lines[i])) i++;
            out.push(["quote", lines.slice(from, i).map(l => l.replace(/^ {0,3}> ?/, ""))]);
        } else if (ITEM.test(line)) {
            while (i < lines.length && (ITEM.test(lines[i]) || (/^\s+\S/.test(lines[i]) && lines[i].trim()) || (!lines[i].trim() && /^\s+\S|^[-*+] |^\d+[.)] /.test(lines[i + 1] || "")))) i++;
            out.push(["list", lines.slice(from, i)]);
        } else if (line.includes("|") && isTableRule(lines[i + 1] || "")) {
            while (i < lines.length && lines[i].includes("|")) i++;
            out.push(["table", lines.slice(from, i)]);
        } else {
            while (i < lines.length && lines[i].trim() && !(i > from && (/^ {0,3}(`{3,}|~{3,}|#{1,6} |>)/.test(lines[i]) || ITEM.test(lines[i])))) i++;
            out.push(["paragraph", lines.slice(from, i)]);
        }
    }
    return out;
}

function list(lines) {
    const first = ITEM.exec(lines[0]), indent = first[1].length, isNumbered = /\d/.test(first[2]);
    const element = make(isNumbered ? "ol" : "ul");
    if (isNumbered) element.start = parseInt(first[2], 10);
    for (let i = 0; i < lines.length;) {
        const head = ITEM.exec(lines[i]), own = [lines[i].slice(head ? head[0].length : 0)];
        for (i++; i < lines.length && !(ITEM.test(lines[i]) && ITEM.exec(lines[i])[1].length <= indent);) own.push(lines[i++]);
        const item = make("li"), width = head ? head[0].length : 0;
        const inner = own.map((l, k) => k ? l.replace(new RegExp("^ {0," + width + "}"), "") : l);
        if (inner.length === 1 || inner.slice(1).every(l => !l.trim())) inline(item, inner[0]);
        else for (const b of blocks(inner.join("\n"))) item.append(b[0] === "paragraph" ? paragraph(b[1], "span") : block(b));
        element.append(item);
    }
    return element;
}

function paragraph(lines, tag) {
    const element = make(tag);
    lines.forEach((line, i) => {
        if (i) element.append(make("br"));
        inline(element, line.trim());
    });
    return element;
}

function table(lines) {
    const cells = line => line.trim().replace(/^\||\|$/g, "").split("|");
    const element = make("table"), n = cells(lines[0]).length;
    lines.forEach((line, i) => {
        if (i === 1) return;
        const row = make("tr");
        cells(line).slice(0, n).forEach(text => {
            const cell = make(i ? "td" : "th");
            inline(cell, text.trim());
            row.append(cell);
        });
        element.append(row);
    });
    return make("div", {className: "table", tabIndex: 0}, element);
}

let nested = 0;
function block([kind, lines, more]) {
    if (kind === "code") return codeBlock(lines.join("\n"), more);
    if (kind === "rule") return make("hr");
    if (kind === "table") return table(lines);
    if (kind === "heading") {
        const element = make("h" + Math.min(more + 2, 6));
        inline(element, lines[0]);
        return element;
    }
    if (nested > INLINE_DEPTH_MAX || kind === "paragraph") return paragraph(lines, "p");
    nested++;
    const element = kind === "list" ? list(lines) : make("blockquote", {}, ...blocks(lines.join("\n")).map(block));
    nested--;
    return element;
}

/* Draws a text that grows: blocks that are as they were stay. */
function drawMarkdown(parent, text) {
    const now = blocks(text), sources = now.map(b => JSON.stringify(b)), before = parent.sources || [];
    let same = 0;
    while (same < before.length && same < sources.length && before[same] === sources[same]) same++;
    while (parent.childNodes.length > same) parent.lastChild.remove();
    for (const b of now.slice(same)) parent.append(block(b));
    parent.sources = sources;
}
