"""The shared library, its structures and prototypes, and what turns a failed call into an exception.

Everything here mirrors include/milkit.h; the words of that header hold for it."""

import ctypes
import ctypes.util
import os
from ctypes import POINTER, byref, c_bool, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

RANK_MAX = 8
API_NAME = "libmilkit.so.0"


class Tensor(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("type", c_int32),
        ("rank", c_int32),
        ("dims", c_int64 * RANK_MAX),
        ("strides", c_int64 * RANK_MAX),
        ("data", c_void_p),
    ]


class Port(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("type", c_int32),
        ("rank", c_int32),
        ("dims", c_int64 * RANK_MAX),
        ("color", c_int32),
        ("is_optional", c_bool),
    ]


LOG_FN = ctypes.CFUNCTYPE(None, c_void_p, c_int32, c_char_p)


class Options(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("threads", c_int32),
        ("log_level", c_int32),
        ("log", LOG_FN),
        ("log_context", c_void_p),
    ]


class ModelOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("precision", c_int32)]


class PackageOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("precision", c_int32), ("text", c_int32)]


class TokenizerOptions(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("parts", c_uint32)]


class Progress(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("stage", c_char_p),
        ("item", c_char_p),
        ("done", c_double),
        ("total", c_double),
        ("unit", c_char_p),
        ("seconds", c_double),
    ]


PROGRESS_FN = ctypes.CFUNCTYPE(c_bool, c_void_p, POINTER(Progress))


class Call(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("cancel", c_void_p), ("progress", PROGRESS_FN), ("context", c_void_p)]


class TemplateRequest(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("messages", c_char_p),
        ("messages_bytes", c_size_t),
        ("tools", c_char_p),
        ("options", c_char_p),
        ("name", c_char_p),
        ("now", c_int64),
        ("flags", c_uint32),
        ("where", c_char_p),
    ]


TOKEN_FN = ctypes.CFUNCTYPE(c_bool, c_void_p, c_int32)


class Generate(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("limit", c_int64),
        ("flags", c_uint32),
        ("stops", POINTER(c_int32)),
        ("n_stops", c_size_t),
        ("fn", TOKEN_FN),
        ("context", c_void_p),
    ]


_handle = c_void_p
_out = POINTER(c_void_p)
_error = POINTER(c_void_p)

