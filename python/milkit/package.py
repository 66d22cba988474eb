"""Packages of language models: text, sessions, sampling, generation."""

import ctypes
from ctypes import byref, c_int32, c_size_t, c_void_p
import json

import numpy as np

from ._library import (
    PROGRESS_FN,
    Call,
    Handle,
    PackageOptions,
    TemplateRequest,
    TokenizerOptions,
    default,
    lib,
    new,
    path_bytes,
    take_text,
)
from .model import PRECISIONS

_SPECIAL = 1


def _ids(values):
    values = [int(v) for v in values]
    return (c_int32 * (len(values) or 1))(*values), len(values)


class Tokenizer(Handle):
    """The tokenizer and the chat templates of a package, a checkpoint or a folder with a tokenizer.json."""

    _close = "mk_tokenizer_close"

    def __init__(self, path, library=None):
        out = c_void_p()
        lib.mk_tokenizer_open(byref(out), (library or default()).value, path_bytes(path), byref(new(TokenizerOptions)))
        super().__init__(out)

    def __len__(self):
        return lib.mk_tokenizer_size(self.value)

    def encode(self, text, special=True):
        """special: add what the tokenizer's post-processor adds (a begin of text)."""
        data = text.encode("utf-8") if isinstance(text, str) else bytes(text)
        capacity = len(data) + 16
        while True:
            ids, n = (c_int32 * capacity)(), c_size_t()
            try:
                lib.mk_tokenize(self.value, data, len(data), _SPECIAL if special else 0, ids, capacity, byref(n))
                return list(ids[: n.value])
            except RuntimeError:
                if n.value <= capacity:
                    raise
                capacity = n.value

    def decode(self, ids, special=False):
        """special: keep special tokens."""
        array, n = _ids(ids)
        out = c_void_p()
        lib.mk_detokenize(self.value, array, n, _SPECIAL if special else 0, byref(out))
        return take_text(out).decode("utf-8", "replace")

    def apply_template(self, messages, tools=None, **options):
        """messages through the chat template: (text, ids). options: variables of the template, as enable_thinking=False."""
        request = new(TemplateRequest)
        request.messages = json.dumps(messages).encode()
        request.tools = json.dumps(tools).encode() if tools is not None else None
        options.setdefault("add_generation_prompt", True)
        request.options = json.dumps(options).encode()
        out = c_void_p()
        lib.mk_template(self.value, byref(request), byref(out))
        n = c_size_t()
        ids = lib.mk_text_ids(out, byref(n))
        numbers = list(ids[: n.value])
        return take_text(out).decode("utf-8", "replace"), numbers


class _BorrowedTokenizer(Tokenizer):
    """A package's own: the package closes it."""

    def __init__(self, package):
        self._package = package  # keeps it open
        self._value = lib.mk_package_tokenizer(package.value)

    def close(self):
        self._value = None


class Package(Handle):
    """A package in ANEMLL's layout, or its meta.yaml. Opening maps and plans: milliseconds."""

    _close = "mk_package_close"

    def __init__(self, folder, precision="default", library=None):
        if precision not in PRECISIONS:
            raise ValueError(f"precision {precision!r}: expected one of {', '.join(PRECISIONS)}")
        out = c_void_p()
        options = new(PackageOptions, precision=PRECISIONS[precision])
        lib.mk_package_open(byref(out), (library or default()).value, path_bytes(folder), byref(options))
        super().__init__(out)
        self.info = json.loads(lib.mk_package_info(self.value))

    @property
    def tokenizer(self):
        return _BorrowedTokenizer(self)

    def is_end(self, id):
        """An end of text or of a turn: where generation stops."""
        return lib.mk_package_is_end(self.value, id)

    def session(self):
        return Session(self)

    def generate(self, prompt, max_tokens=None, **sampling):
        """Yields pieces of text that follow `prompt`: a text, a list of ids, or a list of messages (dicts) for the chat template."""
        if isinstance(prompt, str):
            ids = self.tokenizer.encode(prompt)
        elif prompt and isinstance(prompt[0], dict):
            ids = self.tokenizer.apply_template(prompt)[1]
        else:
            ids = list(prompt)
        with self.session() as session:
            yield from session.text(session.generate(ids, max_tokens, **sampling))


