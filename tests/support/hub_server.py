"""A hub of models for tests: the few answers of the real one's API that a download needs, and its faults.

hub_server.py FOLDER LOG PORTS: serves FOLDER/<org>/<name>/* ; writes "HUB_PORT STORE_PORT" to the file PORTS when it listens
and a line for each request to LOG: "hub|store METHOD PATH token=yes|no range=FROM". Large files (*.safetensors, *.gguf) lie in
a second server, the store, behind a redirect with a signed address. The part of a model's name behind the last "-" chooses
what goes wrong: see FAULTS below. Runs until it is killed.
"""
import hashlib
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

FAULTS = """private gated norevision busy busylong cut wrong wrongonce slow stall norange evil empty garbage loop error404
evilindex more errors""".split()
ROOT, LOG, PORTS = sys.argv[1:4]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
lock = threading.Lock()
counts = {}


def note(text):
    with lock, open(LOG, "a") as f:
        f.write(text + "\n")


def first_times(key, n):
    """True for the first n calls with this key."""
    with lock:
        counts[key] = counts.get(key, 0) + 1
        return counts[key] <= n


def fault_of(model):
    word = model.rsplit("-", 1)[-1]
    return word if word in FAULTS else ""


def is_large(name):
    return name.endswith((".safetensors", ".gguf"))


def describe(folder, name):
    data = open(os.path.join(folder, name), "rb").read()
    entry = {"rfilename": name, "size": len(data),
             "blobId": hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()}
    if is_large(name):
        entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
    return entry


def siblings(folder, fault):
    names = sorted(os.path.relpath(os.path.join(d, f), folder) for d, _, files in os.walk(folder) for f in files)
    entries = [describe(folder, n) for n in names]
    if fault == "evil":
        whole = dict(next(e for e in entries if e["rfilename"] == "config.json"))
        for bad in ("../../../evil.json", "/tmp/evil.json", "a/../../evil.json", "evil\u001b[2J.json", "", "a//b", "..", "a\\b",
                    "additional_chat_templates/../../../../evil.jinja", "x" * 300):
            entries.append(dict(whole, rfilename=bad))
        entries.append(dict(whole, rfilename="tokenizer.model", blobId="../../../../evil"))
        entries.append(dict(whole, rfilename="vocab.json", size=-5))
        entries.append("text")
        entries.append({"rfilename": 5})
    return entries


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", headers=()):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for key, value in headers:
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def send_file(self, path, fault):
        data = open(path, "rb").read()
        name = os.path.basename(path)
        begin = int(self.headers.get("Range", "bytes=0-")[6:].split("-")[0])
        if fault == "wrong" and is_large(name) or fault == "wrongonce" and is_large(name) and first_times(path, 1):
            data = bytes([data[0] ^ 1]) + data[1:]
        if fault == "more" and is_large(name):
            data += b"more"
        if fault == "norange" and begin:
            begin = 0
        if begin > len(data):
            return self.answer(416)
        part = data[begin:]
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(part)))
        if begin:
            self.send_header("Content-Range", "bytes %d-%d/%d" % (begin, len(data) - 1, len(data)))
        self.end_headers()
        if fault == "cut" and is_large(name) and begin < len(data) * 3 // 4:
            self.wfile.write(part[:len(data) // 4])
            self.close_connection = True
        elif fault == "norange" and is_large(name) and first_times(path, 1):
            self.wfile.write(part[:len(part) // 2])
            self.close_connection = True
        elif fault == "stall" and is_large(name) and first_times(path, 1):
            self.wfile.write(part[:100])
            self.wfile.flush()
            time.sleep(5)
            self.close_connection = True
        elif fault == "slow" and is_large(name):
            step = len(data) // 40 + 1
            for i in range(0, len(part), step):
                self.wfile.write(part[i:i + step])
                self.wfile.flush()
                time.sleep(0.04)
        else:
            self.wfile.write(part)

    def do_GET(self):
        url = urlsplit(self.path)
        parts = [unquote(p) for p in url.path.split("/")[1:]]
        note("%s GET %s token=%s range=%s" % (self.server.kind, url.path, "yes" if "Authorization" in self.headers else "no",
                                             self.headers.get("Range", "")))
        try:
            if self.server.kind == "store":
                org, model, name = parts[0], parts[1], "/".join(parts[2:])
                if "Signature=" not in url.query or "Authorization" in self.headers:
                    return self.answer(400)
                return self.send_file(os.path.join(ROOT, org, model, name), fault_of(model))
            if parts[:2] == ["api", "models"]:
                return self.api(parts[2], parts[3], parts[5])
            return self.resolve(parts[0], parts[1], parts[3], "/".join(parts[4:]))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def api(self, org, model, revision):
        fault = fault_of(model)
        folder = os.path.join(ROOT, org, model)
        if fault == "private" and self.headers.get("Authorization") != "Bearer hf_right":
            return self.answer(401, b"{}", [("X-Error-Code", "RepoNotFound")])
        if not os.path.isdir(folder):
            return self.answer(404, b"{}", [("X-Error-Code", "RepoNotFound")])
        if revision not in ("main", COMMIT, "refs/pr/1"):
            return self.answer(404, b"{}", [("X-Error-Code", "RevisionNotFound")])
        if fault == "busy" and first_times("busy", 2):
            return self.answer(429, b"", [("Retry-After", "1")])
        if fault == "busylong":
            return self.answer(429, b"", [("Retry-After", "7200")])
        if fault == "errors" and first_times("errors", 2):
            return self.answer(503)
        if fault == "loop":
            return self.answer(302, b"", [("Location", self.path)])
        if fault == "garbage":
            return self.answer(200, b"<html>a page of a proxy</html>")
        body = {"id": org + "/" + model, "sha": COMMIT, "siblings": siblings(folder, fault)}
        self.answer(200, json.dumps(body).encode())

    def resolve(self, org, model, commit, name):
        fault = fault_of(model)
        if fault == "gated" and self.headers.get("Authorization") != "Bearer hf_right":
            return self.answer(403, b"no", [("X-Error-Code", "GatedRepo")])
        path = os.path.join(ROOT, org, model, name)
        if commit != COMMIT or not os.path.isfile(path) or fault == "error404":
            return self.answer(404, b"", [("X-Error-Code", "EntryNotFound")])
        if is_large(name):
            where = "http://localhost:%d/%s/%s/%s?Signature=secret-of-the-store" % (self.server.store_port, org, model, name)
            return self.answer(302, b"", [("Location", where)])
        self.send_file(path, fault)


store = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
store.kind = "store"
hub = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
hub.kind = "hub"
hub.store_port = store.server_address[1]
for server in (store, hub):
    server.daemon_threads = True
threading.Thread(target=store.serve_forever, daemon=True).start()
with open(PORTS + ".tmp", "w") as f:
    f.write("%d %d\n" % (hub.server_address[1], store.server_address[1]))
os.rename(PORTS + ".tmp", PORTS)
hub.serve_forever()
