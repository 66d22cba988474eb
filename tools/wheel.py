"""Makes the wheel of the Python package: wheel.py LIBRARY OUTPUT-FOLDER

The library goes inside, and beside it the libraries it needs that a plain system does not have, with their licences. Nothing but Python's
own modules is needed. The tag is the manylinux one of this machine's libc: the wheel runs there and on newer systems.
"""

import base64
import hashlib
import os
import platform
import re
import subprocess
import sys
import zipfile

# What every Linux with this libc has (the list of manylinux).
SYSTEM = re.compile(r"^(linux-vdso|ld-linux.*|libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+)\.so")


def needed(library):
    """The libraries that it needs and the system does not have, those that others need first."""
    found = []
    for line in subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout.splitlines():
        match = re.match(r"\s*(\S+) => (\S+) \(", line)
        if match and not SYSTEM.match(match[1]):
            found.append((match[1], match[2]))
    order, seen = [], set()

    def add(name, path):
        if name in seen:
            return
        seen.add(name)
        text = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        for other, other_path in found:
            if other != name and f"{other} =>" in text:
                add(other, other_path)
        order.append((name, path))

    for name, path in found:
        add(name, path)
    return order


def licence_of(path):
    """The copyright file of the Debian package that a library comes from."""
    real = os.path.realpath(path)
    for candidate in (real, real.replace("/usr/lib", "/lib"), path):
        said = subprocess.run(["dpkg", "-S", candidate], capture_output=True, text=True)
        if said.returncode == 0:
            package = said.stdout.split(":")[0]
            copyright_file = f"/usr/share/doc/{package}/copyright"
            if os.path.exists(copyright_file):
                with open(copyright_file, "rb") as f:
                    return package, f.read()
    return None


def version_of(library):
    code = f"import ctypes; l = ctypes.CDLL({library!r}); l.mk_version_string.restype = ctypes.c_char_p; print(l.mk_version_string().decode())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def main():
    if len(sys.argv) != 3:
        print("usage: wheel.py LIBRARY OUTPUT-FOLDER", file=sys.stderr)
        return 2
    library, output = os.path.abspath(sys.argv[1]), sys.argv[2]
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    name, libc = platform.libc_ver()
    machine = platform.machine()
    tag = f"py3-none-manylinux_{libc.replace('.', '_')}_{machine}" if name == "glibc" else f"py3-none-linux_{machine}"
    version = version_of(library)
    files = {}
    source = os.path.join(root, "python", "milkit")
    for folder, folders, names in os.walk(source):
        folders[:] = sorted(d for d in folders if d != "__pycache__")
        for file in sorted(names):
            if file.endswith(".py"):
                path = os.path.join(folder, file)
                with open(path, "rb") as f:
                    files["milkit/" + os.path.relpath(path, source)] = f.read()
    info = f"milkit-{version}.dist-info"
    order = needed(library)
    for soname, path in order:
        with open(path, "rb") as f:
            files["milkit/" + soname] = f.read()
        licence = licence_of(path)
        if licence:
            files[f"{info}/licenses/{licence[0]}.txt"] = licence[1]
    with open(library, "rb") as f:
        files["milkit/libmilkit.so.0"] = f.read()
    files["milkit/preload.txt"] = "".join(soname + "\n" for soname, _ in order).encode()
    with open(os.path.join(root, "LICENSE"), "rb") as f:
        files[f"{info}/licenses/LICENSE"] = f.read()
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: milkit\nVersion: {version}\n"
        "Summary: Core ML models and language-model packages, converted, checked and run without a Mac\n"
        "Requires-Python: >=3.9\nRequires-Dist: numpy\n"
    ).encode()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: milkit\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    record = ""
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    os.makedirs(output, exist_ok=True)
    wheel = os.path.join(output, f"milkit-{version}-{tag}.whl")
    with zipfile.ZipFile(wheel + ".part", "w", zipfile.ZIP_DEFLATED) as z:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(entry, data)
    os.replace(wheel + ".part", wheel)
    print(wheel)
    return 0


if __name__ == "__main__":
    sys.exit(main())
