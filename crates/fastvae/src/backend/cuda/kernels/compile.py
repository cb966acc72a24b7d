"""Compiles the kernels of this folder with NVRTC; see `build`."""

import ctypes
import glob
import gzip
import pathlib
import sys

PARTS = [
    "state.cuh",
    "random.cuh",
    "product.cuh",
    "encode.cu",
    "draw.cu",
    "loss.cu",
    "rows.cu",
    "index.cu",
    "rank.cu",
    "full_softmax.cu",
]
# Volta and later: the oldest with `__match_any_sync`.
OPTIONS = [b"--gpu-architecture=compute_70", b"--std=c++17", b"-default-device", b"--extra-device-vectorization"]


def check(nvrtc, code):
    if code:
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        sys.exit(nvrtc.nvrtcGetErrorString(code).decode())


def fetch(nvrtc, program, what):
    """The log or the PTX of a program."""
    size = ctypes.c_size_t()
    check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    check(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, text))
    return text.value.decode()


def main():
    folder = next(path for path in sys.path if glob.glob(f"{path}/nvidia/cuda_nvrtc"))
    library = glob.glob(f"{folder}/nvidia/cuda_nvrtc/lib/libnvrtc.so.*")[0]
    nvrtc = ctypes.CDLL(library)
    source = "\n".join(f'#line 1 "{part}"\n{pathlib.Path(part).read_text()}' for part in PARTS)
    program = ctypes.c_void_p()
    check(nvrtc, nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None))
    options = (ctypes.c_char_p * len(OPTIONS))(*OPTIONS)
    failed = nvrtc.nvrtcCompileProgram(program, len(OPTIONS), options)
    log = fetch(nvrtc, program, "ProgramLog").strip()
    if log:
        print(log, file=sys.stderr)
    check(nvrtc, failed)
    ptx = f"// sources: {digest(PARTS):016x}\n" + fetch(nvrtc, program, "PTX")
    pathlib.Path("kernels.ptx.gz").write_bytes(gzip.compress(ptx.encode(), mtime=0))


def digest(parts):
    """FNV-1a over the sources: a test of the library refuses kernels that were not compiled from them."""
    value = 0xCBF29CE484222325
    for byte in b"".join(pathlib.Path(part).read_bytes() for part in parts):
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


main()
