"""The server's page in Debian's Chromium: a conversation streamed, stopped, regenerated, edited, reloaded; what models write stays text; labels,
contrast, keyboard, narrow screens; no request leaves the server, and the console stays empty.

    apt-get install chromium; pip install playwright
    MILKIT=build/ci/milkit python3 tests/oracle/serve_page.py PACKAGE [--shots FOLDER]     # PACKAGE: tests/data/models/qwen3-tiny with -c 4096

Prints a JSON object with the number of checks. --shots writes page-light.png, page-dark.png and page-360.png of a conversation with the package.
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from playwright.sync_api import sync_playwright

MILKIT = os.environ.get("MILKIT", "milkit")
checks = 0


def check(ok, what):
    global checks
    checks += 1
    if not ok:
        raise SystemExit(f"not so: {what}")


class Server:
    def __init__(self, *options, port=0):
        self.p = subprocess.Popen([MILKIT, "serve", sys.argv[1], "--port", str(port), "--slots", *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = self.p.stdout.readline().split()[-1]

    def kill(self):
        self.p.send_signal(signal.SIGKILL)
        self.p.wait()

    def stop(self):
        self.p.terminate()
        check(self.p.wait(20) == 0, "the server ends with status 0")


def new_page(browser, server, errors, **options):
    context = browser.new_context(**options)
    context.add_init_script("localStorage.getItem('milkit.settings') || localStorage.setItem('milkit.settings', '{\"seed\": \"3\", \"max_tokens\": \"300\"}')")  # the same answers each time
    context.set_default_timeout(120000)  # of a busy machine
    page = context.new_page()
    page.on("console", lambda m: errors.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.on("request", lambda r: check(r.url.startswith((server.url, "blob:", "data:")), f"a request to {r.url}"))
    page.goto(server.url)
    page.locator("#model option").first.wait_for(state="attached")
    return page


def ask(page, text, waits=True):
    page.fill("#input", text)
    page.press("#input", "Enter")
    if waits:
        page.locator("#stop").wait_for(state="hidden")


def busy_slots(page):
    return page.evaluate("fetch('slots').then(r => r.json()).then(l => l.filter(s => s.is_processing).length)")


def answer(page):
    return page.locator("article[data-role=assistant] .body").last


# What a model's answer is made of here, in place of the server's.
def mock(page, text, thought=None, calls=None):
    def chunk(delta, finish=None):
        return "data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}) + "\n\n"
    body = chunk({"role": "assistant", "content": ""})
    if thought:
        body += chunk({"reasoning_content": thought})
    for i in range(0, len(text), 7):
        body += chunk({"content": text[i:i + 7]})
    for i, (name, arguments) in enumerate(calls or []):
        body += chunk({"tool_calls": [{"index": i, "id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": ""}}]})
        body += chunk({"tool_calls": [{"index": i, "function": {"arguments": arguments}}]})
    body += chunk({}, "tool_calls" if calls else "stop") + "data: [DONE]\n\n"
    page.route("**/v1/chat/completions", lambda r: r.fulfill(status=200, content_type="text/event-stream", body=body))


EVIL = """<script>document.title='no'</script> <img src=x onerror="document.title='no'"> <svg onload=alert(1)></svg>
[x](javascript:alert(1)) [y](data:text/html,<script>alert(1)</script>) [z](https://example.org/a) <iframe src="https://example.org"></iframe>
# heading <b>not bold</b>
| <script>a</script> | b |
|---|---|
| <style>*{display:none}</style> | `<i>` |

```html
<script>alert(1)</script>
```
\u202eright to left **bold** *soft* ~~gone~~ `code` "><a href=javascript:alert(1)>
"""
ALLOWED = set("P BR STRONG EM DEL CODE PRE DIV SPAN BUTTON A TABLE TR TH TD H3 H4 H5 H6 UL OL LI BLOCKQUOTE HR TBODY B".split())

CONTRAST = """() => {
    const parse = c => { const m = c.match(/[\\d.]+/g).map(Number); return m.length > 3 ? m : [...m, 1]; };
    const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
    const rgb = c => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
    const light = c => { const v = c.slice(0, 3).map(x => x / 255).map(x => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4); return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; };
    const bad = [];
    let n = 0;
    for (const e of document.querySelectorAll('body *')) {
        const own = [...e.childNodes].some(t => t.nodeType === 3 && t.data.trim());
        if (!own || !e.checkVisibility() || !e.getClientRects().length) continue;
        let back = null;
        for (let p = e; p && !back; p = p.parentElement) { const b = rgb(getComputedStyle(p).backgroundColor); if (b[3] > 0) back = b; }
        const a = light(rgb(getComputedStyle(e).color)), b = light(back || [255, 255, 255]);
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        n++;
        if (ratio < 4.5) bad.push([e.tagName, e.className, e.textContent.slice(0, 30), ratio.toFixed(2)]);
    }
    return {n, bad};
}"""
NAMELESS = """() => [...document.querySelectorAll('button, input, select, textarea, a[href], dialog, meter, [role], article')].filter(e => {
    const labelled = (e.getAttribute('aria-labelledby') || '').split(' ').map(i => document.getElementById(i)).filter(Boolean).map(x => x.textContent).join('');
    const label = e.labels && e.labels.length ? e.labels[0].textContent : '';
    return !['status', 'tooltip', 'alert'].includes(e.getAttribute('role')) && !(e.getAttribute('aria-label') || labelled || label || e.textContent).trim();
}).map(e => e.outerHTML.slice(0, 100))"""


def looks(page, what):
    found = page.evaluate(CONTRAST)
    check(found["n"] > 5 and not found["bad"], f"contrast of at least 4.5, {what}: {found['bad'][:5]}")
    check(page.evaluate(NAMELESS) == [], f"everything has a name, {what}: {page.evaluate(NAMELESS)[:3]}")
    check(page.evaluate("document.documentElement.scrollWidth <= innerWidth && document.body.scrollWidth <= innerWidth"), f"nothing to the right, {what}")
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    check(len(ids) == len(set(ids)), "ids are there once")


def conversation(browser, server, errors):
    page = new_page(browser, server, errors)
    check(len(page.content()) < 70000 and page.evaluate("performance.getEntriesByType('resource').filter(r => r.initiatorType !== 'fetch').length") == 0, "one file")
    # streamed, in pieces
    page.evaluate("""() => { window.paints = []; new MutationObserver(() => { const b = document.querySelector('article[data-role=assistant] .body'); if (b) paints.push(b.textContent.length); })
        .observe(document.getElementById('log'), {subtree: true, childList: true, characterData: true});
        window.tasks = []; new PerformanceObserver(l => tasks.push(...l.getEntries().map(e => e.duration))).observe({type: 'longtask'}); }""")
    ask(page, "In the beginning")
    paints = page.evaluate("paints")
    check(len(set(paints)) >= 3 and paints[-1] > 0, f"the answer came in pieces: {len(set(paints))}")
    tasks = page.evaluate("tasks")
    print(f"longest task {max(tasks, default=0):.0f} ms, {len(set(paints))} sizes of the text, {paints[-1]} characters", file=sys.stderr)
    check(page.locator("article").count() == 2 and "tokens" in page.locator("article .stats").last.inner_text(), "counts stand below the answer")
    check("/" in page.inner_text("#context-text") and page.inner_text("#context-text") != "0/4096", "the context in use is shown")
    # stopped: the server's slot is free, what came stays
    ask(page, "And it came to pass", waits=False)
    page.locator("article[data-role=assistant]").nth(1).locator(".body:not(:empty)").wait_for()
    page.keyboard.press("Escape")
    page.locator("#stop").wait_for(state="hidden")
    ended = page.inner_text("#status") != "Stopped."
    time.sleep(0.3)
    check(busy_slots(page) == 0, "a stopped answer frees its slot")
    check(ended or "stopped" in page.locator("article .stats").last.inner_text(), "the answer says that it was stopped")
    check(len(answer(page).inner_text()) > 0, "what came stays")
    # another answer, and back
    first = answer(page).inner_text()
    page.get_by_label("Another answer").last.click()
    page.locator("#stop").wait_for(state="hidden")
    check(page.locator(".branches").last.inner_text().replace("\n", "").replace(" ", "") == "‹2/2›", f"two branches: {page.locator('.branches').last.inner_text()}")
    second = answer(page).inner_text()
    page.get_by_label("Earlier version").last.click()
    check(answer(page).inner_text() == first, "the first branch is there")
    page.get_by_label("Later version").last.click()
    check(answer(page).inner_text() == second, "and the second")
    # edited
    page.get_by_label("Edit the message").first.click()
    page.locator("textarea.edit").fill("Behold, a king")
    page.keyboard.press("Enter")
    page.locator("#stop").wait_for(state="hidden")
    check(page.locator("article").count() == 2 and page.locator("article[data-role=user] .body").inner_text() == "Behold, a king", "an edited message is a branch")
    page.get_by_label("Earlier version").first.click()
    check(page.locator("article").count() == 4, "what followed the message before is there")
    # reloaded
    texts = page.locator("article .body").all_inner_texts()
    page.reload()
    page.locator("article").nth(3).wait_for()
    check(page.locator("article .body").all_inner_texts() == texts, "a reload keeps the conversation")
    # tokens
    ask(page, "Moses")
    page.get_by_label("Tokens and their alternatives").last.click()
    spans = page.locator(".tokens span")
    check(spans.count() > 1, "tokens are shown")
    spans.filter(has_text=re.compile(r"\w")).first.hover()
    tip = page.locator("#tip")
    check(tip.is_visible() and tip.locator("tr").count() >= 5 and tip.locator("tr.taken").count() == 1, "alternatives of a token")
    page.locator(".tokens").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    check("%" in page.inner_text("#status"), "and by the keyboard")
    page.get_by_label("Tokens and their alternatives").last.click()
    check(page.locator(".tokens").count() == 0, "and away again")
    looks(page, "a conversation")
    # the model, the settings
    page.click("#show-model")
    page.locator("#about dl").wait_for()
    check("Layers" in page.inner_text("#about") and "MB" in page.inner_text("#about") and "kv_cache" in page.inner_text("#about"), "the model is shown")
    looks(page, "the model's view")
    page.keyboard.press("Escape")
    page.click("#show-settings")
    page.get_by_label("Temperature").fill("hot")
    check(page.get_by_label("Temperature").get_attribute("aria-invalid") == "true", "what is not a number is marked")
    page.get_by_label("Temperature").fill("0")
    page.get_by_label("Most tokens").fill("5")
    looks(page, "the settings")
    page.keyboard.press("Escape")
    ask(page, "Moses")
    check("5 tokens" in page.locator("article .stats").last.inner_text(), "settings are heeded")
    # a second tab sees it; another conversation; export and import
    other = page.context.new_page()
    other.goto(server.url)
    check(other.locator("#list li").count() == 1 and other.locator("article").count() == page.locator("article").count(), "another tab shows it")
    other.click("#new")
    ask(other, "a king")
    check(other.locator("#list li").count() == 2, "a second conversation")
    page.locator("#list li").nth(1).wait_for()
    other.close()
    with page.expect_download() as download:
        page.click("#export")
    data = json.load(open(download.value.path()))
    check(data["milkit"] == 1 and len(data["conversations"]) == 2, "exported")
    page.once("dialog", lambda d: d.accept())
    page.click("#delete-all")
    check(page.locator("#list li").count() == 0 and page.evaluate("Object.keys(localStorage).filter(k => k.startsWith('milkit.talk.')).length") == 0, "deleted")
    page.set_input_files("#file", {"name": "a.json", "mimeType": "application/json", "buffer": json.dumps(data).encode()})
    page.locator("#list li").nth(1).wait_for()
    page.set_input_files("#file", {"name": "b.json", "mimeType": "application/json", "buffer": b"{\"conversations\":[{\"nodes\":{\"a\":{\"role\":\"x\"}}}]}"})
    page.get_by_text("Not imported").wait_for()
    check(page.locator("#list li").count() == 2, "a file that is not ours changes nothing")
    page.context.close()


def rendering(browser, server, errors):
    page = new_page(browser, server, errors)
    mock(page, EVIL, thought="<b>hm</b>", calls=[("get_weather", '{"city": "<img src=x onerror=alert(1)>"}')])
    page.on("dialog", lambda d: check(False, "a script ran"))
    ask(page, EVIL)
    check(page.title() == "milkit", "no script ran")
    tags = set(page.evaluate("[...document.querySelectorAll('article .body *, article .calls *')].map(e => e.tagName)"))
    check(tags <= ALLOWED, f"only these elements: {tags - ALLOWED}")
    check(page.evaluate("[...document.querySelectorAll('article a')].map(a => a.protocol)") == ["https:"] * page.locator("article a").count(), "only safe links")
    check(page.locator("article[data-role=assistant] strong").count() == 1 and page.locator("article .code").count() == 1 and page.locator("article th").count() == 2, "markdown is there")
    check("<script>alert(1)</script>" in page.inner_text("article .code code"), "code is text")
    thought = page.locator("details.thought")
    check(thought.is_visible() and not thought.evaluate("e => e.open"), "thinking is folded")
    page.locator("summary").click()
    check(page.inner_text("details.thought > div") == "<b>hm</b>", "and unfolds as text")
    check("get_weather" in page.inner_text(".call b") and "onerror" in page.inner_text(".call code"), "calls are shown")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_label("Copy the code").click()
    page.get_by_text("Copied.").wait_for()
    check(page.evaluate("navigator.clipboard.readText()") == "<script>alert(1)</script>", "code is copied")
    looks(page, "markdown")
    # lists, and text that must not take long
    for text, wanted in (("1. one\n2. two\n   - inner\n3. three\n\nend", ("ol li", 4)), ("> quote\n> more\n\n- a\n- b", ("blockquote, ul li", 3))):
        mock(page, text)
        page.click("#new")
        ask(page, "x")
        check(page.locator("article[data-role=assistant]").last.locator(wanted[0]).count() == wanted[1], f"{text!r}")
    for text in ("*" * 20000, "[" * 20000, "`" * 9999 + "a", "-" * 20000 + "x", "| " * 5000 + "\n" + "|-" * 5000, "> " * 3000, "/*" * 10000, "```js\n" + "/*" * 10000 + "\n```", "http://" + "!" * 20000, "- " * 5000, "**a " * 5000):
        mock(page, text)
        page.click("#new")
        start = time.time()
        ask(page, "x")
        check(time.time() - start < 8, f"drawn in time: {text[:10]!r}")
    page.context.close()


def keyboard_only(browser, server, errors):
    page = new_page(browser, server, errors)
    mock(page, "Fine.")
    page.keyboard.type("by keys alone")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("two lines")
    page.keyboard.press("Enter")
    page.locator("#stop").wait_for(state="hidden")
    check(page.locator("article[data-role=user] .body").inner_text() == "by keys alone\ntwo lines", "Enter sends, Shift+Enter does not")
    page.keyboard.press("ArrowUp")
    check(page.evaluate("document.activeElement.className") == "edit", "arrow up edits")
    page.keyboard.press("Escape")
    seen = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"))
    for name in ("New conversation", "Model", "Settings", "Another answer", "Edit the message", "Send", "Message"):
        check(name in seen, f"the keyboard reaches {name}")
    page.context.close()


def narrow(browser, server, errors):
    for width in (320, 360):
        page = new_page(browser, server, errors, viewport={"width": width, "height": 700}, has_touch=True)
        mock(page, EVIL + "\n\n" + "w" * 500)
        ask(page, "x" * 300)
        looks(page, f"{width} px")
        page.click("#menu")
        check(page.locator("#side").is_visible(), "the list opens")
        page.click("#close-side")
        check(not page.locator("#side").is_visible(), "and closes")
        page.context.close()
    page = new_page(browser, server, errors, color_scheme="dark")
    mock(page, EVIL, thought="hm", calls=[("f", "{}")])
    ask(page, "x")
    looks(page, "dark")
    page.click("#theme")
    looks(page, "light in spite of the system")
    check(page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)", "the theme can be chosen")
    page.context.close()


def failures(browser, errors):
    server = Server()
    page = new_page(browser, server, errors)
    ask(page, "In the beginning", waits=False)
    page.locator("article[data-role=assistant] .body:not(:empty)").wait_for()
    server.kill()
    page.locator("#stop").wait_for(state="hidden")
    gone = page.locator("article .error").inner_text()
    check(gone != "", "a server that goes away is told of")
    again = Server(port=int(server.url.rsplit(":", 1)[1]))
    page.get_by_label("Ask again").click()
    page.locator("#stop").wait_for(state="hidden")
    check(len(answer(page).inner_text()) > 0 and page.locator("article .error:visible").count() == 0, "asking again works")
    again.stop()
    page.context.close()
    del errors[:]  # the browser tells of the broken connection
    os.environ["MILKIT_API_KEY"] = "secret-key"
    server = Server()
    del os.environ["MILKIT_API_KEY"]
    context = browser.new_context()
    page = context.new_page()
    page.goto(server.url)
    page.locator("#ask-key").wait_for()
    page.fill("#key", "secret-key")
    page.keyboard.press("Enter")
    page.locator("#model option").first.wait_for(state="attached")
    ask(page, "Moses")
    check(len(answer(page).inner_text()) > 0, "with the key it answers")
    check(page.evaluate("JSON.stringify(localStorage).includes('secret-key')") is False, "the key is not kept for good")
    context.close()
    server.stop()


SHOTS = [("page-light", {"viewport": {"width": 1000, "height": 640}}, "What is the capital of France? Answer in one sentence."),
         ("page-dark", {"viewport": {"width": 1000, "height": 640}, "color_scheme": "dark"}, "Write a Python function that adds two numbers."),
         ("page-360", {"viewport": {"width": 360, "height": 640}}, "What is the capital of France? Answer in one sentence.")]


def shots(browser, server, folder):
    for name, options, question in SHOTS:
        errors = []
        page = new_page(browser, server, errors, **options)
        page.click("#show-settings")
        page.get_by_label("Temperature").fill("0")
        page.get_by_label("Most tokens").fill("160")
        page.keyboard.press("Escape")
        ask(page, question)
        if name == "page-light":
            page.get_by_label("Tokens and their alternatives").last.click()
            page.locator(".tokens span").filter(has_text=re.compile(r"\w")).nth(3).hover()
        page.screenshot(path=f"{folder}/{name}.png")
        page.context.close()


def main():
    with sync_playwright() as p, tempfile.TemporaryDirectory():
        browser = p.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-dev-shm-usage"])
        server, errors = Server(), []
        if "--shots" in sys.argv:
            shots(browser, server, sys.argv[sys.argv.index("--shots") + 1])
        else:
            for test in (conversation, rendering, keyboard_only, narrow):
                test(browser, server, errors)
                check(errors == [], f"the console of {test.__name__} is empty: {errors[:3]}")
            failures(browser, errors)
            print(json.dumps({"checks": checks, "browser": browser.version}))
        server.stop()
        browser.close()


main()