class Session(Handle):
    """One timeline of tokens, for one thread at a time. The same tokens give the same bits however they are cut into calls."""

    _close = "mk_session_free"

    def __init__(self, package):
        self._package = package
        out = c_void_p()
        lib.mk_session_new(byref(out), package.value)
        super().__init__(out)

    def sync(self, ids, progress=None):
        """Makes the context equal to ids, keeping the longest known prefix. Returns how many ids were not computed again.
        progress: a function of (stage, done, total), which stops the call by returning False."""
        array, n = _ids(ids)
        reused = c_size_t()
        call = _call(progress)
        lib.mk_session_sync(self.value, array, n, byref(call), byref(reused))
        return reused.value

    def step(self, id):
        """Appends one token; logits are those after it."""
        lib.mk_session_step(self.value, id)

    @property
    def logits(self):
        """[vocab_size] float32 after the newest token, a copy; None in an empty context."""
        p = lib.mk_session_logits(self.value)
        return np.ctypeslib.as_array(p, (self._package.info["vocab_size"],)).copy() if p else None

    @property
    def tokens(self):
        n = c_size_t()
        p = lib.mk_session_tokens(self.value, byref(n))
        return list(p[: n.value])

    def save(self, path):
        lib.mk_session_save(self.value, path_bytes(path))

    def load(self, path):
        lib.mk_session_load(self.value, path_bytes(path))

    def generate(self, ids, max_tokens=None, **sampling):
        """Yields ids that follow ids, until an end token or max_tokens. sampling: greedy, temperature, top_k, top_p, min_p,
        repetition_penalty, presence_penalty, frequency_penalty, seed; what is not given is what the package recommends."""
        sampler = Sampler(self._package, **sampling)
        self.sync(ids)
        left = max_tokens if max_tokens is not None else 1 << 62
        context = self._package.info["context_length"]
        while left > 0:
            id = sampler.pick(self)
            if self._package.is_end(id):
                return
            yield id
            left -= 1
            if left <= 0 or len(self.tokens) >= context:
                return
            self.step(id)

    def text(self, ids, special=False):
        """Yields text in whole characters for ids as they come."""
        decoder = c_void_p()
        lib.mk_decoder_new(byref(decoder), self._package.tokenizer.value, _SPECIAL if special else 0)
        text, n = c_void_p(), c_size_t()
        try:
            for id in ids:
                lib.mk_decoder_add(decoder, id, byref(text), byref(n))
                if n.value:
                    yield ctypes.string_at(text, n.value).decode("utf-8", "replace")
            lib.mk_decoder_finish(decoder, byref(text), byref(n))
            if n.value:
                yield ctypes.string_at(text, n.value).decode("utf-8", "replace")
        finally:
            lib.mk_decoder_free(decoder)


class Sampler(Handle):
    """The same seed and logits give the same tokens on every machine."""

    _close = "mk_sampler_free"

    def __init__(self, package, **settings):
        out = c_void_p()
        lib.mk_sampler_new(byref(out), package.value, json.dumps(settings).encode() if settings else None)
        super().__init__(out)

    def pick(self, session):
        n_logits = session._package.info["vocab_size"]
        n = c_size_t()
        history = lib.mk_session_tokens(session.value, byref(n))
        id = c_int32()
        logits = lib.mk_session_logits(session.value)
        if not logits:
            raise ValueError("the session has no logits: give it tokens first")
        lib.mk_sampler_pick(self.value, logits, n_logits, history, n.value, byref(id))
        return id.value


def _call(progress):
    call = new(Call)
    if progress:
        call.progress = PROGRESS_FN(lambda _, p: progress(p[0].stage.decode(), p[0].done, p[0].total) is not False)
    return call


def convert(checkpoint, output, progress=None, library=None, **options):
    """A checkpoint or GGUF file to a package. options: those of mk_convert with underscores, as context=2048, lut_ffn="6,8".
    Returns the report."""
    keys = {name.replace("_", "-"): value for name, value in options.items()}
    call, out = _call(progress), c_void_p()
    lib.mk_convert((library or default()).value, path_bytes(checkpoint), path_bytes(output), json.dumps(keys).encode(),
                   byref(call), byref(out))
    return json.loads(take_text(out))


def check(folder, checkpoint, progress=None, library=None, **options):
    """Does a package compute what its checkpoint computes? Returns the report of `milkit check --json`; a verdict "fail" raises."""
    keys = {name.replace("_", "-"): value for name, value in options.items()}
    call, out = _call(progress), c_void_p()
    lib.mk_check((library or default()).value, path_bytes(folder), path_bytes(checkpoint), json.dumps(keys).encode(),
                 byref(call), byref(out))
    return json.loads(take_text(out))