# Name, result (None: nothing; "status": checked, the error object is the last argument), arguments without that last one.
_PROTOTYPES = [
    ("mk_version_string", c_char_p, []),
    ("mk_build_info", c_char_p, []),
    ("mk_error_status", c_int32, [_handle]),
    ("mk_error_message", c_char_p, [_handle]),
    ("mk_error_hint", c_char_p, [_handle]),
    ("mk_error_free", None, [_handle]),
    ("mk_library_open", "status", [_out, POINTER(Options)]),
    ("mk_library_close", None, [_handle]),
    ("mk_cancel_new", c_void_p, []),
    ("mk_cancel_set", None, [_handle]),
    ("mk_cancel_free", None, [_handle]),
    ("mk_text_data", c_void_p, [_handle, POINTER(c_size_t)]),
    ("mk_text_ids", POINTER(c_int32), [_handle, POINTER(c_size_t)]),
    ("mk_text_free", None, [_handle]),
    ("mk_package_open", "status", [_out, _handle, c_char_p, POINTER(PackageOptions)]),
    ("mk_package_close", None, [_handle]),
    ("mk_package_info", c_char_p, [_handle]),
    ("mk_package_is_end", c_bool, [_handle, c_int32]),
    ("mk_package_tokenizer", c_void_p, [_handle]),
    ("mk_tokenizer_open", "status", [_out, _handle, c_char_p, POINTER(TokenizerOptions)]),
    ("mk_tokenizer_close", None, [_handle]),
    ("mk_tokenizer_size", c_int32, [_handle]),
    ("mk_tokenize", "status", [_handle, c_char_p, c_size_t, c_uint32, POINTER(c_int32), c_size_t, POINTER(c_size_t)]),
    ("mk_detokenize", "status", [_handle, POINTER(c_int32), c_size_t, c_uint32, _out]),
    ("mk_decoder_new", "status", [_out, _handle, c_uint32]),
    ("mk_decoder_add", "status", [_handle, c_int32, POINTER(c_void_p), POINTER(c_size_t)]),
    ("mk_decoder_finish", "status", [_handle, POINTER(c_void_p), POINTER(c_size_t)]),
    ("mk_decoder_free", None, [_handle]),
    ("mk_template", "status", [_handle, POINTER(TemplateRequest), _out]),
    ("mk_sampler_new", "status", [_out, _handle, c_char_p]),
    ("mk_sampler_free", None, [_handle]),
    ("mk_session_new", "status", [_out, _handle]),
    ("mk_session_free", None, [_handle]),
    ("mk_session_sync", "status", [_handle, POINTER(c_int32), c_size_t, POINTER(Call), POINTER(c_size_t)]),
    ("mk_session_step", "status", [_handle, c_int32]),
    ("mk_session_logits", POINTER(ctypes.c_float), [_handle]),
    ("mk_session_tokens", POINTER(c_int32), [_handle, POINTER(c_size_t)]),
    ("mk_session_save", "status", [_handle, c_char_p]),
    ("mk_session_load", "status", [_handle, c_char_p]),
    ("mk_sampler_pick", "status",
     [_handle, POINTER(ctypes.c_float), c_size_t, POINTER(c_int32), c_size_t, POINTER(c_int32)]),
    ("mk_model_open", "status", [_out, _handle, c_char_p, POINTER(ModelOptions)]),
    ("mk_model_close", None, [_handle]),
    ("mk_model_functions", c_size_t, [_handle]),
    ("mk_model_function_name", c_char_p, [_handle, c_size_t]),
    ("mk_function_open", "status", [_out, _handle, c_char_p]),
    ("mk_function_close", None, [_handle]),
    ("mk_function_ports", c_size_t, [_handle, c_int32]),
    ("mk_function_port", "status", [_handle, c_int32, c_size_t, POINTER(Port)]),
    ("mk_state_new", "status", [_out, _handle]),
    ("mk_state_read", "status", [_handle, c_char_p, POINTER(Tensor)]),
    ("mk_state_write", "status", [_handle, c_char_p, POINTER(Tensor)]),
    ("mk_state_free", None, [_handle]),
    ("mk_predict", "status",
     [_handle, POINTER(c_char_p), POINTER(Tensor), c_size_t, _handle, POINTER(Call), _out]),
    ("mk_result_count", c_size_t, [_handle]),
    ("mk_result_get", "status", [_handle, c_size_t, POINTER(c_char_p), POINTER(Tensor)]),
    ("mk_result_labels", "status", [_handle, c_size_t, POINTER(Tensor)]),
    ("mk_result_pixels", "status", [_handle, c_size_t, POINTER(Tensor)]),
    ("mk_result_free", None, [_handle]),
    ("mk_convert", "status", [_handle, c_char_p, c_char_p, c_char_p, POINTER(Call), _out]),
    ("mk_check", "status", [_handle, c_char_p, c_char_p, c_char_p, POINTER(Call), _out]),
    ("mk_compile", "status", [_handle, c_char_p, c_char_p, c_char_p]),
    ("mk_inspect", "status", [_handle, c_char_p, _out]),
]


class Error(RuntimeError):
    """A call of the library failed: `status` is one of the numbers below, `hint` a word for what can be done ("" when nothing is known)."""

    FAILED, USAGE, UNSUPPORTED, FORMAT, OUTSIDE, LIMIT, CANCELLED = range(1, 8)

    def __init__(self, status, message, hint=""):
        super().__init__(message)
        self.status = status
        self.hint = hint


