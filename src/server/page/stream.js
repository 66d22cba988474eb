/* Requests to the server that the page came from. */

function headers() {
    const key = sessionStorage.getItem("milkit.key"), h = {"Content-Type": "application/json"};
    if (key) h.Authorization = "Bearer " + key;
    return h;
}

class Refusal extends Error {
    constructor(message, status) {
        super(message);
        this.status = status;
    }
}

async function refusal(response) {
    let message = response.statusText || "status " + response.status;
    try {
        const body = await response.json();
        message = body.error.message || message;
    } catch { /* the status says it */ }
    return new Refusal(message, response.status);
}

async function getJson(path) {
    const response = await fetch(path, {headers: headers(), cache: "no-store"});
    if (!response.ok) throw await refusal(response);
    return response.json();
}

/* The data of server-sent events; they may be cut anywhere, within a character, too. */
async function* eventData(body) {
    const reader = body.getReader(), decoder = new TextDecoder();
    let rest = "";
    for (;;) {
        const {done, value} = await reader.read();
        rest += done ? decoder.decode() : decoder.decode(value, {stream: true});
        const events = rest.split(/\r\n\r\n|\n\n|\r\r/);
        rest = done ? "" : events.pop();
        for (const event of events) {
            const data = event.split(/\r\n|\n|\r/).filter(l => l.startsWith("data:")).map(l => l.slice(5).replace(/^ /, ""));
            if (data.length) yield data.join("\n");
        }
        if (done) return;
    }
}

function requestBody(model, path, settings) {
    const body = {model, messages: [], stream: true, stream_options: {include_usage: true}, return_progress: true};
    const kinds = {stop: "lines", tools: "json", schema: "json"};
    for (const key of ["temperature", "top_p", "top_k", "min_p", "repeat_penalty", "presence_penalty", "frequency_penalty", "max_tokens", "seed", "stop", "tools"]) {
        const value = settingValue(settings[key], kinds[key] || "number");
        if (value !== undefined) body[key] = value;
    }
    const schema = settingValue(settings.schema, "json");
    if (schema !== undefined) body.response_format = {type: "json_schema", json_schema: {name: "answer", schema}};
    if (settings.thinking) body.chat_template_kwargs = {enable_thinking: settings.thinking === "on"};
    const n = settings.alternatives ? Number(settings.alternatives) : 5;
    if (n > 0) Object.assign(body, {logprobs: true, top_logprobs: n});
    if (settings.system && settings.system.trim()) body.messages.push({role: "system", content: settings.system});
    for (const node of path) {
        const message = {role: node.role, content: node.text};
        if (node.thought) message.reasoning_content = node.thought;
        if (node.calls) message.tool_calls = node.calls.map(c => ({id: c.id, type: "function", function: {name: c.name, arguments: c.text}}));
        body.messages.push(message);
    }
    return body;
}

function takeDelta(node, choice) {
    const delta = choice.delta || {};
    if (delta.reasoning_content) node.thought = (node.thought || "") + delta.reasoning_content;
    if (delta.content) node.text += delta.content;
    for (const call of delta.tool_calls || []) {
        node.calls = node.calls || [];
        const to = node.calls[call.index] = node.calls[call.index] || {id: "", name: "", text: ""};
        to.id += call.id || "";
        if (call.function) {
            to.name += call.function.name || "";
            to.text += call.function.arguments || "";
        }
    }
    for (const t of (choice.logprobs && choice.logprobs.content) || []) {
        node.tokens = node.tokens || [];
        node.tokens.push({text: t.token, p: Math.exp(t.logprob), others: t.top_logprobs.map(o => ({text: o.token, p: Math.exp(o.logprob)}))});
    }
    if (choice.finish_reason) node.finish = choice.finish_reason;
}

function statsOf(usage, timings, finish) {
    const parts = [];
    if (usage) parts.push(`${usage.completion_tokens} tokens`);
    if (timings && timings.predicted_per_second > 0) parts.push(`${timings.predicted_per_second.toFixed(1)} tokens/s`);
    if (usage) {
        const known = usage.prompt_tokens_details ? usage.prompt_tokens_details.cached_tokens : 0;
        parts.push(`prompt ${usage.prompt_tokens}` + (known ? ` (${known} known)` : ""));
    }
    if (timings && timings.prompt_ms > 0) parts.push(`first after ${timings.prompt_ms.toFixed(0)} ms`);
    if (finish === "length") parts.push("cut at the limit");
    return parts.join(" · ");
}

/* Asks for an answer to the path, which goes into node; changed() after each piece. */
async function streamAnswer(model, path, settings, node, signal, changed) {
    const begun = performance.now();
    const response = await fetch("v1/chat/completions", {method: "POST", headers: headers(), signal, body: JSON.stringify(requestBody(model, path, settings))});
    if (!response.ok) throw await refusal(response);
    let timings = null;
    for await (const data of eventData(response.body)) {
        if (data === "[DONE]") return;
        const chunk = JSON.parse(data);
        if (chunk.error) throw new Refusal(chunk.error.message, 0);
        if (chunk.prompt_progress) node.progress = chunk.prompt_progress;
        for (const choice of chunk.choices || []) takeDelta(node, choice);
        if (node.thought && node.thoughtSeconds === undefined && node.text) node.thoughtSeconds = (performance.now() - begun) / 1000;
        timings = chunk.timings || timings;
        if (chunk.usage) {
            node.stats = statsOf(chunk.usage, timings, node.finish);
            node.used = chunk.usage.total_tokens;
        }
        changed();
    }
    throw new Refusal("the server ended the answer in the middle", 0);
}