def _places():
    """Where the library may be, best first: what the user says, beside this file (a wheel), where the system looks."""
    said = os.environ.get("MILKIT_LIBRARY")
    if said:
        yield said
        return
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), API_NAME)
    if os.path.exists(beside):
        yield beside
    yield API_NAME
    found = ctypes.util.find_library("milkit")
    if found:
        yield found


def _preload():
    """In a wheel the libraries that ours needs lie beside it; once they are loaded, the loader takes them by their names."""
    folder = os.path.dirname(os.path.abspath(__file__))
    names = os.path.join(folder, "preload.txt")
    if os.path.exists(names):
        with open(names) as f:
            for name in f.read().split():
                ctypes.CDLL(os.path.join(folder, name), mode=ctypes.RTLD_GLOBAL)


def _load():
    last = None
    for place in _places():
        try:
            if os.path.isabs(place) and os.path.dirname(place) == os.path.dirname(os.path.abspath(__file__)):
                _preload()
            return ctypes.CDLL(place)
        except OSError as error:
            last = error
    raise ImportError(f"libmilkit can't be loaded ({last}); install it, or say where it is with MILKIT_LIBRARY")


def _checked(function):
    """The function with its error object turned into an exception."""

    def call(*arguments):
        error = c_void_p()
        status = function(*arguments, byref(error))
        if status == 0:
            return
        message, hint = "the call failed", ""
        if error.value:
            message = lib.mk_error_message(error).decode("utf-8", "replace")
            hint = lib.mk_error_hint(error).decode("utf-8", "replace")
            lib.mk_error_free(error)
        raise Error(status, message, hint)

    return call


class _Library:
    """The functions of _PROTOTYPES as attributes. Of those that can fail the error object is hidden: they raise."""

    def __init__(self):
        binary = _load()
        for name, result, arguments in _PROTOTYPES:
            function = getattr(binary, name)
            if result == "status":
                function.restype = c_int32
                function.argtypes = arguments + [_error]
                function = _checked(function)
            else:
                function.restype = result
                function.argtypes = arguments
            setattr(self, name, function)


lib = _Library()


def new(structure, **members):
    """A structure with its size filled in."""
    value = structure(**members)
    value.size = ctypes.sizeof(structure)
    return value


def take_text(handle):
    """The bytes of an mk_text, which is freed."""
    n = c_size_t()
    data = lib.mk_text_data(handle, byref(n))
    text = ctypes.string_at(data, n.value)
    lib.mk_text_free(handle)
    return text


def path_bytes(path):
    return os.fsencode(os.fspath(path))


class Handle:
    """Owns one handle of the library; closed once, by close(), `with` or the garbage collector."""

    _close = None  # the name of the function that frees it

    def __init__(self, value):
        self._value = value

    def close(self):
        value, self._value = getattr(self, "_value", None), None
        if value:
            getattr(lib, self._close)(value)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        try:
            self.close()
        except Exception:  # the interpreter is going down
            pass

    @property
    def value(self):
        if not self._value:
            raise ValueError(f"{type(self).__name__} is closed")
        return self._value


class Library(Handle):
    """The pool of threads and the log that everything else shares. Most programs never make one: default() is made at first use."""

    _close = "mk_library_close"

    def __init__(self, threads=0, log=None):
        """threads: of the pool, 0 for the processors that the process may use. log: a function of (level, text)."""
        self._log = LOG_FN(lambda _, level, text: log(level, text.decode("utf-8", "replace"))) if log else LOG_FN()
        options = new(Options, threads=threads, log=self._log)
        out = c_void_p()
        lib.mk_library_open(byref(out), byref(options))
        super().__init__(out)


_default = None


def default():
    global _default
    if _default is None:
        _default = Library()
    return _default


def version():
    """The version of the library that was loaded."""
    return lib.mk_version_string().decode()
